"""The table of tags: each name once, only its creator, the longest governs; equal everywhere."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadValue, NoRight
from infobus.objects import DataObject, type_of
from infobus.protocols.frames.tags import TagOperation, TagOutcome, TagTerms
from infobus.protocols.tags.rights import allows
from infobus.protocols.tags.rules import TagRules
from infobus.protocols.tags.table import TagTable, governing
from infobus.subjects import covers, matches

NAMES = ["a", "a.>", "a.b", "a.b.>", "a.b.c", "b.>", "b.c", "c"]
SUBJECTS = ["a", "a.b", "a.b.c", "a.b.c.d", "a.x", "b", "b.c", "b.x.y", "c", "c.d"]
ASKERS = ["oven", "press", "node-1", "node-2"]
MEMBERS = ["oak#1", "elm#1", "ash#2"]


def ask(table, act, name, asker="oven", *, id=None, slot=0, **more):
    """Have an operation decided; the outcome is returned."""
    ask.count += 1
    operation = TagOperation(id or f"request-{ask.count}", act, name, asker, **more)
    return msgspec.msgpack.decode(
        table.apply(slot, msgspec.msgpack.encode(operation)), type=TagOutcome
    )


ask.count = 0
DONE = TagOutcome()


class TestCreating:
    def test_of_two_creators_one_succeeds_and_the_other_is_told_who(self):
        table = TagTable()
        assert ask(table, "create", "plant.oven", "oven") == DONE
        assert ask(table, "create", "plant.oven", "press") == TagOutcome(
            "exists", "plant.oven", "oven"
        )
        assert table.get("plant.oven").creator == "oven"

    def test_a_repeated_request_has_the_outcome_that_it_had(self):
        table = TagTable()
        assert ask(table, "create", "a", id="first") == DONE
        assert ask(table, "delete", "a") == DONE
        assert ask(table, "create", "a", id="first") == DONE
        assert table.get("a") is None, "it was not created a second time"

    def test_a_program_that_starts_again_creates_its_tag_again(self):
        table = TagTable()
        words = TagTerms(type="Reading", fingerprint=7)
        assert ask(table, "create", "a", declared=words) == DONE
        version = table.version
        assert ask(table, "create", "a", declared=words) == DONE
        assert table.version == version
        other = TagTerms(type="Reading", fingerprint=8)
        assert ask(table, "create", "a", declared=other) == TagOutcome("exists", "a", "oven")

    def test_nobody_creates_within_what_is_somebody_elses(self):
        table = TagTable()
        ask(table, "create", "plant.>", "oven")
        assert ask(table, "create", "plant.a.b", "press") == TagOutcome("exists", "plant.>", "oven")
        assert ask(table, "create", "plant.a.>", "press") == TagOutcome("exists", "plant.>", "oven")
        assert ask(table, "create", "plant", "press") == DONE, "`plant.>` does not match it"
        assert ask(table, "create", "plant.a.>", "oven") == DONE
        assert ask(table, "create", "plant.a.b", "press") == TagOutcome(
            "exists", "plant.a.>", "oven"
        )

    def test_one_may_create_around_what_is_somebody_elses(self):
        table = TagTable()
        ask(table, "create", "plant.oven", "oven")
        assert ask(table, "create", "plant.>", "press") == DONE
        rows = {row.name: row for row in table}
        assert governing(rows, "plant.oven").creator == "oven"
        assert governing(rows, "plant.door").creator == "press"

    @pytest.mark.parametrize(
        ("name", "more"),
        [
            ("", {}),
            (">", {}),
            ("a..b", {}),
            ("a.*", {}),
            ("a.*.>", {}),
            ("~own", {}),
            ("a", {"declared": TagTerms(publish=("two words",))}),
            ("a", {"declared": TagTerms(subscribe=("[a-z]",))}),
            ("a", {"asker": ""}),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, name, more):
        table = TagTable()
        assert ask(table, "create", name, **more).why == "malformed"
        assert not len(table)

    @given(st.binary(max_size=80))
    def test_no_bytes_raise_anything(self, junk):
        table = TagTable()
        assert msgspec.msgpack.decode(table.apply(1, junk), type=TagOutcome).why == "malformed"

    def test_a_full_table_takes_no_more(self):
        table = TagTable(tags_count_max=2)
        assert [ask(table, "create", name).why for name in "abc"] == ["", "", "full"]
        ask(table, "delete", "a")
        assert ask(table, "create", "c") == DONE

    def test_large_tags_fill_a_table_too(self):
        table = TagTable(tags_bytes_max=400)
        wide = TagTerms(publish=("x" * 64,) * 4)
        assert ask(table, "create", "a", declared=wide) == DONE
        assert ask(table, "create", "b", declared=wide).why == "full"
        assert ask(table, "change", "a", declared=TagTerms()) == DONE
        assert ask(table, "create", "b", declared=wide) == DONE


class TestOwning:
    def test_only_the_creator_deletes_or_changes(self):
        table = TagTable()
        ask(table, "create", "a", "oven")
        assert ask(table, "delete", "a", "press") == TagOutcome("not creator", "a", "oven")
        assert ask(table, "change", "a", "press") == TagOutcome("not creator", "a", "oven")
        assert ask(table, "delete", "a", "oven") == DONE
        assert ask(table, "delete", "a", "oven") == TagOutcome("unknown", "a")

    def test_an_operator_deletes_by_force_and_changes_nothing(self):
        table = TagTable()
        ask(table, "create", "a", "oven")
        assert ask(table, "change", "a", "operator", force=True).why == "not creator"
        assert ask(table, "delete", "a", "operator", force=True) == DONE

    def test_a_change_counts(self):
        table = TagTable()
        ask(table, "create", "a")
        before = table.version
        assert ask(table, "change", "a", declared=TagTerms(max_age=3.0)) == DONE
        changed, gone = table.since(before)
        assert ([row.declared.max_age for row in changed], gone) == ([3.0], [])

    def test_a_tag_of_a_node_goes_with_its_member(self):
        table = TagTable()
        table.view(0, ("oak#1", "elm#1"))
        ask(table, "create", "a", "node-1", host="oak#1")
        ask(table, "create", "b.c", "oven")
        table.view(5, ("elm#1",))
        assert [row.name for row in table] == ["b.c"]
        assert table.since(2)[1] == ["a"]

    def test_who_asks_by_a_member_that_is_gone_may_ask_by_another(self):
        table = TagTable()
        table.view(0, ("elm#1",))
        first = ask(table, "create", "a", "node-1", id="r", host="oak#1")
        assert first.why == "no member"
        assert ask(table, "create", "a", "node-1", id="r", host="elm#1") == DONE


class TestMemory:
    def test_old_outcomes_make_room(self):
        table = TagTable(results_count_max=3)
        for number in range(5):
            ask(table, "create", f"t{number}", id=f"r{number}")
        assert [table.result(f"r{n}") for n in range(5)] == [None, None, DONE, DONE, DONE]

    def test_who_lags_far_behind_is_told_so(self):
        table = TagTable(gone_count_max=2)
        for name in "abcd":
            ask(table, "create", name)
        held = table.version
        for name in "abc":
            ask(table, "delete", name)
        assert table.since(held) is None
        assert table.since(held + 1) == ([], ["b", "c"])


operations = st.builds(
    dict,
    act=st.sampled_from(["create", "create", "create", "delete", "change"]),
    name=st.sampled_from(NAMES),
    asker=st.sampled_from(ASKERS),
    id=st.integers(0, 60).map("r{}".format),
    host=st.sampled_from(["", "", *MEMBERS]),
    declared=st.builds(TagTerms, max_age=st.sampled_from([0.0, 1.0])),
    force=st.booleans(),
)
views = st.lists(st.sampled_from(MEMBERS), unique=True, max_size=3).map(tuple)
histories = st.lists(operations | views, max_size=40)


def decide(table, slot, decision):
    if isinstance(decision, tuple):
        table.view(slot, decision)
        return None
    operation = TagOperation(**decision)
    return msgspec.msgpack.decode(
        table.apply(slot, msgspec.msgpack.encode(operation)), type=TagOutcome
    )


class Oracle:
    """The rules, said slowly."""

    def __init__(self):
        self.members, self.tags, self.outcomes = (), {}, {}

    def decide(self, decision):
        if isinstance(decision, tuple):
            self.members = decision
            gone = [n for n, (_, host, _) in self.tags.items() if host and host not in decision]
            for name in gone:
                del self.tags[name]
            return None
        if decision["id"] in self.outcomes:
            return self.outcomes[decision["id"]]
        outcome = self.outcome(**decision)
        if outcome != "no member":
            self.outcomes[decision["id"]] = outcome
        return outcome

    def outcome(self, act, name, asker, id, host, declared, force):
        if host and host not in self.members:
            return "no member"
        if act == "create":
            if name in self.tags:
                creator, _, words = self.tags[name]
                return "" if (creator, words) == (asker, declared) else "exists"
            wider = [n for n in self.tags if n != name and covers(n, name)]
            if wider and self.tags[max(wider, key=fixed_length)][0] != asker:
                return "exists"
            self.tags[name] = (asker, host, declared)
            return ""
        if name not in self.tags:
            return "unknown"
        creator, kept, _ = self.tags[name]
        if act == "delete":
            if asker != creator and not force:
                return "not creator"
            del self.tags[name]
            return ""
        if asker != creator:
            return "not creator"
        self.tags[name] = (creator, kept, declared)
        return ""


@given(histories)
def test_it_does_what_the_rules_say(history):
    table, oracle = TagTable(), Oracle()
    for slot, decision in enumerate(history):
        outcome = decide(table, slot, decision)
        assert (None if outcome is None else outcome.why) == oracle.decide(decision)
        found = {row.name: (row.creator, row.host, row.declared) for row in table}
        assert found == oracle.tags


@given(histories, st.integers(0, 40))
def test_a_newcomer_with_a_snapshot_is_equal_from_then_on(history, at):
    table, newcomer = TagTable(), TagTable()
    for slot, decision in enumerate(history):
        if slot == at:
            newcomer.restore(table.snapshot())
        if slot >= at:
            assert decide(newcomer, slot, decision) == decide(table, slot, decision)
            assert newcomer.snapshot() == table.snapshot()
        else:
            decide(table, slot, decision)


@given(histories, st.integers(0, 40))
def test_who_is_told_what_has_changed_holds_what_there_is(history, at):
    table, held, version = TagTable(), {}, 0
    for slot, decision in enumerate(history):
        decide(table, slot, decision)
        if slot in (at, len(history) - 1):
            changed, gone = table.since(version)
            held = {n: row for n, row in held.items() if n not in gone}
            held |= {row.name: row for row in changed}
            version = table.version
            assert held == {row.name: row for row in table}


def fixed_length(name):
    return len(name.removesuffix(">"))


@given(st.sets(st.sampled_from(NAMES)), st.sampled_from(SUBJECTS))
def test_the_longest_tag_that_matches_governs(names, subject):
    table = TagTable()
    for name in names:
        ask(table, "create", name)
    found = governing({row.name: row for row in table}, subject)
    expected = max((n for n in names if matches(n, subject)), key=fixed_length, default=None)
    assert (None if found is None else found.name) == expected


def test_an_empty_snapshot_is_an_empty_table():
    table = TagTable()
    ask(table, "create", "a")
    table.restore(b"")
    assert (len(table), table.version, table.history) == (0, 1, "")


class Reading(DataObject):
    celsius: float


class FineReading(Reading):
    error: float


class Story(DataObject):
    headline: str


def rules(who, **declared):
    table = TagTable()
    ask(table, "create", "plant.oven.>", "control", declared=TagTerms(**declared))
    made = TagRules(who)
    made.replace({row.name: row for row in table})
    return made


class TestRules:
    def test_names_decide_who_may_publish(self):
        rule = rules("oven-3", publish=("oven-*",)).of("plant.oven.3")
        rule.check_publisher("plant.oven.3")
        with pytest.raises(NoRight, match=r"press may not publish 'plant.oven.3': tag 'plant.ove"):
            rules("press", publish=("oven-*",)).of("plant.oven.3").check_publisher("plant.oven.3")

    def test_names_decide_who_may_subscribe(self):
        made = rules("press", subscribe=())
        with pytest.raises(NoRight, match="of control allows nobody"):
            made.check_subscriber("plant.oven.*")
        made.check_subscriber("plant.>")  # which reaches further; what lies within is left out
        assert not made.of("plant.oven.3").may_subscribe

    def test_a_type_has_its_subtypes_with_it(self):
        kind = type_of(Reading)
        rule = rules("x", type=kind.name, fingerprint=kind.fingerprint).of("plant.oven.3")
        rule.check(Reading(celsius=1.0))
        rule.check(FineReading(celsius=1.0, error=0.1))
        for wrong in (Story(headline="x"), {"celsius": 1.0}, 3):
            with pytest.raises(BadValue, match=r"carries Reading, got .*created by control"):
                rule.check(wrong)
        fits = [rule.fits(type_of(one).fingerprint) for one in (Reading, FineReading, Story)]
        assert fits == [True, True, False]
        assert not rule.fits(0)
        assert rule.fits(12345), "a type that is not known here may be a subtype"

    def test_a_rule_stays_the_same_while_its_tag_does(self):
        made = rules("x")
        before = made.of("plant.oven.3")
        made.replace(dict(made.rows))
        assert made.of("plant.oven.3") is before
        made.replace({})
        assert made.of("plant.oven.3") is None


@pytest.mark.parametrize(
    ("pattern", "name", "is_allowed"),
    [
        ("*", "", True),
        ("oven-*", "oven-", True),
        ("oven-*", "oven", False),
        ("*-3", "oven-3", True),
        ("o*n*3", "oven-3", True),
        ("oven.3", "ovenx3", False),
        ("oven", "oven-3", False),
    ],
)
def test_a_star_stands_for_any_letters(pattern, name, is_allowed):
    assert allows([pattern], name) is is_allowed
