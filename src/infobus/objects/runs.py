"""Encode and decode many objects of one type at once, without a Python loop.

It handles only flat objects of one type, and returns None for everything else. Then the caller
uses `codec` for each object.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from infobus.objects import registry
from infobus.objects.data import DataObject, set_state, set_tag
from infobus.objects.kinds import INT_MAX
from infobus.objects.untyped import COUNTED_BYTES

_ARRAY32 = b"\xdd"
_UINT64 = 0xCF  # the first byte of the only integers that may exceed a signed 64-bit integer

_encode = msgspec.msgpack.Encoder().encode
_first = itemgetter(0)
_get_state, _get_tag = attrgetter("__dict__"), attrgetter("__bus_tag__")
_new = object.__new__
# The fastest way to run an iterator to its end for its side effects.
_exhaust = deque[Any](maxlen=0).extend


def encode(objects: list[Any], bytes_max: int) -> tuple[int, list[bytes], tuple[int, ...]] | None:
    """Encode objects as `codec.encode` does, with one payload each; None if they are not alike.

    Objects are alike if they are distinct, have one class, hold only scalars, have no id yet,
    and take at most `bytes_max` bytes each.
    """
    plan = getattr(objects[0], "__bus_plan__", None)
    if plan is None or not plan.is_plain:
        return None
    if plan.flat is not None and (bodies := plan.flat.encode_run(objects, bytes_max)) is not None:
        return plan.fingerprint, bodies, plan.closure
    if set(map(type, objects)) != {plan.cls}:
        return None
    count = len(objects)
    if len(set(map(id, objects))) != count or list(map(_get_tag, objects)).count(None) != count:
        return None
    states = list(map(_get_state, objects))
    if set(map(len, states)) != {plan.count}:  # e.g. a cached property
        return None
    try:
        payloads = list(map(_encode, states))
    except (TypeError, ValueError, OverflowError):
        return None
    return (
        None if max(map(len, payloads)) > bytes_max else (plan.fingerprint, payloads, plan.closure)
    )


def identify(objects: list[DataObject], sender: str, numbers: list[int]) -> None:
    """Set the ids of these objects, which have one class and no ids yet, to their events' ids."""
    flat = objects[0].__bus_plan__.flat
    if flat is not None:
        flat.identify_run(objects, sender, numbers)
    else:
        _exhaust(map(set_tag, objects, zip(repeat(sender), numbers, strict=False)))


def decode(
    fingerprint: int, bodies: list[bytes], sender: str, numbers: list[int]
) -> list[Any] | None:
    """Decode a run of objects of one type; None if you must decode them one by one.

    It returns objects only if all of them match their type exactly.
    """
    plan = registry.ready.get(fingerprint)
    if plan is None or plan.is_deep or plan.rich:
        return None
    if plan.flat is not None:
        found = plan.flat.decode_run(bodies, sender, numbers)
        if found is not None:
            return found
    try:
        if set(map(_first, bodies)) != {plan.first_byte} or max(map(len, bodies)) > COUNTED_BYTES:
            return None
        joined = b"".join((_ARRAY32, len(bodies).to_bytes(4, "big"), *bodies))
        states: list[Any] = plan.decode_run(joined)
    except (msgspec.MsgspecError, ValueError, IndexError, OverflowError):
        return None
    if _UINT64 in joined:
        for name in plan.integers:
            if max(map(itemgetter(name), states)) > INT_MAX:
                return None
    objects: list[Any] = list(map(_new, repeat(plan.cls, len(states))))
    _exhaust(map(set_state, objects, states))
    identify(objects, sender, numbers)
    return objects
