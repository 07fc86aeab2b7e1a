"""Rules of correlation, without Spark: what they find, and what they remember meanwhile."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus import UsageError
from infobus.pipeline.jobs.correlate import rules
from infobus.pipeline.jobs.correlate.live import (
    CorrelateOptions,
    Follower,
    Share,
    encode,
    note_rules,
)
from infobus.pipeline.jobs.correlate.rules import Hit, Memory, follow
from infobus.pipeline.jobs.subscription import TrialSubscription

ANY = TrialSubscription()
S = 1_000_000


def hit(second: float, *steps: int, value: float | None = None) -> Hit:
    return Hit(round(second * S), round(second * 1000), steps or (0,), f"e{second}", value)


def found(rule, *hits, until=1000.0):
    return [one.ids for one in follow(rule, Memory(), list(hits), round(until * S))]


class TestSequence:
    rule = rules.Sequence(name="r", within_s=10, steps=[ANY, ANY, ANY])

    def test_steps_in_their_order_within_the_time(self):
        assert found(self.rule, hit(1, 0), hit(2, 1), hit(11, 2)) == [("e1", "e2", "e11")]
        assert found(self.rule, hit(1, 0), hit(2, 1), hit(11.001, 2)) == []
        assert found(self.rule, hit(1, 1), hit(2, 0), hit(3, 2)) == []

    def test_the_latest_beginning_counts(self):
        hits = hit(1, 0), hit(8, 0), hit(9, 1), hit(15, 2)
        assert found(self.rule, *hits) == [("e8", "e9", "e15")]

    def test_no_event_serves_for_two_steps(self):
        everything = [hit(n, 0, 1, 2) for n in range(1, 7)]
        assert found(self.rule, *everything) == [("e1", "e2", "e3"), ("e4", "e5", "e6")]


class TestOthers:
    def test_conjunction_in_any_order(self):
        rule = rules.Conjunction(name="r", within_s=10, steps=[ANY, ANY])
        assert found(rule, hit(5, 1), hit(15, 0), hit(20, 1)) == [("e5", "e15")]
        assert found(rule, hit(5, 1), hit(15.1, 0)) == []
        assert found(rule, hit(5, 1, 0)) == [("e5",)]

    def test_repetition_counts_within_the_time_and_begins_anew(self):
        rule = rules.Repetition(name="r", within_s=10, step=ANY, count=3)
        hits = [hit(n) for n in (0, 9, 11, 12, 13, 14, 15, 30)]
        assert found(rule, *hits) == [("e9", "e11", "e12"), ("e13", "e14", "e15")]

    def test_absence_is_told_for_each_event_that_nothing_followed(self):
        rule = rules.Absence(name="r", within_s=10, after=ANY, missing=ANY)
        hits = hit(0, 0), hit(5, 0), hit(12, 1), hit(20, 0), hit(30, 1), hit(40, 0)
        assert found(rule, *hits, until=49) == [("e0",)]
        assert found(rule, *hits, until=50) == [("e0",), ("e40",)]
        # An answer that asks again.
        assert found(rule, hit(0, 0, 1), hit(9, 0, 1), until=20) == [("e9",)]

    @pytest.mark.parametrize(
        ("function", "values"),
        [("count", [2, 1]), ("sum", [5, 7]), ("mean", [2.5, 7]), ("min", [1, 7]), ("max", [4, 7])],
    )
    def test_aggregates_of_windows_that_are_over(self, function, values):
        rule = rules.Aggregate(name="r", within_s=10, step=ANY, function=function, of="x")
        hits = [hit(3, value=1.0), hit(9.9, value=4.0), hit(30, value=7.0), hit(41, value=9.0)]
        results = follow(rule, Memory(), hits, 49 * S)
        assert [one.value for one in results] == values
        assert [one.first_us // S for one in results] == [0, 30]
        some = msgspec.structs.replace(rule, having="value > 6 && count == 1")
        assert len(follow(some, Memory(), hits, 49 * S)) == (function != "count")


class TestBorders:
    """Exactly `within_s` belongs to it, one microsecond more does not."""

    @pytest.mark.parametrize(
        "rule",
        [
            rules.Sequence(name="r", within_s=1, steps=[ANY, ANY]),
            rules.Conjunction(name="r", within_s=1, steps=[ANY, ANY]),
            rules.Repetition(name="r", within_s=1, step=ANY, count=2),
        ],
        ids=lambda rule: type(rule).__name__,
    )
    @pytest.mark.parametrize("more_us", [0, 1])
    def test_of_the_time(self, rule, more_us):
        steps = (0, 0) if isinstance(rule, rules.Repetition) else (0, 1)
        times_us = (5 * S, 6 * S + more_us)
        hits = [Hit(us, us, (step,), str(us)) for us, step in zip(times_us, steps, strict=True)]
        assert len(follow(rule, Memory(), hits, 10 * S)) == 1 - more_us

        # Live, too, where the watermark may stand at any of these times.
        for until_us in (5 * S, 6 * S - 1, 6 * S):
            memory = Memory()
            found = follow(rule, memory, hits[:1], until_us)
            found += follow(rule, memory, hits[1:], 10 * S)
            is_late = until_us >= times_us[1]  # then it is left out before
            assert is_late or len(found) == 1 - more_us


class TestAggregates:
    def test_the_last_window_of_history_is_there_and_marked(self):
        rule = rules.Aggregate(name="r", within_s=10, step=ANY, function="sum", of="x")
        memory = Memory()
        whole = follow(rule, memory, [hit(3, value=1.0), hit(12, value=4.0)], 15 * S)
        assert [(one.value, one.is_complete) for one in whole] == [(1.0, True)]
        assert [(one.value, one.is_complete) for one in rule.rest(memory)] == [(4.0, False)]
        assert rule.rest(memory) == []

    @pytest.mark.parametrize(
        "having",
        [
            "value > 5 && value < 3",
            "count < 1",
            'value == "much"',
            "amount > 3",
            "value > 3 && count == 0",
            "!exists(value)",
        ],
    )
    def test_a_filter_that_is_never_true_is_refused(self, having):
        with pytest.raises(UsageError, match=r"never true|is about `value` and `count`"):
            rules.Aggregate(name="r", within_s=1, step=ANY, function="sum", of="x", having=having)

    @pytest.mark.parametrize("having", ["value < -3", "count == 1", "value > 1 || count > 7"])
    def test_a_filter_that_may_be_true_is_taken(self, having):
        rules.Aggregate(name="r", within_s=1, step=ANY, function="sum", of="x", having=having)
        if "-" in having:
            with pytest.raises(UsageError, match="never true"):
                rules.Aggregate(name="r", within_s=1, step=ANY, function="count", having=having)


class _State:
    """What Spark keeps for a rule and a share: a value, and timers."""

    def __init__(self):
        self.value, self.timers = None, []
        self.getValueState = lambda name, schema: self
        self.registerTimer, self.deleteTimer = self.timers.append, self.timers.remove

    def get(self):
        return self.value

    def update(self, value):
        self.value = value

    def clear(self):
        self.value = None


class _Time:
    def __init__(self, ms):
        self.getCurrentWatermarkInMs = self.getExpiryTimeInMs = lambda: ms


class TestEditedRules:
    """The state of a running query belongs to a rule as it was, wherever it stands."""

    waiting = rules.Absence(name="unanswered", within_s=30, after=ANY, missing=ANY)
    twice = rules.Repetition(name="twice", within_s=30, step=ANY, count=2)

    def begun(self) -> dict[int, _State]:
        """Return the state of a query that has seen an event and waits for what follows."""
        states: dict[int, _State] = {}
        options = CorrelateOptions(rules=[self.waiting])
        [number] = options.by_id
        self.follower(options, states.setdefault(number, _State())).handleInputRows(
            (number, 0), iter([{"key": "a", "hits": encode([hit(1, 0)])}]), _Time(0)
        )
        return states

    def follower(self, options, state) -> Follower:
        follower = Follower(options)
        follower.init(state)
        return follower

    def expired(self, states, options):
        found = []
        for number, state in states.items():
            follower = self.follower(options, state)
            for time_ms in (2_000, 40_000):
                found += follower.handleExpiredTimer((number, 0), _Time(time_ms), _Time(time_ms))
        return [row["rule"] for row in found]

    def test_a_rule_put_before_it_changes_nothing(self):
        assert self.expired(self.begun(), CorrelateOptions(rules=[self.twice, self.waiting])) == [
            "unanswered"
        ]

    def test_another_rule_in_its_place_does_not_get_its_events(self):
        states, options = self.begun(), CorrelateOptions(rules=[self.twice])
        assert not states.keys() & options.by_id.keys()
        assert self.expired(states, options) == []
        assert [state.value for state in states.values()] == [None]

    def test_an_edited_rule_is_another_one(self):
        edited = msgspec.structs.replace(self.waiting, within_s=20)
        assert self.expired(self.begun(), CorrelateOptions(rules=[edited])) == []

    def test_what_is_dropped_is_told(self, tmp_path):
        both = CorrelateOptions(rules=[self.waiting, self.twice])
        assert note_rules(both, tmp_path) == []
        turned = CorrelateOptions(rules=[self.twice, self.waiting])
        assert note_rules(turned, tmp_path) == []
        edited = msgspec.structs.replace(self.waiting, within_s=20)
        [line] = note_rules(CorrelateOptions(rules=[edited, self.twice]), tmp_path)
        assert line.startswith("rule 'unanswered' was edited: events that it was waiting with")
        [line] = note_rules(CorrelateOptions(rules=[edited]), tmp_path)
        assert line == "rule 'twice' was removed: events that it was waiting with are dropped"
        (tmp_path / "older" / "state").mkdir(parents=True)
        [line] = note_rules(both, tmp_path / "older")
        assert "is of an earlier version" in line
        assert note_rules(both, tmp_path / "older") == []


RULES = [
    rules.Sequence(name="s", within_s=5, steps=[ANY, ANY]),
    rules.Conjunction(name="c", within_s=5, steps=[ANY, ANY]),
    rules.Repetition(name="r", within_s=5, step=ANY, count=3),
    rules.Absence(name="a", within_s=5, after=ANY, missing=ANY),
    rules.Aggregate(name="g", within_s=5, step=ANY, function="sum", of="x"),
]
HITS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([(0,), (1,), (0, 1)])), max_size=20
).map(
    lambda some: [
        Hit(half * S // 2, at, steps if half % 2 else (0,), str(at), 1.0)
        for at, (half, steps) in enumerate(some)
    ]
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@settings(max_examples=60, deadline=None)
@given(HITS, st.lists(st.integers(0, 35), max_size=8))
def test_looking_piece_by_piece_finds_the_same_and_remembers_little(rule, hits, stops):
    """What comes in batches, with the memory stored in between, is found as if all came at once."""
    if len(rule.wanted()) == 1:
        hits = [msgspec.structs.replace(one, steps=(0,)) for one in hits]
    whole = follow(rule, Memory(), hits, 100 * S)
    memory, pieces, since = Memory(), [], -1
    for stop in [*sorted(stop * S for stop in stops), 100 * S]:
        part = [one for one in hits if since < one.time_us <= stop]
        pieces += follow(rule, memory, part, stop)
        since = max(since, stop)
        memory = msgspec.msgpack.decode(msgspec.msgpack.encode(memory), type=Memory)
        kept = list(itertools.chain.from_iterable(memory.hits))
        assert all(one.time_us >= stop - rule.within_us for one in kept)
        assert memory.is_empty == (rule.next_us(memory) is None)
        assert memory.is_empty or rule.next_us(memory) > stop
    assert pieces == whole
    assert memory.is_empty


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@settings(max_examples=60, deadline=None)
@given(st.lists(HITS, min_size=1, max_size=4), st.lists(st.integers(0, 35), max_size=8))
def test_keys_that_share_their_state_have_nothing_else_in_common(rule, of_each, stops):
    """Each finds what it would find alone. The watermark is where the batch before has ended."""
    if len(rule.wanted()) == 1:
        of_each = [[msgspec.structs.replace(one, steps=(0,)) for one in hits] for hits in of_each]
    by_key = {f"key {at}": hits for at, hits in enumerate(of_each)}
    share, pieces, since = Share(), [], -S
    for stop in [*sorted(stop * S for stop in stops), 100 * S]:
        new = {
            key: part
            for key, hits in by_key.items()
            if (part := [one for one in hits if since < one.time_us <= stop])
        }
        pieces += share.look(rule, new, since // 1000)
        assert share.due_ms is None or share.due_ms > since // 1000
        since = max(since, stop)
        share = msgspec.msgpack.decode(msgspec.msgpack.encode(share), type=Share)
    pieces += share.look(rule, {}, 200 * S // 1000)
    for key, hits in by_key.items():
        assert [one for owner, one in pieces if owner == key] == follow(
            rule, Memory(), hits, 200 * S
        )
    assert share.keys == {}
    assert share.due_ms is None


@settings(max_examples=60, deadline=None)
@given(HITS)
def test_a_sequence_is_found_if_and_only_if_there_is_one(hits):
    [rule, *_] = RULES
    ordered = sorted(hits, key=lambda one: (one.time_us, one.offset))
    pairs = itertools.combinations(ordered, 2)
    there_is = any(
        0 in one.steps and 1 in other.steps and other.time_us - one.time_us <= rule.within_us
        for one, other in pairs
    )
    assert bool(follow(rule, Memory(), hits, 100 * S)) == there_is


THRICE = {"kind": "repetition", "name": "x", "within_s": 1, "step": {}, "count": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"within_s": 0}, "must be above 0"),
        ({"count": 0}, "at least 1"),
        ({"name": ""}, "empty name"),
        ({"key": "{a"}, "braces"),
        ({"key": "{a!r}"}, "braces"),
        ({"step": {"where": "a >"}}, "expected"),
        ({"step": {"subject": "a..b"}}, "empty element"),
        ({"kind": "never"}, "never"),
        ({"often": True}, "often"),
        ({"kind": "sequence", "steps": []}, "1 to 32 steps"),
        ({"kind": "aggregate", "function": "sum"}, "sum of what?"),
    ],
)
def test_mistakes_in_rules_are_told(changes, message):
    from infobus.pipeline.jobs import options_for

    asked = THRICE | changes
    if "kind" in changes:
        asked = {name: asked[name] for name in asked if name not in ("step", "count")}
        asked |= {"step": {}} if changes["kind"] == "aggregate" else {}
    with pytest.raises(UsageError, match=message):
        options_for("correlate", {"rules": [asked]})
