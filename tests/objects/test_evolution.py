"""Types change while the system runs; whoever knows less, or more, gets a usable object.

Each `another_process()` is a process of its own: it knows what was declared or learned in it.
"""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadValue
from infobus.objects import (
    DataObject,
    all_types,
    define_type,
    find_type,
    sent_values,
    type_of,
)
from infobus.objects.codec import Mismatched, decode, descriptors, encode, learn, reader_for
from infobus.objects.data import unknown_attributes
from tests.objects import worlds
from tests.objects.worlds import text_of


class Sent(NamedTuple):
    """What travels: an object's fingerprint and payload, and the descriptors it needs."""

    fingerprint: int
    payload: bytes
    descriptors: list[bytes]

    @property
    def content(self) -> Any:
        """The attributes, whatever their order on the wire."""
        return decode(0, self.payload)

    def received(self) -> Any:
        for descriptor in self.descriptors:
            learn(descriptor)
        return decode(self.fingerprint, self.payload, "id-1")


def sent(obj: Any) -> Sent:
    fingerprint, payload, needs = encode(obj)
    return Sent(fingerprint, payload, descriptors(needs))


def story_v1() -> type[DataObject]:
    class Story(DataObject):
        headline: str
        body: str = "none"
        size: float = 0.0

    return Story


def story_v2() -> type[DataObject]:
    class Story(DataObject):
        headline: str
        size: int = 0
        topics: list[str] = []

    return Story


@pytest.fixture
def from_v2() -> Sent:
    with worlds.another_process():
        return sent(story_v2()(headline="GM", size=5, topics=["cars"]))


def test_an_older_reader_gets_its_own_class_and_keeps_the_rest(from_v2):
    with worlds.another_process():
        Story = story_v1()
        story = from_v2.received()
        assert type(story) is Story and type_of(story) == type_of(Story)
        assert (story.headline, story.body, story.size) == ("GM", "none", 5.0)
        assert unknown_attributes(story) == {"topics": ["cars"], "size": 5}
        assert sent_values(story) == {"headline": "GM", "size": 5, "topics": ["cars"]}
        assert story.topics == ["cars"]


def test_sending_on_keeps_the_meaning_through_older_readers(from_v2):
    with worlds.another_process():
        story_v1()
        again = sent(from_v2.received())
    assert again.fingerprint == from_v2.fingerprint
    assert again.descriptors == from_v2.descriptors
    with worlds.another_process():
        Story = story_v2()
        assert again.received() == Story(headline="GM", size=5, topics=["cars"])


def test_sending_on_keeps_the_meaning_through_readers_without_any_descriptor(from_v2):
    with worlds.another_process():
        generic = decode(from_v2.fingerprint, from_v2.payload)
        assert type(generic) is DataObject and not type_of(generic).is_known
        assert generic.topics == ["cars"]
        generic.note = "seen"
        generic.headline = "GM rises"
        with pytest.raises(BadValue):
            generic.note = object()
        again = sent(generic)
        assert again.descriptors == []
        for descriptor in from_v2.descriptors:
            learn(descriptor)
        assert type_of(generic).name == "Story"
        assert sent(generic).descriptors == from_v2.descriptors
    with worlds.another_process():
        story_v2()
        story = again.received()
        assert (story.headline, story.topics, story.note) == ("GM rises", ["cars"], "seen")


def test_changed_values_are_sent_on_beside_what_is_not_known(from_v2):
    with worlds.another_process():
        story_v1()
        story = from_v2.received()
        twin = copy.copy(story)
        story.headline, story.body = "Ford", "new"
        story.topics = ["trucks"]
        again = sent(story)
        assert sent(twin).payload == from_v2.payload
    assert again.fingerprint == from_v2.fingerprint
    with worlds.another_process():
        story_v2()
        story = again.received()
        assert (story.headline, story.size, story.topics) == ("Ford", 5, ["trucks"])
        assert unknown_attributes(story) == {"body": "new"}


