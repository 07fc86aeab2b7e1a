"""Services across sites, in one process: found there, called there, and gone when they are gone."""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import infobus
from infobus import Bus, CallMayHaveRun, DataObject, NoServer, RemoteError
from infobus.router.services import ServiceCrossing, ServiceWay
from infobus.services.sessions import QoS
from tests.bus.helpers import wait_until
from tests.patience import PATIENT


class Bill(DataObject, name="test.stand_ins.Bill"):
    item: str
    cents: int


class Unpaid(Exception):
    """Known to both ends."""


class Desk(infobus.Service):
    """Works on bills."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.began, self.may_end = threading.Event(), threading.Event()

    def add(self, bill: Bill, cents: int = 1) -> Bill:
        """A bill with more on it."""
        return Bill(item=bill.item, cents=bill.cents + cents)

    def fail(self, kind: str) -> None:
        """Raise something."""
        if kind == "value":
            raise ValueError("no such item")
        if kind == "unpaid":
            raise Unpaid("by Miller", 7)
        raise type("Unheard", (Exception,), {})("of nobody")

    def count(self, n: int) -> Iterator[int]:
        """Count."""
        try:
            for i in range(n):
                self.calls.append(str(i))
                yield i
        finally:
            self.calls.append("end")

    def trace(self) -> str:
        """What the caller says beside the arguments."""
        return str(infobus.current_call().headers.get("trace"))

    def hang(self) -> None:
        """Wait for the test."""
        self.calls.append("hang")
        self.began.set()
        self.may_end.wait(30)

    @infobus.idempotent
    def hang_or_not(self) -> str:
        """Wait for the test, unless it has set `may_end`."""
        self.hang()
        return "done"

    def note(self, what: str) -> int:
        """Count calls."""
        self.calls.append(what)
        return len(self.calls)


class Sites:
    """Sites with a backbone between them, on which `svc.X` of a site is `SITE.svc.X`."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.mark = uuid.uuid4().hex
        self.routers: dict[str, contextlib.ExitStack] = {}
        self._folder, self._stack = folder, stack

    def connect(self, site: str, home: str = "home", **options: Any) -> Bus:
        options = {"engine": "memory", "patience": PATIENT, **options}
        where = self._folder / site / f"{home}-{uuid.uuid4().hex}"
        bus = infobus.connect(f"{site}-{self.mark}", home=where, **options)
        self._stack.callback(bus.close, 0.2)
        return bus

    def join(self, site: str) -> ServiceCrossing:
        inside, outside = self.connect(site, "router"), self.connect("backbone", "router")
        crossing = ServiceCrossing(
            inside,
            outside,
            site=site,
            router=f"router-{site}",
            outward=ServiceWay(patterns=["svc.>"], translate=lambda subject: f"{site}.{subject}"),
            inward=ServiceWay(
                patterns=["*.svc.>"], translate=lambda subject: subject.partition(".")[2]
            ),
        )
        router = self.routers[site] = contextlib.ExitStack()
        for bus in (inside, outside):
            router.callback(bus.close, 0.2)
        router.callback(crossing.close)
        self._stack.callback(router.close)
        return crossing


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with contextlib.ExitStack() as stack:
        yield Sites(tmp_path, stack)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.may_end.set()


@pytest.fixture
def shop(sites: Sites, desk: Desk) -> Bus:
    """The node in the north that serves `svc.desk`."""
    bus = sites.connect("north", test=True)
    bus.serve("svc.desk", desk, version="7", tags=["bills"], info={"floor": 3})
    return bus


@pytest.fixture
def office(sites: Sites, shop: Bus) -> Bus:
    """A node in the south, which sees `svc.desk` there."""
    office = sites.connect("south")
    sites.join("north"), sites.join("south")
    wait_until(lambda: bool(office.who_is_out_there("svc.desk")))
    return office


