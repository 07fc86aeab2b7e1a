"""The bytes of frames: what is written can be read, and nothing else does any harm."""

import re
import string
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame, IncompatiblePeer
from infobus.protocols.frames import guaranteed, invocation, wire

counts = st.integers(0, 2**63 - 1)
names = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20)
texts_of_any_kind = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
channels = st.text(st.characters(codec="utf-8"), max_size=20)
nexts = st.dictionaries(channels, counts, max_size=4)
byte_strings = st.lists(st.binary(max_size=20), max_size=3)
texts = st.lists(channels, max_size=4)
few = st.sampled_from(["news.a", "news.b"])
qualities = st.builds(
    wire.Qos,
    max_age=st.sampled_from([0.0, 2.5]),
    class_=st.sampled_from(["", "business"]),
    raised_until=st.sampled_from([0.0, 9.5]),
)
requests = st.builds(wire.Request, channels, st.text(max_size=4), st.floats(0, 9), st.floats(0, 9))
item_lists = st.lists(
    st.builds(
        wire.Item,
        subject=channels | few,
        number=counts | st.integers(1, 3),
        time=st.floats(-1e10, 1e11),
        type=st.integers(0, 2**64 - 1) | st.integers(0, 1),
        body=st.dictionaries(channels, st.integers(0, 9), max_size=3).map(msgspec.msgpack.encode),
        object_id=st.none() | texts_of_any_kind,
        qos=st.none() | qualities,
        headers=st.sampled_from([b"", b"\x81\xa1a\x01", b"\x81\xa1a\x02"]),
    ),
    max_size=4,
)
items = item_lists.map(wire.Items.of)
versions = st.tuples(st.just(wire.WIRE_MAJOR), counts)
messages = st.one_of(
    st.builds(wire.Data, names, channels, counts, items, byte_strings),
    st.builds(wire.Ack, names, nexts, st.booleans()),
    st.builds(wire.Ask, names, channels, counts, counts),
    st.builds(wire.Gone, names, channels, counts, counts),
    st.builds(wire.Beat, names, versions, counts, nexts),
    st.builds(
        wire.Interest,
        *(names, versions, counts, counts, counts, texts, texts, counts),
        filters=texts,
        dropped=st.lists(st.tuples(channels, channels), max_size=3),
        classes=texts,
        requests=st.lists(requests, max_size=3),
    ),
    st.builds(wire.WantRows, names),
    st.builds(wire.Known, names, counts, counts, nexts, byte_strings),
    st.builds(wire.WantTypes, names, st.lists(st.integers(0, 2**64 - 1), max_size=3)),
    st.builds(wire.Types, names, byte_strings),
    st.builds(wire.Bye, names, nexts, st.lists(names, max_size=3)),
    st.builds(wire.WantState, names, counts, texts),
    st.builds(wire.State, names, counts, nexts, items, byte_strings),
)
all_kinds = list(wire.Message.__args__)


def fields(message):
    """The frame as plain lists, as any other language sees it."""
    return msgspec.msgpack.decode(wire.encode(message))


@given(messages)
def test_every_message_comes_back_as_it_was(message):
    assert wire.decode(wire.encode(message)) == message


@given(messages, st.lists(st.integers() | st.text(max_size=3), min_size=1, max_size=3))
def test_fields_added_by_a_newer_minor_version_are_skipped(message, more):
    more = [value for value in more if not isinstance(value, int) or abs(value) < 2**63]
    assert wire.decode(msgspec.msgpack.encode([*fields(message), *more])) == message


@given(st.integers(50, 2**31), names, st.lists(st.integers(0, 9), max_size=4))
def test_kinds_of_frames_added_by_a_newer_minor_version_are_skipped(tag, sender, rest):
    assert wire.decode(msgspec.msgpack.encode([tag, sender, *rest])) is None


@given(
    st.sampled_from([5, 6]),
    st.integers(0, 2**64 - 1).filter(lambda major: major != wire.WIRE_MAJOR),
    st.lists(st.integers(0, 9) | st.text(max_size=3), max_size=6),
)
def test_another_major_version_is_refused_aloud_whatever_its_frames_hold(tag, major, rest):
    frame = msgspec.msgpack.encode([tag, "stranger", [major, 0], *rest])
    with pytest.raises(IncompatiblePeer, match=f"stranger speaks wire version {major}"):
        wire.decode(frame)


@given(st.lists(st.tuples(channels, channels), max_size=4), st.integers(0, 4))
def test_rows_without_a_filter_have_none(rows, count):
    """A node of minor version 0 tells patterns alone."""
    patterns, filters = [p for p, _ in rows], [f for _, f in rows][:count]
    told = wire.Interest("n", (1, 0), 1, 0, 2, patterns, filters=filters)
    assert told.rows() == rows[:count] + [(pattern, "") for pattern in patterns[count:]]
    more = wire.Interest("n", (1, 0), 1, 0, 2, [], filters=filters)
    assert more.rows() == []


@pytest.mark.parametrize(
    "rest",
    [
        [["a"], [], 0, ["x" * (wire.FILTER_CHARS_MAX + 1)]],
        [["a"], [], 0, [7]],
        [["a"], [], 0, "n == 1"],
        [["a"], [], 0, [], [["a"]]],
        [["a"], [], 0, [], [["a", "n == 1", "b"]]],
        [["a"], [], 0, [], [["a", None]]],
        [["a"], [], 0, [], [["x" * 5000, ""]]],
    ],
)
def test_rows_that_are_none_are_refused(rest):
    with pytest.raises(BadFrame):
        wire.decode(msgspec.msgpack.encode([6, "n", [1, 1], 1, 0, 2, *rest]))


