"""The members of a type: attributes, and operations with their parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar, overload

from msgspec import Struct

from infobus.errors import BadType
from infobus.objects.kinds import Kind, Misfit, ObjectRoot

if TYPE_CHECKING:
    from infobus.objects.rich_kinds import RichKind


class Parameter(Struct, frozen=True, eq=False):
    """A parameter of an operation. `default` is meaningful only if `has_default` is True."""

    name: str
    kind: Kind
    has_default: bool = False
    default: Any = None
    doc: str = ""

    @property
    def type(self) -> str:
        """The kind as text: `str`, `list[int]`, `news.Story | None`."""
        return str(self.checker)

    @property
    def checker(self) -> Kind:
        """The kind that checks values."""
        return self.kind

    def fresh_default(self) -> Any:
        """Return a copy of the default, so that no two objects share a list, or None."""
        is_shared = self.has_default and self.kind.is_container
        return self.checker.check(self.default) if is_shared else self.default

    def meaning(self) -> list[Any]:
        """Return the part that the fingerprint covers: everything but the doc."""
        return [self.name, self.type, self.has_default, self.default]


class Attribute(Parameter, frozen=True, eq=False):
    """An attribute of a type; `inherited_from` names the supertype that declares it, if any.

    If its values have a Python class that the bus does not carry, `rich` says how they look in
    Python, and `kind` how stores and filters see them.
    """

    inherited_from: str | None = None
    rich: RichKind | None = None

    @property
    def checker(self) -> Kind:
        """The kind that checks values."""
        return self.rich or self.kind

    @property
    def plain(self) -> Kind:
        """The kind of the values that an object holds, and that are sent."""
        return self.rich.plain if self.rich is not None else self.kind

    def get(self, obj: ObjectRoot) -> Any:
        """Return the value of this attribute in `obj`."""
        return getattr(obj, self.name)

    def set(self, obj: ObjectRoot, value: Any) -> None:
        """Set this attribute of `obj`; raise `BadValue` if `value` does not fit."""
        setattr(obj, self.name, value)


class Operation(Struct, frozen=True, eq=False):
    """An operation of a type: its parameters in order, and the kind of its result."""

    name: str
    parameters: tuple[Parameter, ...]
    result: Kind
    doc: str = ""
    inherited_from: str | None = None

    @property
    def signature(self) -> str:
        """The operation as one line, such as `total(currency: str = 'EUR') -> float`."""
        written = (
            f"{p.name}: {p.type}" + (f" = {p.default!r}" if p.has_default else "")
            for p in self.parameters
        )
        return f"{self.name}({', '.join(written)}) -> {self.result}"

    def meaning(self) -> list[Any]:
        """Return the part that the fingerprint covers: everything but the doc."""
        return [self.name, [p.meaning() for p in self.parameters], str(self.result)]


Member = TypeVar("Member", bound=Attribute | Operation)


class Members(tuple[Member, ...], Generic[Member]):
    """Attributes or operations in order, which you can also look up by name."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, in order."""
        return tuple(member.name for member in self)

    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Member: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Member, ...]: ...
    def __getitem__(self, key: str | SupportsIndex | slice) -> Member | tuple[Member, ...]:
        """Return a member by name or position, or several by a slice."""
        if isinstance(key, str):
            for member in self:
                if member.name == key:
                    return member
            raise KeyError(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self.names if isinstance(key, str) else super().__contains__(key)


def check_member_name(name: object, where: str) -> str:
    """Return `name` if an attribute, operation or parameter may have it."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise BadType(f"{where}: {name!r} cannot be a name; use an identifier without leading '_'")
    if len(name) > 255:
        raise BadType(f"{where}: the name {name[:40]!r}... is longer than 255 characters")
    return name


def make_attribute(
    where: str, name: str, kind: Kind, doc: str, defaults: Iterable[Any]
) -> Attribute:
    """Make an attribute with a checked name and default; `defaults` holds at most one value.

    A default is written into the descriptor, so it must not hold objects.
    """
    check_member_name(name, where)
    for default in defaults:
        try:
            checked = kind.check(default)
            refuse_objects(checked)
        except Misfit as misfit:
            problem = f"{where}.{name}{misfit.path}: the default does not fit: {misfit.problem}"
            raise BadType(problem) from None
        return _attribute(name, kind, True, checked, doc)
    return _attribute(name, kind, False, None, doc)


def _attribute(name: str, kind: Kind, has_default: bool, default: Any, doc: str) -> Attribute:
    if not kind.is_rich:
        return Attribute(name, kind, has_default, default, doc)
    from infobus.objects.rich_kinds import RichKind  # late: most programs need none of them

    assert isinstance(kind, RichKind)
    return Attribute(name, kind.column, has_default, default, doc, rich=kind)


def refuse_objects(default: Any) -> None:
    """Raise `Misfit` if a default holds an object, whose type would have to be sent first."""
    if isinstance(default, ObjectRoot):
        raise Misfit("an object cannot be a default; use None")
    items = default.values() if isinstance(default, dict) else default
    if isinstance(default, (dict, list)):
        for item in items:
            refuse_objects(item)