def test_a_change_that_the_received_version_forbids_sends_the_readers_own_version(from_v2):
    with worlds.another_process():
        Story = story_v1()
        story = from_v2.received()
        story.size = 7.5
        again = sent(story)
        assert again.fingerprint == type_of(Story).fingerprint
        received = again.received()
        assert (received.size, received.topics) == (7.5, ["cars"])


def test_a_number_read_as_float_is_sent_on_as_the_integer_it_was():
    with worlds.another_process():
        from_new = sent(define_type("Box", [], {"size": int, "all": list[int]})(size=7, all=[1]))
    with worlds.another_process():
        define_type("Box", [], {"size": float, "all": list[float]})
        box = from_new.received()
        assert type(box.size) is float and type(box.all[0]) is float
        assert sent(box) == from_new
        box.size = 7.5
        assert sent(box).content == {"size": 7.5, "all": [1]}


def test_a_default_changed_in_place_is_sent():
    with worlds.another_process():
        from_old = sent(define_type("Box", [], {"label": str})(label="a"))
    with worlds.another_process():
        define_type("Box", [], {"label": str, "items": (list[int], [])})
        box = from_old.received()
        assert "items" not in sent(box).content
        box.items.append(5)
        assert sent(box).content["items"] == [5]


def test_optional_attributes_that_never_came_are_none():
    with worlds.another_process():
        from_old = sent(define_type("Box", [], {"label": str})(label="a"))
    with worlds.another_process():
        Box = define_type("Box", [], {"label": str, "weight": "float | None", "more": Any})
        box = from_old.received()
        assert type(box) is Box and box.weight is box.more is None
        assert "weight (not sent) = None" in text_of(box)
        assert sent_values(box) == {"label": "a"}
        assert sent(box).payload == from_old.payload


def refused(from_other: Sent) -> Mismatched:
    """What a reader is told that asks for objects as its own classes hold them."""
    from_other.received()
    with pytest.raises(Mismatched) as told:
        reader_for(from_other.fingerprint)(from_other.payload, "id-1")
    return told.value


@pytest.mark.parametrize("here", [int, (int, 3), "int | None", "list[int]"])
def test_a_value_that_the_readers_class_cannot_hold_is_never_replaced(here):
    with worlds.another_process():
        from_other = sent(define_type("shop.Order", [], {"total": float})(total=99.5))
    with worlds.another_process():
        define_type("shop.Order", [], {"total": here})
        order = from_other.received()
        assert type(order) is DataObject and type_of(order).attributes["total"].type == "float"
        assert order.total == 99.5 and sent_values(order) == {"total": 99.5}
        told = refused(from_other)
        assert (told.type, told.attribute, told.sent) == ("shop.Order", "total", 99.5)
        assert str(told) == f"shop.Order.total: expected {told.expected}, got float 99.5"
        assert "got float 99.5)" in text_of(told.object).splitlines()[0]
        assert "  total: float = 99.5" in text_of(told.object).splitlines()
        assert sent(order) == from_other


def test_a_required_attribute_that_was_not_sent_is_never_made_up():
    with worlds.another_process():
        from_old = sent(define_type("Box", [], {"label": str})(label="a"))
    with worlds.another_process():
        define_type("Box", [], {"label": str, "weight": float})
        told = refused(from_old)
        assert (told.attribute, told.sent, told.expected) == ("weight", None, "float")
        assert str(told) == "Box.weight: expected float, but it was not sent"
        assert told.object.label == "a" and not hasattr(told.object, "weight")
        assert sent(told.object) == from_old


