"""The handshake: as published, and whatever comes instead of it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.security.noise import AESGCM, MESSAGE_BYTES_MAX, Handshake, nonce_of, public_of

VECTORS = json.loads(Path(__file__).with_name("noise_vectors.json").read_text())["vectors"]


def pair(prologues=(b"bus", b"bus"), statics=(b"\x11" * 32, b"\x22" * 32), seed=b"\x33"):
    """Both parties of a handshake that has not begun."""
    return tuple(
        Handshake(is_initiator=first, prologue=prologue, static=static, ephemeral=ephemeral)
        for first, prologue, static, ephemeral in zip(
            (True, False), prologues, statics, (seed * 32, b"\x44" * 32), strict=True
        )
    )


def shaken(initiator, responder, payloads=(b"one", b"two", b"three")):
    """Let both exchange the three messages; return them."""
    messages = []
    for number, payload in enumerate(payloads):
        writer, reader = (responder, initiator) if number % 2 else (initiator, responder)
        messages.append(writer.write(payload))
        assert reader.read(messages[-1]) == payload
    return messages


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["protocol_name"])
def test_the_handshake_is_the_published_one(vector):
    raw = {name: bytes.fromhex(value) for name, value in vector.items() if isinstance(value, str)
           and name != "protocol_name"}  # fmt: skip
    parties = [
        Handshake(
            is_initiator=who == "init",
            prologue=raw[f"{who}_prologue"],
            static=raw[f"{who}_static"],
            ephemeral=raw[f"{who}_ephemeral"],
        )
        for who in ("init", "resp")
    ]
    messages = [
        (bytes.fromhex(one["payload"]), bytes.fromhex(one["ciphertext"]))
        for one in vector["messages"]
    ]
    for number, (payload, ciphertext) in enumerate(messages[:3]):
        writer, reader = parties[number % 2], parties[1 - number % 2]
        assert writer.write(payload) == ciphertext
        assert reader.read(ciphertext) == payload
    assert [party.hash for party in parties] == [raw["handshake_hash"]] * 2
    assert parties[0].remote_static == public_of(raw["resp_static"])
    assert parties[1].remote_static == public_of(raw["init_static"])
    # What follows goes on under the keys, each counted from 0; the responder writes first here.
    keys = [party.split() for party in parties]
    for number, (payload, ciphertext) in enumerate(messages[3:]):
        send, receive = keys[1 - number % 2].send, keys[number % 2].receive
        assert AESGCM(send).encrypt(nonce_of(number // 2), payload, None) == ciphertext
        assert AESGCM(receive).decrypt(nonce_of(number // 2), ciphertext, None) == payload


def test_both_end_with_the_same_keys_and_nobody_else_does():
    initiator, responder = pair()
    shaken(initiator, responder)
    assert initiator.split() == responder.split()[::-1]
    assert initiator.hash == responder.hash
    others = pair(seed=b"\x55")
    shaken(*others)
    assert not set(others[0].split()) & set(initiator.split())


def test_parties_that_do_not_agree_on_the_prologue_do_not_meet():
    initiator, responder = pair(prologues=(b"bus", b"another"))
    responder.read(initiator.write(b""))
    with pytest.raises(BadFrame):
        initiator.read(responder.write(b""))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_byte_of_a_message_can_be_changed_left_out_or_added(data):
    """The first message shows its payload, but whoever changes it makes the second one fail."""
    number = data.draw(st.integers(0, 2))
    initiator, responder = pair()
    messages = shaken(*(party.copy() for party in (initiator, responder)))
    mangled = bytearray(messages[number])
    match data.draw(st.sampled_from(["flip", "cut", "add"])):
        case "flip":
            place = data.draw(st.integers(0, len(mangled) - 1))
            mangled[place] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del mangled[data.draw(st.integers(0, len(mangled) - 1)) :]
        case "add":
            mangled += data.draw(st.binary(min_size=1, max_size=64))
    with pytest.raises(BadFrame):
        for step in range(3):
            writer, reader = (responder, initiator) if step % 2 else (initiator, responder)
            message = writer.write((b"one", b"two", b"three")[step])
            reader.read(bytes(mangled) if step == number else message)
        # Bit 255 of a key does not count in the curve: both know the same secret, and not the hash.
        assert initiator.hash == responder.hash


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_strange_bytes_raise_bad_frame_and_nothing_else(message):
    initiator, responder = pair()
    responder.copy().read(message) if len(message) >= 32 else None
    initiator.write(b"")
    with pytest.raises(BadFrame):
        initiator.read(message)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_keys_that_give_everyone_the_same_secret_are_refused(point):
    _, responder = pair()
    responder.read(point)
    with pytest.raises(BadFrame):
        responder.write(b"")


def test_a_message_that_is_too_long_is_refused():
    _, responder = pair()
    with pytest.raises(BadFrame):
        responder.read(bytes(MESSAGE_BYTES_MAX + 1))


def test_a_forgery_that_a_copy_has_read_does_no_harm():
    initiator, responder = pair()
    responder.read(initiator.write(b""))
    with pytest.raises(BadFrame):
        initiator.copy().read(bytes(200))
    assert initiator.read(responder.write(b"two")) == b"two"
