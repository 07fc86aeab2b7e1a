"""What an agreement carries besides plain events: guaranteed events, and calls of services."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from infobus import Bus
from infobus.router.guaranteed import GuaranteedCrossing, GuaranteedWay, Translate
from infobus.router.services import ServiceCrossing, ServiceWay
from infobus.router.sessions import SessionTerms
from infobus.router.settings import AgreementSettings, RouterSettings
from infobus.router.status import GuaranteedStatus


class Crossings:
    """The crossings of one agreement, as far as it asks for them.

    Args:
        router: The settings of the router.
        agreement: What is agreed.
        inside, backbone: The two buses.
        outward, inward: From a subject of one side to that of the other.
    """

    def __init__(
        self,
        router: RouterSettings,
        agreement: AgreementSettings,
        inside: Bus,
        backbone: Bus,
        *,
        outward: Translate,
        inward: Translate,
    ) -> None:
        self._router = router
        self._agreement = agreement
        self._buses = inside, backbone
        self._translate = outward, inward
        self._forms = agreement.agreement().names
        self._guaranteed: GuaranteedCrossing | None = None
        self._services: ServiceCrossing | None = None

    def listen_to(self, prefixes: Sequence[str]) -> None:
        """Take what has names with these beginnings on the backbone, from now on."""
        theirs = [f"{one}.{form}" for one in prefixes for form in self._forms.outside.patterns]
        if theirs and self._agreement.guaranteed:
            self._keep(theirs)
        if theirs and self._agreement.services:
            self._serve(theirs)

    @property
    def guaranteed(self) -> tuple[GuaranteedStatus, GuaranteedStatus] | None:
        """How guaranteed events stand on their way out and in; None if they do not cross."""
        if self._guaranteed is None:
            return None
        out, into = (
            GuaranteedStatus(
                state=way.state,
                carried=way.carried,
                error="" if way.error is None else str(way.error),
            )
            for way in (self._guaranteed.outward, self._guaranteed.inward)
        )
        return out, into

    @property
    def stand_ins(self) -> tuple[int, int]:
        """How many servers of this site have a stand-in outside, and of others here."""
        if self._services is None:
            return 0, 0
        return len(self._services.outward.stand_ins), len(self._services.inward.stand_ins)

    def close(self) -> None:
        """Carry nothing any more. Idempotent."""
        guaranteed, self._guaranteed = self._guaranteed, None
        services, self._services = self._services, None
        if guaranteed is not None:
            guaranteed.close()
        if services is not None:
            services.close()

    def _keep(self, theirs: list[str]) -> None:
        (outward, inward), where = self._translate, self._agreement.where
        ours = self._forms.inside.patterns
        way = GuaranteedWay(patterns=theirs, kept=ours, translate=inward, where=where)
        if self._guaranteed is not None:
            self._guaranteed.inward.change(way)
            return
        site = self._router.place.site
        here = f"{site}.{self._agreement.reach.label}"
        told = [f"{here}.{form}" for form in self._forms.outside.patterns]
        self._guaranteed = GuaranteedCrossing(
            *self._buses,
            site=site,
            name=f"{site}-{self._id()}",
            outward=GuaranteedWay(patterns=ours, kept=told, translate=outward, where=where),
            inward=way,
        )

    def _serve(self, theirs: list[str]) -> None:
        outward, inward = self._translate
        way = ServiceWay(patterns=theirs, translate=inward)
        if self._services is None:
            self._services = ServiceCrossing(
                *self._buses,
                site=self._router.place.site,
                router=self._router.name,
                outward=ServiceWay(patterns=self._forms.inside.patterns, translate=outward),
                inward=way,
                terms=SessionTerms(self._agreement.classes, self._agreement.max_rate),
            )
        else:
            self._services.inward.change(way)

    def _id(self) -> str:
        """The same for this agreement in all lives of the router, and for no other one."""
        one = self._agreement
        told = f"{one.inside} {one.outside} {one.reach.told}"
        return hashlib.sha256(told.encode()).hexdigest()[:12]
