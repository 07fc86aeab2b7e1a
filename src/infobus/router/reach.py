"""How far an agreement reaches: which routers exchange events by it, and by which names.

The backbone is a bus: all who listen to a name on it get what is published there. So a
bound must be part of the name: events of router X go out as `X.LABEL.SUBJECT`, with one label for
each reach of its agreements, `all` if there is no bound. Every router shows its labels and what
they mean (`Notice`), and a router listens to another's label only if each is within the reach of
the other. So what is bounded never leaves for a router outside, and its interest is heard by none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

UNBOUNDED = "all"
"""The label of agreements without any bound."""

PREFIX_COUNT = 2
"""Elements before the subject: the site, and the label."""


class SitePlace(NamedTuple):
    """Where a router is: the name it goes by, and its domain."""

    site: str
    domain: str


class AgreementReach(Struct, frozen=True):
    """The bounds of an agreement; those that are empty or 0 do not bound."""

    domains: tuple[str, ...] = ()
    hops_max: int = 0
    routers: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What it is called in names on the backbone."""
        if self == AgreementReach():
            return UNBOUNDED
        return f"b{hashlib.sha256(self.told.encode()).hexdigest()[:12]}"

    @property
    def told(self) -> str:
        """Its bounds as one element of a key.

        >>> AgreementReach(("eu", "us.ny"), 4).told, AgreementReach.of("eu,us.ny;4;")
        ('eu,us.ny;4;', AgreementReach(domains=('eu', 'us.ny'), hops_max=4, routers=()))
        """
        return f"{','.join(self.domains)};{self.hops_max or ''};{','.join(self.routers)}"

    @property
    def words(self) -> str:
        """Its bounds for people.

        >>> AgreementReach(("eu", "us.ny"), 4).words, AgreementReach().words
        ('in eu, us.ny; 4 hops', 'all')
        """
        bounds = (
            f"in {', '.join(self.domains)}" if self.domains else "",
            f"{self.hops_max} hops" if self.hops_max else "",
            f"to {', '.join(self.routers)}" if self.routers else "",
        )
        return "; ".join(filter(None, bounds)) or "all"

    @classmethod
    def of(cls, told: str) -> AgreementReach:
        """Read what `told` wrote; `ValueError` if it is something else."""
        domains, hops, routers = told.split(";")
        return cls(
            tuple(filter(None, domains.split(","))),
            int(hops or 0),
            tuple(filter(None, routers.split(","))),
        )

    def includes(self, place: SitePlace, hops: int) -> bool:
        """Whether a router there, so many links away, is within."""
        return (
            (not self.domains or any(is_within(place.domain, one) for one in self.domains))
            and (not self.hops_max or hops <= self.hops_max)
            and (not self.routers or place.site in self.routers)
        )


def is_within(domain: str, whole: str) -> bool:
    """Whether a domain is another, or part of it; the dots are the tree.

    >>> is_within("eu.se", "eu"), is_within("europe", "eu"), is_within("", "eu")
    (True, False, False)
    """
    return domain == whole or domain.startswith(f"{whole}.")


class Notice(NamedTuple):
    """What a router shows: it is there, and this is one of its labels."""

    router: str
    place: SitePlace
    label: str
    reach: AgreementReach

    @property
    def key(self) -> str:
        """As the key of a token.

        >>> Notice("b2", SitePlace("b", "eu"), "all", AgreementReach()).key
        'reach/b2/b/-eu/all/;;'
        """
        site, domain = self.place
        return f"reach/{self.router}/{site}/-{domain}/{self.label}/{self.reach.told}"

    @classmethod
    def of(cls, key: str) -> Notice:
        """Read a key; `ValueError` if it is something else."""
        _, router, site, domain, label, told = key.split("/")
        return cls(router, SitePlace(site, domain[1:]), label, AgreementReach.of(told))


def prefixes(
    reach: AgreementReach, here: SitePlace, notices: Iterable[Notice], hops: dict[str, int]
) -> list[str]:
    """What an agreement of this reach listens to: beginnings of names on the backbone.

    `hops` is how far other routers are; one that is not in it cannot be reached.

    >>> there = [
    ...     Notice("b", SitePlace("b", "eu"), "all", AgreementReach()),
    ...     Notice("c", SitePlace("c", "us"), "all", AgreementReach()),
    ... ]
    >>> prefixes(AgreementReach(("eu",)), SitePlace("a", "eu.se"), there, {"b": 1, "c": 1})
    ['b.all']
    >>> prefixes(AgreementReach(), SitePlace("a", "eu.se"), there, {"b": 1, "c": 1})
    ['*.all']
    """
    found = [] if reach != AgreementReach() else [f"*.{UNBOUNDED}"]
    for router, place, label, theirs in notices:
        if (reach == AgreementReach() and label == UNBOUNDED) or place.site == here.site:
            continue
        far = hops.get(router)
        if far is not None and reach.includes(place, far) and theirs.includes(here, far):
            found.append(f"{place.site}.{label}")
    return sorted(set(found))
