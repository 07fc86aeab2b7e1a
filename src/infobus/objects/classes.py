"""Classes made at run time: defined by a program, or built for types received from others.

A *defined* class has the same rights as one written in Python. A *built* class exists because an
object of an unknown class arrived with its descriptor; it inherits from every supertype that
this process knows.
"""

from __future__ import annotations

import types as python
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from infobus.errors import BadType
from infobus.objects import descriptors, registry
from infobus.objects.data import DataObject
from infobus.objects.declaration import doc_in, operation_of
from infobus.objects.members import Attribute, Operation, make_attribute
from infobus.objects.spelling import kind_of
from infobus.objects.types import LINEAGE_DEPTH_MAX, ROOT_NAME, Type, compose, unknown_type

# Bounds on the descriptors that strangers can make this process hold.
LEARNED_COUNT_MAX = 10_000
LEARNED_BYTES_MAX = 64 * 1024 * 1024
TAUGHT_COUNT_MAX = 1_000

Declaration = Any
"""An annotation or a kind's text, or a pair of one of these and a default."""


def define_type(
    name: str,
    supertypes: Iterable[type[DataObject] | Type | str] = (),
    attributes: Mapping[str, Declaration] | Iterable[Attribute] = (),
    operations: Mapping[str, Callable[..., Any]] | Iterable[Operation] = (),
    *,
    doc: str = "",
) -> type[DataObject]:
    """Make a class at run time, with the same rights as one written in Python.

    Args:
        name: The type's name, such as `plant.Recipe`.
        supertypes: Classes, types, or names of types that this process knows.
        attributes: A mapping from names to Python types or texts of kinds, or to pairs of
            one of these and a default. Or `Attribute` values, taken from another type.
        operations: A mapping from names to functions with annotated signatures, whose first
            parameter is the object. Or `Operation` values, which then have no implementation.
        doc: The purpose of the type.

    Raises:
        BadType: The members contradict each other or an inherited member.

    >>> Recipe = define_type("Recipe", [], {"name": str, "steps": ("list[str]", [])})
    >>> Recipe(name="etch")
    Recipe(name='etch', steps=[])
    """
    bases = tuple(_class_of(s) for s in supertypes)
    if isinstance(attributes, Mapping):
        own = [_attribute(name, key, value) for key, value in attributes.items()]
    else:
        own = [replace(attribute, inherited_from=None) for attribute in attributes]
    methods: dict[str, Any] = {}
    if isinstance(operations, Mapping):
        methods = dict(operations)
        abilities = [_operation(name, key, method) for key, method in methods.items()]
    else:
        abilities = [replace(operation, inherited_from=None) for operation in operations]
    known = compose(name, [base.__bus_type__ for base in bases], own, abilities, doc)
    try:
        cls = make_class(known, bases, methods)
    except TypeError as error:
        raise BadType(f"type {name}: {error}") from None
    registry.add_declared(cls)
    return cls


def _class_of(supertype: type[DataObject] | Type | str) -> type[DataObject]:
    if isinstance(supertype, str):
        found = registry.find_type(supertype)
        if found is None:
            raise BadType(f"no type {supertype!r} is known here")
        supertype = found
    if isinstance(supertype, Type):
        return class_for(supertype.fingerprint) or DataObject
    return supertype


def _attribute(where: str, name: str, declaration: Declaration) -> Attribute:
    defaults: tuple[Any, ...] = ()
    if isinstance(declaration, tuple):
        declaration, *rest = declaration
        defaults = tuple(rest)
    return make_attribute(where, name, kind_of(declaration), doc_in(declaration), defaults)


def _operation(where: str, name: str, method: Callable[..., Any]) -> Operation:
    operation = operation_of(method, name, getattr(method, "__globals__", {}))
    if operation is None:
        raise BadType(f"{where}.{name}: the function's signature is not annotated with kinds")
    return operation


def make_class(
    known: Type, bases: Iterable[type[DataObject]], methods: Mapping[str, Any]
) -> type[DataObject]:
    """Make a class for a type, which the registry does not know yet.

    Raises:
        TypeError: The bases contradict each other.
    """
    body = {"__doc__": known.doc, "__module__": __name__, **methods}
    return python.new_class(
        known.name.rpartition(".")[2],
        _least(bases) or (DataObject,),
        {"type_": known},
        lambda namespace: namespace.update(body),
    )


def _least(bases: Iterable[type[DataObject]]) -> tuple[type[DataObject], ...]:
    """Drop every base that another base extends: Python refuses such a list of bases."""
    once = tuple(dict.fromkeys(bases))
    return tuple(b for b in once if not any(b is not o and issubclass(o, b) for o in once))


