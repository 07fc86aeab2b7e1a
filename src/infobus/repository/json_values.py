"""Write values of any kind as readable JSON, and read them back.

A value that JSON cannot express becomes a map with one key that begins with `$`:

    {"$datetime": "2026-11-15T10:00:00+00:00"}   {"$bytes": "AQI="}   {"$float": "nan"}
    {"$object": {"type": "Quote", "fingerprint": "8d0c...", "id": null, "attributes": {...}}}
    {"$map": {...}}                              a map whose own keys begin with `$`
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from infobus.errors import BadValue
from infobus.objects import DataObject, id_of
from infobus.objects.bodies import put_together, take_apart
from infobus.objects.data import bad_value
from infobus.objects.kinds import DEPTH_MAX, Misfit

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def write_open(value: Any, name_of_type: Callable[[int], str]) -> str:
    """Return `value` as JSON; `name_of_type` returns the type name of a fingerprint.

    >>> write_open({"at": b"ab", "n": [1, float("inf")]}, str)
    '{"at":{"$bytes":"YWI="},"n":[1,{"$float":"inf"}]}'
    """
    try:
        return msgspec.json.encode(_written(value, name_of_type, 1)).decode()
    except Misfit as misfit:
        raise bad_value(misfit, "") from None
    except UnicodeEncodeError as error:
        raise BadValue(f"a string cannot be stored: {error}") from None


def _written(value: Any, name_of_type: Callable[[int], str], depth: int) -> Any:
    cls = value.__class__
    if cls in _AS_THEY_ARE:
        return value
    if cls is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if cls is bytes:
        return {"$bytes": b64encode(value).decode()}
    if cls is datetime:
        return {"$datetime": value.isoformat()}
    if depth > DEPTH_MAX:
        raise Misfit(f"nested deeper than {DEPTH_MAX} levels, or cyclic")
    if cls is list:
        return [_written(item, name_of_type, depth + 1) for item in value]
    if cls is dict:
        inner = {key: _written(item, name_of_type, depth + 1) for key, item in value.items()}
        return {"$map": inner} if any(key.startswith("$") for key in inner) else inner
    assert isinstance(value, DataObject)
    fingerprint, body = take_apart(value)
    return {
        "$object": {
            "type": name_of_type(fingerprint),
            "fingerprint": f"{fingerprint:016x}",
            "id": id_of(value),
            "attributes": {
                key: _written(item, name_of_type, depth + 1) for key, item in body.items()
            },
        }
    }


def read_open(text: str) -> Any:
    """Undo `write_open`; raise `ValueError` if `write_open` did not write the text."""
    try:
        return _read(msgspec.json.decode(text))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{text[:60]!r} was not written by the repository: {error}") from None


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key in _READERS:
            return _READERS[key](inner)
    return {key: _read(item) for key, item in value.items()}


def _read_object(fields: dict[str, Any]) -> DataObject:
    body = {name: _read(value) for name, value in fields["attributes"].items()}
    return put_together(int(fields["fingerprint"], 16), body, fields["id"])


_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": datetime.fromisoformat,
    "$bytes": b64decode,
    "$float": float,
    "$map": lambda fields: {key: _read(item) for key, item in fields.items()},
    "$object": _read_object,
}
