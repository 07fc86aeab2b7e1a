"""Convert objects to a fingerprint and a map of attributes, and back, for stores.

The map holds the values that the codec would write: the attributes that are sent, including
unknown ones. Nested objects stay objects.
"""

from __future__ import annotations

from typing import Any

from infobus.objects.classes import class_for
from infobus.objects.codec import reconciled
from infobus.objects.data import DataObject, Foreign, ObjectId, bad_value, unknown_attributes
from infobus.objects.kinds import Misfit
from infobus.objects.outbound import sent_attributes, sent_type


def take_apart(obj: DataObject) -> tuple[int, dict[str, Any]]:
    """Return the fingerprint that `obj` is sent under, and the attributes that are sent.

    Raises:
        BadValue: Somebody changed a list or map in place, so that it no longer fits.

    >>> from infobus.objects import Property
    >>> fingerprint, body = take_apart(Property(name="n", value=[1], ref="r"))
    >>> body, put_together(fingerprint, body)
    ({'name': 'n', 'value': [1], 'ref': 'r'}, Property(name='n', value=[1], ref='r'))
    """
    plan, state = obj.__bus_plan__, obj.__dict__
    unknown: dict[str, Any] = {}
    if obj.__bus_tag__.__class__ is not Foreign and len(state) == plan.count:
        fingerprint, state = plan.fingerprint, dict(state)  # the usual case
    else:
        state, unknown = sent_attributes(obj), unknown_attributes(obj)
        fingerprint, _ = sent_type(obj, state)
    name = ""
    try:
        for name, kind in plan.containers:
            if name in state and name not in unknown:
                state[name] = kind.check(state[name])
    except Misfit as misfit:
        raise bad_value(misfit, f"{obj.__bus_type__.name}.{name}") from None
    return fingerprint, state


def put_together(
    fingerprint: int, body: dict[str, Any], object_id: ObjectId | None = None
) -> DataObject:
    """Undo `take_apart`: return an instance of the best class that this process knows."""
    return reconciled(class_for(fingerprint) or DataObject, fingerprint, dict(body), object_id)
