"""An object as its type's fingerprint and a map of attributes, and back: for those who store it.

The map is what the codec would write, before it is written: only what is sent, unknown attributes
included, with objects inside left as objects.
"""

from __future__ import annotations

from typing import Any

from infobus.objects.classes import class_for
from infobus.objects.codec import _reconciled
from infobus.objects.data import DataObject, Foreign, ObjectId, bad_value, unknown_attributes
from infobus.objects.kinds import Misfit
from infobus.objects.outbound import sent_attributes, sent_type


def take_apart(obj: DataObject) -> tuple[int, dict[str, Any]]:
    """The fingerprint that `obj` is sent under, and the attributes that are sent with it.

    Raises:
        BadValue: A list or map was changed in place, to something that does not fit.

    >>> from infobus.objects import Property
    >>> fingerprint, body = take_apart(Property(name="n", value=[1], ref="r"))
    >>> body, put_together(fingerprint, body)
    ({'name': 'n', 'value': [1], 'ref': 'r'}, Property(name='n', value=[1], ref='r'))
    """
    plan, state = obj.__bus_plan__, obj.__dict__
    unknown: dict[str, Any] = {}
    if obj.__bus_tag__.__class__ is not Foreign and len(state) == plan.count:
        fingerprint, state = plan.fingerprint, dict(state)  # as almost always
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
    """The object of which this was taken: an instance of the best class known here."""
    return _reconciled(class_for(fingerprint) or DataObject, fingerprint, dict(body), object_id)
