"""`DataObject`, the base class of everything that you publish with a type.

An object's `__dict__` holds its attributes in plain form and nothing else, so that the codec
can encode it in one call. The slot `__bus_tag__` holds the rest: the object's id, and received
attributes that do not fit the class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from msgspec import Struct, field
from msgspec.structs import replace

from infobus.errors import BadValue
from infobus.objects import registry
from infobus.objects.declaration import declared_type
from infobus.objects.kinds import Misfit, ObjectRoot, plain, shown
from infobus.objects.plans import ClassPlan
from infobus.objects.types import ROOT_NAME, Type, root_type, unknown_type

if TYPE_CHECKING:
    from infobus.objects.rich_kinds import RichKind

# How many parts `repr` shows: a part that is shared on many levels occurs exponentially often.
_SHOWN_COUNT_MAX = 10_000

ObjectId = str | tuple[str, int]
"""An object's id. A pair of sender and number becomes text only when somebody asks for it."""


def spelled(id: ObjectId) -> str:
    """Return the id as text.

    >>> spelled(("floor7-4242-9f3a61c2", 300))
    'floor7-4242-9f3a61c2:12c'
    """
    return id if isinstance(id, str) else f"{id[0]}:{id[1]:x}"


class AttributeMisfit(Struct, frozen=True):
    """An attribute of a received object that the class of this process cannot hold."""

    path: str
    """Such as `.total`, or `.lines[3].price`."""
    problem: str
    expected: str
    """The kind that the attribute has here."""


class Foreign(Struct, frozen=True):
    """Facts about a received object that its class does not hold. Replaced, never changed."""

    fingerprint: int
    """The type under which it was received and is forwarded."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Attributes that the class does not have, or that were sent as an int and read as a float."""
    filled: dict[str, Any] = field(default_factory=dict)
    """Attributes of the class that were not sent so, with the values that replace them."""
    id: ObjectId | None = None
    misfit: AttributeMisfit | None = None
    """Why it is a generic object although this process has a class for it."""


