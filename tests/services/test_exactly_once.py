"""`exactly_once=True`: a call that is tried again, until it is answered, runs once."""

import threading

import pytest

import infobus
from infobus import CallMayHaveRun, Service, UsageError
from infobus.protocols.frames import invocation as wire
from infobus.stores.ledger.reply_store import Replies
from tests.bus.helpers import wait_until


class Account(Service):
    def __init__(self):
        self.balance = 0
        self.ids = []
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def pay_in(self, amount: int) -> int:
        self.ids.append(infobus.current_call().id)
        self.balance += amount
        self.began.release()
        self.gate.wait(20)
        return self.balance

    @infobus.idempotent
    def set_to(self, amount: int) -> int:
        self.ids.append(infobus.current_call().id)
        self.balance = amount
        self.began.release()
        self.gate.wait(20)
        return amount


def test_a_call_that_was_too_slow_is_tried_again_and_has_run_once(bus, other):
    account = Account()
    account.gate.clear()
    bus.serve("svc.account", account)
    client = other.service("svc.account", exactly_once=True, timeout_s=0.3)
    client.servers()  # so the time begins when one of them is called
    with pytest.raises(CallMayHaveRun, match="call again with exactly_once=") as late:
        client.pay_in(100)
    account.gate.set()
    again = client.options(exactly_once=late.value.call_id, timeout_s=20)
    assert again.pay_in(100) == 100
    assert account.balance == 100


def test_two_tries_at_the_same_time_share_one_execution(bus, other, connect):
    account = Account()
    account.gate.clear()
    bus.serve("svc.account", account)
    calls = [
        node.service("svc.account", exactly_once="order-1").pay_in.start(5)
        for node in (other, connect())
    ]
    account.began.acquire()
    server = bus._services.exchange.server
    wait_until(lambda: [len(shared) for shared in server._once.values()] == [2])
    account.gate.set()
    assert [call.result() for call in calls] == [5, 5]
    assert account.ids == ["order-1"]


def test_the_reply_is_known_to_other_servers_of_the_home(bus, other, connect):
    first, second = Account(), Account()
    served = bus.serve("svc.account", first)
    assert other.service("svc.account", exactly_once="order-1").pay_in(5) == 5
    bus.serve("svc.account", second)
    served.retire()
    own = other.service("svc.account", exactly_once="order-1")
    assert own.pay_in(5) == 5
    drawn = other.service("svc.account", exactly_once=True).pay_in.start(1)
    assert drawn.result() == 1
    with pytest.raises(UsageError, match="its caller has acknowledged"):
        _eventually(lambda: other.service("svc.account", exactly_once=drawn.id).pay_in(1))
    assert own.pay_in(5) == 5, "a reply to an id of one's own is kept"
    assert (first.balance, second.balance) == (5, 1)


def test_what_a_drawn_id_has_returned_is_forgotten_once_its_caller_has_it(bus, other):
    bus.serve("svc.account", account := Account())
    call = other.service("svc.account", exactly_once=True).pay_in.start(5)
    assert call.result() == 5
    with pytest.raises(UsageError, match="has run, and its caller has acknowledged the reply"):
        _eventually(lambda: other.service("svc.account", exactly_once=call.id).pay_in(5))
    assert account.balance == 5


class TestUse:
    """An id belongs to what was called under it first."""

    @pytest.fixture
    def account(self, bus):
        account = Account()
        bus.serve("svc.account", account)
        yield account
        account.gate.set()

    @pytest.mark.parametrize(
        ("operation", "amount", "says"),
        [
            ("set_to", 5, r"that of another call, pay_in of 'svc.account' .*this is set_to of"),
            ("pay_in", 6, r"that of another call, pay_in .*give it an id of its own"),
        ],
    )
    def test_another_operation_or_other_arguments_are_refused(
        self, account, other, operation, amount, says
    ):
        client = other.service("svc.account", exactly_once="order-1")
        assert client.pay_in(5) == 5
        with pytest.raises(UsageError, match=says):
            client[operation](amount)
        assert (account.balance, len(account.ids)) == (5, 1)

    def test_another_subject_is_refused(self, account, bus, other):
        bus.serve("svc.savings", savings := Account())
        assert other.service("svc.account", exactly_once="order-1").pay_in(5) == 5
        with pytest.raises(UsageError, match=r"this is pay_in of 'svc.savings'"):
            other.service("svc.savings", exactly_once="order-1").pay_in(5)
        assert savings.ids == []

    def test_also_while_the_first_call_runs(self, account, other):
        account.gate.clear()
        client = other.service("svc.account", exactly_once="order-1")
        running = client.pay_in.start(5)
        account.began.acquire()
        with pytest.raises(UsageError, match="that of another call, pay_in"):
            client.set_to(7)
        account.gate.set()
        assert running.result() == 5

    def test_arguments_are_the_same_in_any_order(self, bus, other):
        class Transfers(Service):
            count = 0

            def move(self, source: str, target: str) -> int:
                Transfers.count += 1
                return Transfers.count

        bus.serve("svc.transfers", Transfers())
        client = other.service("svc.transfers", exactly_once="order-1")
        assert client.move(source="a", target="b") == client.move(target="b", source="a") == 1
        with pytest.raises(UsageError):
            client.move(source="b", target="a")


