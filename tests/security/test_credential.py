"""Credentials and authorities as text, signed policies, and an authority that follows another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadCredential, BadPolicy
from infobus.security.authority import Authority
from infobus.security.certificates import Revocation
from infobus.security.credential import Credential
from infobus.security.policy import FIRST_POLICY, read_policy
from infobus.security.signed_policy import SignedPolicy, read_signed_policy, signed, verified
from tests.security.plants import DAY_S, NOW_S, authority, credential, key, policy_text

PLANT = authority()
SIGNED = PLANT.sign(policy_text(version=7), [Revocation("bob", 1, "left")])


def check(told, *known, bus="plant", now_s=NOW_S):
    return verified(told, known or (PLANT.certificate,), bus=bus, now_s=now_s)


def test_a_credential_is_text_and_back():
    alice = credential("alice", "operator")
    assert Credential.from_text(alice.to_text()) == alice
    assert alice.check(NOW_S).policy == read_policy(FIRST_POLICY.format(bus="plant"))
    assert Credential.from_text(alice.to_text().replace("\n", "\r\n")) == alice


def test_a_credential_for_a_request_gets_the_key_that_was_kept():
    alice = credential("alice")
    without = Credential(b"", alice.certificate, alice.authorities, alice.policy)
    assert "PRIVATE" not in without.to_text()
    assert Credential.from_text(without.to_text()).with_key(key("alice")) == alice
    with pytest.raises(BadCredential):
        without.with_key(key("bob"))


def test_a_credential_with_another_ones_key_is_refused():
    alice, bob = credential("alice").to_text(), credential("bob").to_text()
    mixed = bob[: bob.index("-----BEGIN CERT")] + alice[alice.index("-----BEGIN CERT") :]
    with pytest.raises(BadCredential):
        Credential.from_text(mixed)


@given(st.data())
def test_a_credential_that_was_cut_or_mangled_is_refused_or_the_same(data):
    text = credential("alice").to_text()
    at = data.draw(st.integers(0, len(text) - 1))
    mangled = text[:at] + data.draw(st.sampled_from(["", "A", "-", "\n", "é"])) + text[at + 1 :]
    mangled = mangled[: data.draw(st.integers(at, len(mangled)))]
    try:
        found = Credential.from_text(mangled)
        found.check(NOW_S)
    except (BadCredential, BadPolicy):
        return
    assert found.certificate == credential("alice").certificate


def test_an_authority_is_text_and_back():
    assert Authority.from_text(PLANT.to_text()) == PLANT
    with pytest.raises(BadCredential):
        Authority.from_text(credential("alice").to_text())
    with pytest.raises(BadCredential):
        Credential.from_text(PLANT.to_text())


def test_an_authority_ends_before_what_it_issues_could():
    late_s = NOW_S + 3649 * DAY_S
    assert PLANT.issue("alice", key("any"), [], late_s).not_after_s <= PLANT.certificate.not_after_s


def test_a_signed_policy_is_believed_by_whoever_knows_the_authority():
    found = check(read_signed_policy(SIGNED.to_bytes()))
    assert (found.version, found.policy.bus) == (7, "plant")
    assert found.revocations == (Revocation("bob", 1, "left"),)
    assert found.authorities == (PLANT.certificate,)


@given(st.integers(0, len(SIGNED.to_bytes()) - 1), st.integers(1, 255))
def test_a_policy_with_any_byte_changed_is_not_believed(at, change):
    mangled = bytearray(SIGNED.to_bytes())
    mangled[at] ^= change
    with pytest.raises(BadPolicy):
        check(read_signed_policy(bytes(mangled)))


@given(st.binary(max_size=200))
def test_other_bytes_are_no_policy(data):
    with pytest.raises(BadPolicy):
        read_signed_policy(data)


def test_neither_a_member_nor_the_key_for_members_signs_policies():
    statement = SIGNED.statement
    alice = credential("alice", "admin")
    as_alice = statement.__class__(
        *(getattr(statement, name) for name in statement.__struct_fields__[:-1]),
        alice.certificate.der,
    )
    for told, secret in ((as_alice, alice.private_key), (statement, PLANT.members_key)):
        with pytest.raises(BadPolicy):
            check(signed(told, secret))


def test_a_policy_of_another_bus_or_authority_is_not_believed():
    with pytest.raises(BadPolicy):
        check(SIGNED, bus="other")
    with pytest.raises(BadPolicy):
        check(SIGNED, authority(salt="other").certificate)
    with pytest.raises(BadPolicy):
        check(SIGNED, now_s=NOW_S + 3651 * DAY_S)


def test_what_a_later_version_says_besides_is_skipped_and_still_signed():
    import msgspec

    body = msgspec.msgpack.encode([*msgspec.msgpack.decode(SIGNED.body), "more"])
    later = SignedPolicy(SIGNED.statement, body, b"")
    from infobus.security.signatures import sign

    told = msgspec.msgpack.encode((body, sign(PLANT.policies_key, b"infobus policy 1\0" + body)))
    assert check(read_signed_policy(told)).version == 7
    with pytest.raises(BadPolicy):
        check(read_signed_policy(later.to_bytes()))


class TestSuccession:
    """First both count, then only the new one; who was away all the while can still follow."""

    NEW = authority(salt="new")

    def handed(self, *, by=PLANT):
        return by.hand_over(self.NEW)

    def test_both_count_side_by_side(self):
        both = PLANT.sign(policy_text(version=8), [], [self.NEW.certificate.der], [self.handed()])
        found = check(read_signed_policy(both.to_bytes()))
        old, new = (one.issue("alice", key("any"), [], NOW_S) for one in (PLANT, self.NEW))
        found.check_member(old, NOW_S)
        found.check_member(new, NOW_S)

    def test_in_the_end_the_old_one_counts_no_more(self):
        last = self.NEW.sign(policy_text(version=9), [], [], [self.handed()])
        found = check(last)  # by somebody who knows the old one alone
        assert found.authorities == (self.NEW.certificate,)
        with pytest.raises(BadCredential):
            found.check_member(PLANT.issue("alice", key("any"), [], NOW_S), NOW_S)

    def test_nobody_follows_who_was_not_named_by_the_old_one(self):
        stranger = authority(salt="stranger")
        for handovers in ([], [self.handed(by=stranger)], [self.handed(by=self.NEW)]):
            with pytest.raises(BadPolicy):
                check(self.NEW.sign(policy_text(version=9), [], [], handovers))

    def test_the_key_for_policies_names_no_successor(self):
        told = PLANT.sign(policy_text(version=8), [], [self.NEW.certificate.der])
        assert check(told).authorities == (PLANT.certificate,)

    def test_it_goes_on_over_several_successors(self):
        third = authority(salt="third")
        steps = [self.NEW.hand_over(third), self.handed()]
        assert check(third.sign(policy_text(version=9), [], [], steps)).authorities == (
            third.certificate,
        )
