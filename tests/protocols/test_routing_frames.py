"""The frames between neighbour routers: what is written can be read, and nothing else does harm."""

import re
import string
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.frames import routing

names = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20)
counts = st.integers(0, 2**63 - 1)
words = st.text(st.characters(codec="utf-8"), max_size=20)
entries = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), max_size=4)
ids = st.lists(counts, max_size=4)
amounts = st.floats(0, 1e15)
messages = st.one_of(
    st.builds(
        routing.Hello,
        *(names, names, counts, words, words, st.booleans(), st.booleans()),
        *(counts, counts, counts, counts, counts, st.lists(words, max_size=3)),
    ),
    st.builds(
        routing.TableVersions,
        *(names, st.dictionaries(names, counts, max_size=4), st.booleans(), st.booleans()),
    ),
    st.builds(
        routing.RouterTable,
        *(names, names, counts, counts, words, words, st.lists(names, max_size=4)),
        *(entries, entries),
    ),
    st.builds(
        routing.Parcel,
        *(names, counts, counts, words, ids, ids, st.integers(0, 15), st.integers(0, 3)),
        *(counts, st.floats(0, 3600), st.binary(max_size=20)),
    ),
    st.builds(routing.SeenSoFar, names, counts, counts),
    st.builds(routing.Reserve, names, counts, counts, counts, ids, ids, amounts, amounts),
    st.builds(
        routing.Reserved, names, counts, counts, counts, words, words, amounts, amounts, words
    ),
)
all_kinds = list(routing.RoutingMessage.__args__)


@given(messages)
def test_every_message_comes_back_as_it_was(message):
    assert routing.decode(routing.encode(message)) == message


@given(messages, st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_fields_added_by_a_newer_minor_version_are_skipped(message, more):
    fields = msgspec.msgpack.decode(routing.encode(message))
    assert routing.decode(msgspec.msgpack.encode([*fields, *more])) == message


@given(st.integers(87, 127), names, st.lists(st.integers(0, 9), max_size=4))
def test_kinds_of_frames_added_by_a_newer_minor_version_are_skipped(tag, sender, rest):
    assert routing.decode(msgspec.msgpack.encode([tag, sender, *rest])) is None


def decodes_or_is_refused(payload):
    try:
        routing.decode(payload)
    except BadFrame as error:
        assert len(str(error)) < 1000


@given(st.binary(max_size=200))
def test_random_bytes_do_no_harm(payload):
    decodes_or_is_refused(payload)


@given(messages, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4))
def test_mangled_frames_do_no_harm(message, changes):
    frame = bytearray(routing.encode(message))
    for at, value in changes:
        frame[at % len(frame)] = value
    decodes_or_is_refused(bytes(frame))


@pytest.mark.parametrize(
    "frame",
    [
        [83, "n", 1, 1, "k", [1], list(range(65)), 0, 0, 0, 0.0, b""],  # too many hops
        [83, "n", 1, 1, "k", [-1], [], 0, 0, 0, 0.0, b""],
        [83, "n", 1, 1, "k", [1], [], 0, 9, 0, 0.0, b""],
        [83, "n", 1, 1, "k", [1], [], 0, 0, 0, float("nan"), b""],
        [82, "n", "n", 1, 0, "", "", ["x"] * 257],
        [82, "n", "n", 1, 0, "", "", [], [""]],
        [82, "n", "a\nb", 1, 0, "", "", []],
        [82, "n", "n", 1, 0, "", "", ["a\nb"]],
        [80, "a b", "n", 1],
        [84, "a\nb", 1, 1],
        [85, "n", 1, 1, 1, [1], [], -1.0, 0.0],
        [85, "n", 1, 1, 1, [1], [], float("inf"), 0.0],
        [86, "n", 1, 1, 1, "h", "t", float("nan"), 0.0],
        [79, "n"],
        [],
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(frame):
    with pytest.raises(BadFrame):
        routing.decode(msgspec.msgpack.encode(frame))


def test_a_frame_larger_than_the_bound_is_refused_unread():
    with pytest.raises(BadFrame, match="at most"):
        routing.decode(bytes(72 * 1024 * 1024 + 1))


DOCUMENT = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


@pytest.mark.parametrize("kind", all_kinds, ids=lambda kind: kind.__name__)
def test_the_specification_names_every_field_in_order(kind):
    row = f"| {kind.__struct_config__.tag} | `{kind.__name__}` |"
    line = next((line for line in DOCUMENT.splitlines() if line.startswith(row)), "")
    assert re.findall(r"`(\w+)`", line)[1:] == list(kind.__struct_fields__)
    optional = re.findall(r"\*`(\w+)`\*", line)
    defaults = kind.__struct_defaults__
    assert optional == list(kind.__struct_fields__[len(kind.__struct_fields__) - len(defaults) :])