class TestFinding:
    def test_a_server_of_another_site_is_found_with_what_it_says(
        self, sites: Sites, office: Bus
    ) -> None:
        (found,) = office.who_is_out_there("svc.>", where='version == "7" && floor == 3')
        assert (found.subject, found.role, found.tags) == ("svc.desk", "server", ["bills"])
        assert found.info["site"] == "north"
        assert found.info["via"] == ["router-north", "router-south"]
        assert found.interface.doc == "Works on bills."
        assert found.interface.operations["count"].signature == "count(n: int) -> stream of int"

    def test_none_comes_home_or_goes_round(self, sites: Sites, office: Bus, shop: Bus) -> None:
        west = sites.connect("west")
        sites.join("west")
        wait_until(lambda: bool(west.who_is_out_there("svc.desk")))
        time.sleep(0.3)
        for bus in (shop, office, west):
            assert len(bus.who_is_out_there(">")) == 1
        assert len(sites.connect("backbone").who_is_out_there(">")) == 1

    def test_it_goes_when_the_server_goes_and_changes_when_it_changes(
        self, office: Bus, shop: Bus, desk: Desk
    ) -> None:
        with office.watch("svc.desk") as watch:
            assert watch.next(20).what == "arrived"
            other = shop.serve("svc.desk", desk, version="8")
            assert watch.next(20).found.version == "8"
            other.update(version="9")
            change = watch.next(20)
            assert (change.what, change.found.version) == ("changed", "9")
            other.retire()
            change = watch.next(20)
            assert (change.what, change.found.version) == ("departed", "9")
            shop.close(0.2)
            change = watch.next(20)
            assert (change.what, change.found.version) == ("departed", "7")

    def test_it_goes_when_a_router_goes_and_comes_back_with_it(
        self, sites: Sites, office: Bus
    ) -> None:
        sites.routers["north"].close()
        wait_until(lambda: not office.who_is_out_there("svc.desk"))
        sites.join("north")
        wait_until(lambda: bool(office.who_is_out_there("svc.desk")))

    def test_what_is_not_agreed_on_does_not_cross(self, shop: Bus, office: Bus, desk: Desk) -> None:
        shop.serve("private.desk", desk)
        shop.offer_sessions("private.talk", lambda session: None, qos=QoS())
        shop.serve("svc.last", desk)
        wait_until(lambda: bool(office.who_is_out_there("svc.last")))
        subjects = sorted(found.subject for found in office.who_is_out_there(">"))
        assert subjects == ["svc.desk", "svc.last"]

    def test_what_crosses_can_change_and_the_rest_stays(
        self, sites: Sites, office: Bus, shop: Bus, desk: Desk
    ) -> None:
        sites.routers["north"].close()
        router = sites.join("north")
        shop.serve("tools.desk", desk)
        wait_until(lambda: bool(office.who_is_out_there("svc.desk")))
        key = office.who_is_out_there("svc.desk")[0].key
        router.outward.change(
            ServiceWay(
                patterns=["svc.>", "tools.>"],
                translate=lambda name: f"north.svc.{name}" if name[:1] == "t" else f"north.{name}",
            )
        )
        wait_until(lambda: bool(office.who_is_out_there("svc.tools.desk")))
        assert office.who_is_out_there("svc.desk")[0].key == key
        router.outward.change(ServiceWay(patterns=[], translate=lambda name: None))
        wait_until(lambda: not office.who_is_out_there(">"))


