"""Payloads: objects of other libraries, which travel as data objects and arrive as what they were.

    dataclasses, NamedTuple, TypedDict, msgspec.Struct, pydantic models     a type of the bus
    str, bytes                                     payload.Text, payload.Bytes
    pyarrow.Table, pyarrow.RecordBatch             payload.Table, payload.Batch

Each such class has a *twin*, a data object class of the same name and attributes. What is
published is an instance of the twin; filters, stores and strangers see nothing else. Where the
class is known, an event holds an instance of it again.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types as python
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from infobus.errors import BadType, BadValue
from infobus.objects import registry
from infobus.objects.classes import make_class
from infobus.objects.codec import Mismatched
from infobus.objects.data import AttributeMisfit, DataObject
from infobus.objects.declaration import doc_in
from infobus.objects.kinds import Kind, Misfit, ObjectOf, shown
from infobus.objects.members import Attribute, make_attribute
from infobus.objects.rich_kinds import RichKind
from infobus.objects.sealed import is_sealed
from infobus.objects.spelling import kind_of, optional
from infobus.objects.types import compose

_EMPTY = (list, dict, set, tuple, frozenset)
_ABSENT: Any = object()


class Field(msgspec.Struct):
    """A field of a class of another library."""

    name: str
    hint: Any
    default: Any = _ABSENT
    doc: str = ""
    is_optional: bool = False  # a key that may be missing


class Shape(msgspec.Struct):
    """How a library writes its classes: the fields, and the ways to an instance and back."""

    fields: Callable[[type], list[Field]]
    values: Callable[[Any], Mapping[str, Any]]
    make: Callable[[type, dict[str, Any]], Any]


class PayloadOf(RichKind):
    """An instance of a class of another library, carried as its twin."""

    def __init__(self, python_class: type, name: str, lineage: frozenset[str]) -> None:
        super().__init__(name, ObjectOf(name, lineage))
        self.python = python_class

    def check(self, value: Any) -> Any:
        if not isinstance(value, DataObject) and (twin := twin_of(value)) is not None:
            value = twin
        elif isinstance(value, dict):
            try:
                value = _twins[self.python](**value)
            except (BadValue, TypeError) as error:
                raise Misfit(str(error)) from None
        return self.plain.check(value)

    def lift(self, value: Any, fixed: bool = False) -> Any:
        try:
            return native(self.plain.check(value))
        except Mismatched as mismatched:
            raise Misfit(str(mismatched)) from None


_twins: dict[Any, type[DataObject]] = registry.twins
_making: dict[Any, str] = {}


def twin_class(cls: type, name: str = "") -> type[DataObject]:
    """Return the twin of a class, made at first use; from now on its instances arrive as such.

    The type has the name of the class, or its `__bus_name__`.

    Raises:
        BadType: It is no class that can be published, or has an attribute that cannot be sent.
    """
    if (found := _twins.get(cls)) is not None:
        return found
    if isinstance(cls, type) and issubclass(cls, DataObject):
        return cls
    with registry.lock:
        if cls in _twins:
            return _twins[cls]
        shape = _shape_of(cls)
        if shape is None:
            raise BadType(
                f"{cls!r} cannot be published: use a DataObject, a dataclass, a pydantic model, a "
                "msgspec Struct, a TypedDict or NamedTuple, str, bytes, or an Arrow table"
            )
        name = name or cls.__dict__.get("__bus_name__") or cls.__name__
        _making[cls] = name
        try:
            twin = _made(cls, name, shape)
        finally:
            del _making[cls]
        _twins[cls] = twin
        registry.natives[twin] = lambda obj: shape.make(cls, _lifted(obj))
        registry.add_declared(twin)
        return twin


def _made(cls: type, name: str, shape: Shape) -> type[DataObject]:
    above = [b for b in cls.__bases__ if _shape_of(b) is not None and shape.fields(b)]
    bases = [twin_class(base) for base in above]
    attributes = [_attribute(name, field) for field in shape.fields(cls)]
    doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    doc = "" if doc.startswith(f"{cls.__name__}(") else doc  # what `dataclass` has written
    try:
        known = compose(name, [base.__bus_type__ for base in bases], attributes, (), doc)
    except BadType:
        if not bases:
            raise
        bases = []  # they disagree: then it is a type by itself
        known = compose(name, (), attributes, (), doc)
    return make_class(known, bases, {"__module__": cls.__module__})


def _attribute(where: str, field: Field) -> Attribute:
    try:
        kind = kind_of(field.hint, _payload_kind)
    except BadType as error:
        raise BadType(f"{where}.{field.name}: {error}") from None
    if field.is_optional:
        kind = optional(kind)
    doc = field.doc or doc_in(field.hint)
    if field.default is not _ABSENT:
        try:
            return make_attribute(where, field.name, kind, doc, [field.default])
        except BadType:
            pass  # such as an object, or None for an int: then it has no default on the bus
    return make_attribute(where, field.name, kind, doc, ())


def _payload_kind(annotation: Any) -> Kind | None:
    """Return the kind of an annotation that is a class with a twin; None if it is none."""
    if annotation in _making:
        return PayloadOf(annotation, _making[annotation], frozenset())
    if not isinstance(annotation, type) or _shape_of(annotation) is None:
        return None
    known = twin_class(annotation).__bus_type__
    return PayloadOf(annotation, known.name, known.lineage)


def twin_of(value: Any) -> DataObject | None:
    """Return the twin of an instance of another library's class; None if it can have none.

    Raises:
        BadType: A class of a library that is known has an attribute that cannot be sent.
        BadValue: A value does not fit.
    """
    cls = value.__class__
    if cls not in _twins:
        if cls.__module__.partition(".")[0] == "pyarrow":
            _register_arrow()
        base = next((one for one in cls.__mro__ if one in _twins), None)
        if _shape_of(cls) is not None:
            twin_class(cls)
        elif base is not None:
            cls = base
    twin = _twins.get(cls)
    if twin is None:
        return None
    return twin(**_values_of(cls, value))


def carried(value: Any) -> Any:
    """Return what is published for `value`: itself, if it is a data object or a dict, or its twin.

    Raises:
        BadValue: It cannot be published.
    """
    if isinstance(value, (DataObject, dict)):
        return value
    if isinstance(value, type):
        raise BadValue(f"expected a DataObject or a dict to send, got the class {value.__name__}")
    try:
        twin = twin_of(value)
    except BadType as error:
        raise BadValue(f"{shown(value):.80} cannot be sent: {error}") from None
    if twin is None:
        raise BadValue(
            f"expected a DataObject or a dict to send, got {shown(value)}; dataclasses, pydantic "
            "models, msgspec structs, str, bytes and Arrow tables can be sent, too"
        )
    return twin


def native(value: Any) -> Any:
    """Return what an application gets of a received object: the instance whose twin it is.

    Raises:
        Mismatched: The class refuses the values.
    """
    make = registry.natives.get(value.__class__)
    if make is None or is_sealed(value):
        return value
    try:
        return make(value)
    except Mismatched:
        raise
    except Exception as error:  # whatever the class of the application may say
        name = value.__bus_type__.name
        raise Mismatched(value, AttributeMisfit("", f"{error}", name)) from None


def typed(value: Any, wanted: tuple[Any, ...]) -> Any:
    """Return `value` as an instance of one of some classes.

    A plain dict becomes one if its items fit.

    Raises:
        Mismatched: It is of none of these classes, and no dict that fits one.
    """
    problem = f"it is {shown(value):.60}"
    for cls in wanted:
        if _is_typed_dict(cls):
            plain_class: Any = dict
        else:
            plain_class = cls
        if isinstance(value, plain_class) and plain_class is cls:
            return value
        if isinstance(value, dict) and cls not in (str, bytes):
            try:
                return native(twin_class(cls)(**value))
            except (BadValue, BadType, TypeError, Mismatched) as error:
                problem = str(error)
    expected = " or ".join(getattr(cls, "__name__", str(cls)) for cls in wanted)
    raise Mismatched(value, AttributeMisfit("", f"expected {expected}, {problem}", expected))


def wanted_classes(hint: Any) -> tuple[Any, ...]:
    """Return the classes that an annotation or `type=` names, ready to be received.

    Empty if it is `Any`, or `object`: then whatever comes is welcome.

    Raises:
        BadType: Objects of such a class cannot be sent.
    """
    if typing.get_origin(hint) in (typing.Union, python.UnionType):
        return tuple(cls for one in typing.get_args(hint) for cls in wanted_classes(one))
    if isinstance(hint, tuple):
        return tuple(cls for one in hint for cls in wanted_classes(one))
    if typing.get_origin(hint) is typing.Annotated:
        return wanted_classes(typing.get_args(hint)[0])
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return ()
    if hint is dict or typing.get_origin(hint) is dict:
        return (dict,)
    if getattr(hint, "__module__", "").partition(".")[0] == "pyarrow":
        _register_arrow()
    twin_class(hint)
    return (hint,)


def _lifted(obj: DataObject) -> dict[str, Any]:
    state, plan = obj.__dict__, obj.__bus_plan__
    values = dict(state)
    for name, kind in plan.rich:
        values[name] = kind.lift(state[name])
    return values


def _values_of(cls: Any, value: Any) -> dict[str, Any]:
    if cls in _OWN_VALUES:
        return _OWN_VALUES[cls](value)
    shape = _shape_of(cls)
    assert shape is not None
    names = _twins[cls].__bus_plan__.attributes
    return {name: one for name, one in shape.values(value).items() if name in names}


# --- how each library writes its classes -------------------------------------------------------


def _shape_of(cls: Any) -> Shape | None:
    if not isinstance(cls, type):
        return None
    if dataclasses.is_dataclass(cls):
        return _DATACLASS
    if issubclass(cls, msgspec.Struct) and cls is not msgspec.Struct:
        return _STRUCT
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _NAMED_TUPLE
    if _is_typed_dict(cls):
        return _TYPED_DICT
    pydantic = sys.modules.get("pydantic")
    model = getattr(pydantic, "BaseModel", None)
    if model is not None and issubclass(cls, model) and cls is not model:
        return _MODEL if hasattr(cls, "model_fields") else None
    return None


def _is_typed_dict(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, None, {cls.__name__: cls}, include_extras=True)
    except Exception as error:  # Annotations are code: evaluating them can raise anything.
        raise BadType(
            f"{cls.__name__}: cannot make sense of its annotations: {error}; classes that they "
            "name must be at the top of a module"
        ) from error


def _default(value: Any, factory: Any, none: Any) -> Any:
    if value is not none:
        return value
    return factory() if factory in _EMPTY else _ABSENT  # another factory may give anything


def _dataclass_fields(cls: Any) -> list[Field]:
    hints, missing = _hints(cls), dataclasses.MISSING
    return [
        Field(one.name, hints[one.name], _default(one.default, one.default_factory, missing))
        for one in dataclasses.fields(cls)
        if not one.name.startswith("_")
    ]


def _dataclass_values(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}


def _make_dataclass(cls: Any, values: dict[str, Any]) -> Any:
    late = [one.name for one in dataclasses.fields(cls) if not one.init and one.name in values]
    later = {name: values.pop(name) for name in late}
    made = cls(**values)
    for name, value in later.items():
        object.__setattr__(made, name, value)
    return made


def _struct_fields(cls: Any) -> list[Field]:
    none = msgspec.NODEFAULT
    return [
        Field(one.name, one.type, _default(one.default, one.default_factory, none))
        for one in msgspec.structs.fields(cls)
        if not one.name.startswith("_")
    ]


def _model_fields(cls: Any) -> list[Field]:
    none = sys.modules["pydantic_core"].PydanticUndefined
    return [
        Field(
            name,
            one.annotation,
            _default(one.default, one.default_factory, none),
            one.description or "",
        )
        for name, one in cls.model_fields.items()
    ]


def _make_model(cls: Any, values: dict[str, Any]) -> Any:
    aliases = {name: one.validation_alias for name, one in cls.model_fields.items()}
    by_alias = {
        alias if isinstance(alias := aliases.get(name), str) else name: value
        for name, value in values.items()
    }
    return cls.model_validate(by_alias)


def _typed_dict_fields(cls: Any) -> list[Field]:
    wrappers = (typing.Required, typing.NotRequired)
    found = []
    for name, hint in _hints(cls).items():
        inner = typing.get_args(hint)[0] if typing.get_origin(hint) in wrappers else hint
        may_miss = name not in cls.__required_keys__
        found.append(Field(name, inner, None if may_miss else _ABSENT, "", may_miss))
    return found


def _make_typed_dict(cls: Any, values: dict[str, Any]) -> Any:
    required = cls.__required_keys__
    return {name: one for name, one in values.items() if one is not None or name in required}


def _tuple_fields(cls: Any) -> list[Field]:
    hints, defaults = _hints(cls), cls._field_defaults
    if set(hints) != set(cls._fields):
        raise BadType(f"{cls.__name__}: a named tuple is sent only if its fields are annotated")
    return [Field(name, hints[name], defaults.get(name, _ABSENT)) for name in cls._fields]


def _make(cls: Any, values: dict[str, Any]) -> Any:
    return cls(**values)


_DATACLASS = Shape(_dataclass_fields, _dataclass_values, _make_dataclass)
_STRUCT = Shape(
    _struct_fields, lambda one: {n: getattr(one, n) for n in one.__struct_fields__}, _make
)
_MODEL = Shape(_model_fields, dict, _make_model)
_TYPED_DICT = Shape(_typed_dict_fields, dict, _make_typed_dict)
_NAMED_TUPLE = Shape(_tuple_fields, lambda one: one._asdict(), _make)


# --- values that are no objects ----------------------------------------------------------------


class TextPayload(DataObject, name="payload.Text"):
    """A text, published as it is."""

    text: str


class BytesPayload(DataObject, name="payload.Bytes"):
    """Some bytes, published as they are."""

    data: bytes


class TablePayload(DataObject, name="payload.Table"):
    """An Arrow table, in the stream format of Arrow IPC."""

    columns: list[str]
    rows: int
    data: bytes


class BatchPayload(DataObject, name="payload.Batch"):
    """An Arrow record batch, in the stream format of Arrow IPC."""

    columns: list[str]
    rows: int
    data: bytes


_OWN_VALUES: dict[Any, Callable[[Any], dict[str, Any]]] = {
    str: lambda value: {"text": value},
    bytes: lambda value: {"data": value},
    bytearray: lambda value: {"data": value},
    memoryview: lambda value: {"data": value},
}


def _register_arrow() -> None:
    import pyarrow as pa

    for cls, twin in ((pa.Table, TablePayload), (pa.RecordBatch, BatchPayload)):
        _OWN_VALUES[cls] = _arrow_values
        _twins[cls] = twin


def _arrow_values(value: Any) -> dict[str, Any]:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    data = sink.getvalue().to_pybytes()
    return {"columns": value.schema.names, "rows": value.num_rows, "data": data}


def _read_table(obj: Any) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        return obj  # the bytes are there for whoever can read them
    with pa.ipc.open_stream(obj.data) as reader:
        return reader.read_all()


def _read_batch(obj: Any) -> Any:
    table = _read_table(obj)
    if isinstance(table, DataObject):
        return table
    batches: Iterable[Any] = table.combine_chunks().to_batches()
    found = list(batches)
    return found[0] if found else sys.modules["pyarrow"].RecordBatch.from_pylist([], table.schema)


for _own, _payload in (
    (str, TextPayload),
    (bytes, BytesPayload),
    (bytearray, BytesPayload),
    (memoryview, BytesPayload),
):
    _twins[_own] = _payload
registry.natives[TextPayload] = lambda obj: obj.text
registry.natives[BytesPayload] = lambda obj: obj.data
registry.natives[TablePayload] = _read_table
registry.natives[BatchPayload] = _read_batch