def decodes_or_is_refused(payload):
    try:
        wire.decode(payload)
    except (BadFrame, IncompatiblePeer) as error:
        assert len(str(error)) < 1000


@given(st.binary(max_size=200))
def test_random_bytes_do_no_harm(payload):
    decodes_or_is_refused(payload)


@given(messages, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4))
def test_mangled_frames_do_no_harm(message, changes):
    frame = bytearray(wire.encode(message))
    for at, value in changes:
        frame[at % len(frame)] = value
    decodes_or_is_refused(bytes(frame))


@given(messages, st.data())
def test_a_truncated_frame_is_not_a_frame(message, data):
    frame = wire.encode(message)
    with pytest.raises(BadFrame):
        wire.decode(frame[: data.draw(st.integers(0, len(frame) - 1))])


@pytest.mark.parametrize(
    "payload",
    [
        b"\x95\x01\xa1n\xa1c\x01\xdd\xff\xff\xff\xff",  # four billion items announced
        b"\x93\x08\xa1n\xdd\x7f\xff\xff\xff",
        b"\x93\x09\xa1n\xc6\xff\xff\xff\xff",  # a byte string longer than memory
        b"\x93\x02\xa1n\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 1_000_000,  # nested a million deep
        b"\x95\x01\xa1n\xa1c\x01\x91\x95\xa1s\x01\xcb" + bytes(8) + b"\x00" + b"\x91" * 1_000_000,
        b"\x94\x63\xa1n" + b"\x91" * 1_000_000,
        b"\x95\x01\xa1\xff\xa1c\x01\x90",  # a name that is not UTF-8
        b"\x92\x0a\xa0",  # a node without a name
        b"\x95\x01\xa1n\xa1c\xff\x90",  # a negative number
        b"\x92\x00\xa1n",
        b"\x92\xd0\x80\xa1n",
        b"",
    ],
)
def test_hostile_frames_are_refused_within_bounds(payload):
    with pytest.raises(BadFrame):
        wire.decode(payload)


def test_a_frame_larger_than_the_bound_is_refused_unread():
    with pytest.raises(BadFrame, match="67108865 bytes; at most 67108864"):
        wire.decode(bytes(wire.FRAME_BYTES_MAX + 1))


@given(item_lists)
def test_a_run_holds_the_events_it_was_made_of(some):
    run = wire.Items.of(some)
    assert list(run) == some
    assert len(run) == len(some)


@given(item_lists, st.integers(0, 5), st.integers(0, 5) | st.none())
def test_a_part_of_a_run_holds_that_part_of_the_events(some, start, end):
    assert list(wire.Items.of(some)[start:end]) == some[start:end]


def test_what_all_events_of_a_run_share_is_said_once():
    run = wire.Items.of([wire.Item("news.a", n, 0.0, 7, b"") for n in range(5, 9)])
    assert (run.subjects, run.numbers, run.types) == (["news.a"], [5], [7])


@pytest.mark.parametrize("column", ["subjects", "numbers", "times", "types", "bodies", "qos"])
@given(item_lists.filter(lambda some: any(item.qos for item in some)), st.data())
def test_a_run_whose_columns_do_not_fit_together_is_refused(column, some, data):
    run = wire.Items.of([*some, some[0]])  # one event might stand for any number of them
    getattr(run, column).extend(getattr(run, column)[:1] * data.draw(st.integers(len(some) + 1, 9)))
    with pytest.raises(BadFrame, match="columns"):
        wire.decode(wire.encode(wire.Data("n", "news", 1, run)))


DOCUMENT = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


def test_the_example_in_the_specification_is_true():
    text = re.search(r"```hex\n(.*?)```", DOCUMENT, re.DOTALL).group(1)
    frame = bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))
    assert wire.decode(frame) == wire.Data(
        "floor7-4242-9f3a61c2e0b4",
        "news",
        41,
        wire.Items(
            ["news.equity.gmc"],
            [1007],
            [1.5],
            [0],
            [msgspec.msgpack.encode({"headline": "GM up"})],
        ),
        [],
    )
    assert wire.encode(wire.decode(frame)) == frame


@pytest.mark.parametrize("kind", all_kinds, ids=lambda kind: kind.__name__)
def test_the_specification_names_every_field_in_order(kind):
    row = f"| {kind.__struct_config__.tag} | `{kind.__name__}` |"
    line = next((line for line in DOCUMENT.splitlines() if line.startswith(row)), "")
    assert re.findall(r"`(\w+)`", line)[1:] == list(kind.__struct_fields__)


@pytest.mark.parametrize("time_s", [float("nan"), float("inf"), -float("inf"), 1e300, -1e300])
def test_what_is_no_time_is_refused_wherever_it_stands(time_s):
    entry = guaranteed.Entry(1, "a", time_s, 0, b"\x80")
    for frame in (
        wire.Data("n", "a", 1, wire.Items.of([wire.Item("a", 1, time_s, 0, b"\x80")])),
        guaranteed.Kept("n", "d", 1, "l", 0, 1, [entry]),
        guaranteed.Durable("n", "d", 1, ["a"], registered_at=time_s),
    ):
        with pytest.raises(BadFrame, match="float"):
            wire.decode(wire.encode(frame))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "\x1b[31mred", "a\nb", "ü", "n" * 121])
@pytest.mark.parametrize("frame", [[10, None, {}], [5, None, [9, 0], 1, {}], [99, None]], ids=str)
def test_a_sender_that_no_node_can_be_is_refused(name, frame):
    payload = msgspec.msgpack.encode([name if part is None else part for part in frame])
    with pytest.raises(BadFrame) as raised:
        wire.decode(payload)
    assert str(raised.value).isprintable()
    with pytest.raises(BadFrame):
        invocation.decode(msgspec.msgpack.encode([30, name, 1, "svc.>"]))