def class_for(fingerprint: int) -> type[DataObject] | None:
    """Return the best class for objects received under `fingerprint`, or None if there is none.

    The best class is the one declared for exactly this type. If there is none, it is the one
    declared for another version of the type, and otherwise one built from the descriptor on
    top of every supertype that this process knows.
    """
    if fingerprint in registry.declared:
        return registry.declared[fingerprint][-1]
    if (known := registry.types.get(fingerprint)) is None:
        return None
    if fingerprint not in registry.used:
        registry.used.update(fp for fp in known.closure if fp in registry.learned)
    if known.name in registry.declared_names:
        return registry.declared_names[known.name]
    if known.name.startswith("payload."):
        import infobus.objects.payloads  # noqa: F401  late: it declares text, bytes and tables

        if known.name in registry.declared_names:
            return registry.declared_names[known.name]
    return registry.built.get(fingerprint) or _build(known)


def _build(known: Type) -> type[DataObject]:
    with registry.lock:
        if known.fingerprint in registry.built:
            return registry.built[known.fingerprint]
        bases = {s: class_for(s.fingerprint) or _declared(s.name) for s in known.supertypes}
        # An unknown supertype stays in the type by its name and fingerprint.
        supertypes = [s if base is None else base.__bus_type__ for s, base in bases.items()]
        own = [a for a in known.attributes if a.inherited_from is None]
        abilities = [o for o in known.operations if o.inherited_from is None]
        try:
            local = compose(known.name, supertypes, own, abilities, known.doc, strict=False)
            cls = make_class(known if local == known else local, filter(None, bases.values()), {})
        except (BadType, TypeError):
            # The two sides' hierarchies contradict each other. The object must still arrive, so
            # its class is built without supertypes.
            local = compose(known.name, (), own, abilities, known.doc, strict=False)
            cls = make_class(local, (), {})
        registry.add_built(known.fingerprint, cls)
        return cls


def _declared(name: str) -> type[DataObject] | None:
    return registry.declared_names.get(name)


def known(fingerprint: int) -> bool:
    """Return whether this process has the descriptor of this type; untyped (0) needs none."""
    return fingerprint == 0 or fingerprint in registry.types


def learn(descriptor: bytes, teacher: str = "") -> int:
    """Add a type from a descriptor that `teacher` sent, and return the type's fingerprint.

    Learning a descriptor twice changes nothing. Supertypes may arrive later; until then their
    attributes count as unknown. When there are too many types, of this teacher or of all, the
    oldest is forgotten, and those of which objects have come go last.

    Raises:
        BadFrame: The bytes are not a descriptor.
    """
    description = descriptors.read(descriptor)
    fingerprint = description.fingerprint
    held = registry.types.get(fingerprint)
    if held is not None and held.classes:
        return fingerprint
    believed = _believed(description, descriptor)
    if held is not None and (believed is None or (held.is_known and not believed.code)):
        return fingerprint
    if held is not None and held.code and believed is not None:
        _note_other_code(held, believed, descriptor)
        return fingerprint
    with registry.lock:
        if held is None:
            _make_room(len(descriptor), teacher)
        registry.note_learned(fingerprint, len(descriptor), teacher)
        if believed is None:
            registry.types[fingerprint] = unknown_type(fingerprint)
            return fingerprint
        _add_learned(descriptor, believed, fingerprint)
        if fingerprint in registry.awaited:
            # Types learned before this supertype lack its attributes. Learn them again,
            # supertypes first, because each inherits from those above it.
            registry.awaited.discard(fingerprint)
            waiting = [t for t in registry.types.values() if fingerprint in t.closure[:-1]]
            for other in sorted(waiting, key=lambda t: t.depth):
                if other.fingerprint not in registry.declared:
                    description = descriptors.read(other.descriptor)
                    if (told := _believed(description, other.descriptor)) is not None:
                        _add_learned(other.descriptor, told, other.fingerprint)
    return fingerprint


def _believed(
    description: descriptors.Description, descriptor: bytes
) -> descriptors.Description | None:
    """What is believed of a descriptor; None if its type must be by another author."""
    believes = registry.believes
    if believes is None:
        return description
    if not believes(description.name, descriptor):
        return None
    above = tuple(one for one in description.supertypes if believes(one[0], descriptor))
    return (
        description if above == description.supertypes else replace(description, supertypes=above)
    )


