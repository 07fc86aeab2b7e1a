"""Policies and rights, against an oracle that tries every subject."""

import contextlib
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadPolicy, NotAllowed
from infobus.security.policy import (
    ACTIONS,
    FIRST_POLICY,
    BusPolicy,
    Grant,
    Protection,
    Role,
    RoleRate,
    read_policy,
    with_version,
)
from infobus.security.rights import Rights
from infobus.subjects import matches
from tests.security.plants import policy_text

PLANT = """\
bus = "plant"
version = 7

[roles.operator]
publish   = ["plant.command.>"]
subscribe = ["plant.>"]
call      = ["svc.>"]

[roles.sensor]
publish = ["plant.sensor.{principal}.>"]
rate    = { events_per_s = 1000 }

[roles.fast]
rate    = { events_per_s = 5000, bytes_per_s = 1e6 }

[roles.teller]
call = ["svc.pay/transfer", { to = ["svc.audit"], except = ["svc.audit/wipe"] }]

[roles.admin]
subscribe = [{ to = [">", "~audit.>"], except = ["hr.>"] }]
manage    = [">"]
act_for   = ["*"]

[protect]
"bank.>" = "signed"
"bank.secret.>" = { level = "sealed", keys = ["auditors"] }

[types]
"plant.>" = ["admin"]
"""


def rights(principal, *roles, text=PLANT):
    return Rights(read_policy(text), principal, roles)


def may(who, action, subject):
    return who.may(action, subject).is_allowed