@dataclass_transform(kw_only_default=True)
class DataObject(ObjectRoot):
    """The base class of all objects with a type that you can publish.

    Declare attributes by annotations. The class name is the type's name unless you pass
    `name="news.Story"` as a class keyword. Public methods with fully annotated signatures
    become the type's operations. Values are checked when you set them; lists and maps are
    copied.

    >>> class Reading(DataObject):
    ...     celsius: float
    ...     tags: list[str] = []
    >>> Reading(celsius=21)
    Reading(celsius=21.0, tags=[])
    >>> Reading(celsius="21,5")
    Traceback (most recent call last):
    infobus.errors.BadValue: Reading.celsius: expected float, got str '21,5'

    A subclass that has its base's type name and adds no members is another class of the same
    type.
    """

    __slots__ = ()
    __bus_type__: ClassVar[Type]
    __bus_plan__: ClassVar[ClassPlan]

    def __init_subclass__(
        cls, *, name: str | None = None, type_: Type | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if type_ is not None:  # Made at run time: the caller has composed the type.
            cls.__bus_type__ = type_
            _show_rich(cls)
            cls.__bus_plan__ = ClassPlan(cls)
            return
        cls.__bus_type__ = declared_type(cls, name or cls.__name__, sys._getframe(1).f_locals)
        _show_rich(cls)
        cls.__bus_plan__ = ClassPlan(cls)
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
            checked = plain(value) if attribute is None else attribute.checker.check(value)
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
        # Python calls this only when normal lookup fails.
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
        import difflib  # Imported late: it would slow down every start.

        close = difflib.get_close_matches(name, self.__bus_plan__.attributes, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        path = f"{self.__bus_type__.name}.{name}"
        return BadValue(f"{self.__bus_type__.name} has no attribute {name!r}{hint}", path=path)


class RichView:
    """What reads an attribute of a rich kind: the object itself holds the plain value."""

    def __init__(self, name: str, kind: RichKind) -> None:
        self._name, self._kind = name, kind

    def __get__(self, obj: DataObject | None, owner: type | None = None) -> Any:
        if obj is None or self._name not in obj.__dict__:
            raise AttributeError(self._name)
        try:
            return self._kind.lift(obj.__dict__[self._name], fixed=True)
        except Misfit as misfit:
            from infobus.objects.sealed import SEALED  # late: it stands on this module

            if obj.__dict__[self._name] is SEALED:
                return SEALED
            raise bad_value(misfit, f"{obj.__bus_type__.name}.{self._name}") from None

    def __set__(self, obj: DataObject, value: Any) -> None:
        obj.__dict__[self._name] = value  # `DataObject.__setattr__` has checked it


def _show_rich(cls: type[DataObject]) -> None:
    for attribute in cls.__bus_type__.attributes:
        if attribute.rich is not None:
            setattr(cls, attribute.name, RichView(attribute.name, attribute.rich))


# Setters that bypass `__setattr__`, which checks values for users.
set_state = ObjectRoot.__dict__["__dict__"].__set__
set_tag = ObjectRoot.__dict__["__bus_tag__"].__set__

DataObject.__bus_type__ = root_type("The root of all types.")
DataObject.__bus_plan__ = ClassPlan(DataObject)
registry.add_declared(DataObject)


class Property(DataObject):
    """A named value that anyone may attach to an object published by someone else.

    `ref` is the id of the object it annotates: `infobus.id_of(story)`.
    """

    name: str
    value: Any
    ref: str


def type_of(x: object) -> Type:
    """Return the type of an object, or the type that a class implements.

    If the object's descriptor has not arrived, you get a placeholder with `is_known` False.

    >>> type_of(Property).attributes.names
    ('name', 'value', 'ref')
    """
    cls = x if isinstance(x, type) else x.__class__
    if not issubclass(cls, DataObject):
        if cls in registry.twins:
            return registry.twins[cls].__bus_type__
        raise BadValue(f"{shown(x):.80} is neither a data object nor a class of them")
    if cls is DataObject and isinstance(x, DataObject) and x.__bus_tag__.__class__ is Foreign:
        fingerprint = x.__bus_tag__.fingerprint
        return registry.types.get(fingerprint) or unknown_type(fingerprint)
    return cls.__bus_type__


def attribute_values(obj: DataObject) -> dict[str, Any]:
    """Return the attributes that the class of `obj` declares, with their values.

    Only a TDL program can leave an attribute without a value.
    """
    values = held_values(obj)
    for name, rich in obj.__bus_plan__.rich:
        if name in values:
            with suppress(Misfit):  # a TDL program may have put anything there
                values[name] = rich.lift(values[name], fixed=True)
    return values


def held_values(obj: DataObject) -> dict[str, Any]:
    """Return the same as `attribute_values`, but as the object holds them, which is plain."""
    state = obj.__dict__
    return {name: state[name] for name in obj.__bus_plan__.attributes if name in state}


def unknown_attributes(obj: DataObject) -> dict[str, Any]:
    """Return the received attributes that the class of `obj` lacks, or that were sent otherwise."""
    tag = obj.__bus_tag__
    return tag.extra if tag.__class__ is Foreign else {}


def id_of(obj: object) -> str | None:
    """Return the id that `obj` got at its first publication.

    Returns None before that, and for plain dicts.
    """
    tag = obj.__bus_tag__ if isinstance(obj, DataObject) else None
    id = tag.id if tag.__class__ is Foreign else tag
    return None if id is None else spelled(id)


def identify(obj: DataObject, id: ObjectId) -> ObjectId:
    """Set the id of `obj` unless it has one, and return the id it has now."""
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
    """Return the error that a user sees for a misfit inside the value at `where`."""
    path = where + misfit.path
    if len(path) > 200:  # The check followed a cycle down to the depth limit.
        path = f"{path[:200]}..."
    return BadValue(f"{path}: {misfit.problem}", path=path)


def _text_of(value: object, room: list[int], around: frozenset[int]) -> str:
    """Return `repr` of a value; "..." replaces cycles, and parts beyond `room`."""
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
    """Return `tag` after attribute `name` was set: neither filled in nor unknown any more."""
    if name not in tag.filled and name not in tag.extra:
        return tag
    return replace(
        tag,
        extra={k: v for k, v in tag.extra.items() if k != name},
        filled={k: v for k, v in tag.filled.items() if k != name},
    )
