from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st

from infobus.objects import DataObject, Type, define_type, type_of
from infobus.objects.classes import learn
from tests.objects import worlds


def fingerprint(*args: object, **options: object) -> int:
    return type_of(define_type(*args, **options)).fingerprint


@given(worlds.declarations(), st.randoms())
def test_order_and_docs_do_not_matter(attributes, rng: random.Random):
    with worlds.another_process():
        define_type("Left", [], {"left": int})
        define_type("Right", [], {"right": int})
        shuffled = list(attributes.items())
        rng.shuffle(shuffled)
        assert fingerprint("T", ["Left", "Right"], attributes) == fingerprint(
            "T", ["Right", "Left"], dict(shuffled), doc="Words."
        )


@given(worlds.declarations())
def test_a_descriptor_says_the_same_to_its_reader(attributes):
    with worlds.another_process():
        known = type_of(define_type("T", [], attributes, doc="Words."))
    with worlds.another_process():
        assert learn(known.descriptor) == known.fingerprint


def test_how_and_where_a_type_was_written_does_not_matter():
    def area(self, factor: float = 1) -> float:
        return factor

    class Shape(DataObject, name="geo.Shape"):
        """A shape."""

        sides: Annotated[int, "how many"]
        label: str = ""

        def area(self, factor: float = 1.0) -> float:
            """In square metres."""
            return factor

    written = type_of(Shape).fingerprint
    attributes = {"label": ("str", ""), "sides": "int"}
    assert fingerprint("geo.Shape", [], attributes, {"area": area}) == written


def test_everything_that_matters_changes_it():
    def op(self, a: int) -> int:
        return a

    def op2(self, a: int, b: int = 1) -> int:
        return a

    with worlds.another_process():
        define_type("Super", [], {"z": int})
        first = fingerprint("T", [], {"a": int})
        others = [
            fingerprint("U", [], {"a": int}),
            fingerprint("T", [], {"b": int}),
            fingerprint("T", [], {"a": float}),
            fingerprint("T", [], {"a": int | None}),
            fingerprint("T", [], {"a": (int, 0)}),
            fingerprint("T", [], {"a": (int, 1)}),
            fingerprint("T", [], {"a": (bool, False)}),
            fingerprint("T", [], {"a": int, "b": int}),
            fingerprint("T", ["Super"], {"a": int}),
            fingerprint("T", [], {"a": int}, {"op": op}),
            fingerprint("T", [], {"a": int}, {"op": op2}),
        ]
        define_type("Super", [], {"z": str})
        others.append(fingerprint("T", ["Super"], {"a": int}))
        assert len({first, *others}) == 1 + len(others)


def test_repeating_an_inherited_member_changes_nothing():
    class Base(DataObject):
        size: int = 1

        def twice(self) -> int:
            return self.size * 2

    class Plain(Base, name="Derived"):
        pass

    class Wordy(Base, name="Derived"):
        size: int = 1

        def twice(self) -> int:
            return self.size + self.size

    assert type_of(Plain) == type_of(Wordy)


def test_equal_defaults_count_as_equal_however_they_are_written():
    moment = datetime(2024, 1, 1, 12, tzinfo=UTC)
    abroad = moment.astimezone(timezone(timedelta(hours=5)))
    one: dict[str, object] = {"d": ("dict[str, int]", {"a": 1, "b": 2}), "m": (datetime, moment)}
    two: dict[str, object] = {"d": ("dict[str, int]", {"b": 2, "a": 1}), "m": (datetime, abroad)}
    assert fingerprint("Defaults", [], one) == fingerprint("Defaults", [], two)


def test_fingerprints_never_change_between_versions_of_this_package():
    with worlds.another_process():
        known: Type = type_of(
            define_type(
                "news.Story",
                [define_type("Item", [], {"made": datetime})],
                {"headline": str, "tags": (list[str], ["a"]), "lead": "news.Story | None"},
            )
        )
        assert f"{known.fingerprint:016x}" == "ba3181911408c42f"
