"""Signed types: whose descriptors count, whose methods run, and that nobody is shut out of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import infobus
from infobus.bus.deliver.type_authors import believe
from infobus.filters import compile
from infobus.objects import classes, codec, descriptors, registry
from infobus.objects.data import DataObject
from infobus.objects.descriptors import Description, TravellingCode
from infobus.objects.members import Attribute, Operation, Parameter
from infobus.objects.spelling import parse_kind
from infobus.security.certificates import read
from infobus.security.credential import Credential
from infobus.security.event_keys import EventKey
from infobus.security.type_authors import TypeAuthors
from infobus.tdl import forbid, permit
from tests.security.plants import DAY_S, NOW_S, authority, credential, key, policy_text
from tests.tdl.programs import fresh

TEXT = policy_text("[roles.admin]", "[roles.member]", "[types]", '"tdl_test.>" = ["admin"]')
ADMIN, ALICE = credential("root", "admin", text=TEXT), credential("alice", "member", text=TEXT)
INT = parse_kind("int")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    believe("plant", None)
    forbid()


def govern(now_s: float = NOW_S) -> None:
    believe("plant", TypeAuthors(ADMIN.check(NOW_S), lambda: now_s))


def description(name: str, factor: int = 0, above: tuple[tuple[str, int], ...] = ()) -> Description:
    """A type with a price, and methods that multiply it."""
    source = f"(defmethod total ((o {name}) count) (* {factor} count (slot-value o 'price)))"
    return Description(
        name,
        above,
        (Attribute("price", INT),),
        (Operation("total", (Parameter("count", INT, True, 1),), INT),),
        "",
        TravellingCode(source) if factor else None,
    )


def by(author: Credential | EventKey, told: bytes) -> bytes:
    name = author.certificate.der if isinstance(author, Credential) else author.public.verifying
    return descriptors.with_author(told, name, author.sign(descriptors.authored_bytes(told, name)))


def received(fingerprint: int) -> Any:
    import msgspec

    return codec.decode(fingerprint, msgspec.msgpack.encode({"price": 5}))


def test_in_a_governed_namespace_only_its_authors_types_count() -> None:
    govern()
    name = fresh("Item")
    told = description(name)
    for descriptor in (told.write(), by(ALICE, told.write())):
        classes.learn(descriptor)
        obj = received(told.fingerprint)
        assert infobus.type_of(obj).name.startswith("unknown_")
        assert obj.price == 5  # a generic object: nothing of it is lost
        assert registry.find_type(name) is None
        assert not compile(f'isa("{name}")').matches(obj)
        assert codec.descriptors([told.fingerprint]) == []  # nor is it handed on
    classes.learn(by(ADMIN, told.write()))
    assert infobus.type_of(received(told.fingerprint)).name == name


def test_a_signature_covers_all_of_a_descriptor() -> None:
    govern()
    told = description(fresh("Item"), factor=2)
    signed = by(ADMIN, told.write())
    other = replace(told, code=TravellingCode("(evil)"))
    moved = descriptors.authorship(signed)
    assert moved is not None
    for forged in (
        descriptors.with_author(other.write(), moved.key, moved.signature),
        descriptors.with_author(replace(told, doc="x").write(), moved.key, moved.signature),
        descriptors.with_author(told.write(), ALICE.certificate.der, moved.signature),
        descriptors.with_author(told.write(), moved.key, b"\0" * 64),
    ):
        classes.learn(forged)
        assert not infobus.type_of(received(told.fingerprint)).code
    classes.learn(signed)
    assert infobus.type_of(received(told.fingerprint)).code == told.code


def test_nobody_is_a_subtype_of_a_governed_type_by_its_own_word() -> None:
    govern()
    item = description(fresh("Item"))
    classes.learn(by(ADMIN, item.write()))
    claim = replace(description("strange.Thing"), supertypes=((item.name, item.fingerprint),))
    classes.learn(claim.write())
    obj = received(claim.fingerprint)
    assert infobus.type_of(obj).name == "strange.Thing"
    assert not compile(f'isa("{item.name}")').matches(obj)
    believe("plant", None)  # the twin: without a policy, the claim is believed
    for one in (item, claim):
        classes.learn(one.write())
    assert compile(f'isa("{item.name}")').matches(received(claim.fingerprint))


def test_an_author_whose_certificate_ends_counts_no_more() -> None:
    told = description(fresh("Item"))
    govern(NOW_S + 1000 * DAY_S)
    classes.learn(by(ADMIN, told.write()))
    assert not infobus.type_of(received(told.fingerprint)).lineage & {told.name}
    other = authority(salt="other")
    stranger = credential("root", "admin", of=other)
    govern()
    classes.learn(by(stranger, told.write()))
    assert registry.find_type(told.name) is None


def test_methods_that_come_first_shut_nobody_out() -> None:
    """An enemy copies a descriptor, with methods of its own, and is the first to send it."""
    name = fresh("Item")
    mine, evil = description(name, factor=2), description(name, factor=0)
    evil = replace(evil, code=TravellingCode(f"(defmethod total ((o {name}) count) 666)"))
    author = EventKey("author", b"a" * 32)
    classes.learn(evil.write())
    classes.learn(by(author, mine.write()))
    obj = received(mine.fingerprint)
    permit(name)
    assert obj.total(3) == 666  # the twin: whoever permits anybody's methods gets these
    forbid()
    permit(name, authors=[author.public.verifying])
    assert obj.total(3) == 30
    forbid()
    permit(name, authors=[key("somebody else")])
    assert not hasattr(obj, "total")


def test_many_junk_methods_do_not_displace_those_that_may_run() -> None:
    name, author = fresh("Item"), EventKey("author", b"a" * 32)
    permit(name, authors=[author.public.verifying])
    classes.learn(description(name, factor=9).write())
    classes.learn(by(author, description(name, factor=2).write()))
    for n in range(registry.OTHER_CODES_COUNT_MAX + 10):
        junk = description(name, factor=9)
        classes.learn(by(EventKey("junk", n.to_bytes(32, "big")), junk.write()))
    assert received(description(name).fingerprint).total(3) == 30
    assert len(registry.other_codes) <= registry.OTHER_CODES_COUNT_MAX


def test_on_a_secured_bus_authors_go_by_name_or_role() -> None:
    govern()
    told = description(fresh("Item"), factor=2)
    classes.learn(by(ADMIN, told.write()))
    for authors, runs in ((["admin"], True), (["root"], True), (["alice", "member"], False)):
        permit(told.name, authors=authors)
        assert hasattr(received(told.fingerprint), "total") is runs
        forbid()


def test_permitting_anybodys_methods_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "infobus"):
        permit("tdl_test.X", authors=["admin"])
        assert not caplog.records
        permit("tdl_test.X")
    assert "whoever has sent them" in caplog.text


def test_a_class_of_this_process_can_be_signed() -> None:
    class Signed(DataObject, name=fresh("Signed")):
        price: int

    assert read(ADMIN.certificate.der).principal == "root"
    classes.sign_type(Signed, ADMIN.certificate.der, ADMIN.sign)
    [descriptor] = codec.descriptors([infobus.type_of(Signed).fingerprint])
    govern()
    assert registry.believes is not None
    assert registry.believes(infobus.type_of(Signed).name, descriptor)


def test_descriptors_of_earlier_versions_read_signed_ones() -> None:
    """The author is a field like others that they skip; the fingerprint is the same."""
    told = description(fresh("Item"))
    found = descriptors.read(by(ADMIN, told.write()))
    assert (found.write(), found.fingerprint) == (told.write(), told.fingerprint)
    assert descriptors.authorship(told.write()) is None
    assert descriptors.authorship(b"\x81\xa6author\x01") is None