class Receipt(infobus.DataObject, name="once.Receipt"):
    amount: int


def test_a_kept_reply_brings_its_types_to_whoever_asks_for_it(bus, other):
    class Till(Service):
        def pay(self, amount: int) -> Receipt:
            return Receipt(amount=amount)

    bus.serve("svc.till", Till())
    client = other.service("svc.till")
    assert client.pay(1).amount == 1  # from now on this caller has the type
    assert client.options(exactly_once="order-1").pay(2).amount == 2
    use = "pay of 'svc.till' with the arguments "
    store = bus._services._port.reply_store()
    with pytest.raises(UsageError) as other_use:
        store.claim("order-1", "node", use)
    use += str(other_use.value).partition(use)[2].partition(";")[0]
    (_, answer) = store.claim("order-1", "node", use)
    assert wire.decode(answer).descriptors, "no descriptors are kept with it"


def test_when_its_server_dies_another_one_of_the_home_knows_that_it_had_begun(connect):
    caller, first, second = connect(), Account(), Account()
    first.gate.clear()
    node = connect()
    node.serve("svc.account", first)
    call = caller.service("svc.account", exactly_once=True).pay_in.start(7)
    first.began.acquire()
    connect().serve("svc.account", second)
    threading.Thread(target=node.close, args=(0,)).start()
    with pytest.raises(CallMayHaveRun, match="was interrupted by the end of"):
        call.result()
    assert (first.balance, second.balance) == (7, 0)
    first.gate.set()


def test_an_idempotent_one_runs_again_under_the_same_id(connect):
    caller, first, second = connect(), Account(), Account()
    first.gate.clear()
    node = connect()
    node.serve("svc.account", first)
    call = caller.service("svc.account", exactly_once=True).set_to.start(7)
    first.began.acquire()
    connect().serve("svc.account", second)
    threading.Thread(target=node.close, args=(0,)).start()
    assert call.result() == 7
    assert first.ids == second.ids
    first.gate.set()


def test_a_server_of_another_home_does_not_get_it(connect, tmp_path):
    caller, first, second = connect(), Account(), Account()
    first.gate.clear()
    node = connect(home=tmp_path / "one")
    node.serve("svc.account", first)
    call = caller.service("svc.account", exactly_once=True, timeout_s=3.0).set_to.start(7)
    first.began.acquire()
    connect(home=tmp_path / "two").serve("svc.account", second)
    threading.Thread(target=node.close, args=(0,)).start()
    with pytest.raises(CallMayHaveRun, match="no other took over") as lost:
        call.result()
    assert second.balance == 0
    first.gate.set()
    back = connect(home=tmp_path / "one")
    back.serve("svc.account", third := Account())
    assert caller.service("svc.account", exactly_once=lost.value.call_id).set_to(7) == 7
    assert (second.balance, third.balance) == (0, 7)


def test_errors_are_kept_like_results(bus, other):
    class Failing(Service):
        count = 0

        def fail(self) -> None:
            Failing.count += 1
            raise ValueError(str(Failing.count))

    bus.serve("svc.failing", Failing())
    with pytest.raises(ValueError, match="1"):
        other.service("svc.failing", exactly_once="a").fail()
    assert Failing.count == 1


def test_a_home_that_cannot_be_written_serves_all_but_this(connect, tmp_path):
    (tmp_path / "file").write_text("")
    connect(home=tmp_path / "file").serve("svc.account", Account())
    caller = connect()
    assert caller.service("svc.account").pay_in(1) == 1
    with pytest.raises(infobus.NoServer):
        caller.service("svc.account", exactly_once=True, timeout_s=0.3).pay_in(1)


DAY_S = 86_400.0