def test_an_attribute_of_a_type_holds_only_objects_that_fit_the_type_as_it_is_known_here():
    def folder(kind: Any) -> Any:
        part = define_type("Part", [], {"size": kind})
        kinds = {"lead": part, "rest": "list[Part]", "any": Any, "root": DataObject}
        return part, define_type("Folder", [], kinds)

    def content(part: Any, size: Any, other: Any) -> dict[str, Any]:
        return {"lead": part(size=size), "rest": [], "any": part(size=other), "root": part(size=1)}

    with worlds.another_process():
        Part, Folder = folder(Any)
        in_lead = sent(Folder(**content(Part, "large", 1)))
        in_rest = sent(Folder(**content(Part, 1, 1) | {"rest": [Part(size=1), Part(size="x")]}))
        in_any = sent(Folder(**content(Part, 1, "large")))
    with worlds.another_process():
        Part, Folder = folder(int)
        told = refused(in_lead)
        assert str(told) == "Folder.lead.size: expected int, got str 'large'"
        assert told.object.lead.size == "large" and sent(told.object) == in_lead
        assert refused(in_rest).attribute == "rest[1].size"
        found = in_any.received()  # "any" promises nothing, so it holds the part as it was sent
        assert type(found) is Folder and type(found.lead) is Part
        assert type(found.any) is DataObject and found.any.size == "large"
        assert sent(found) == in_any


def test_an_unknown_type_becomes_a_class_on_top_of_known_supertypes(from_v2):
    with worlds.another_process():

        class Story(DataObject):
            headline: str

            def shout(self) -> str:
                return self.headline.upper()

        class Reuters(Story, name="feeds.Reuters"):
            topics: list[str] = []

            def first(self) -> str:
                return self.topics[0]

        from_feed = sent(Reuters(headline="gm", topics=["cars"]))
    with worlds.another_process():

        class Story(DataObject):
            headline: str

            def shout(self) -> str:
                return self.headline.upper() + "!"

        story = from_feed.received()
        assert isinstance(story, Story) and story.shout() == "GM!"
        assert type_of(story).name == "feeds.Reuters" and story.topics == ["cars"]
        assert type_of(Story).subtypes == (type_of(story),)
        assert type_of(story).attributes["headline"].inherited_from == "Story"
        assert type_of(story).operations.names == ("shout", "first")
        with pytest.raises(AttributeError, match="known by its signature only"):
            story.first()
        with pytest.raises(BadValue, match=r"feeds.Reuters.topics: expected list\[str\]"):
            story.topics = 5
        assert sent(story) == from_feed
        made_here = type(story)(headline="x")
        assert sent(made_here).fingerprint == from_feed.fingerprint


def test_an_unknown_type_on_another_version_of_a_supertype_is_still_an_instance_of_it(from_v2):
    with worlds.another_process():
        Reuters = define_type("Reuters", [story_v2()], {"feed": str})
        from_feed = sent(Reuters(headline="gm", size=7, feed="r1"))
    with worlds.another_process():
        Story = story_v1()
        story = from_feed.received()
        assert isinstance(story, Story) and type_of(story).name == "Reuters"
        assert (story.headline, story.feed, story.body) == ("gm", "r1", "none")
        assert unknown_attributes(story) == {"size": 7, "topics": []}
        assert sent(story).fingerprint == from_feed.fingerprint
        assert sorted(sent(story).descriptors) == sorted(from_feed.descriptors)


def test_a_contradiction_with_the_local_supertype_costs_no_value():
    with worlds.another_process():
        Sub = define_type("Sub", [define_type("Base", [], {"a": int})], {"x": str})
        from_other = sent(Sub(a=1, x="text"))
    with worlds.another_process():
        Base = define_type("Base", [], {"a": int, "x": (int, 3)})
        received = from_other.received()
        assert not isinstance(received, Base) and (received.a, received.x) == (1, "text")
        assert str(refused(from_other)) == "Sub.x: expected int, got str 'text'"
        assert sent(received).payload == from_other.payload


def test_supertypes_may_be_learned_after_their_subtypes():
    with worlds.another_process():
        Top = define_type("Top", [], {"t": int})
        Low = define_type("Low", [define_type("Middle", [Top], {"m": int})], {"l": int})
        from_other = sent(Low(t=1, m=2, l=3))
    with worlds.another_process():
        for descriptor in reversed(from_other.descriptors):
            learn(descriptor)
            received = decode(from_other.fingerprint, from_other.payload)
            assert (received.t, received.m, received.l) == (1, 2, 3)
            assert sent(received).content == from_other.content
        assert not unknown_attributes(received)
        assert type_of(received).lineage == {"Low", "Middle", "Top", "DataObject"}
        assert type_of(received).attributes.names == ("t", "m", "l")


