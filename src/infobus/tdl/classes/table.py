"""The classes that a program has defined, and how objects of them are made.

When a class is defined anew, its subclasses are made anew as well. Objects of the classes before
are brought up to date when the program next uses them (`renewal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakSet

from infobus.errors import BadType
from infobus.objects import registry
from infobus.objects.classes import class_for, make_class
from infobus.objects.data import DataObject
from infobus.objects.kinds import Kind
from infobus.objects.members import Attribute, Operation, make_attribute
from infobus.objects.types import Type, compose, inherited_attributes
from infobus.tdl.classes.renewal import copied_cells
from infobus.tdl.conditions import Unbound, failed
from infobus.tdl.limits import CELL_BYTES, CHARACTER_BYTES
from infobus.tdl.machine import Code, Evaluation, Frame

CLASS_STEPS = 100
"""The fuel that defining a class costs: it takes about as long as this many other steps."""
CLASS_BYTES = 4096
"""The memory charged for a class, besides its description. The process never forgets it."""

RECIPE_COUNT_MAX = 1_000

_made_here: WeakSet[type[DataObject]] = WeakSet()
"""The classes that any interpreter in this process has made."""


@dataclass
class SharedSlot:
    """A slot with `:allocation :class`: one value for all objects, which is not sent."""

    kind: Kind
    value: list[Any]
    """The value, or nothing while the slot is unbound."""


SlotAbove: TypeAlias = Attribute | SharedSlot


@dataclass
class ClassParts:
    """What a class is made of."""

    name: str
    bases: list[type[DataObject]]
    attributes: list[Attribute]
    operations: list[Operation]
    doc: str
    initargs: dict[str, list[str]] = field(default_factory=dict)
    """The slots that a keyword sets, besides the one that has its name."""
    default_initargs: dict[str, Code] = field(default_factory=dict)
    frame: Frame = field(default_factory=list)
    """The frame in which the default initargs are evaluated."""
    shared: dict[str, SharedSlot] = field(default_factory=dict)
    given: dict[str, set[str]] = field(default_factory=dict)
    """The options that each slot was written with; the others are inherited."""

    def composed(self, bases: list[type[DataObject]]) -> Type:
        """Return the type that the class has with these superclasses."""
        above = [base.__bus_type__ for base in bases]
        inherited = inherited_attributes(above)
        attributes = [
            self._completed(one, inherited[one.name]) if one.name in inherited else one
            for one in self.attributes
        ]
        return compose(self.name, above, attributes, self.operations, self.doc)

    def _completed(self, own: Attribute, above: Attribute) -> Attribute:
        """Return a slot with what it inherits from the slot of that name in a superclass."""
        given = self.given[own.name]
        source = own if ":initform" in given else above
        kind = own.kind if ":type" in given else above.kind
        if not above.kind.includes(kind):
            return own  # a contradiction, which `compose` explains
        doc = own.doc if ":documentation" in given else above.doc
        defaults = [source.default] if source.has_default else []
        return make_attribute(self.name, own.name, kind, doc, defaults)


@dataclass(frozen=True)
class Recipe:
    """How objects of one class are made, with what they inherit."""

    cls: type[DataObject]
    initargs: dict[str, list[str]]
    default_initargs: dict[str, tuple[Code, Frame]]
    shared: dict[str, SharedSlot]

    def slots_for(self, keyword: str) -> list[str]:
        """Return the slots that a keyword of `make-instance` sets."""
        if keyword in self.initargs:
            return self.initargs[keyword]
        name = keyword[1:].replace("-", "_")
        is_slot = name in self.cls.__bus_plan__.attributes or name in self.shared
        return [name] if is_slot else []


class ClassTable:
    """The classes of one program.

    Args:
        method_for: Makes the Python method that carries out an operation.
        note: Called for each class before it is made; it raises when there are too many.
    """

    def __init__(
        self, method_for: Callable[[Operation], Callable[..., Any]], note: Callable[[], None]
    ) -> None:
        self.classes: dict[str, type[DataObject]] = {}
        self.outdated: dict[type[DataObject], str] = {}
        """The classes that were defined anew, and their names."""
        self.bytes = 0
        self._method_for = method_for
        self._note = note
        self._parts: dict[str, ClassParts] = {}
        self._own: WeakSet[type[DataObject]] = WeakSet()
        self._recipes: dict[type[DataObject], Recipe] = {}

    def slots_above(self, run: Evaluation, names: Iterable[str]) -> Mapping[str, SlotAbove]:
        """Return the slots that a class with these superclasses inherits, by name."""
        bases = [self.named(name) for name in names]
        run.spend(sum(base.__bus_plan__.count for base in bases))
        found: dict[str, SlotAbove] = {}
        found.update(inherited_attributes([base.__bus_type__ for base in bases]))
        for base in reversed(bases):
            found.update(self.recipe(base).shared)
        return found

    def find(self, name: str) -> type[DataObject] | None:
        """Return a class by name: the program's own, else one that this process knows."""
        found = self.classes.get(name)
        if found is None and (known := registry.find_type(name)) is not None:
            found = class_for(known.fingerprint)
        return found

    def named(self, name: str) -> type[DataObject]:
        """Return a class by name; signal a condition if there is none."""
        found = self.find(name)
        if found is None:
            raise failed(f"there is no class {name}", Unbound)
        return found

    def define(self, run: Evaluation, parts: ClassParts) -> list[str]:
        """Make a class, and its subclasses anew; return the names of all classes made."""
        name = parts.name
        ancestors = sum(len(base.__mro__) for base in parts.bases)
        run.spend(CLASS_STEPS + 4 * self._slot_count(parts) + ancestors * len(parts.bases) // 8)
        held = self.classes.get(name)
        made: list[str] = []
        if held is None or not self._is_same(parts, held):
            found = self._class_of_others(parts)
            if found is None:
                made = self._remake(run, parts, held)
            else:
                self.classes[name] = found
        before = self._parts.get(name)
        for slot, shared in parts.shared.items():
            # As in CLOS, a shared slot keeps its value when its class is defined anew.
            if before is not None and slot in before.shared:
                shared.value = before.shared[slot].value or shared.value
        self._parts[name] = parts
        self._recipes.clear()
        return made

    def _is_same(self, parts: ClassParts, held: type[DataObject]) -> bool:
        before = self._parts[parts.name]
        return held.__bus_type__ == parts.composed(parts.bases) and before.bases == parts.bases

    def _class_of_others(self, parts: ClassParts) -> type[DataObject] | None:
        """Return the class to use if other code in this process has one of the name.

        A program must not take over the name. A class of Python's that is equal is used as it
        is. One of another interpreter is not: its operations would run that one's methods.
        """
        other = registry.declared_names.get(parts.name)
        if other is None or other in self._own:
            return None
        if other.__bus_type__ != parts.composed(parts.bases):
            raise failed(f"this process has another class {parts.name}; give yours another name")
        return None if other in _made_here else other

    def _remake(
        self, run: Evaluation, parts: ClassParts, held: type[DataObject] | None
    ) -> list[str]:
        """Make a class and all subclasses anew; nothing changes if one of them cannot be."""
        below = [] if held is None else self._below(held)
        fresh: dict[type[DataObject], type[DataObject]] = {}
        made: list[tuple[ClassParts, list[type[DataObject]], type[DataObject]]] = []
        for one in [parts, *below]:
            run.spend(CLASS_STEPS + 4 * self._slot_count(one))
            self._note()
            bases = [fresh.get(base, base) for base in one.bases]
            other = registry.declared_names.get(one.name)
            if one is not parts and other not in self._own:
                raise failed(f"this process has another class {one.name}, a subclass of yours")
            cls = self._made(one, bases)
            made.append((one, bases, cls))
            if (old := self.classes.get(one.name)) is not None:
                fresh[old] = cls
        for one, bases, cls in made:
            one.bases = bases
            registry.add_declared(cls)
            _made_here.add(cls)
            self._own.add(cls)
            self.classes[one.name] = cls
            weight = sum(copied_cells(a.default) for a in one.attributes) * CELL_BYTES
            text = len(cls.__bus_type__.descriptor) * CHARACTER_BYTES
            self.bytes += CLASS_BYTES + weight + text
        self.outdated.update((old, cls.__bus_type__.name) for old, cls in fresh.items())
        return [one.name for one, _, _ in made]

    def _slot_count(self, parts: ClassParts) -> int:
        return len(parts.attributes) + sum(base.__bus_plan__.count for base in parts.bases)

    def _below(self, held: type[DataObject]) -> list[ClassParts]:
        """Return the program's subclasses of a class, superclasses first."""
        found = [
            (cls.__bus_type__.depth, name)
            for name, cls in self.classes.items()
            if cls is not held and issubclass(cls, held) and cls in self._own
        ]
        return [self._parts[name] for _, name in sorted(found)]

    def _made(self, parts: ClassParts, bases: list[type[DataObject]]) -> type[DataObject]:
        methods = {one.name: self._method_for(one) for one in parts.operations}
        try:
            return make_class(parts.composed(bases), bases, methods)
        except TypeError as error:
            raise BadType(f"type {parts.name}: {error}") from None

    def recipe(self, cls: type[DataObject]) -> Recipe:
        """Return how objects of a class are made."""
        found = self._recipes.get(cls)
        if found is None:
            if len(self._recipes) >= RECIPE_COUNT_MAX:
                self._recipes.clear()
            found = self._recipes[cls] = self._recipe(cls)
        return found

    def _recipe(self, cls: type[DataObject]) -> Recipe:
        recipe = Recipe(cls, {}, {}, {})
        for base in cls.__mro__:  # the most specific class first
            name = base.__bus_type__.name if issubclass(base, DataObject) else ""
            parts = self._parts.get(name)
            if parts is None or self.classes[name] is not base:
                continue
            for keyword, slots in parts.initargs.items():
                recipe.initargs.setdefault(keyword, []).extend(slots)
            for keyword, code in parts.default_initargs.items():
                recipe.default_initargs.setdefault(keyword, (code, parts.frame))
            for slot, shared in parts.shared.items():
                recipe.shared.setdefault(slot, shared)
        attributes = cls.__bus_plan__.attributes
        for keyword, slots in recipe.initargs.items():
            own = keyword[1:].replace("-", "_")
            if own not in slots and (own in attributes or own in recipe.shared):
                raise failed(
                    f"{keyword} sets the slot {slots[0]} of {cls.__bus_type__.name}, which "
                    f"also has a slot {own}; give the slot {slots[0]} another initarg"
                )
        return recipe

    def roots(self) -> Iterator[Any]:
        """Yield the values that the classes keep alive."""
        for parts in self._parts.values():
            yield parts.frame
            for shared in parts.shared.values():
                yield shared.value
