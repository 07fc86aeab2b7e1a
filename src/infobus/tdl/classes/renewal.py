"""Bring objects up to date whose class was defined anew.

As in CLOS, this happens when the program next uses the object. Until then it is a whole object
of the older version of its type, so Python can hold and send it at any time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from infobus.objects.data import Foreign, set_state, set_tag, unknown_attributes
from infobus.objects.kinds import Misfit
from infobus.objects.members import Attribute

if TYPE_CHECKING:
    from infobus.tdl.machine import Evaluation

RENEWAL_STEPS = 10
"""The fuel that renewing an object costs, besides that for its slots."""


def renew(run: Evaluation, value: Any) -> None:
    """Make `value` an object of its class as it is defined now, if it is of an older version.

    Slots of the same name keep their value if it is of the slot's new type. Other slots get
    their default, or are unbound if they have none.
    """
    name = run.interpreter.outdated.get(value.__class__)
    if name is None:
        return
    cls = run.interpreter.classes[name]
    plan = cls.__bus_plan__
    run.spend(RENEWAL_STEPS + plan.count)
    run.allocate(plan.count)
    old = unknown_attributes(value) | value.__dict__
    state: dict[str, Any] = {}
    filled: dict[str, Any] = {}
    for attribute in plan.attributes.values():
        if attribute.name in old:
            with suppress(Misfit):  # Unbound: the program gets an error if it reads the slot.
                state[attribute.name] = attribute.checker.check(old[attribute.name])
        elif attribute.has_default:
            state[attribute.name] = fresh_default(run, attribute)
            filled[attribute.name] = fresh_default(run, attribute)
    tag = value.__bus_tag__
    object.__setattr__(value, "__class__", cls)
    set_state(value, state)
    if tag.__class__ is Foreign:  # as if it had been received for the class of today
        extra = {name: item for name, item in tag.extra.items() if name not in state}
        known = {name: item for name, item in tag.filled.items() if name in state}
        set_tag(value, replace(tag, extra=extra, filled=known | filled))


def fresh_default(run: Evaluation, attribute: Attribute) -> Any:
    """Return the default of a slot, and charge for the copy if it is a list or a map."""
    if attribute.kind.is_container:
        cells = copied_cells(attribute.default)
        if cells:
            run.spend(cells)
            run.allocate(cells)
    return attribute.fresh_default()


def copied_cells(value: Any) -> int:
    """Return how many cells a copy of `value` takes; only lists and maps are copied."""
    if value.__class__ is list:
        return 2 + sum(1 + copied_cells(item) for item in value)
    if value.__class__ is dict:
        return 4 + sum(4 + copied_cells(item) for item in value.values())
    return 0