class TestCalling:
    def test_arguments_and_results_cross(self, office: Bus) -> None:
        service = office.service("svc.desk")
        assert service.add(Bill(item="valve", cents=5), cents=2) == Bill(item="valve", cents=7)
        assert service.add(bill=Bill(item="valve", cents=5)).cents == 6
        assert office.service("svc.desk", headers={"trace": "ff"}).trace() == "ff"

    def test_exceptions_keep_their_type_and_message(self, office: Bus) -> None:
        service = office.service("svc.desk")
        with pytest.raises(ValueError, match="no such item"):
            service.fail("value")
        with pytest.raises(Unpaid) as raised:
            service.fail("unpaid")
        assert raised.value.args == ("by Miller", 7)
        with pytest.raises(RemoteError) as unknown:
            service.fail("")
        assert (unknown.value.type_name, unknown.value.message) == ("Unheard", "of nobody")
        assert "in fail" in unknown.value.remote_traceback

    def test_a_stream_crosses_and_holds_its_server(self, office: Bus, desk: Desk) -> None:
        service = office.service("svc.desk")
        assert list(service.count(1_000)) == [*range(1_000)]
        desk.calls.clear()
        stream = service.count(100_000)
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
        time.sleep(0.5)
        assert len(desk.calls) < 1_000
        stream.close()
        wait_until(lambda: desk.calls[-1] == "end")

    def test_many_calls_run_at_a_time(self, office: Bus) -> None:
        service = office.service("svc.desk")
        calls = [service.add.start(Bill(item="valve", cents=n)) for n in range(500)]
        assert [call.result().cents for call in calls] == [n + 1 for n in range(500)]

    def test_a_call_that_is_late_may_have_run(self, office: Bus) -> None:
        began_s = time.monotonic()
        with pytest.raises(CallMayHaveRun, match="no reply"):
            office.service("svc.desk", timeout_s=1.0).hang()
        assert time.monotonic() - began_s < 5.0

    def test_a_call_whose_server_dies_may_have_run_and_ran_once(
        self, office: Bus, shop: Bus, desk: Desk
    ) -> None:
        call = office.service("svc.desk", timeout_s=20.0).hang.start()
        assert desk.began.wait(20)
        threading.Timer(0.2, lambda: shop.close(0.1)).start()
        with pytest.raises(CallMayHaveRun, match="died"):
            call.result()
        assert desk.calls == ["hang"]

    def test_a_call_whose_router_dies_may_have_run(
        self, sites: Sites, office: Bus, desk: Desk
    ) -> None:
        call = office.service("svc.desk", timeout_s=20.0).hang.start()
        assert desk.began.wait(20)
        sites.routers["north"].close()
        with pytest.raises(CallMayHaveRun):
            call.result()
        assert desk.calls == ["hang"]

    def test_a_call_under_way_is_told_when_its_crossing_is_closed(
        self, sites: Sites, office: Bus, desk: Desk
    ) -> None:
        sites.routers["south"].close()
        crossing = sites.join("south")
        wait_until(lambda: bool(office.who_is_out_there("svc.desk")))
        call = office.service("svc.desk", timeout_s=20.0).hang.start()
        assert desk.began.wait(20)
        crossing.close()
        with pytest.raises(CallMayHaveRun, match="no longer"):
            call.result()

    def test_a_call_without_a_server_has_not_run(self, office: Bus, shop: Bus) -> None:
        shop.close(0.2)
        with pytest.raises(NoServer):
            office.service("svc.desk", timeout_s=1.0).note("x")

    def test_a_call_that_is_cancelled_is_cancelled_over_there(self, office: Bus, shop: Bus) -> None:
        stopped = threading.Event()

        class Slow(infobus.Service):
            def wait(self) -> None:
                if infobus.current_call().stopped.wait(20):
                    stopped.set()

        shop.serve("svc.slow", Slow())
        wait_until(lambda: bool(office.who_is_out_there("svc.slow")))
        call = office.service("svc.slow").wait.start()
        time.sleep(0.3)
        call.cancel()
        assert stopped.wait(20)

    def test_a_call_that_may_run_twice_goes_to_another_server(
        self, office: Bus, sites: Sites, shop: Bus, desk: Desk
    ) -> None:
        other, second = Desk(), sites.connect("north")
        other.may_end.set()
        call = office.service("svc.desk", timeout_s=20.0).hang_or_not.start()
        assert desk.began.wait(20)
        second.serve("svc.desk", other)
        wait_until(lambda: len(office.who_is_out_there("svc.desk")) == 2)
        shop.close(0.1)
        assert call.result() == "done"
        assert (desk.calls, other.calls) == (["hang"], ["hang"])

    def test_a_call_that_a_server_never_takes_has_not_run(
        self, office: Bus, shop: Bus, desk: Desk
    ) -> None:
        shop.serve("svc.full", desk, concurrency=1, queue_count_max=0)
        wait_until(lambda: bool(office.who_is_out_there("svc.full")))
        service = office.service("svc.full", timeout_s=20.0)
        service.hang.start()
        assert desk.began.wait(20)
        with pytest.raises(NoServer, match="busy"):
            service.options(timeout_s=1.0).note("x")
        assert desk.calls == ["hang"]

    def test_a_call_that_runs_once_can_be_made_again_after_a_router_has_died(
        self, sites: Sites, office: Bus, desk: Desk
    ) -> None:
        service = office.service("svc.desk", timeout_s=20.0, exactly_once=True)
        call = service.hang.start()
        assert desk.began.wait(20)
        sites.routers["south"].close()
        with pytest.raises(CallMayHaveRun) as raised:
            call.result()
        desk.may_end.set()
        sites.join("south")
        service.options(exactly_once=raised.value.call_id).hang()
        assert desk.calls == ["hang"]

    def test_a_call_with_an_id_runs_once_however_often_it_is_made(
        self, office: Bus, desk: Desk
    ) -> None:
        service = office.service("svc.desk", exactly_once="order-1")
        assert [service.note("x") for _ in range(3)] == [1, 1, 1]
        assert office.service("svc.desk", exactly_once=True).note("y") == 2
        assert desk.calls == ["x", "y"]
