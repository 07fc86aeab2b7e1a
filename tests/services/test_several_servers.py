"""Several servers under one subject: who gets a call, and who gets it when that one dies."""

import threading
from collections import Counter

import pytest

import infobus
from infobus import BadCall, CallMayHaveRun, NoServer, Service, UsageError
from tests.bus.helpers import wait_until


class Named(Service):
    def __init__(self, name):
        self.name = name
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)
        self.count = 0

    def who(self) -> str:
        self.count += 1
        return self.name

    def wait(self) -> str:
        self.began.release()
        self.gate.wait(20)
        return self.name

    @infobus.idempotent
    def wait_safely(self) -> str:
        self.began.release()
        self.gate.wait(20)
        return self.name

    def fail_at(self, name: str) -> str:
        if name == self.name:
            raise ValueError(name)
        return self.name


@pytest.fixture
def servers(connect):
    """Three of them, each on a node of its own."""
    services = [Named(name) for name in "abc"]
    nodes = []

    def serve(**options):
        for rank, service in enumerate(services):
            nodes.append(connect())
            nodes[-1].serve("svc.named", service, tags=[service.name], rank=-rank, **options)
        wait_until(lambda: not options or all(len(others_of(node)) == 2 for node in nodes))
        return services

    def wait_until_all_are_placed(count):
        """Every call runs or waits at a server; an open gate would let one server run them all."""
        exchanges = [node._services.exchange for node in nodes]
        offers = [offer for exchange in exchanges for offer in exchange.server.offers.values()]
        wait_until(lambda: sum(offer.load for offer in offers) == count)

    def others_of(node):
        """The servers that a node knows of: by a rule they decide about each other."""
        found = node._services.exchange.directory.found("svc.named", "server")
        return {one.node for one in found} - {node.node}

    serve.wait_until_all_are_placed = wait_until_all_are_placed
    yield serve, nodes
    for service in services:
        service.gate.set()


class TestCallersChoose:
    def test_the_first_one_that_answered_gets_all(self, servers, connect):
        servers[0]()
        client = connect().service("svc.named")
        assert len({client.who() for _ in range(10)}) == 1

    def test_the_least_loaded_one(self, servers, connect):
        a, b, _ = servers[0]()
        caller = connect()
        busy = [caller.service("svc.named", policy=_tagged(tag)).wait.start() for tag in "ab"]
        a.began.acquire()
        b.began.acquire()
        assert caller.service("svc.named", policy="least_loaded").who() == "c"
        assert [call.is_done for call in busy] == [False, False]

    def test_load_spreads_over_all(self, servers, connect):
        services = servers[0]()
        client = connect().service("svc.named", policy="least_loaded")
        calls = [client.wait.start() for _ in range(30)]
        for service in services:
            service.gate.set()
        counts = Counter(call.result() for call in calls)
        assert set(counts) == {"a", "b", "c"}
        assert max(counts.values()) <= 12

    def test_all_with_every_reply(self, servers, connect):
        servers[0]()
        answers = connect().service("svc.named", policy="all").fail_at("b")
        values = {answer.server.tags[0]: answer.value for answer in answers}
        assert values == {"a": "a", "b": None, "c": "c"}
        (error,) = [answer.error for answer in answers if answer.error]
        assert isinstance(error, ValueError)

    def test_a_function_of_the_answers(self, servers, connect):
        servers[0]()
        caller = connect()
        for tag in "abc":
            assert caller.service("svc.named", policy=_tagged(tag)).who() == tag

    @pytest.mark.parametrize("chosen", ["a", None, [], 7])
    def test_a_function_that_returns_something_else(self, servers, connect, chosen):
        servers[0]()
        with pytest.raises(UsageError, match="must return some of what it is given"):
            connect().service("svc.named", policy=lambda found: chosen).who()

    def test_an_unknown_policy(self, connect):
        with pytest.raises(UsageError, match="policy 'any' is not known; choose first"):
            connect().service("svc.named", policy="any")


class TestServersDecide:
    def test_each_call_has_its_server_by_lot(self, servers, connect):
        services = servers[0](rule="elected")
        client = connect().service("svc.named")
        client.servers()
        counts = Counter(client.who() for _ in range(60))
        assert set(counts) == {"a", "b", "c"}
        assert sum(service.count for service in services) == 60

    def test_the_primary_has_all_and_a_backup_takes_over(self, servers, connect):
        serve, nodes = servers
        serve(rule="primary")
        client = connect().service("svc.named")
        client.servers()
        assert {client.who() for _ in range(10)} == {"a"}
        nodes[0].close()
        assert {client.who() for _ in range(10)} == {"b"}

    def test_whoever_gets_anothers_call_passes_it_on(self, servers, connect):
        serve, _ = servers
        a, _, c = serve(rule="primary")
        caller = connect()
        assert caller.service("svc.named", policy=_tagged("c")).who() == "a"
        assert (a.count, c.count) == (1, 0)

    @pytest.mark.parametrize(
        "knows", ["all servers", "no server", "one server"], ids=lambda text: text.replace(" ", "-")
    )
    def test_balanced_servers_share_a_burst(self, servers, connect, knows):
        """The bus promises a call to the least loaded server, as far as loads are known."""
        serve, _ = servers
        services = serve(rule="balanced", concurrency=1)
        policy = {"policy": _tagged("a")} if knows == "one server" else {}
        client = connect().service("svc.named", timeout_s=20, **policy)
        if knows == "all servers":
            client.servers()
        calls = [client.wait.start() for _ in range(30)]
        serve.wait_until_all_are_placed(30)
        for service in services:
            service.gate.set()
        counts = Counter(call.result() for call in calls)
        assert set(counts) == {"a", "b", "c"}
        assert max(counts.values()) <= 15

    def test_an_unknown_rule(self, bus):
        with pytest.raises(UsageError, match="rule 'best' is not known; choose one of elected"):
            bus.serve("svc.x", Named("x"), rule="best")