def test_a_class_declared_later_takes_over():
    with worlds.another_process():
        Base = define_type("Base", [], {"a": int})
        from_other = sent(define_type("Sub", [Base], {"b": int})(a=1, b=2))
    with worlds.another_process():
        early = from_other.received()
        assert type(early).__mro__[1] is not DataObject

        class Base(DataObject):
            a: int

        assert isinstance(from_other.received(), Base)
        assert type_of(Base).subtypes == (type_of(early),)

        class Sub(Base):
            b: int

        late = from_other.received()
        assert type(late) is Sub and late == early
        assert find_type("Sub").classes == (Sub,)
        assert [t.name for t in all_types()] == ["Base", "DataObject", "Property", "Sub"]


def test_hierarchies_that_contradict_each_other_still_give_an_object():
    with worlds.another_process():
        A, B = define_type("A", [], {"a": int}), define_type("B", [], {"b": int})
        Z = define_type("Z", [define_type("X", [A, B]), define_type("Y", [A, B])], {"z": int})
        from_other = sent(Z(a=1, b=2, z=3))
    with worlds.another_process():
        A, B = define_type("A", [], {"a": int}), define_type("B", [], {"b": int})
        define_type("X", [A, B])
        define_type("Y", [B, A])
        received = from_other.received()
        assert (received.a, received.b, received.z) == (1, 2, 3)
        assert sent(received).content == from_other.content


def test_nested_objects_of_other_versions_evolve_alike(from_v2):
    with worlds.another_process():
        Folder = define_type("Folder", [], {"lead": story_v2(), "rest": ("list[Story]", [])})
        lead = from_v2.received()
        from_folder = sent(Folder(lead=lead, rest=[lead]))
    with worlds.another_process():
        Story = story_v1()
        folder = from_folder.received()
        assert type(folder.lead) is Story and folder.rest[0].topics == ["cars"]
        again = sent(folder)
        assert again.fingerprint == from_folder.fingerprint
        assert again.payload == from_folder.payload
    with worlds.another_process():
        generic = decode(from_folder.fingerprint, from_folder.payload)
        assert generic.lead.headline == "GM"
        assert sent(generic).payload == from_folder.payload
    with worlds.another_process():
        Folder = define_type("Folder", [], {"lead": "Story", "rest": ("list[Story]", [])})
        folder = decode(from_folder.fingerprint, from_folder.payload)
        assert type(folder) is Folder and not type_of(folder.lead).is_known
        assert sent(folder).payload == from_folder.payload


def test_fields_that_a_later_version_adds_to_descriptors_are_skipped_and_passed_on():
    import msgspec

    with worlds.another_process():
        known = type_of(define_type("Thing", [], {"a": int}))
    later = msgspec.msgpack.encode(
        msgspec.msgpack.decode(known.descriptor) | {"colour": "red", "since": 3}
    )
    with worlds.another_process():
        assert learn(later) == known.fingerprint
        assert descriptors([known.fingerprint]) == [later]


@given(worlds.declarations(), worlds.declarations(), st.data())
def test_any_two_versions_understand_each_other_and_lose_nothing(old, new, data):
    """Old reads new, sends it on, and new reads what new had written."""
    with worlds.another_process():
        New = define_type("T", [], new)
        original = New(**data.draw(worlds.values_for(New)))
        from_new = sent(original)
    for middle in (old, None):
        with worlds.another_process():
            if middle is not None:
                Old = define_type("T", [], middle)
                received = from_new.received()
                is_same = type_of(Old).fingerprint == from_new.fingerprint
                assert type(received) is Old or not is_same
                if type(received) is Old:
                    for attribute in type_of(Old).attributes:
                        attribute.kind.check(getattr(received, attribute.name))
                else:
                    refused(from_new)
                assert sent_values(received).keys() == from_new.content.keys()
            else:
                received = from_new.received()
            again = sent(received)
        assert again.fingerprint == from_new.fingerprint
        with worlds.another_process():
            define_type("T", [], new)
            assert again.received() == original
