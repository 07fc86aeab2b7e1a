"""`DataObject`: objects that carry information, describe themselves, and can be sent.

An object's attributes live in its `__dict__`, in plain form and nothing else beside them,
so that the codec can encode them with one call. What was received and does not fit the
class, and the object's id, sit next to it in `__bus_tag__`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, ClassVar, dataclass_transform

from msgspec import Struct, field
from msgspec.structs import replace

from infobus.errors import BadValue
from infobus.objects import registry
from infobus.objects.declaration import declared_type
from infobus.objects.kinds import Misfit, ObjectRoot, plain, shown
from infobus.objects.plans import Plan
from infobus.objects.types import ROOT_NAME, Type, root_type, unknown_type

_SHOWN_COUNT_MAX = 10_000  # parts: one that is shared over many levels occurs endless times

ObjectId = str | tuple[str, int]
"""An object's id; as a pair of sender and number it is spelled only when somebody asks."""


def spelled(id: ObjectId) -> str:
    """The id as text.

    >>> spelled(("floor7-4242-9f3a61c2", 300))
    'floor7-4242-9f3a61c2:12c'
    """
    return id if isinstance(id, str) else f"{id[0]}:{id[1]:x}"


class Foreign(Struct, frozen=True):
    """What is known about a received object beyond its class. Never changed, only replaced."""

    fingerprint: int
    """The type under which it was received, and under which it is sent on."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Attributes that the class does not have, or has with another kind."""
    filled: dict[str, Any] = field(default_factory=dict)
    """Attributes of the class that had not been sent, with what stands in for them."""
    id: ObjectId | None = None