class Clock:
    """Stands in for the module `time`."""

    def __init__(self):
        self.wall_s = 1_700_000_000.0
        self.now_s = 5.0

    def time(self):
        return self.wall_s

    def monotonic(self):
        return self.now_s

    def pass_s(self, seconds):
        self.wall_s += seconds
        self.now_s += seconds


class TestStore:
    @pytest.fixture
    def clock(self, monkeypatch):
        clock = Clock()
        monkeypatch.setattr("infobus.stores.ledger.reply_store.time", clock)
        return clock

    def test_a_call_is_begun_once(self, tmp_path):
        store = Replies.open(tmp_path)
        assert store.claim("a", "node1") == ("", b"")
        assert store.claim("a", "node2") == ("node1", b"")
        store.close()

    def test_everything_survives(self, tmp_path):
        store = Replies.open(tmp_path)
        store.claim("a", "node1")
        store.keep("a", b"answer")
        store.close()
        again = Replies.open(tmp_path)
        assert again.id == store.id
        assert again.claim("a", "node2") == ("node1", b"answer")
        again.close()

    def test_two_processes_may_share_it(self, tmp_path):
        one, two = Replies.open(tmp_path), Replies.open(tmp_path)
        assert one.claim("a", "node1") == ("", b"")
        assert two.claim("a", "node2") == ("node1", b"")
        assert two.take_over("a", "node1", "node2")
        assert not one.take_over("a", "node1", "node3")
        two.keep("a", b"answer")
        assert one.claim("a", "node1") == ("node2", b"answer")
        one.close()
        two.close()

    def test_what_is_acknowledged_is_replaced_and_what_is_old_is_forgotten(self, tmp_path):
        store = Replies.open(tmp_path)
        store.claim("a", "node1")
        store.forget(["a"], b"done")
        assert store.claim("a", "node2") == ("node1", b""), "it had no answer yet"
        store.keep("a", b"answer")
        store.forget(["a"], b"done")
        assert store.claim("a", "node2") == ("node1", b"done")
        store.prune(10.0**12)
        assert store.claim("a", "node2") == ("", b"")
        store.close()

    def test_a_wall_clock_that_jumps_ahead_forgets_nothing(self, tmp_path, clock):
        store = Replies.open(tmp_path)
        store.claim("a", "node1")
        store.keep("a", b"answer")
        store.close()
        clock.wall_s += 30 * DAY_S
        for _ in range(20):
            again = Replies.open(tmp_path)
            assert again.claim("a", "node2") == ("node1", b"answer")
            again.close()
        clock.wall_s -= 30 * DAY_S
        assert Replies.open(tmp_path).claim("a", "node2") == ("node1", b"answer")

    def test_what_is_kept_for_as_long_as_promised_is_forgotten(self, tmp_path, clock):
        store = Replies.open(tmp_path)
        store.claim("a", "node1", "use")
        clock.pass_s(6.9 * DAY_S)
        store.claim("b", "node1", "use")
        store.close()
        store = Replies.open(tmp_path)
        assert store.claim("a", "node2", "use") == ("node1", b"")
        clock.pass_s(0.2 * DAY_S)
        store.close()
        store = Replies.open(tmp_path)
        assert store.claim("a", "node2", "another use") == ("", b"")
        assert store.claim("b", "node2", "use") == ("node1", b"")

    def test_a_process_that_is_killed_each_time_ages_it_all_the_same(self, tmp_path, clock):
        first = Replies.open(tmp_path)
        first.claim("a", "node1")
        for _ in range(200):
            clock.pass_s(3600.0)
            Replies.open(tmp_path)  # and it is not closed
        assert Replies.open(tmp_path).claim("a", "node2") == ("", b"")

    def test_one_of_an_older_version_is_opened(self, tmp_path, clock):
        store = Replies.open(tmp_path)
        store.claim("a", "node1")
        store.keep("a", b"answer")
        execute = store._database.connection.execute
        execute("DROP TABLE uses")
        execute("DELETE FROM facts WHERE key = 'clock'")
        clock.wall_s += 30 * DAY_S
        again = Replies.open(tmp_path)
        assert again.claim("a", "node2", "any use") == ("node1", b"answer")

    def test_a_damaged_reply_is_not_believed(self, tmp_path):
        store = Replies.open(tmp_path)
        store.claim("a", "node1")
        store.keep("a", b"answer")
        store._database.connection.execute("UPDATE replies SET answer = x'00'")
        with pytest.raises(infobus.errors.StoreCorrupt, match="checksum of the reply to call a"):
            store.claim("a", "node2")
        store.close()


def _eventually(call):
    """Repeat a call that may still be answered from before."""
    while True:
        call()
