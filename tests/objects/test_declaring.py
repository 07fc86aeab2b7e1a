# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import copy
import enum
import pickle
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import pytest

from infobus.errors import BadType, BadValue
from infobus.objects import (
    DataObject,
    Property,
    Type,
    codec,
    define_type,
    id_of,
    identify,
    type_of,
)


class Tale(DataObject):
    """A piece of news."""

    headline: Annotated[str, "what it is about"]
    body: str = ""
    industries: list[str] = []

    def words(self, at_least: int = 1) -> list[str]:
        """The longer words of the headline."""
        return [word for word in self.headline.split() if len(word) >= at_least]


class WiredTale(Tale):
    topics: dict[str, int] = {}


class Reading(DataObject):
    celsius: float
    count: int = 0
    when: datetime | None = None
    raw: bytes = b""
    source: Tale | None = None
    note: Any = None


def test_attributes_have_their_values_and_defaults():
    story = WiredTale(headline="GM rises", topics={"cars": 1})
    assert (story.headline, story.body, story.industries) == ("GM rises", "", [])
    assert story.topics == {"cars": 1}
    assert isinstance(story, Tale)


def test_no_two_objects_share_a_default_list():
    one, other = Tale(headline="a"), Tale(headline="b")
    one.industries.append("cars")
    assert other.industries == []
    assert Tale(headline="c").industries == []


