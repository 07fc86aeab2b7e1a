"""Many alike objects at once: the codec for runs of events, in few calls and no loop.

It deals with flat objects of one type only, and says None to all else: then the codec looks at
each object by itself.
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

_ARRAY32 = b"\xdd"
_UINT64 = 0xCF  # the first byte of the only integers that may be too large

_encode = msgspec.msgpack.Encoder().encode
_first = itemgetter(0)
_get_state, _get_tag = attrgetter("__dict__"), attrgetter("__bus_tag__")
_new = object.__new__
_exhaust = deque[Any](maxlen=0).extend


def encode(objects: list[Any], bytes_max: int) -> tuple[int, list[bytes], tuple[int, ...]] | None:
    """As `codec.encode`, with a payload for each object; None unless they are alike.

    That is: different objects of one class, which hold nothing but scalars, have no id yet, and
    take up to `bytes_max` each.
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
    if set(map(len, states)) != {plan.count}:  # something was cached there
        return None
    try:
        payloads = list(map(_encode, states))
    except (TypeError, ValueError, OverflowError):
        return None
    return (
        None if max(map(len, payloads)) > bytes_max else (plan.fingerprint, payloads, plan.closure)
    )


def identify(objects: list[DataObject], sender: str, numbers: list[int]) -> None:
    """Give these objects, all of one class and without ids, those of their events."""
    flat = objects[0].__bus_plan__.flat
    if flat is not None:
        flat.identify_run(objects, sender, numbers)
    else:
        _exhaust(map(set_tag, objects, zip(repeat(sender), numbers, strict=False)))


def decode(
    fingerprint: int, bodies: list[bytes], sender: str, numbers: list[int]
) -> list[Any] | None:
    """The objects of a run, all of one type, in a few calls; None if they must be read singly.

    That is so unless all of them are just as the type says.
    """
    plan = registry.ready.get(fingerprint)
    if plan is None or plan.is_deep:
        return None
    if plan.flat is not None:
        found = plan.flat.decode_run(bodies, sender, numbers)
        if found is not None:
            return found
    try:
        if set(map(_first, bodies)) != {plan.first_byte}:
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