@dataclass_transform(kw_only_default=True)
class DataObject(ObjectRoot):
    """The root of all types of objects that can be published.

    A subclass declares attributes by annotations. Its name is the type's name unless the
    class says `name="news.Story"`; public methods whose signatures are fully annotated are
    the type's operations. Values are checked when they are set, and copied if they are lists
    or maps.

    >>> class Reading(DataObject):
    ...     celsius: float
    ...     tags: list[str] = []
    >>> Reading(celsius=21)
    Reading(celsius=21.0, tags=[])
    >>> Reading(celsius="21,5")
    Traceback (most recent call last):
    infobus.errors.BadValue: Reading.celsius: expected float, got str '21,5'

    A class that takes the name of its base's type and adds nothing to it is one more class
    of that same type.
    """

    __slots__ = ()
    __bus_type__: ClassVar[Type]
    __bus_plan__: ClassVar[Plan]

    def __init_subclass__(
        cls, *, name: str | None = None, type_: Type | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if type_ is not None:  # Made at run time; whoever made it has the type already.
            cls.__bus_type__ = type_
            cls.__bus_plan__ = Plan(cls)
            return
        cls.__bus_type__ = declared_type(cls, name or cls.__name__, sys._getframe(1).f_locals)
        cls.__bus_plan__ = Plan(cls)
        registry.add_declared(cls)

    def __init__(self, /, **values: Any) -> None:
        plan = self.__bus_plan__
        name = ""
        try:
            for name, exact, check, attribute in plan.fields:
                if name in values:
                    value = values[name]
                    if value.__class__ is not exact:
                        values[name] = check(value)
                elif attribute.has_default:
                    values[name] = attribute.fresh_default()
                else:
                    raise Misfit(f"expected {attribute.type}, got no value, and has no default")
        except Misfit as misfit:
            raise bad_value(misfit, f"{self.__bus_type__.name}.{name}") from None
        if len(values) != plan.count:
            raise self._no_such(next(name for name in values if name not in plan.attributes))
        set_state(self, values)
        set_tag(self, None)

    def __setattr__(self, name: str, value: Any) -> None:
        attribute = self.__bus_plan__.attributes.get(name)
        tag = self.__bus_tag__
        try:
            checked = plain(value) if attribute is None else attribute.kind.check(value)
        except Misfit as misfit:
            raise bad_value(misfit, f"{self.__bus_type__.name}.{name}") from None
        if attribute is not None:
            self.__dict__[name] = checked
            if tag.__class__ is Foreign:
                set_tag(self, _without(tag, name))
        elif tag.__class__ is Foreign and (
            name in tag.extra or self.__bus_type__.name == ROOT_NAME
        ):
            set_tag(self, replace(tag, extra={**tag.extra, name: checked}))
        else:
            raise self._no_such(name)

    def __getattr__(self, name: str) -> Any:
        # Reached only when the attribute is not found in the usual places.
        if not name.startswith("_"):
            extra = unknown_attributes(self)
            if name in extra:
                return extra[name]
            if registry.implement is not None and (found := registry.implement(self, name)):
                return found
            if name in self.__bus_type__.operations.names:
                came = (
                    "; methods in TDL came with it, see tdl.permit"
                    if self.__bus_type__.code
                    else ""
                )
                raise AttributeError(
                    f"operation {self.__bus_type__.name}.{name} is known by its signature only: "
                    f"no class here implements it{came}"
                )
        raise AttributeError(f"{self.__bus_type__.name} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        raise BadValue(f"{self.__bus_type__.name}.{name} cannot be deleted, only changed")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataObject):
            return NotImplemented
        return (
            type_of(self) == type_of(other)
            and attribute_values(self) == attribute_values(other)
            and unknown_attributes(self) == unknown_attributes(other)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return _text_of(self, [_SHOWN_COUNT_MAX], frozenset())

    def __getstate__(self) -> tuple[dict[str, Any], object]:
        return dict(self.__dict__), self.__bus_tag__

    def __setstate__(self, state: tuple[dict[str, Any], object]) -> None:
        set_state(self, state[0])
        set_tag(self, state[1])

    def _no_such(self, name: str) -> BadValue:
        import difflib  # Only here: it would slow down every start of a program.

        close = difflib.get_close_matches(name, self.__bus_plan__.attributes, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        path = f"{self.__bus_type__.name}.{name}"
        return BadValue(f"{self.__bus_type__.name} has no attribute {name!r}{hint}", path=path)


# `__setattr__` is for users; these write past it.
set_state = ObjectRoot.__dict__["__dict__"].__set__
set_tag = ObjectRoot.__dict__["__bus_tag__"].__set__

DataObject.__bus_type__ = root_type("The root of all types.")
DataObject.__bus_plan__ = Plan(DataObject)
registry.add_declared(DataObject)


class Property(DataObject):
    """A named value that anyone may attach to an object published by someone else.

    `ref` is the id of the object it annotates: `infobus.id_of(story)`.
    """

    name: str
    value: Any
    ref: str


def type_of(x: object) -> Type:
    """The type of an object, or the type that a class implements.

    For an object of which no descriptor has come, a stand-in with `is_known` False.

    >>> type_of(Property).attributes.names
    ('name', 'value', 'ref')
    """
    cls = x if isinstance(x, type) else x.__class__
    if not issubclass(cls, DataObject):
        raise BadValue(f"{shown(x):.80} is neither a data object nor a class of them")
    if cls is DataObject and isinstance(x, DataObject) and x.__bus_tag__.__class__ is Foreign:
        fingerprint = x.__bus_tag__.fingerprint
        return registry.types.get(fingerprint) or unknown_type(fingerprint)
    return cls.__bus_type__


def attribute_values(obj: DataObject) -> dict[str, Any]:
    """The attributes that `obj` has by its class, with their values."""
    state = obj.__dict__
    return {name: state[name] for name in obj.__bus_plan__.attributes}


def unknown_attributes(obj: DataObject) -> dict[str, Any]:
    """Attributes that came with `obj` and that its class does not have, or has differently."""
    tag = obj.__bus_tag__
    return tag.extra if tag.__class__ is Foreign else {}


def id_of(obj: object) -> str | None:
    """The id that `obj` got at its first publication; None before, and for plain dicts."""
    tag = obj.__bus_tag__ if isinstance(obj, DataObject) else None
    id = tag.id if tag.__class__ is Foreign else tag
    return None if id is None else spelled(id)


def identify(obj: DataObject, id: ObjectId) -> ObjectId:
    """Give `obj` its id, unless it has one; returns the id it has now."""
    tag = obj.__bus_tag__
    if tag is None:
        set_tag(obj, id)
        return id
    if tag.__class__ is not Foreign:
        return tag  # type: ignore[no-any-return]
    if tag.id is None:
        set_tag(obj, replace(tag, id=id))
        return id
    return tag.id


def bad_value(misfit: Misfit, where: str) -> BadValue:
    """The error a user sees for a misfit inside the value at `where`."""
    path = where + misfit.path
    if len(path) > 200:  # A cycle was followed to the limit of depth.
        path = f"{path[:200]}..."
    return BadValue(f"{path}: {misfit.problem}", path=path)


def _text_of(value: object, room: list[int], around: frozenset[int]) -> str:
    """As `repr`, of as many parts as there is room for, and without what they are parts of."""
    room[0] -= 1
    if room[0] < 0 or id(value) in around:
        return "..."
    around |= {id(value)}

    def texts(parts: Iterable[tuple[str, object]]) -> str:
        shown = islice(parts, max(room[0], 0) + 1)
        return ", ".join(label + _text_of(part, room, around) for label, part in shown)

    if isinstance(value, DataObject):
        known = ((f"{name}=", part) for name, part in attribute_values(value).items())
        unknown = ((f"+{name}=", part) for name, part in unknown_attributes(value).items())
        return f"{type_of(value).name}({texts(chain(known, unknown))})"
    if isinstance(value, dict):
        return f"{{{texts((f'{key!r}: ', part) for key, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{texts(('', part) for part in value)}]"
    return repr(value)


def _without(tag: Foreign, name: str) -> Foreign:
    """`tag` after the attribute `name` was set: nothing stands in for it, nothing hides it."""
    if name not in tag.filled and name not in tag.extra:
        return tag
    return replace(
        tag,
        extra={k: v for k, v in tag.extra.items() if k != name},
        filled={k: v for k, v in tag.filled.items() if k != name},
    )
