"""The policy of a group of routers: what leaves a site, in which class, and what may be reserved.

Each router of the group keeps to it by itself. One of them has the policy in its settings and is
the manager: it tells the others, again and again, so that who was away hears of it, too.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from infobus import Bus
from infobus.bus.qos_group import QosManager, QosMember
from infobus.errors import QosRefused
from infobus.protocols.qos.admission import Admission
from infobus.protocols.qos.classes import Classes
from infobus.protocols.qos.policy import Policy

log = logging.getLogger("infobus.router")

_JUDGED_COUNT_MAX = 65_536


class QualitySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A group of routers that keep to one policy; who has the policy is its manager."""

    group: str
    policy: Policy | None = None


class QualityStatus(Struct, frozen=True, kw_only=True):
    """The policy of a group of routers, as one of them keeps to it."""

    group: str
    is_manager: bool
    policy: Policy
    refused: str
    """Why it does not keep to the last one; empty if it does."""
    refusals: dict[str, str] = {}
    """At the manager: the nodes that do not keep to it, and why."""
    denied: int = 0
    """Events that it did not let leave this site."""


class RouterQuality:
    """A router's part in a group.

    Args:
        bus: The backbone.
        settings: The group, and the policy if this router is the manager.
        classes: Those that users of the backbone know.
    """

    def __init__(self, bus: Bus, settings: QualitySettings, classes: Classes) -> None:
        self._settings, self._classes = settings, classes
        self._judged: dict[tuple[str, str], str | None] = {}
        self._denied = 0
        self._manager: QosManager | None = None
        if settings.policy is not None:
            self._manager = QosManager(bus, settings.group, settings.policy)
        self._member = QosMember(
            bus,
            settings.group,
            Admission(None),
            classes,
            on_policy=self._judged.clear,
            refusal=self._refusal,
        )
        self.keep, self.give_back = self._member.reserve, self._member.release

    def judge(self, subject: str, class_: str) -> str | None:
        """The class in which events leave this site; None if they must not.

        The subject is what it is called outside, without the names of site and reach.
        """
        key = (subject, class_)
        if key not in self._judged:
            if len(self._judged) >= _JUDGED_COUNT_MAX:
                self._judged.clear()
            try:
                self._judged[key] = self._member.judge(subject, class_)
            except QosRefused as error:
                log.warning("events do not leave this site: %s", error)
                self._judged[key] = None
        found = self._judged[key]
        self._denied += found is None
        return found

    def change(self, settings: QualitySettings) -> None:
        """Have another policy, if this router is the manager."""
        if self._manager is not None and settings.policy is not None:
            self._manager.change(settings.policy)

    def status(self) -> QualityStatus:
        """The policy as it is kept to here."""
        manager = self._manager
        return QualityStatus(
            group=self._settings.group,
            is_manager=manager is not None,
            policy=self._member.policy,
            refused=self._member.refused,
            refusals={} if manager is None else manager.refusals(),
            denied=self._denied,
        )

    def close(self) -> None:
        """Leave the group."""
        self._member.close()
        if self._manager is not None:
            self._manager.close()

    def _refusal(self, policy: Policy) -> str:
        """Why this router cannot keep to a policy."""
        named = {*policy.only_on, *policy.raise_to.values()} - {*self._classes.names}
        if not named:
            return ""
        return (
            f"it names the classes {', '.join(sorted(named))}, and this backbone has "
            f"{', '.join(self._classes.names)}"
        )
