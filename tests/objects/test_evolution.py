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
from infobus.objects import DataObject, all_types, define_type, describe, find_type, type_of
from infobus.objects.codec import decode, descriptors, encode, learn
from infobus.objects.data import unknown_attributes
from tests.objects import worlds


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
        size: int = 0

    return Story


def story_v2() -> type[DataObject]:
    class Story(DataObject):
        headline: str
        size: str = ""
        topics: list[str] = []

    return Story


@pytest.fixture
def from_v2() -> Sent:
    with worlds.another_process():
        return sent(story_v2()(headline="GM", size="large", topics=["cars"]))


def test_an_older_reader_gets_its_own_class_and_keeps_the_rest(from_v2):
    with worlds.another_process():
        Story = story_v1()
        story = from_v2.received()
        assert type(story) is Story and type_of(story) == type_of(Story)
        assert (story.headline, story.body, story.size) == ("GM", "none", 0)
        assert unknown_attributes(story) == {"topics": ["cars"], "size": "large"}
        assert story.topics == ["cars"]


def test_sending_on_keeps_the_meaning_through_older_readers(from_v2):
    with worlds.another_process():
        story_v1()
        again = sent(from_v2.received())
    assert again.fingerprint == from_v2.fingerprint
    assert again.descriptors == from_v2.descriptors
    with worlds.another_process():
        Story = story_v2()
        assert again.received() == Story(headline="GM", size="large", topics=["cars"])


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
        assert (story.headline, story.size, story.topics) == ("Ford", "large", ["trucks"])
        assert unknown_attributes(story) == {"body": "new"}


def test_a_change_that_the_received_version_forbids_sends_the_readers_own_version(from_v2):
    with worlds.another_process():
        Story = story_v1()
        story = from_v2.received()
        story.size = 7
        again = sent(story)
        assert again.fingerprint == type_of(Story).fingerprint
        received = again.received()
        assert (received.size, received.topics) == (7, ["cars"])


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


def test_attributes_without_default_that_never_came_are_none():
    with worlds.another_process():
        from_old = sent(define_type("Box", [], {"label": str})(label="a"))
    with worlds.another_process():
        define_type("Box", [], {"label": str, "weight": float})
        box = from_old.received()
        assert box.weight is None
        assert "weight (not sent) = None" in describe(box)
        assert sent(box).payload == from_old.payload


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
        from_feed = sent(Reuters(headline="gm", size="big", feed="r1"))
    with worlds.another_process():
        Story = story_v1()
        story = from_feed.received()
        assert isinstance(story, Story) and type_of(story).name == "Reuters"
        assert (story.headline, story.feed, story.body) == ("gm", "r1", "none")
        assert unknown_attributes(story) == {"size": "big", "topics": []}
        assert sent(story).fingerprint == from_feed.fingerprint
        assert sorted(sent(story).descriptors) == sorted(from_feed.descriptors)


def test_a_contradiction_with_the_local_supertype_costs_no_value():
    with worlds.another_process():
        Sub = define_type("Sub", [define_type("Base", [], {"a": int})], {"x": str})
        from_other = sent(Sub(a=1, x="text"))
    with worlds.another_process():
        Base = define_type("Base", [], {"a": int, "x": (int, 3)})
        received = from_other.received()
        assert isinstance(received, Base) and received.__dict__["x"] == 3
        assert unknown_attributes(received) == {"x": "text"}
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
                assert type(received) is Old
                for attribute in type_of(Old).attributes:
                    getattr(received, attribute.name)
            else:
                received = from_new.received()
            again = sent(received)
        assert again.fingerprint == from_new.fingerprint
        with worlds.another_process():
            define_type("T", [], new)
            assert again.received() == original
