"""Certificates: they say what was asked for, and count only where and when they should."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadCredential
from infobus.security import pem
from infobus.security.certificates import (
    Revocation,
    check_principal,
    read,
    read_request,
    request,
    verify,
)
from infobus.security.signatures import is_signed, public_key_of, sign
from tests.security.plants import DAY_S, NOW_S, authority, key

PLANT = authority()
ALICE = PLANT.issue("alice", public_key_of(key("alice")), ["operator", "admin"], NOW_S)


def why(certificate, *, authorities=(PLANT.certificate,), bus="plant", now_s=NOW_S, **given):
    with pytest.raises(BadCredential) as caught:
        verify(certificate, authorities, bus=bus, now_s=now_s, **given)
    return caught.value.why


def test_a_certificate_says_what_it_was_issued_for():
    assert (ALICE.principal, ALICE.roles, ALICE.bus) == ("alice", ("operator", "admin"), "plant")
    assert ALICE.public_key == public_key_of(key("alice"))
    assert not ALICE.signs
    assert verify(ALICE, [PLANT.certificate], bus="plant", now_s=NOW_S) == PLANT.certificate


def test_other_programs_read_it_too():
    der = ssl.PEM_cert_to_DER_cert(ALICE.pem())
    assert read(der) == ALICE


@pytest.mark.parametrize("bus", ["plant", "Werk_2.süd", "東京", "%41"])
def test_a_bus_of_any_name_has_certificates(bus):
    of = authority(bus)
    assert of.issue("alice", public_key_of(key("alice")), [], NOW_S).bus == bus


def test_it_counts_for_a_year_and_on_clocks_that_are_a_little_behind():
    verify(ALICE, [PLANT.certificate], bus="plant", now_s=NOW_S - 240)
    verify(ALICE, [PLANT.certificate], bus="plant", now_s=NOW_S + 364 * DAY_S)
    assert why(ALICE, now_s=NOW_S - 600) == "early"
    assert why(ALICE, now_s=NOW_S + 365 * DAY_S) == "expired"


def test_it_counts_on_its_bus_alone():
    assert why(ALICE, bus="other") == "bus"


def test_it_counts_only_by_an_authority_that_is_known():
    stranger = authority(salt="of somebody else")  # of the same names
    forged = stranger.issue("alice", ALICE.public_key, ["admin"], NOW_S)
    assert why(forged) == "authority"
    assert why(ALICE, authorities=()) == "authority"
    both = (stranger.certificate, PLANT.certificate)
    assert verify(forged, both, bus="plant", now_s=NOW_S) == stranger.certificate
    assert verify(ALICE, both, bus="plant", now_s=NOW_S) == PLANT.certificate


def test_a_member_issues_nothing():
    own = PLANT.issue("mallory", public_key_of(key("mallory")), [], NOW_S)
    forged = (
        authority()
        .__class__(key("mallory"), key("mallory"), PLANT.certificate, PLANT.certificate)
        .issue("admin", public_key_of(key("x")), ["admin"], NOW_S)
    )
    assert why(forged, authorities=(own,)) == "authority"
    assert why(forged, authorities=(own, PLANT.certificate)) == "authority"


def test_keys_of_an_authority_are_no_members_and_members_none_of_those():
    assert why(PLANT.certificate) == "use"
    assert why(PLANT.policies_certificate) == "use"
    assert why(ALICE, signs="policies") == "use"
    assert why(PLANT.certificate, signs="policies") == "use"


def test_a_revocation_counts_for_what_was_issued_until_then():
    left = Revocation("alice", int((NOW_S + 5) * 1000), "left")
    assert why(ALICE, revocations=[left]) == "revoked"
    bob = PLANT.issue("bob", public_key_of(key("bob")), [], NOW_S)
    verify(bob, [PLANT.certificate], bus="plant", now_s=NOW_S, revocations=[left])
    again = PLANT.issue("alice", public_key_of(key("alice 2")), [], NOW_S + 6)
    verify(again, [PLANT.certificate], bus="plant", now_s=NOW_S + 6, revocations=[left])


@pytest.mark.parametrize("name", ["", "~authority", "a.b", "a/b", "*", ">", "a b", "ä", "a" * 65])
def test_a_principal_is_one_plain_element_of_a_subject(name):
    with pytest.raises(BadCredential):
        check_principal(name)


@given(st.integers(0, len(ALICE.der) - 1), st.integers(1, 255))
def test_a_certificate_with_any_byte_changed_does_not_count(at, change):
    mangled = bytearray(ALICE.der)
    mangled[at] ^= change
    with pytest.raises(BadCredential):
        verify(read(bytes(mangled)), [PLANT.certificate], bus="plant", now_s=NOW_S)


@given(st.binary(max_size=400) | st.integers(0, len(ALICE.der)).map(lambda n: ALICE.der[:n]))
def test_other_bytes_are_no_certificate(data):
    if data != ALICE.der:
        with pytest.raises(BadCredential):
            read(data)


def test_a_request_is_for_the_key_of_whoever_made_it():
    asked = read_request(request(key("alice"), "alice"))
    assert (asked.principal, asked.public_key) == ("alice", public_key_of(key("alice")))
    with pytest.raises(BadCredential):
        read_request("nonsense")


@given(st.data())
def test_a_request_with_any_byte_changed_is_refused(data):
    ((label, der),) = pem.blocks(request(key("alice"), "alice"))
    at = data.draw(st.integers(0, len(der) - 1))
    mangled = der[:at] + bytes([der[at] ^ data.draw(st.integers(1, 255))]) + der[at + 1 :]
    with pytest.raises(BadCredential):
        read_request(pem.block(label, mangled))


def test_a_signature_is_for_one_key_and_one_message():
    signature = sign(key("alice"), b"message")
    assert is_signed(public_key_of(key("alice")), b"message", signature)
    assert not is_signed(public_key_of(key("alice")), b"another", signature)
    assert not is_signed(public_key_of(key("bob")), b"message", signature)
    assert not is_signed(b"short", b"message", signature)
    assert not is_signed(public_key_of(key("alice")), b"message", b"")
