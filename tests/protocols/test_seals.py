"""Sealed frames: opened by exactly their receivers, once, where they were put, as they were put."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.frames.security import (
    ENTRY_BYTES,
    SEAL_ID_BYTES,
    SEALED_TAG,
    decode_sealed,
    encode,
)
from infobus.protocols.security.seals import (
    STREAM_BITS,
    STREAMS_COUNT_MAX,
    WINDOW_COUNT,
    ReplayWindow,
    Seal,
    opened,
    seal_of,
    sealed_for_many,
    sealed_for_one,
)
from infobus.security.noise import Handshake

KEY = "c/news"
NUMBER = (5 << STREAM_BITS) + 1


def sealed_pair(number):
    """What a sender has in common with receiver `number`, and the other way round."""
    parties = [
        Handshake(
            is_initiator=first,
            prologue=b"",
            static=bytes([which]) * 32,
            ephemeral=bytes([which + 100]) * 32,
        )
        for first, which in ((True, 1), (False, 2 + number))
    ]
    for writer, reader in pairwise([*parties, *parties][:4]):
        reader.read(writer.write(b""))
    ours, theirs = (
        seal_of(
            party,
            peer,
            None,
            policy=0,
            wire=(1, 3),
            attempt=b"",
            is_initiator=first,
            is_lessers=True,
            now_s=0.0,
        )
        for party, first, peer in zip(parties, (True, False), (f"b{number}", "a"), strict=True)
    )
    return ours, theirs


def fresh(count) -> tuple[list[Seal], list[Seal]]:
    return tuple(map(list, zip(*map(sealed_pair, range(count)), strict=True)))


def sealed(seals, plain, number=NUMBER, key=KEY):
    if len(seals) == 1:
        return sealed_for_one("a", seals[0], number, key, plain)
    return sealed_for_many("a", seals, number, key, plain, b"\x55" * 16)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=2000), st.integers(1, 6))
def test_each_receiver_opens_what_was_put_and_only_once(plain, count):
    ours, theirs = fresh(count)
    frame = sealed(ours, plain)
    assert frame[1:2] == SEALED_TAG
    for seal in theirs:
        assert opened(decode_sealed(frame), [seal], 1) == (seal, plain)
        assert opened(decode_sealed(frame), [seal], 1) is None
    if len(plain) > 8:
        assert plain not in frame


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_byte_can_be_changed(data):
    """A byte of another receiver's entry is none of this one's business; all others are."""
    count = data.draw(st.integers(1, 3))
    ours, theirs = fresh(count)
    frame = sealed(ours, b"pay alice 5")
    place = data.draw(st.integers(0, len(frame) - 1))
    mangled = bytearray(frame)
    mangled[place] ^= data.draw(st.integers(1, 255))
    for seal in theirs:
        try:
            read = decode_sealed(bytes(mangled))
            found = opened(read, [seal], 1)
        except BadFrame:
            continue
        start = frame.index(seal.own_id)
        of_others = not start <= place < start + ENTRY_BYTES and count > 1
        is_in_entries = frame.index(ours[0].peer_id) <= place < frame.index(ours[-1].peer_id) + 40
        is_sender = read.sender != "a"  # which says only whose seals are to be tried
        assert found == (seal, b"pay alice 5") and ((of_others and is_in_entries) or is_sender)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.data())
def test_a_frame_that_is_cut_short_is_not_opened(count, data):
    ours, theirs = fresh(count)
    frame = sealed(ours, b"hello")
    with pytest.raises(BadFrame):
        opened(decode_sealed(frame[: data.draw(st.integers(0, len(frame) - 1))]), theirs[:1], 1)


@pytest.mark.parametrize("change", ["number", "key"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_frame_cannot_be_sent_again_as_another_or_elsewhere(change, count):
    ours, theirs = fresh(count)
    frame = decode_sealed(sealed(ours, b"hello"))
    if change == "number":
        frame.number += 1
    else:
        frame.key = "c/sport"
    for seal in theirs:
        with pytest.raises(BadFrame):
            opened(frame, [seal], 1)


def test_a_receiver_that_is_not_named_cannot_open_it():
    ours, theirs = fresh(4)
    with pytest.raises(BadFrame, match="not for this node"):
        opened(decode_sealed(sealed(ours[:3], b"hello")), [theirs[3]], 1)


def test_the_keys_of_another_receiver_are_of_no_use():
    """Whoever puts its own entry in the place of another's has not got the other's key."""
    ours, theirs = fresh(3)
    frame = decode_sealed(sealed(ours, b"hello"))
    entry = frame.entries[:ENTRY_BYTES]
    swapped = theirs[1].own_id + entry[SEAL_ID_BYTES:]
    frame.entries = swapped + frame.entries[ENTRY_BYTES:]
    with pytest.raises(BadFrame):
        opened(frame, [theirs[1]], 1)


def test_a_co_receiver_cannot_make_a_second_body():
    """It knows the key of the body, and can make a body that opens; but its hash is another one."""
    ours, theirs = fresh(2)
    frame = decode_sealed(sealed(ours, b"pay alice 5"))
    body_key = b"\x55" * 16  # as the co-receiver has unwrapped it
    forged = decode_sealed(sealed_for_many("a", ours, NUMBER, KEY, b"pay mallory 5", body_key))
    frame.body = forged.body
    with pytest.raises(BadFrame):
        opened(frame, [theirs[0]], 1)


def test_what_is_said_to_one_is_no_part_of_what_is_said_to_many():
    ours, theirs = fresh(2)
    frame = decode_sealed(sealed(ours, b"hello"))
    start = frame.entries.index(theirs[0].own_id)
    wrapped = frame.entries[start + SEAL_ID_BYTES : start + ENTRY_BYTES]
    frame.entries, frame.body = theirs[0].own_id, memoryview(wrapped)
    with pytest.raises(BadFrame):
        opened(frame, [theirs[0]], 1)


@pytest.mark.parametrize(
    "number", [2**64 - 1, 2**63, STREAMS_COUNT_MAX << STREAM_BITS, 2**63 - 1, -1]
)
def test_numbers_that_cannot_be_are_refused(number):
    ours, theirs = fresh(1)
    raw = msgspec.msgpack.decode(sealed(ours, b"hello"))
    raw[2] = number
    with pytest.raises(BadFrame):
        opened(decode_sealed(msgspec.msgpack.encode(raw)), theirs, 1)


def test_a_number_that_has_gone_back_is_dropped():
    ours, theirs = fresh(1)
    base = 5 << STREAM_BITS
    frames = {n: sealed(ours, b"%d" % n, base + n) for n in (1, 2, 5_000, 5_001)}
    assert opened(decode_sealed(frames[1]), theirs, 1)
    assert opened(decode_sealed(frames[5_000]), theirs, 1)
    assert opened(decode_sealed(frames[2]), theirs, 1) is None
    assert opened(decode_sealed(frames[5_001]), theirs, 1)


def test_what_came_to_one_declaration_cannot_be_played_to_a_later_one():
    ours, theirs = fresh(1)
    frame = sealed(ours, b"hello")
    assert opened(decode_sealed(frame), theirs, 1)
    theirs[0].begin(2)
    assert opened(decode_sealed(frame), theirs, 2) is None
    theirs[0].forget(1)
    theirs[0].forget(2)
    theirs[0].begin(3)
    assert opened(decode_sealed(frame), theirs, 3) is None
    later = sealed(ours, b"more", NUMBER + 1)
    assert opened(decode_sealed(later), theirs, 3)


def test_two_declarations_that_overlap_both_get_a_frame():
    ours, theirs = fresh(1)
    frame = sealed(ours, b"hello")
    theirs[0].begin(1)
    theirs[0].begin(2)
    assert opened(decode_sealed(frame), theirs, 1) and opened(decode_sealed(frame), theirs, 2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 4 * WINDOW_COUNT), max_size=200), st.randoms(use_true_random=False))
def test_a_window_takes_each_number_once_and_none_that_is_too_old(numbers, chance):
    """Against a slow oracle that remembers everything."""
    window, seen = ReplayWindow(0), set()
    for number in [*numbers, *numbers]:
        step = number if chance.random() < 0.5 else window.top + 1
        expected = step not in seen and step > max(seen, default=0) - WINDOW_COUNT
        assert window.is_new(step) == expected
        if expected:
            window.note(step)
            seen.add(step)
        assert len(window.missing) <= 3 * WINDOW_COUNT


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_strange_bytes_raise_bad_frame_and_nothing_else(noise):
    _, theirs = fresh(1)
    for payload in (noise, b"\x95\x5a\xa1a" + noise):
        try:
            opened(decode_sealed(payload), theirs, 1)
        except BadFrame:
            continue
        raise AssertionError("opened")


def test_a_frame_is_what_the_wire_says():
    """`docs/wire.md` has this layout."""
    ours, _ = fresh(1)
    tag, sender, number, key, entries, body = msgspec.msgpack.decode(sealed(ours, b"hello"))
    assert (tag, sender, number, key) == (90, "a", NUMBER, KEY)
    assert len(entries) == SEAL_ID_BYTES and len(body) == 5 + 16
    many = msgspec.msgpack.decode(sealed(fresh(3)[0], b"hello"))
    assert len(many[4]) == 3 * ENTRY_BYTES == 120
    assert encode(decode_sealed(sealed(ours, b"hello"))) == sealed(ours, b"hello")