class TestFailover:
    def test_a_call_that_may_have_run_is_not_repeated(self, servers, connect):
        serve, nodes = servers
        a, b, c = serve()
        call = connect().service("svc.named", policy=_tagged("a", "b", "c")).wait.start()
        a.began.acquire()
        threading.Thread(target=nodes[0].close, args=(0,)).start()
        with pytest.raises(CallMayHaveRun):
            call.result()
        assert not b.began.acquire(blocking=False)
        assert not c.began.acquire(blocking=False)

    @pytest.mark.parametrize("operation", ["wait", "wait_safely"])
    def test_an_idempotent_one_goes_to_another_server(self, servers, connect, operation):
        serve, nodes = servers
        a, b, _ = serve()
        b.gate.set()
        client = connect().service(
            "svc.named", policy=_tagged("a", "b"), idempotent=operation == "wait"
        )
        call = client[operation].start()
        a.began.acquire()
        threading.Thread(target=nodes[0].close, args=(0,)).start()
        assert call.result() == "b"

    def test_what_waits_in_a_retiring_server_goes_to_another(self, connect):
        first, second, caller = Named("first"), Named("second"), connect()
        served = connect().serve("svc.line", first, concurrency=1)
        client = caller.service("svc.line")
        running = client.wait.start()
        first.began.acquire()
        waiting = [client.who.start() for _ in range(5)]
        connect().serve("svc.line", second)
        threading.Thread(target=served.retire).start()
        assert [call.result() for call in waiting] == ["second"] * 5
        first.gate.set()
        assert running.result() == "first"

    def test_a_full_server_is_passed_over(self, connect):
        full, free, caller = Named("full"), Named("free"), connect()
        connect().serve("svc.pair", full, tags=["full"], concurrency=1, queue_count_max=0)
        connect().serve("svc.pair", free, tags=["free"])
        client = caller.service("svc.pair", policy=_tagged("full", "free"))
        running = client.wait.start()
        full.began.acquire()
        assert client.who() == "free"
        full.gate.set()
        assert running.result() == "full"


class Old(Service):
    def price(self, symbol: str) -> float:
        return 1.0


class New(Service):
    def price(self, symbol: str, currency: str) -> float:
        return 2.0

    def currencies(self) -> list[str]:
        return ["EUR"]


class TestVersions:
    @pytest.fixture
    def client(self, connect):
        connect().serve("svc.prices", Old(), version="1")
        connect().serve("svc.prices", New(), version="2")
        client = connect().service("svc.prices", timeout_s=20)
        client.servers()
        return client

    def test_a_call_goes_to_a_server_that_takes_it(self, client):
        assert client.price("GMC") == 1.0
        assert client.price("GMC", currency="EUR") == 2.0
        assert client.currencies() == ["EUR"]

    def test_if_none_takes_it_the_error_shows_what_they_take(self, client):
        with pytest.raises(BadCall, match=r"no server .* takes this call of price") as bad:
            client.price("GMC", "EUR", "today")
        assert set(bad.value.signatures) == {
            "price(symbol: str) -> float",
            "price(symbol: str, currency: str) -> float",
        }


class TestReplacing:
    def test_on_the_same_node(self, bus, other):
        old, new = Named("old"), Named("new")
        bus.serve("svc.x", old, version="1")
        client = other.service("svc.x")
        running = client.wait.start()
        old.began.acquire()
        served = bus.replace("svc.x", new, version="2")
        assert client.who() == "new"
        old.gate.set()
        assert running.result() == "old"
        assert [one.version for one in other.who_is_out_there("svc.x")] == ["2"]
        assert served.service is new

    def test_by_another_node_the_old_one_retires(self, bus, other, connect):
        old = Named("old")
        served = bus.serve("svc.x", old)
        client = connect().service("svc.x")
        running = client.wait.start()
        old.began.acquire()
        other.replace("svc.x", Named("new"))
        wait_until(lambda: served.is_retired)
        assert client.who() == "new"
        assert not served.wait_retired(0)
        old.gate.set()
        assert running.result() == "old"
        assert served.wait_retired(20)

    def test_a_retired_service_is_found_no_longer(self, bus, other):
        served = bus.serve("svc.x", Named("x"))
        assert served.retire()
        assert other.who_is_out_there("svc.x") == []
        with pytest.raises(NoServer):
            other.service("svc.x", timeout_s=0.2).who()


def _tagged(*tags):
    """A policy: the servers with these tags, in this order."""

    def choose(found):
        by_tag = {one.tags[0]: one for one in found}
        return [by_tag[tag] for tag in tags if tag in by_tag]

    return choose
