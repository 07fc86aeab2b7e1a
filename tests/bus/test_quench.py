"""A producer learns what anyone wants, and hears of changes."""

import asyncio
import threading

import pytest

from infobus import BadSubject, Bus, BusClosed
from infobus.bus.quench import Quench, QuenchChange
from tests.bus.conftest import Connect
from tests.bus.helpers import wait_until


def text(quench: Quench) -> str:
    return str(quench.expression())


class TestAsking:
    def test_the_expression_of_all_subscriptions_is_reduced(
        self, bus: Bus, connect: Connect
    ) -> None:
        wanted = bus.quench("trades.>")
        assert text(wanted) == "nothing"
        connect().subscribe("trades.>", where='symbol == "GMC" && price > 40')
        connect().subscribe("trades.x", where='symbol == "IBM" && price > 40')
        connect().subscribe("trades.*", where='symbol == "GMC" && price > 50')
        connect().subscribe("news.>")
        assert text(wanted) == 'price > 40 && symbol in ["GMC", "IBM"]'
        connect().subscribe("*.x")
        assert text(wanted) == "everything"

    def test_subscriptions_of_the_own_process_count(self, bus: Bus) -> None:
        wanted = bus.quench("x")
        sub = bus.subscribe("x", where="n > 5")
        assert text(wanted) == "n > 5"
        sub.change_filter("n > 7")
        assert text(wanted) == "n > 7"
        sub.close()
        assert text(wanted) == "nothing"

    def test_whether_a_half_known_event_is_wanted(self, bus: Bus, other: Bus) -> None:
        wanted = bus.quench("trades.>")
        assert wanted.wants({}) is False
        other.subscribe("trades.>", where='symbol == "GMC" && (price > 40 || exists(alert))')
        assert wanted.wants({"symbol": "IBM"}) is False
        assert wanted.wants({"symbol": "GMC"}) is None
        assert wanted.wants({"symbol": "GMC", "price": 41}) is True
        assert wanted.wants({"symbol": "GMC", "price": 39}) is None
        assert wanted.wants({"symbol": "GMC", "price": 39}, closed=True) is False

    def test_the_values_a_producer_has_to_look_at(self, bus: Bus, other: Bus) -> None:
        wanted = bus.quench("files.>")
        other.subscribe("files.>", where='directory == "/etc" && name == "passwd"')
        other.subscribe("files.>", where='directory == "/var" && size > 10')
        assert wanted.values("directory", operators={"==", "in"}) == [[("in", ("/etc", "/var"))]]
        assert wanted.values("directory", operators={"=="}, range={"/etc"}) == [[("==", "/etc")]]
        assert wanted.values("name") == [[]]

    def test_a_node_that_leaves_wants_nothing(self, bus: Bus, other: Bus) -> None:
        other.subscribe("x", where="n > 5")
        wanted = bus.quench("x")
        assert text(wanted) == "n > 5"
        other.close()
        wait_until(lambda: text(wanted) == "nothing")

    def test_a_malformed_pattern_and_a_closed_bus_are_refused(self, bus: Bus) -> None:
        with pytest.raises(BadSubject):
            bus.quench("x..y")
        wanted = bus.quench("x")
        bus.close()
        with pytest.raises(BusClosed):
            bus.quench("x")
        with pytest.raises(BusClosed):
            wanted.expression()


class TestChanges:
    def test_each_change_is_told_once(self, bus: Bus, other: Bus) -> None:
        with bus.quench("x.>") as wanted:
            sub = other.subscribe("x.y", where="n > 5")
            feed = wanted.changes(timeout_s=20)
            change = next(feed)
            assert (change.added, change.removed) == ((("x.y", "n > 5"),), ())
            sub.change_filter("n > 7")
            change = next(feed)
            assert (change.added, change.removed) == ((("x.y", "n > 7"),), (("x.y", "n > 5"),))
            assert str(change.expression) == "n > 7"
            sub.close()
            assert next(feed).removed == (("x.y", "n > 7"),)
            other.subscribe("y")
            assert list(wanted.changes(timeout_s=0.05)) == []

    @pytest.mark.parametrize("what", ["view", "bus"])
    def test_closing_ends_the_feed(self, bus: Bus, what: str) -> None:
        wanted = bus.quench("x")
        seen: list[QuenchChange] = []
        thread = threading.Thread(target=lambda: seen.extend(wanted.changes()))
        thread.start()
        (wanted if what == "view" else bus).close()
        thread.join(20)
        assert not thread.is_alive()
        assert not seen

    def test_in_an_event_loop(self, bus: Bus, other: Bus) -> None:
        async def watch() -> list[str]:
            seen = []
            async for change in bus.quench("x").changes(timeout_s=20):
                seen.append(str(change.expression))
                if len(seen) == 2:
                    break
                await other.aio.subscribe("x")
            return seen

        async def main() -> list[str]:
            watching = asyncio.create_task(watch())
            await asyncio.sleep(0.01)
            await other.aio.subscribe("x", where="n > 5")
            return await watching

        assert asyncio.run(main()) == ["n > 5", "everything"]

    def test_a_wait_that_is_cancelled_swallows_no_change(self, bus: Bus, other: Bus) -> None:
        """Wherever it is then: waiting for a change, or gathering those that follow."""

        async def main() -> str:
            feed = bus.quench("x").changes()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(feed), 0.01)
            await other.aio.subscribe("x", where="n > 5")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(feed), 0.001)
            return str((await asyncio.wait_for(anext(feed), 20)).expression)

        assert asyncio.run(main()) == "n > 5"
