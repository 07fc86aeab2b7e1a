"""The simulated network fails as its seed says, and in no other way."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.engines.memory.engine import Faults, MemoryEngine, Network, live_network
from infobus.errors import BusClosed, UsageError

seeds = st.integers(0, 2**32)
SLOW = Faults(delay_min_s=0.001, delay_max_s=0.1)


class Node:
    """A node that remembers what it got and whom it saw."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.frames: list[bytes] = []
        self.changes: list[tuple[float, str, bool]] = []
        self.engine = MemoryEngine(network)
        self.engine.open(name)
        self.engine.declare("c/x", self.frames.append)
        self.engine.announce(name)
        self.engine.watch("*", self._changed)

    def _changed(self, key: str, alive: bool) -> None:
        self.changes.append((self.network.now_s, key, alive))

    def put(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.engine.put("c/x", payload)

    @property
    def news(self) -> list[tuple[str, bool]]:
        """What changed since this was read last."""
        changes, self.changes = self.changes, []
        return [(key, alive) for _, key, alive in changes]

    @property
    def got(self) -> list[bytes]:
        """What came since this was read last."""
        frames = self.frames[:]
        self.frames.clear()
        return frames


def nodes(network: Network, names: str = "abc") -> list[Node]:
    made = [Node(network, name) for name in names]
    network.run_until_idle()
    for node in made:
        assert len(node.news) == len(names) - 1
    return made


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def trace_of(seed: int) -> list[object]:
    faults = Faults(loss=0.1, duplicate=0.1, reorder=0.2, delay_min_s=0.001, delay_max_s=0.3)
    network = Network(seed, faults)
    some = nodes(network, "abcde")
    for step in range(60):
        for node in some:
            if node.engine.is_open:
                node.put(b"%s %d" % (node.name.encode(), step))
        match step:
            case 5:
                network.partition({"a", "b"}, {"c", "d", "e"})
            case 20:
                network.heal()
                network.swizzle({"a", "b", "c", "d", "e"}, 2.0)
            case 30:
                network.crash("e")
            case 35:
                network.freeze("d")
            case 50:
                network.thaw("d")
        network.advance(network.random.random() / 5)
    network.run_until_idle()
    return [(node.frames, node.changes) for node in some]


@given(seeds)
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    assert trace_of(seed) == trace_of(seed)


def test_different_seeds_give_different_runs() -> None:
    assert trace_of(1) != trace_of(2)


def test_nothing_happens_before_time_moves_on() -> None:
    network = Network(faults=Faults(delay_min_s=0.5, delay_max_s=0.5))
    a, b, _ = nodes(network)
    a.put(b"1")
    network.advance(0.49)
    assert b.got == []
    network.advance(0.02)
    assert b.got == [b"1"]


@given(seeds)
def test_without_faults_everything_arrives_once_and_in_order(seed: int) -> None:
    network = Network(seed, SLOW)
    a, b, c = nodes(network)
    a.put(*numbered(50))
    assert network.run_until_idle()
    assert a.got == []
    assert b.got == c.got == numbered(50)


@given(seeds)
def test_reordering_changes_the_order_and_nothing_else(seed: int) -> None:
    network = Network(seed, Faults(reorder=0.5, delay_max_s=1.0))
    a, b, _ = nodes(network)
    a.put(*numbered(100))
    network.run_until_idle()
    got = b.got
    assert got != numbered(100)
    assert sorted(got) == sorted(numbered(100))


def test_frames_are_lost_and_doubled_as_often_as_stated() -> None:
    network = Network(7)
    a, b, _ = nodes(network)
    network.faults = Faults(loss=0.25)
    a.put(*numbered(4000))
    network.run_until_idle()
    assert 2800 < len(b.got) < 3200
    network.faults = Faults(duplicate=0.25)
    a.put(*numbered(4000))
    network.run_until_idle()
    assert 4800 < len(b.got) < 5200


def test_a_partition_stops_frames_both_ways_until_it_heals() -> None:
    network = Network()
    a, b, c = nodes(network)
    network.partition({"a", "b"}, {"c"})
    a.put(b"from a")
    c.put(b"from c")
    network.run_until_idle()
    assert (a.got, b.got, c.got) == ([], [b"from a"], [])
    network.heal()
    c.put(b"again")
    network.run_until_idle()
    assert a.got == b.got == [b"again"]


def test_a_cut_is_one_way_and_takes_what_is_under_way() -> None:
    network = Network(faults=SLOW)
    a, b, _ = nodes(network)
    a.put(b"under way")
    network.cut("a", "b")
    b.put(b"back")
    network.run_until_idle()
    assert (a.got, b.got) == ([b"back"], [])


@given(seeds)
def test_a_clogged_link_holds_frames_back_in_order(seed: int) -> None:
    network = Network(seed, SLOW)
    a, b, c = nodes(network)
    network.clog("a", "b")
    a.put(*numbered(20))
    network.run_until_idle()
    assert (b.got, c.got) == ([], numbered(20))
    network.unclog("a", "b")
    network.run_until_idle()
    assert b.got == numbered(20)


def test_a_frame_sent_before_a_link_is_freed_does_not_overtake_those_held_back() -> None:
    network = Network()
    a, b, _ = nodes(network)
    network.clog("a", "b")
    a.put(b"1")
    network.run_until_idle()
    a.put(b"2")
    network.unclog("a", "b")
    network.run_until_idle()
    assert b.got == [b"1", b"2"]


@given(seeds)
def test_swizzled_links_delay_everything_and_lose_nothing(seed: int) -> None:
    network = Network(seed, SLOW)
    some = nodes(network, "abcd")
    network.swizzle("abcd", over_s=0.9)
    for number in numbered(30):
        some[0].put(number)
        network.advance(0.05)
    network.run_until_idle()
    assert [node.got for node in some] == [[], *[numbered(30)] * 3]


@given(seeds)
def test_a_crash_is_noticed_by_each_in_its_own_time(seed: int) -> None:
    network = Network(seed)
    a, b, c = nodes(network)
    crashed_s = network.now_s
    network.crash("c")
    with pytest.raises(BusClosed):
        c.put(b"from the grave")
    network.run_until_idle()
    noticed_s = [node.changes[0][0] - crashed_s for node in (a, b)]
    assert all(0.01 <= after_s <= 0.015 for after_s in noticed_s)
    assert noticed_s[0] != noticed_s[1]
    assert a.news == b.news == [("c", False)]


def test_a_crashed_node_may_start_again() -> None:
    network = Network()
    a, b, _ = nodes(network)
    network.crash("b")
    network.run_until_idle()
    assert a.news == [("b", False)]
    reborn = Node(network, "b")
    assert reborn.news == [("a", True), ("c", True)]
    a.put(b"welcome")
    network.run_until_idle()
    assert a.news == [("b", True)]
    assert (b.got, reborn.got) == ([], [b"welcome"])


def test_a_crash_behind_a_cut_is_noticed_by_the_lease() -> None:
    network = Network()
    a, b, _ = nodes(network)
    network.cut("c", "a")
    network.advance(0.1)
    network.crash("c")
    network.advance(0.5)
    assert (a.news, b.news) == ([], [("c", False)])
    network.heal()
    network.advance(1.0)
    assert a.news == [("c", False)]


def test_a_node_behind_a_cut_disappears_after_the_lease_and_comes_back() -> None:
    network = Network()
    a, b, c = nodes(network)
    network.cut("c", "a")
    network.advance(0.99)
    assert a.news == []
    network.advance(0.52)
    assert (a.news, b.news, c.news) == ([("c", False)], [], [])
    network.heal()
    network.run_until_idle()
    assert a.news == [("c", True)]


def test_a_short_cut_is_not_noticed() -> None:
    network = Network()
    a, b, c = nodes(network)
    for _ in range(5):
        network.partition("a", "bc")
        network.advance(0.9)
        network.heal()
        network.advance(0.05)
    network.advance(5)
    assert a.news == b.news == c.news == []


@given(seeds)
def test_a_frozen_node_disappears_and_comes_back_as_all_others_do_for_it(seed: int) -> None:
    network = Network(seed, SLOW)
    a, b, c = nodes(network)
    network.freeze("c")
    a.put(b"into the void")
    c.put(b"not sent")
    network.advance(1.6)
    assert a.news == b.news == [("c", False)]
    assert (a.got, c.got, c.news) == ([], [], [])
    network.thaw("c")
    network.run_until_idle()
    assert a.news == b.news == [("c", True)]
    news = c.news
    assert [change for change in news if change[0] == "a"] == [("a", False), ("a", True)]
    assert [change for change in news if change[0] == "b"] == [("b", False), ("b", True)]
    assert c.got in ([], [b"into the void"])


def test_a_short_freeze_is_not_noticed() -> None:
    network = Network()
    a, b, c = nodes(network)
    network.freeze("c")
    network.advance(0.5)
    network.thaw("c")
    network.advance(5)
    assert a.news == b.news == c.news == []


def test_a_node_that_died_while_another_was_frozen_is_missed_after_the_thaw() -> None:
    network = Network()
    a, _, c = nodes(network)
    network.freeze("c")
    network.advance(0.1)
    network.crash("a")
    network.advance(0.1)
    network.thaw("c")
    network.run_until_idle()
    assert c.news == [("a", False)]
    assert not a.engine.is_open


def test_what_waited_for_a_frozen_node_is_lost_or_comes_late() -> None:
    outcomes = set()
    for seed in range(20):
        network = Network(seed)
        a, b, c = nodes(network)
        network.freeze("c")
        a.put(b"a1", b"a2")
        b.put(b"b1")
        network.advance(0.1)
        network.thaw("c")
        network.run_until_idle()
        outcomes.add(tuple(c.got))
    assert outcomes == {(), (b"a1", b"a2"), (b"b1",), (b"a1", b"a2", b"b1")}


def test_timers_fire_in_order_unless_cancelled() -> None:
    network, fired = Network(), []
    network.call_later(2.0, lambda: fired.append((network.now_s, "late")))
    network.call_later(1.0, lambda: fired.append((network.now_s, "first")))
    network.call_later(1.0, lambda: fired.append((network.now_s, "second")))
    network.call_later(1.5, lambda: fired.append((network.now_s, "never"))).cancel()
    network.advance(3.0)
    assert fired == [(1.0, "first"), (1.0, "second"), (2.0, "late")]
    assert network.now_s == 3.0


def test_timers_of_a_node_wait_while_it_is_frozen_and_die_with_it() -> None:
    network, fired = Network(), []
    nodes(network)
    start_s = network.now_s
    network.call_later(1.0, lambda: fired.append("b"), node="b")
    network.call_later(1.0, lambda: fired.append("c"), node="c")
    network.freeze("b")
    network.crash("c")
    network.advance(2.0)
    assert fired == []
    network.thaw("b")
    network.advance(0.0)
    assert fired == ["b"]
    assert network.now_s == start_s + 2.0


def test_running_until_idle_does_not_wait_for_heartbeats() -> None:
    network = Network(faults=SLOW)
    a, b, _ = nodes(network)

    def beat() -> None:
        network.call_later(1.0, beat)

    def echo(payload: bytes) -> None:
        b.engine.put("c/x", payload)

    beat()
    a.put(b"1")
    assert network.run_until_idle()
    assert network.now_s < 1.0
    b.engine.declare("c/x", echo)
    a.engine.declare("c/x", lambda payload: a.put(payload))
    a.put(b"for ever")
    assert not network.run_until_idle(seconds_max=5.0)


def test_queries_fail_where_frames_would() -> None:
    network = Network()
    a, b, c = nodes(network)
    b.engine.answer("q", lambda _: b"b")
    c.engine.answer("q", lambda _: b"c")
    assert a.engine.query("q", b"", 1.0) == [b"b", b"c"]
    network.cut("c", "a")
    assert a.engine.query("q", b"", 1.0) == [b"b"]
    network.freeze("b")
    assert a.engine.query("q", b"", 1.0) == []
    network.thaw("b")
    network.heal()
    network.faults = Faults(loss=1.0)
    assert a.engine.query("q", b"", 1.0) == []


def test_two_nodes_cannot_have_one_name() -> None:
    network = Network()
    nodes(network)
    with pytest.raises(UsageError, match="'b'"):
        MemoryEngine(network).open("b")


def test_a_live_network_delivers_on_its_own_thread() -> None:
    network = live_network("test of threads")
    assert live_network("test of threads") is network
    assert live_network("another") is not network
    a, b = MemoryEngine(network), MemoryEngine(network)
    a.open("a")
    b.open("b")
    came = threading.Event()
    threads: list[threading.Thread] = []

    def on_frame(_: bytes) -> None:
        threads.append(threading.current_thread())
        came.set()

    b.declare("c/x", on_frame)
    a.put("c/x", b"")
    assert came.wait(60)
    assert threads[0] is not threading.current_thread() and threads[0].daemon
    a.close()
    b.close()


def test_a_live_query_gives_up_in_time() -> None:
    network = live_network("test of patience")
    a, b = MemoryEngine(network), MemoryEngine(network)
    a.open("a")
    b.open("b")
    release = threading.Event()

    def hang(payload: bytes) -> bytes:
        release.wait(60)
        return payload

    b.answer("q", hang)
    assert a.query("q", b"", 0.01) == []
    release.set()
    assert a.query("q", b"now", 60.0) == [b"now"]
    a.close()
    b.close()
