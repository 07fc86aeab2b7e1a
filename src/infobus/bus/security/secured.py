"""Makes an open node one of a secured bus: it is kept to the policy, and keeps others to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infobus.bus.bus import Bus, interior
from infobus.bus.deliver.type_authors import believe
from infobus.bus.rights.audit import AUDIT_SPACE, KEPT, WHATS, Audit
from infobus.bus.runtime.policy_driver import PolicyDriver, SecuredEngine, Shown

if TYPE_CHECKING:
    from infobus.stores.key_folder import KeyFolder


def secure(
    bus: Bus, engine: SecuredEngine, shown: Shown, folder: KeyFolder | None = None
) -> PolicyDriver:
    """Keep a node to the policy of its bus; call it before the node is opened.

    `shown.policy` counts until a newer one comes: from another node, or into `folder`. Then it is
    set to that one.
    """
    parts = interior(bus)
    parts.routing.own_subjects.update(f"{AUDIT_SPACE}{what}" for what in WHATS)

    def publish(subject: str, audit: Audit) -> None:
        bus.publish(subject, audit, guaranteed=audit.what in KEPT)

    def on_change() -> None:
        policy, protection = shown.policy.policy, None
        if policy.protect:
            from infobus.bus.deliver.protection import Protections  # late: few policies ask for it

            protection = Protections(policy.protection, bus.name, bus.home)
        parts.runtime.protect(protection)
        authors = None
        if policy.types:
            from infobus.security.type_authors import TypeAuthors  # late: as above

            authors = TypeAuthors(shown.policy, parts.runtime.clock.wall_s)
        believe(bus.node, authors)
        with parts.runtime.lock:
            parts.routing.forget()
        parts.services.retire_what_is_not_allowed()

    driver = PolicyDriver(parts.runtime, engine, shown, folder, publish, on_change)
    on_change()
    return driver