def test_an_object_does_not_share_a_list_with_its_maker():
    names = ["cars"]
    story = Tale(headline="a", industries=names)
    names.append("trucks")
    assert story.industries == ["cars"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"celsius": "21,5"}, "Reading.celsius: expected float, got str '21,5'"),
        ({"celsius": True}, "Reading.celsius: expected float, got bool True"),
        ({"celsius": 10**400}, "too large"),
        ({"celsius": 1, "count": 2**63}, "more than 64 bits"),
        ({"celsius": 1, "count": True}, "Reading.count: expected int, got bool True"),
        ({"celsius": 1, "when": datetime(2024, 1, 1)}, "without a time zone"),
        ({"celsius": 1, "raw": "text"}, "Reading.raw: expected bytes, got str 'text'"),
        ({"celsius": 1, "source": 5}, "Reading.source: expected Tale | None, got int 5"),
        ({"celsius": 1, "note": {"a": [1, {2}]}}, "Reading.note['a'][1]: expected a value"),
        ({"celsius": 1, "note": {1: 2}}, "expected str as key of a map, got int 1"),
        ({"celsius": 1, "celcius": 2}, "no attribute 'celcius'; did you mean 'celsius'?"),
        ({}, "Reading.celsius: expected float, got no value"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(values, message):
    with pytest.raises(BadValue) as caught:
        Reading(**values)
    assert message in str(caught.value)
    assert caught.value.path.startswith("Reading.")


def test_the_place_of_a_wrong_value_reaches_into_lists_and_maps():
    with pytest.raises(BadValue, match=r"Tale.industries\[1\]: expected str, got int 5"):
        Tale(headline="a", industries=["x", 5])
    with pytest.raises(BadValue, match=r"WiredTale.topics\['b'\]: expected int, got None"):
        WiredTale(headline="a", topics={"a": 1, "b": None})


def test_assignment_is_checked_like_construction():
    reading = Reading(celsius=1)
    reading.celsius = 2
    assert reading.celsius == 2.0 and type(reading.celsius) is float
    with pytest.raises(BadValue, match="expected float"):
        reading.celsius = "hot"
    with pytest.raises(BadValue, match="no attribute 'kelvin'"):
        reading.kelvin = 5
    with pytest.raises(BadValue, match="cannot be deleted"):
        del reading.celsius
    assert reading == Reading(celsius=2.0)


def test_subclasses_of_scalars_are_stored_as_the_scalars():
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    class Moment(datetime):
        pass

    when = Moment(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    reading = Reading(celsius=Level.HIGH, count=Level.HIGH, when=when, raw=bytearray(b"x"))
    story = Tale(headline=Colour.RED, industries=(Colour.RED,))
    assert type(story.headline) is str and story.industries == ["red"]
    assert type(story.industries[0]) is str
    assert type(reading.count) is int and reading.raw == b"x"
    assert type(reading.when) is datetime and reading.when == when
    note = Reading(celsius=0, note=[Colour.RED, Level.HIGH, when]).note
    assert [type(part) for part in note] == [str, int, datetime]


def test_any_subtype_fits_where_a_supertype_is_asked_for():
    story = WiredTale(headline="a")
    assert Reading(celsius=1, source=story).source is story


def test_equality_is_by_type_and_attributes():
    assert Tale(headline="a") == Tale(headline="a")
    assert Tale(headline="a") != Tale(headline="b")
    assert Tale(headline="a") != WiredTale(headline="a")
    assert Tale(headline="a") != "a"


def test_objects_can_be_copied_and_pickled():
    story = WiredTale(headline="a", topics={"x": 1})
    identify(story, "object-1")
    for twin in (copy.copy(story), copy.deepcopy(story), pickle.loads(pickle.dumps(story))):
        assert twin == story
        assert id_of(twin) == "object-1"
    changed = copy.copy(story)
    changed.headline = "b"
    assert story.headline == "a"


def test_a_class_may_use_any_private_names_for_itself():
    class Parcel(DataObject, name="declaring.Parcel"):
        weight: float

        def _type(self):
            return "parcel"

        def _tag(self):
            return f"{self.weight} kg"

        _plan = "by train"

    parcel = Parcel(weight=2)
    assert (parcel._type(), parcel._tag(), parcel._plan) == ("parcel", "2.0 kg", "by train")
    fingerprint, payload, _ = codec.encode(parcel)
    assert codec.decode(fingerprint, payload) == parcel


def test_an_object_gets_its_id_once():
    story = Tale(headline="a")
    assert id_of(story) is None
    assert identify(story, "one") == "one"
    assert identify(story, "two") == "one"
    assert id_of(story) == "one"
    assert id_of({"a": 1}) is None


def test_diamonds_inherit_each_attribute_once():
    class Item(DataObject):
        label: str = "item"

    class Priced(Item):
        label = "priced"
        price: float = 0.0

    class Stored(Item):
        shelf: int = 0

    class Article(Stored, Priced):
        pass

    assert Article() == Article(label="priced", price=0.0, shelf=0)
    assert type_of(Article).attributes["label"].inherited_from == "Priced"
    assert type_of(Article).attributes["shelf"].inherited_from == "Stored"
    assert [s.name for s in type_of(Article).supertypes] == ["Stored", "Priced"]


def test_contradictions_between_types_are_refused():
    class Left(DataObject):
        size: int = 0

    class Right(DataObject):
        size: str = ""

    class Other(DataObject):
        size: int = 1

    with pytest.raises(BadType, match="Left and Right disagree"):

        class Both(Left, Right):
            pass

    with pytest.raises(BadType, match="declare it in Unsettled itself"):

        class Unsettled(Left, Other):
            pass

    class Settled(Left, Other):
        size: int = 2

    assert Settled().size == 2
    with pytest.raises(BadType, match="declared as str, but inherited from Left as int"):

        class Worse(Left):
            size: str = ""

    with pytest.raises(BadType, match="both an attribute and an operation"):

        class Clash(Left):
            def label(self) -> str:
                return ""

        class Clashing(Clash):
            label: str


def test_a_subtype_may_narrow_an_attribute():
    class Holder(DataObject):
        content: Tale | None = None
        tags: list[Any] = []

    class NewsHolder(Holder):
        content: WiredTale | None = None
        tags: list[str] = []

    with pytest.raises(BadValue, match="expected WiredTale"):
        NewsHolder(content=Tale(headline="a"))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"a": complex}, "cannot be sent; use bool, int"),
        ({"a": set[list[int]]}, "must be hashable"),
        ({"a": set[int] | list[int]}, "cannot be told apart"),
        ({"a": int | complex}, "cannot be sent"),
        ({"a": dict[int, str]}, "cannot be sent"),
        ({"a": (str, None)}, "the default does not fit: expected str, got None"),
        ({"_a": str}, "without leading '_'"),
        ({"a": "list[str"}, "expected ']'"),
        ({"a": "str]"}, "left over"),
        ({"a": "list[" * 30 + "str" + "]" * 30}, "nested deeper"),
        ({"a": (Any, Tale(headline="x"))}, "an object cannot be a default"),
        ({"a": "no such"}, "left over"),
    ],
)
def test_impossible_attributes_are_refused(attributes, message):
    with pytest.raises(BadType) as caught:
        define_type("Impossible", [], attributes)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["", "1a", "a..b", "a b", "str", "DataObject", "x" * 300])
def test_impossible_type_names_are_refused(name):
    with pytest.raises(BadType, match="type name"):
        define_type(name)


def test_a_class_without_usable_annotations_says_which():
    with pytest.raises(BadType, match=r"Odd.a: .*cannot be sent"):

        class Odd(DataObject):
            a: complex

    with pytest.raises(BadType, match="Broken: cannot make sense of its annotations"):

        class Broken(DataObject):
            a: list[
                nowhere.at.all  # noqa: F821
            ]


def test_types_may_refer_to_themselves_and_to_later_ones():
    class Node(DataObject):
        label: str
        next: Node | None = None
        owner: Owner | None = None
        shared: ClassVar[int] = 3

    class Owner(DataObject):
        nodes: list[Node] = []

    chain = Node(label="a", next=Node(label="b", owner=Owner()))
    assert Owner(nodes=[chain]).nodes[0].next.label == "b"
    assert Node.shared == 3 and "shared" not in type_of(Node).attributes
    with pytest.raises(BadValue, match=r"expected Owner \| None"):
        Node(label="a", owner=chain)