def _note_other_code(held: Type, description: descriptors.Description, descriptor: bytes) -> None:
    """Hold methods by another author, too; first come is not first served."""
    assert description.code is not None
    if description.code == held.code:
        return
    author = descriptors.authorship(descriptor)
    name = description.code.signature if author is None else author.key
    with registry.lock:
        others = registry.other_codes
        key = (held.fingerprint, name)
        if key not in others and len(others) >= registry.OTHER_CODES_COUNT_MAX:
            # Whatever may run here goes last.
            prefers = registry.prefers or bool
            useless = (one for one, known in others.items() if not prefers(known))
            del others[next(useless, next(iter(others)))]
        others[key] = Type(
            description, held.supertypes, descriptor=descriptor, fingerprint=held.fingerprint
        )


def codes_of(known: Type) -> list[Type]:
    """Return a type once with each of the methods that came with it."""
    others = registry.other_codes
    found = [known] if known.code else []
    if others:
        found += [
            one for (fingerprint, _), one in others.items() if fingerprint == known.fingerprint
        ]
    return found


def sign_type(cls: type[DataObject], key: bytes, sign: Callable[[bytes], bytes]) -> None:
    """Answer for the type of `cls`, and for the methods that are sent with it, from now on.

    Args:
        cls: A class of this process.
        key: The author's public key, or certificate.
        sign: Makes the Ed25519 signature of that key.
    """
    known = cls.__bus_type__
    signature = sign(descriptors.authored_bytes(known.descriptor, key))
    descriptor = descriptors.with_author(known.descriptor, key, signature)
    _replace_descriptor(cls, descriptor)


def forget_unbelieved() -> None:
    """Other authors count now: learn anew what was received."""
    with registry.lock:
        for fingerprint in list(registry.learned):
            registry.forget_learned(fingerprint)


def _make_room(size: int, teacher: str) -> None:
    """Forget old types, so that one more of this size fits in."""
    learned, teachers = registry.learned, registry.teachers
    if teacher and len(taught := teachers.get(teacher, {})) >= TAUGHT_COUNT_MAX:
        _forget_one(taught)
    while learned and (
        len(learned) >= LEARNED_COUNT_MAX or learned.total + size > LEARNED_BYTES_MAX
    ):
        # The peer that has described most makes room first.
        _forget_one(max(teachers.values(), key=len, default=learned))


def _forget_one(held: dict[int, Any]) -> None:
    """Forget the oldest of some types of which no object has come, else the oldest."""
    oldest = next((fp for fp in held if fp not in registry.used), next(iter(held)))
    registry.forget_learned(oldest)


def _add_learned(descriptor: bytes, description: descriptors.Description, fingerprint: int) -> None:
    supertypes = [_supertype(name, fp) for name, fp in description.supertypes]
    learned = Type(description, supertypes, descriptor=descriptor, fingerprint=fingerprint)
    registry.types[fingerprint] = learned
    if learned.name not in registry.declared_names:
        registry.current[learned.name] = learned
    registry.forget_built(learned.name)


def _supertype(name: str, fingerprint: int) -> Type:
    held = registry.types.get(fingerprint)
    if held is not None and held.depth < LINEAGE_DEPTH_MAX and held.name == name:
        return held
    if len(registry.awaited) < registry.AWAITED_COUNT_MAX:
        registry.awaited.add(fingerprint)
    return unknown_type(fingerprint, name)


def attach_code(cls: type[DataObject], code: descriptors.TravellingCode) -> None:
    """Send `code` along with the type of `cls` from now on.

    Nodes that already have the descriptor do not get the code.

    Raises:
        BadType: The code is too long for a descriptor.
    """
    known = cls.__bus_type__
    if known.code == code:
        return
    description = replace(descriptors.read(known.descriptor), code=code)
    _replace_descriptor(cls, description.write())


def _replace_descriptor(cls: type[DataObject], descriptor: bytes) -> None:
    known, description = cls.__bus_type__, descriptors.read(descriptor)
    fingerprint = known.fingerprint
    carrying = Type(description, known.supertypes, descriptor=descriptor, fingerprint=fingerprint)
    with registry.lock:
        cls.__bus_type__ = registry.types[fingerprint] = carrying
        if registry.current.get(known.name) is known:
            registry.current[known.name] = carrying


def descriptors_of(fingerprints: Iterable[int]) -> list[bytes]:
    """Return the known descriptors of these types and their supertypes, supertypes first."""
    asked = [registry.types[fp] for fp in fingerprints if fp in registry.types]
    closure = dict.fromkeys(fp for known in asked for fp in known.closure)
    held = [registry.types[fp] for fp in closure if fp in registry.types]
    return [one.descriptor for one in held if one.is_known and one.name != ROOT_NAME]
