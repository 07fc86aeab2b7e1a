"""Types: the interface of a class, independent of who implements it.

A `Type` is a value. It never changes, and two types are equal if their fingerprints are, that
is, if they mean the same. When a type evolves, it becomes a new type with the same name; the
process knows both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infobus.errors import BadType
from infobus.objects import registry
from infobus.objects.descriptors import Description, same_bytes
from infobus.objects.kinds import check_type_name
from infobus.objects.members import Attribute, Member, Members, Operation

if TYPE_CHECKING:
    from infobus.objects.data import DataObject

ROOT_NAME = "DataObject"
LINEAGE_DEPTH_MAX = 64


class Type:
    """The name, supertypes, attributes and operations of a class of objects.

    Attributes:
        name: Such as `Story` or `news.Story`.
        fingerprint: A 64-bit number that depends only on the type's meaning.
        doc: The author's description.
        supertypes: The direct supertypes in order of declaration, without the root `DataObject`.
        attributes: All attributes, inherited ones first; look up by position or by name.
        operations: All operations, inherited ones first; look up by position or by name.
        lineage: The names of this type and all its supertypes, including the root.
        code: TDL methods that are sent with the type, if any.
        descriptor: The bytes from which others learn this type; empty if it is not known.
        is_known: False if this process knows only the fingerprint, and perhaps the name.
    """

    def __init__(
        self,
        description: Description,
        supertypes: Sequence[Type],
        *,
        descriptor: bytes,
        fingerprint: int,
    ) -> None:
        self.name = description.name
        self.doc = description.doc
        self.code = description.code
        self.fingerprint = fingerprint
        self.descriptor = descriptor
        self.is_known = bool(descriptor)
        self.supertypes = tuple(supertypes)
        self.ancestors: dict[str, Type] = {}
        for supertype in reversed(self.supertypes):
            self.ancestors |= supertype.ancestors
        self.ancestors[self.name] = self
        self.lineage = frozenset(self.ancestors) | {ROOT_NAME}
        self.depth: int = 1 + max((s.depth for s in self.supertypes), default=0)
        inherited = _inherited(self.supertypes, "attributes", self.name, strict=False)
        self.attributes: Members[Attribute] = _with_own(inherited, description.attributes)
        abilities = _inherited(self.supertypes, "operations", self.name, strict=False)
        self.operations: Members[Operation] = _with_own(abilities, description.operations)
        closure = dict.fromkeys(fp for s in self.supertypes for fp in s.closure)
        self.closure: tuple[int, ...] = (*closure, fingerprint)

    @property
    def subtypes(self) -> tuple[Type, ...]:
        """The direct subtypes that this process knows now, sorted by name."""
        return tuple(
            known
            for known in registry.all_types()
            if self.name in {s.name for s in known.supertypes}
            or (self.name == ROOT_NAME and not known.supertypes and known != self)
        )

    @property
    def classes(self) -> tuple[type[DataObject], ...]:
        """The classes that implement this type; received objects are instances of the last."""
        return registry.declared.get(self.fingerprint, ())

    def is_subtype_of(self, other: Type | str) -> bool:
        """Return whether objects of this type are also objects of `other` (a type or a name)."""
        return (other if isinstance(other, str) else other.name) in self.lineage

    def to_dict(self) -> dict[str, Any]:
        """Return the type as plain data, for tools that print or store it."""
        return {
            "name": self.name,
            "fingerprint": f"{self.fingerprint:016x}",
            "doc": self.doc,
            "supertypes": [s.name for s in self.supertypes],
            "attributes": [
                {"name": a.name, "type": a.type, "doc": a.doc, "inherited_from": a.inherited_from}
                | ({"default": a.default} if a.has_default else {})
                for a in self.attributes
            ],
            "operations": [
                {"signature": o.signature, "doc": o.doc, "inherited_from": o.inherited_from}
                for o in self.operations
            ],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<Type {self.name} {self.fingerprint:016x}>"


def compose(
    name: str,
    supertypes: Iterable[Type],
    attributes: Iterable[Attribute],
    operations: Iterable[Operation],
    doc: str,
    *,
    strict: bool = True,
) -> Type:
    """Make a type of these parts.

    A member that only repeats an inherited one does not count as the type's own, so it does
    not change the fingerprint. A member that contradicts an inherited one raises `BadType`. If
    `strict` is False, it is left out instead: a received type may extend another version of a
    supertype than the one known here.
    """
    check_type_name(name)
    supertypes = _without_repeats(supertypes)
    attributes, operations = tuple(attributes), tuple(operations)
    inherited = _inherited(supertypes, "attributes", name, strict=strict, own=attributes)
    abilities = _inherited(supertypes, "operations", name, strict=strict, own=operations)
    own = [a for a in attributes if _is_new(a, inherited, strict, name)]
    own_abilities = [o for o in operations if _is_new(o, abilities, strict, name)]
    taken = {o.name for o in own_abilities} | set(abilities)
    both = taken & ({a.name for a in own} | set(inherited))
    if both and strict:
        raise BadType(f"{name}.{min(both)} is both an attribute and an operation")
    own_abilities = [o for o in own_abilities if o.name not in both]
    depth = max((s.depth for s in supertypes), default=0)
    if any(name in s.lineage for s in supertypes) or depth >= LINEAGE_DEPTH_MAX:
        raise BadType(
            f"type {name} cannot have {', '.join(s.name for s in supertypes)} as supertype: "
            f"it would be its own supertype, or more than {LINEAGE_DEPTH_MAX} levels deep"
        )
    above = tuple((s.name, s.fingerprint) for s in supertypes)
    return _described(Description(name, above, tuple(own), tuple(own_abilities), doc), supertypes)


def root_type(doc: str) -> Type:
    """Return the type of `DataObject` itself, which all other types extend implicitly."""
    return _described(Description(ROOT_NAME, (), (), (), doc), ())


def _described(description: Description, supertypes: Sequence[Type]) -> Type:
    descriptor, fingerprint = description.write(), description.fingerprint
    return Type(description, supertypes, descriptor=descriptor, fingerprint=fingerprint)


def unknown_type(fingerprint: int, name: str = "") -> Type:
    """Return a placeholder for a type of which only the fingerprint and name are known."""
    label = name or f"unknown_{fingerprint:016x}"
    return Type(Description(label, (), (), (), ""), (), descriptor=b"", fingerprint=fingerprint)


def _without_repeats(supertypes: Iterable[Type]) -> tuple[Type, ...]:
    once = tuple(dict.fromkeys(s for s in supertypes if s.name != ROOT_NAME))
    return tuple(s for s in once if not any(s.name in o.lineage and s.name != o.name for o in once))


def _inherited(
    supertypes: Sequence[Type],
    which: str,
    name: str,
    *,
    strict: bool,
    own: Sequence[Attribute] | Sequence[Operation] = (),
) -> dict[str, Any]:
    """Return inherited members by name, each from the most derived supertype that has it."""
    settled = {member.name for member in own}
    result: dict[str, Any] = {}
    owners: dict[str, Type] = {}
    for supertype in supertypes:
        for member in getattr(supertype, which):
            owner = supertype.ancestors.get(member.inherited_from or "", supertype)
            before = owners.get(member.name)
            if before is None or (before.name in owner.lineage and before.name != owner.name):
                result[member.name] = replace(member, inherited_from=owner.name)
                owners[member.name] = owner
            elif (
                strict
                and owner.name not in before.lineage
                and not _agree(member, result[member.name], member.name in settled)
            ):
                raise BadType(
                    f"{name}.{member.name}: supertypes {before.name} and {owner.name} "
                    f"disagree about it; declare it in {name} itself"
                )
    return result


def inherited_attributes(supertypes: Iterable[Type]) -> dict[str, Attribute]:
    """Return what a subtype of these inherits, each from the most derived one that has it."""
    return _inherited(_without_repeats(supertypes), "attributes", "", strict=False)


def _agree(one: Attribute | Operation, other: Any, is_settled: bool) -> bool:
    """Return whether a subtype can inherit both members.

    If the subtype declares the member itself (`is_settled`), defaults may differ.
    """
    if is_settled:
        return isinstance(one, Operation) or one.checker == other.checker
    return same_bytes(one) == same_bytes(other)


def _is_new(member: Member, inherited: dict[str, Any], strict: bool, name: str) -> bool:
    above = inherited.get(member.name)
    if above is None:
        return True
    if isinstance(member, Attribute) and not above.checker.includes(member.checker):
        if strict:
            raise BadType(
                f"{name}.{member.name}: declared as {member.type}, but inherited from "
                f"{above.inherited_from} as {above.type}"
            )
        return False
    return same_bytes(member) != same_bytes(above)


def _with_own(inherited: dict[str, Member], own: Iterable[Member]) -> Members[Member]:
    return Members({**inherited, **{member.name: member for member in own}}.values())
