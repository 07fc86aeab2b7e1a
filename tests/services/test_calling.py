"""Calls: what goes there and back, what is refused, and what becomes of those that fail."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import infobus
from infobus import BadCall, BadValue, DataObject, Service
from infobus.errors import CallCancelled, CallMayHaveRun, NoServer, RemoteError
from tests.bus.helpers import wait_until


class Story(DataObject):
    headline: str
    topics: list[str] = []  # noqa: RUF012


class Refusal(Exception):
    """Known to both sides."""


class Keywords(Service):
    """Finds keywords."""

    def __init__(self):
        self.calls = []
        self.present = 0
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)

    def categories(self, prefix: str = "") -> list[str]:
        """All categories."""
        self.calls.append(prefix)
        return [f"{prefix}metals", f"{prefix}cars"]

    def headline_of(self, story: Story) -> str:
        return story.headline

    def story(self, headline: str) -> Story:
        return Story(headline=headline, topics=["x"])

    def wait(self) -> str:
        self.began.release()
        self.gate.wait(20)
        return "waited"

    def watch(self) -> str:
        """Wait until it is cancelled."""
        self.began.release()
        assert infobus.current_call().stopped.wait(20)
        self.calls.append("cancelled")
        return ""

    async def sleep(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async def meet(self, count: int) -> int:
        """Return when so many of these calls have begun."""
        self.present += 1
        while self.present < count:
            await asyncio.sleep(0.01)
        return self.present

    async def sleep_for_ever(self) -> None:
        self.began.release()
        try:
            await asyncio.sleep(100)
        finally:
            self.calls.append("cancelled")

    def refuse(self, reason: str) -> None:
        raise Refusal(reason)

    def stop_iterating(self) -> None:
        raise StopIteration

    def lie(self) -> int:
        return "three"  # type: ignore[return-value]

    def too_much(self) -> bytes:
        return bytes(17 * 1024 * 1024)

    def for_python_alone(self, anything):
        return anything


@pytest.fixture
def service(bus):
    keywords = Keywords()
    bus.serve("svc.keywords", keywords)
    yield keywords
    keywords.gate.set()


@pytest.fixture
def client(service, other):
    return other.service("svc.keywords", timeout_s=20)


class TestResults:
    def test_arguments_by_place_and_by_name_and_defaults(self, client):
        assert client.categories() == ["metals", "cars"]
        assert client.categories("x") == client.categories(prefix="x") == ["xmetals", "xcars"]

    def test_objects_travel_both_ways_with_their_types(self, client):
        assert client.headline_of(Story(headline="GM up")) == "GM up"
        story = client.story("GM up")
        assert (type(story), story.headline, story.topics) == (Story, "GM up", ["x"])

    def test_async_operations(self, client):
        assert client.sleep(0.01) == 0.01

    def test_a_service_can_be_called_on_its_own_node(self, bus, service):
        assert bus.service("svc.keywords").categories() == ["metals", "cars"]

    def test_state_is_kept_between_calls(self, client, service):
        client.categories("a")
        client.categories("b")
        assert service.calls == ["a", "b"]

    def test_several_calls_at_a_time(self, client):
        calls = [client.categories.start(str(n)) for n in range(50)]
        assert [call.result()[0] for call in calls] == [f"{n}metals" for n in range(50)]

    def test_a_call_can_be_made_before_anyone_serves(self, other, connect):
        call = other.service("svc.late", timeout_s=20).categories.start()
        late = connect()
        late.serve("svc.late", Keywords())
        assert call.result() == ["metals", "cars"]

    def test_what_a_service_can_do_is_known_to_callers(self, client):
        assert (
            client.operations["categories"].signature == "categories(prefix: str = '') -> list[str]"
        )
        assert client.operations["categories"].doc == "All categories."
        assert client.interface.doc == "Finds keywords."
        assert "for_python_alone" not in client.operations.names


class TestAsync:
    def test_calls_are_awaited(self, other, service):
        async def main():
            client = other.aio.service("svc.keywords")
            assert await client.categories() == ["metals", "cars"]
            met = await asyncio.gather(*(client.meet(10) for _ in range(100)))
            assert len(met) == 100
            assert min(met) >= 10

        asyncio.run(main())

    def test_a_cancelled_task_cancels_its_call(self, other, service):
        async def main():
            client = other.aio.service("svc.keywords")
            task = asyncio.ensure_future(client.sleep_for_ever())
            await asyncio.to_thread(service.began.acquire)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        wait_until(lambda: service.calls == ["cancelled"])

    def test_a_task_is_made_of_a_call(self, other, service):
        async def main():
            client = other.aio.service("svc.keywords")
            assert await asyncio.create_task(client.categories()) == ["metals", "cars"]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.categories(str(n))) for n in range(3)]
            assert [task.result()[0] for task in tasks] == ["0metals", "1metals", "2metals"]
            with pytest.raises(Refusal, match="no way"):
                await asyncio.create_task(client.refuse("no way"))

        asyncio.run(main())

    def test_a_cancelled_task_made_of_a_call_cancels_it(self, other, service):
        async def main():
            task = asyncio.create_task(other.aio.service("svc.keywords").sleep_for_ever())
            await asyncio.to_thread(service.began.acquire)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        wait_until(lambda: service.calls == ["cancelled"])

    def test_an_async_operation_that_waits_for_its_own_event_loop_is_told(self, bus, other):
        class Circular(Service):
            async def outer(self) -> str:
                return bus.service("svc.circular").inner()

            async def outer_awaiting(self) -> str:
                return await bus.aio.service("svc.circular").inner()

            async def inner(self) -> str:
                return "inner"

        bus.serve("svc.circular", Circular())
        client = other.service("svc.circular")
        with pytest.raises(infobus.UsageError, match=r"inner of 'svc.circular' runs on the event"):
            client.outer()
        assert client.outer_awaiting() == "inner"


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"timeout": 1}, r"service\(\) has no option 'timeout'.*did you mean timeout_s\?"),
            ({"retries": 3}, "has no option 'retries', only policy, timeout_s"),
        ],
    )
    def test_a_wrong_option(self, bus, options, says):
        with pytest.raises(infobus.UsageError, match=says):
            bus.service("svc.x", **options)
        with pytest.raises(infobus.UsageError, match="has no option"):
            bus.service("svc.x").options(**options)
        with pytest.raises(infobus.UsageError, match=r"serve\(\) has no option"):
            bus.serve("svc.x", Keywords(), **options)

    def test_an_unknown_operation(self, client):
        with pytest.raises(BadCall, match=r"no operation 'nothing'; it has .*categories\(") as bad:
            client.nothing()
        assert "refuse(reason: str) -> None" in bad.value.signatures

    @pytest.mark.parametrize(
        ("args", "kwargs", "says"),
        [
            ((), {"prefx": "x"}, r"no parameter 'prefx'; it is categories\(prefix"),
            (("a", "b"), {}, "takes 1 arguments, got 2"),
            (("a",), {"prefix": "b"}, "two values for 'prefix'"),
            ((7,), {}, r"categories: prefix: expected str, got int 7"),
        ],
    )
    def test_wrong_arguments(self, client, service, args, kwargs, says):
        with pytest.raises(BadCall, match=says):
            client.categories(*args, **kwargs)
        assert service.calls == []

    def test_a_missing_argument(self, client):
        with pytest.raises(BadCall, match="needs a value for 'story'"):
            client.headline_of()

    def test_an_argument_that_cannot_be_sent(self, client):
        says = r"^categories: prefix: expected a value that can be sent.* it is categories\(prefix"
        with pytest.raises(BadValue, match=says):
            client.categories(object())
        with pytest.raises(BadValue, match=r"^categories: prefix\[1\]: expected a value"):
            client.categories([1, object()])

    def test_arguments_that_are_too_large(self, client):
        with pytest.raises(BadValue, match="16777216 are allowed"):
            client.categories("x" * (17 * 1024 * 1024))

    def test_big_arguments_go_through(self, client):
        big = "x" * (4 * 1024 * 1024)
        assert client.categories(big)[0] == f"{big}metals"

    def test_a_result_that_is_too_large(self, client):
        with pytest.raises(BadValue, match="the result of too_much cannot be sent"):
            client.too_much()

    def test_a_result_of_another_kind_than_promised(self, client):
        with pytest.raises(BadValue, match="the result of lie: expected int, got str 'three'"):
            client.lie()

    def test_a_class_instead_of_an_object(self, bus):
        with pytest.raises(infobus.UsageError, match="got the class Keywords itself"):
            bus.serve("svc.x", Keywords)

    def test_an_object_without_operations(self, bus):
        with pytest.raises(infobus.UsageError, match="has no operation"):
            bus.serve("svc.x", object())


class TestErrors:
    def test_an_exception_keeps_its_class_if_it_is_known(self, client):
        with pytest.raises(Refusal, match="no way"):
            client.refuse("no way")

    def test_an_unknown_one_says_what_it_was(self, client, monkeypatch):
        monkeypatch.setattr(Refusal, "__module__", "elsewhere")
        with pytest.raises(RemoteError, match="Refusal: no way") as error:
            client.refuse("no way")
        assert (error.value.type_name, error.value.message) == ("Refusal", "no way")
        assert error.value.remote_traceback == ""

    def test_in_test_mode_the_traceback_comes_along(self, connect):
        server, caller = connect(test=True), connect()
        server.serve("svc.test", Keywords())
        with pytest.raises(Refusal) as error:
            caller.service("svc.test").refuse("no way")
        assert "in refuse" in error.value.__notes__[0]

    def test_the_server_logs_it(self, client, service, caplog):
        with pytest.raises(Refusal):
            client.refuse("no way")
        (record,) = [one for one in caplog.records if "refuse" in one.getMessage()]
        assert record.levelname == "WARNING"
        assert "raised Refusal" in record.getMessage()
        assert record.exc_info is not None

    def test_what_the_caller_did_wrong_is_not_logged(self, client, caplog):
        with pytest.raises(BadCall):
            client.categories(7)
        assert caplog.records == []

    @pytest.mark.parametrize(
        "raised",
        [
            NoServer("nobody served 'svc.absent'", subject="svc.absent", operation="pay"),
            CallCancelled("given up", subject="svc.absent", operation="pay"),
            CallMayHaveRun("it died", subject="svc.absent", operation="pay"),
            BadCall("pay: has no parameter 'x'"),
            infobus.Backpressure("nobody keeps up"),
            infobus.BusClosed("the bus was closed"),
        ],
    )
    def test_an_error_of_a_call_that_the_operation_made_is_not_taken_for_ones_own(
        self, bus, other, raised
    ):
        class Outer(Service):
            def pay(self) -> None:
                raise raised

        bus.serve("svc.outer", Outer())
        with pytest.raises(RemoteError, match=str(raised)) as error:
            other.service("svc.outer").pay()
        assert error.value.type_name == type(raised).__name__
        assert isinstance(error.value.__cause__, type(raised))
        assert str(error.value.__cause__) == str(raised)

    def test_one_that_would_end_a_loop_does_not(self, client):
        with pytest.raises(RemoteError, match="StopIteration"):
            client.stop_iterating()

    def test_nobody_serves(self, other):
        with pytest.raises(NoServer, match=r"nobody served 'svc.none' within 0.2 s") as error:
            other.service("svc.none", timeout_s=0.2).anything()
        assert error.value.retry_is_safe

    def test_nobody_serves_but_something_like_it_is_served(self, client, other):
        says = r"nobody served 'svc.keyword' within 1.0 s.*; did you mean 'svc.keywords'\?"
        with pytest.raises(NoServer, match=says):
            other.service("svc.keyword", timeout_s=1.0).categories()

    def test_who_waits_for_servers_goes_on_once_the_first_appears(self, bus, other):
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(other.service("svc.late", timeout_s=20).servers)
            bus.serve("svc.late", Keywords())
            assert [one.node for one in found.result()] == [bus.stats().node]

    def test_closing_the_bus_ends_the_wait_for_servers(self, bus, other):
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(other.service("svc.none", timeout_s=300).servers)
            other.close()
            with pytest.raises(infobus.BusClosed):
                found.result(20)

    def test_a_server_that_never_answers(self, client, service):
        client.categories()  # so the server is known, and the time begins when it is called
        with pytest.raises(CallMayHaveRun, match=r"no reply from .* in 0.3 s; the call may have"):
            client.options(timeout_s=0.3).wait()

    def test_a_server_that_dies(self, client, service, bus):
        call = client.wait.start()
        service.began.acquire()
        threading.Thread(target=bus.close, args=(0,)).start()
        with pytest.raises(CallMayHaveRun, match="has died; the call may have run") as error:
            call.result()
        assert error.value.node == bus.stats().node
        assert not error.value.retry_is_safe

    def test_closing_the_bus_ends_calls(self, client, service, other):
        call = client.wait.start()
        service.began.acquire()
        other.close()
        with pytest.raises(infobus.BusClosed):
            call.result()


class TestCancelling:
    def test_it_reaches_the_server(self, client, service):
        call = client.watch.start()
        service.began.acquire()
        call.cancel()
        with pytest.raises(CallCancelled):
            call.result()
        wait_until(lambda: service.calls == ["cancelled"])

    def test_a_call_that_waits_for_its_turn_never_runs(self, bus, other):
        service = Keywords()
        bus.serve("svc.one", service, concurrency=1)
        client = other.service("svc.one")
        first = client.wait.start()
        service.began.acquire()
        second = client.categories.start("second")
        third = client.categories.start("third")
        second.cancel()
        wait_until(lambda: len(bus.who_is_out_there("svc.one")) == 1)
        service.gate.set()
        assert (first.result(), third.result()[0]) == ("waited", "thirdmetals")
        assert service.calls == ["third"]


class TestLimits:
    def test_no_more_run_at_a_time_than_allowed(self, bus, other):
        service = Keywords()
        served = bus.serve("svc.two", service, concurrency=2)
        calls = [other.service("svc.two").wait.start() for _ in range(5)]
        service.began.acquire()
        service.began.acquire()
        wait_until(lambda: served.load == 5)
        assert not service.began.acquire(timeout=0.05), "a third one runs"
        service.gate.set()
        assert [call.result() for call in calls] == ["waited"] * 5

    def test_a_full_server_refuses_and_the_call_is_known_not_to_have_run(self, bus, other):
        service = Keywords()
        bus.serve("svc.full", service, concurrency=1, queue_count_max=0)
        client = other.service("svc.full", timeout_s=2.5)  # long enough to hear that it is full
        call = client.options(timeout_s=20).wait.start()
        service.began.acquire()
        with pytest.raises(NoServer, match=r"all servers of 'svc.full' were busy"):
            client.categories()
        service.gate.set()
        assert call.result() == "waited"
        assert service.calls == []