class TestTheExampleOfTheDesign:
    def test_a_rule_is_named_with_its_role(self):
        verdict = rights("bob", "operator").may("publish", "plant.command.stop")
        assert (verdict.rule, verdict.policy) == ("operator: publish plant.command.>", 7)

    def test_what_is_not_given_is_refused_and_the_error_says_what_is(self):
        bob = rights("bob", "operator")
        with pytest.raises(NotAllowed) as caught:
            bob.check("publish", "orders.new")
        error = caught.value
        assert str(error) == (
            "bob (roles: operator) may not publish orders.new: no rule of policy 7 allows it; "
            "bob may publish: plant.command.>"
        )
        told = (error.action, error.subject, error.principal, error.rule, error.policy)
        assert told == ("publish", "orders.new", "bob", "", 7)

    def test_a_name_of_its_own_is_only_for_that_principal(self):
        sensor = rights("s1", "sensor")
        assert may(sensor, "publish", "plant.sensor.s1.heat")
        assert not may(sensor, "publish", "plant.sensor.s2.heat")
        assert not may(sensor, "publish", "plant.sensor.{principal}.heat")

    def test_roles_add_up_and_unknown_ones_give_nothing(self):
        both = rights("s1", "operator", "sensor", "nonsense")
        assert may(both, "publish", "plant.sensor.s1.heat")
        assert may(both, "publish", "plant.command.stop")
        assert not may(rights("s1", "nonsense"), "publish", "plant.command.stop")
        assert not may(rights("s1"), "subscribe", "plant.command.stop")

    def test_a_pattern_needs_a_rule_that_covers_it_all(self):
        operator, admin = rights("a", "operator"), rights("a", "admin")
        assert may(operator, "subscribe", "plant.>")
        assert may(operator, "subscribe", "plant.*.heat")
        assert not may(operator, "subscribe", ">")
        assert not may(operator, "subscribe", "*.command")
        assert may(admin, "subscribe", "it.>")
        assert not may(admin, "subscribe", ">")  # it holds hr.>
        assert not may(admin, "subscribe", "*.pay")

    def test_what_belongs_to_the_bus_is_asked_for_by_name(self):
        admin, operator = rights("a", "admin"), rights("a", "operator")
        assert may(admin, "subscribe", "~audit.>")
        assert not may(admin, "subscribe", "~stats.>")
        assert not may(operator, "subscribe", "~audit.denied")

    def test_test_events_need_the_right_for_the_events_themselves(self):
        assert may(rights("a", "operator"), "publish", "~test.plant.command.stop")
        assert not may(rights("a", "operator"), "publish", "~test.orders.new")
        assert not may(rights("a", "admin"), "publish", "~test.~audit.x")

    def test_a_call_may_be_allowed_for_one_operation(self):
        teller = rights("t", "teller")
        assert may(teller, "call", "svc.pay/transfer")
        assert not may(teller, "call", "svc.pay/refund")
        assert not may(teller, "call", "svc.pay")
        assert may(teller, "call", "svc.audit/read")
        assert not may(teller, "call", "svc.audit/wipe")
        assert not may(teller, "call", "svc.audit")
        assert may(rights("t", "operator"), "call", "svc.pay/transfer")

    def test_a_wide_wish_can_be_narrowed(self):
        assert rights("a", "operator").part_of(">") == [Grant(("plant.>",))]
        assert rights("a", "operator").part_of("*.*.heat") == [Grant(("plant.*.heat",))]
        assert rights("a", "operator").part_of("~test.>") == [Grant(("~test.plant.>",))]
        assert rights("a", "operator").part_of("orders.>") == []
        assert rights("a", "admin").part_of(">") == [Grant((">",), ("hr.>",))]
        assert rights("a", "admin").part_of("hr.pay") == []

    def test_the_greatest_rate_of_its_roles_counts(self):
        assert rights("s", "sensor").rate == RoleRate(1000)
        assert rights("s", "sensor", "fast").rate == RoleRate(5000, None)
        assert rights("s", "operator").rate is None

    def test_protection_and_authors_are_those_of_all_patterns_that_match(self):
        policy = read_policy(PLANT)
        assert policy.protection("bank.pay") == [Protection("signed")]
        assert policy.protection("bank.secret.pay") == [
            Protection("signed"),
            Protection("sealed", ("auditors",)),
        ]
        assert policy.protection("plant.x") == []
        assert policy.authors("plant.Oven") == {"admin"}
        assert policy.authors("shop.Item") is None

    def test_what_is_told_although_it_is_allowed(self):
        policy = read_policy('audit = ["call svc.pay.>"]\n' + PLANT)
        assert policy.is_audited("call", "svc.pay.now")
        assert not policy.is_audited("publish", "svc.pay.now")
        assert not policy.is_audited("call", "svc.other")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("bus = ", ""),
        ('bus = "plant"', "version"),
        ('bus = ""\nversion = 1', "bus"),
        ('bus = "plant"\nversion = true', "version"),
        ('bus = "plant"\nversion = 0', "version"),
        (policy_text("rules = 3"), "rules"),
        (policy_text("roles = 3"), "roles"),
        (policy_text("[roles.a]", 'publsh = ["x"]'), "roles.a.publsh"),
        (policy_text("[roles.a]", 'publish = "x"'), "roles.a.publish"),
        (policy_text("[roles.a]", "publish = [3]"), "roles.a.publish"),
        (policy_text("[roles.a]", 'publish = ["a..b"]'), "roles.a.publish"),
        (policy_text("[roles.a]", 'publish = ["a.{me}"]'), "roles.a.publish"),
        (policy_text("[roles.a]", "publish = [{ to = [] }]"), "roles.a.publish"),
        (
            policy_text("[roles.a]", 'publish = [{ to = ["a"], but = ["b"] }]'),
            "roles.a.publish.but",
        ),
        (policy_text("[roles.a]", "rate = { events_per_s = 0 }"), "roles.a.rate"),
        (policy_text("[roles.a]", 'rate = { events = "x" }'), "roles.a.rate"),
        (policy_text('[roles."a b"]'), "roles"),
        (policy_text("[protect]", '"a.>" = "locked"'), "protect.a.>"),
        (policy_text("[types]", '"a.>" = "admin"'), "types.a.>"),
        (policy_text('audit = ["look a.>"]'), "audit"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_with_its_place(text, where):
    with pytest.raises(BadPolicy) as caught:
        read_policy(text)
    assert caught.value.path == where
    assert where in str(caught.value)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_a_policy_or_a_bad_one(text):
    for whole in (text, policy_text(text), policy_text("[roles.a]", text)):
        with contextlib.suppress(BadPolicy):
            read_policy(whole)


def test_the_first_policy_gives_members_all_but_manage():
    text = FIRST_POLICY.format(bus="plant")
    member, admin = rights("m", "member", text=text), rights("a", "admin", text=text)
    for action in ACTIONS:
        assert may(member, action, "anything.at.all") == (action not in ("manage", "act_for"))
        assert may(admin, action, "anything.at.all") == (action != "act_for")
    assert not may(member, "subscribe", "~audit.>")
    assert may(admin, "subscribe", "~audit.>")


def test_a_new_version_changes_its_line_alone():
    text = FIRST_POLICY.format(bus="plant")
    assert with_version(text, 12) == text.replace("version = 1\n", "version = 12\n")
    assert read_policy(with_version(text, 12)).version == 12
    with pytest.raises(BadPolicy):
        with_version("bus = 'a'\n", 2)


# All subjects of up to three elements that can tell small patterns apart.
SUBJECTS = [".".join(one) for size in (1, 2, 3) for one in product(["a", "b", "~x"], repeat=size)]
PATTERNS = st.builds(
    lambda elements, is_open: ".".join([*elements[:-1], ">"] if is_open else elements),
    st.lists(st.sampled_from(["a", "b", "*", "~x"]), min_size=1, max_size=3),
    st.booleans(),
)
RULES = st.builds(
    Grant,
    st.lists(PATTERNS, min_size=1, max_size=2).map(tuple),
    st.lists(PATTERNS, max_size=2).map(tuple),
)


def allowed(rules, subject):
    """Each subject for itself, and each rule for itself."""
    return any(
        any(matches(to, subject) for to in rule.to)
        and not any(matches(out, subject) for out in rule.excluded)
        for rule in rules
    )


@given(st.lists(RULES, max_size=4), PATTERNS)
def test_rights_agree_with_trying_every_subject(rules, pattern):
    """One who may have a pattern may have all in it; the parts are exactly what it may have."""
    role = Role({"subscribe": tuple(rules)})
    who = Rights(BusPolicy("b", 1, "", {"r": role}), "p", ["r"])
    for subject in SUBJECTS:
        assert may(who, "subscribe", subject) == allowed(rules, subject)
    of_pattern = [subject for subject in SUBJECTS if matches(pattern, subject)]
    if may(who, "subscribe", pattern):
        assert all(allowed(rules, subject) for subject in of_pattern)
    parts = who.part_of(pattern)
    for subject in SUBJECTS:
        wanted = subject in of_pattern and allowed(rules, subject)
        assert allowed(parts, subject) == wanted
