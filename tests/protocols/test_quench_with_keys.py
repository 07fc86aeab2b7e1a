"""Quench with keys: an event is sent if and only if it may match, and rows keep their keys."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFilter
from infobus.filters import Filter, compile
from infobus.filters.language.tree import And, Compare, Constant, FunctionCall, Name, Not, Or, Tree
from infobus.headers import Headers, WithHeaders, with_headers
from infobus.protocols.interest.federation import Agreement
from infobus.protocols.interest.keyed_filter import KeyedFilter, keyed_filter, without_filter
from infobus.protocols.interest.own_rows import (
    ANY_KEYS,
    OwnRows,
    Row,
    is_keyed,
    reduced_filters,
)
from infobus.protocols.interest.peer_rows import PeerRows
from infobus.security.event_marks import SEALED, SIGNED, EventSignature, encoded_signature
from infobus.subjects import matches
from tests.filters.oracle import truth
from tests.filters.strategies import events as any_events
from tests.filters.strategies import filters as any_filters

KEYS = [bytes([n]) * 8 for n in range(1, 4)]
ATTRIBUTES = ("a", "b", "c", "d")
VALUES = (0, 1, 2, None)  # None: it is not there

keysets = st.frozensets(st.sampled_from(KEYS))


def literal(name: str) -> st.SearchStrategy[Tree]:
    """A test of one attribute that some value passes and another one does not."""
    tests = st.builds(
        lambda op, value: Compare(op, Name((name,)), Constant(value, "int32")),
        st.sampled_from(["==", "!=", "<=", ">"]),
        st.just(1),
    ) | st.just(FunctionCall("exists", (Name((name,)),)))
    return tests | tests.map(Not)


@st.composite
def read_once(draw: st.DrawFn) -> Filter:
    """A filter that asks for each attribute once: whatever may be, may be independently."""
    names = draw(st.lists(st.sampled_from(ATTRIBUTES), min_size=1, max_size=4, unique=True))
    tree = draw(literal(names[0]))
    for name in names[1:]:
        tree = draw(st.sampled_from([And, Or]))((tree, draw(literal(name))))
    return Filter.from_tree(tree)


class Published:
    """An event, the keys of its publisher, and what everybody sees of it."""

    def __init__(
        self, data: dict[str, Any], signer: bytes | None, receivers: frozenset[bytes], clear: Any
    ) -> None:
        self.data, self.signer, self.receivers = data, signer, receivers
        self.clear = {n: v for n, v in data.items() if n in clear} if receivers else data
        headers: dict[str, Any] = {}
        shown: dict[str, Any] = dict(self.clear)
        if receivers:
            headers[SEALED], shown[SEALED] = b"".join(sorted(receivers)), b"..."
        if signer:
            headers[SIGNED] = encoded_signature(
                EventSignature(1, signer, "bus", "s.x", 1.0, b"-" * 64)
            )
        self.seen = with_headers(shown, Headers(headers))

    def may_match(self, row: KeyedFilter) -> bool:
        """The oracle: whether an event that looks like this may be one that the row wants."""
        if row.signed_by and self.signer not in row.signed_by:
            return False
        if row.where is None:
            return True
        known = {name: value for name, value in self.clear.items() if value is not None}
        if not self.receivers or self.receivers.isdisjoint(row.opens):
            return truth(row.where.tree, known) is True
        unknown = [name for name in ATTRIBUTES if name not in known]
        for values in product(VALUES, repeat=len(unknown)):
            hidden = zip(unknown, values, strict=True)
            whole = known | {name: value for name, value in hidden if value is not None}
            if truth(row.where.tree, whole) is True:
                return True
        return False


data = st.dictionaries(st.sampled_from(ATTRIBUTES), st.sampled_from(VALUES[:3]))
published = st.builds(
    Published,
    data,
    st.sampled_from([*KEYS, None]),
    keysets,
    st.frozensets(st.sampled_from(ATTRIBUTES)),
)
keyed_rows = st.builds(KeyedFilter, keysets, keysets, st.none() | read_once())


@given(published, keyed_rows)
def test_a_row_may_want_an_event_exactly_if_some_content_of_it_would_match(event, row):
    """Rules 1 and 2: what is sealed is unknown to the publisher, and not missing."""
    assert row.may_match(event.seen) is event.may_match(row)


@given(any_filters(), any_events(), st.data())
def test_an_event_that_matches_once_opened_is_sent_whatever_is_sealed(where, event, choice):
    clear = choice.draw(st.sets(st.sampled_from(sorted(event) or [""])))
    row = KeyedFilter(frozenset(), frozenset(KEYS[:1]), where)
    shown = {name: value for name, value in event.items() if name in clear}
    seen = with_headers({**shown, SEALED: b"..."}, Headers({SEALED: KEYS[0]}))
    if where.matches(event):
        assert row.may_match(seen)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[tuple[str, KeyedFilter]]]:
    row = st.tuples(st.sampled_from(["s.x", "s.>", "s.*"]), keyed_rows)
    return draw(st.dictionaries(st.sampled_from(["ann", "bob"]), st.lists(row, max_size=4)))


def as_row(row: KeyedFilter) -> str:
    if row.signed_by or row.opens:
        return row.text
    return "" if row.where is None else row.where.text


@given(tables(), published)
def test_a_publisher_sends_if_and_only_if_some_row_of_others_may_match(table, event):
    rows = PeerRows()
    for peer, wanted in table.items():
        rows.update(peer, 0, 1, [(pattern, as_row(row)) for pattern, row in wanted])
    wanted = rows.wanted("s.x")
    is_sent = wanted if isinstance(wanted, bool) else wanted(event.seen)
    every = [row for rows in table.values() for _, row in rows]
    assert is_sent is any(event.may_match(row) for row in every)


steps = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from(["s.x", "s.*", "s.>", "s.y", "t.x", "t.*"]), keyed_rows
    ),
    max_size=20,
)


@given(steps, st.lists(published, min_size=1, max_size=4), st.integers(1, 8))
def test_what_a_node_tells_lets_through_what_it_wants_and_merges_no_keys(steps, events, count_max):
    """Rule 6, at the owner, also when there are more rows than it may tell."""
    own = OwnRows(rows_count_max=6, filters_count_max=count_max)
    wanted: list[Row] = []
    for is_more, pattern, row in steps:
        one = (pattern, as_row(row))
        if is_more or one not in wanted:
            own.change([one], [])
            wanted.append(one)
        else:
            own.change([], [one])
            wanted.remove(one)
        while (reduction := own.next_reduction(1e9)) is not None:
            own.reduced(reduction, reduced_filters(reduction))
    peers = PeerRows()
    peers.update("owner", 0, 1, own.added)
    for subject in ("s.x", "s.y", "t.x"):
        told = peers.wanted(subject)
        for event in events:
            is_wanted = any(
                matches(pattern, subject) and event.may_match(as_keyed(where))
                for pattern, where in wanted
            )
            is_sent = told if isinstance(told, bool) else told(event.seen)
            assert is_sent or not is_wanted
    keys = {without_filter(where) for _, where in wanted if is_keyed(where)}
    told_keys = {without_filter(where) for _, where in own.added if is_keyed(where)}
    assert told_keys <= keys | {ANY_KEYS}
    if ANY_KEYS in told_keys:
        assert len(keys) > count_max
    assert (not wanted) == (not own.added)


def as_keyed(where: str) -> KeyedFilter:
    if is_keyed(where):
        return keyed_filter(where)
    return KeyedFilter(frozenset(), frozenset(), compile(where) if where else None)


def test_rows_with_other_keys_absorb_nothing_not_even_those_that_ask_for_all():
    own = OwnRows()
    signed = f"@signed:{KEYS[0].hex()}"
    own.change([("s.>", ""), ("s.x", f"@opens:{KEYS[1].hex()} a > 1"), ("s.x", signed)], [])
    assert len(own.added) == 3
    own.change([("s.x", "")], [])  # absorbed by the wider one, and absorbs no keys
    assert [where for pattern, where in own.added if pattern == "s.x" and is_keyed(where)]
    own.change([("s.>", signed)], [])
    assert ("s.x", signed) not in own.added  # the same keys, and a wider pattern


@given(keyed_rows, st.sampled_from(["", "a == 1"]))
def test_a_router_keeps_the_keys_of_each_row(row, mandatory):
    """Rule 6, at a router: its mandatory filter is added to what the row asks for."""
    agreement = Agreement("s", "far.s", mandatory)
    exported = agreement.exported([("s.x", row.text)])
    assert [pattern for pattern, _ in exported] == ["far.s.x"]
    told = keyed_filter(exported[0][1])
    assert (told.signed_by, told.opens) == (row.signed_by, row.opens)
    both = [one.text for one in (row.where, compile(mandatory) if mandatory else None) if one]
    assert told.where == (compile(" && ".join(f"({one})" for one in both)) if both else None)


@given(keyed_rows)
def test_the_text_of_a_row_says_all_of_it(row):
    assert keyed_filter(row.text) == row
    assert without_filter(row.text) == KeyedFilter(row.signed_by, row.opens).text
    with pytest.raises(BadFilter):
        compile(row.text)  # so a node that knows nothing of keys sends everything


@given(st.text(alphabet="@signedopens:,01af >", max_size=40).map("@".__add__))
def test_any_text_is_a_row_or_a_bad_filter(text):
    try:
        found = keyed_filter(text)
    except BadFilter:
        assert without_filter(text) == ANY_KEYS
    else:
        assert keyed_filter(found.text) == found


def test_a_row_of_a_later_version_may_want_anything():
    rows = PeerRows()
    rows.update("later", 0, 1, [("s.>", "@moon:full price > 40")])
    assert rows.wanted("s.x") is True
    assert rows.unreadable == 1


def test_a_row_that_asks_for_a_type_is_decided_by_the_type_which_is_never_sealed():
    row = KeyedFilter(frozenset(), frozenset(KEYS[:1]), compile('isa("Story")'))
    seen = WithHeaders({SEALED: b"..."}, Headers({SEALED: KEYS[0]}))
    assert not row.may_match(seen)