def test_a_type_may_have_several_classes():
    class Quote(DataObject, name="market.Quote"):
        price: float

    class CachedQuote(Quote, name="market.Quote"):
        def shown(self):
            return f"{self.price:.2f}"

    class ForeignQuote(DataObject, name="market.Quote"):
        price: float

    assert type_of(Quote) == type_of(CachedQuote) == type_of(ForeignQuote)
    assert type_of(Quote).classes == (Quote, CachedQuote, ForeignQuote)
    assert Quote(price=1) == ForeignQuote(price=1)
    with pytest.raises(BadType, match="a name of its own"):

        class BiggerQuote(Quote, name="market.Quote"):
            volume: int


def test_public_methods_with_annotations_are_operations():
    class Recipe(DataObject):
        name: str

        def run(self, hot: bool, steps: list[int] = [1]) -> Tale | None:  # noqa: B006
            """Run it."""

        def stop(self) -> None: ...
        def helper(self, x):
            return x

        def frame(self) -> set[int]:
            return set()

        def many(self, *args: int) -> int:
            return len(args)

        def _private(self) -> int:
            return 1

    operations = type_of(Recipe).operations
    assert operations.names == ("run", "stop")
    assert operations["run"].signature == "run(hot: bool, steps: list[int] = [1]) -> Tale | None"
    assert operations["run"].doc == "Run it."


def test_introspection_tells_everything_about_a_type():
    known = type_of(WiredTale(headline="a"))
    assert isinstance(known, Type) and known.name == "WiredTale"
    assert known.supertypes == (type_of(Tale),)
    assert known in type_of(Tale).subtypes
    assert type_of(Tale) in type_of(DataObject).subtypes
    assert known.is_subtype_of("Tale") and known.is_subtype_of(type_of(DataObject))
    headline, topics = known.attributes["headline"], known.attributes[-1]
    assert (headline.type, headline.doc, headline.has_default) == ("str", "what it is about", False)
    assert headline.inherited_from == "Tale"
    assert (topics.type, topics.default, topics.inherited_from) == ("dict[str, int]", {}, None)
    assert known.operations["words"].inherited_from == "Tale"
    assert type_of(Tale).doc == "A piece of news."
    assert known.to_dict()["attributes"][0]["name"] == "headline"
    with pytest.raises(KeyError):
        known.attributes["nothing"]
    with pytest.raises(BadValue, match="neither a data object nor a class"):
        type_of(5)


def test_attributes_are_read_and_set_by_name():
    story = Tale(headline="a")
    attribute = type_of(story).attributes["headline"]
    attribute.set(story, "b")
    assert attribute.get(story) == story.headline == "b"
    with pytest.raises(BadValue):
        attribute.set(story, 5)


def test_a_type_defined_at_run_time_is_as_good_as_a_declared_one():
    def total(self, factor: int = 1) -> int:
        """All of it."""
        return self.count * factor

    Basket = define_type(
        "shop.Basket",
        ["Tale", type_of(Property)],
        {"count": Annotated[int, "how many"], "tags": ("list[str]", ["new"])},
        {"total": total},
        doc="Things to buy.",
    )
    basket = Basket(headline="h", name="n", value=1, ref="r", count=3)
    assert basket.tags == ["new"] and basket.total(2) == 6
    assert isinstance(basket, Tale) and isinstance(basket, Property)
    assert Basket.__name__ == "Basket" and type_of(Basket).attributes["count"].doc == "how many"
    assert type_of(Basket).operations["total"].doc == "All of it."

    class BigBasket(Basket):
        limit: int = 9

    assert BigBasket(headline="h", name="n", value=1, ref="r", count=3).total() == 3
    with pytest.raises(BadType, match="no type 'Nowhere' is known"):
        define_type("X", ["Nowhere"])
    with pytest.raises(BadType, match="not annotated"):
        define_type("X", [], {}, {"f": lambda self: 1})


def test_a_type_can_be_defined_from_the_parts_of_another():
    Copy = define_type("Copy", [], type_of(Tale).attributes, type_of(Tale).operations)
    assert type_of(Copy).attributes.names == type_of(Tale).attributes.names
    with pytest.raises(AttributeError, match="known by its signature only"):
        Copy(headline="a").words()


def test_repr_shows_what_would_make_the_object_and_ends_for_cycles():
    class Loop(DataObject):
        next: Loop | None = None

    loop = Loop()
    assert repr(loop) == "Loop(next=None)"
    loop.next = loop
    assert repr(loop) == "Loop(next=...)"


def test_a_type_that_no_receiver_would_take_is_refused_where_it_is_made():
    most = {f"a{n}": "int" for n in range(1024)}
    assert len(type_of(define_type("declaring.Most", [], most)).attributes) == 1024
    with pytest.raises(BadType, match=r"declaring.Many has 1025 attributes; 1024 are allowed"):
        define_type("declaring.Many", [], most | {"one_more": "int"})
