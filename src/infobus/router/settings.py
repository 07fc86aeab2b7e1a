"""The settings of a router: a TOML file, read with errors that say what to correct."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from infobus import BadFilter, BadSubject, BusError, UsageError, filters
from infobus.engines.zenoh.endpoints import check_endpoint
from infobus.patience import LINKS, Patience
from infobus.protocols.interest.federation import Agreement
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, check_positive
from infobus.router.quality.policy import QualitySettings
from infobus.router.reach import UNBOUNDED, AgreementReach, SitePlace, is_within

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DOMAIN = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_INSIDE_OPTIONS = ("bus", "home", "connect", "listen", "insecure", "attach", "depth", "classes")
_PLACES = re.compile(r" - at `\$\.?(.*)`$")


class NeighbourSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Another router, and where it listens; without `connect` it is the one to call."""

    name: str
    connect: tuple[str, ...] = ()
    bytes_per_s: float | None = None
    """What the link carries, from here to there."""


class AgreementSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is exchanged with other routers, what it is called there, and how far it goes."""

    inside: str = ""
    outside: str = ""
    where: str = ""
    domains: tuple[str, ...] = ()
    hops_max: int = 0
    routers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    when_full: Literal["pace", "drop_oldest"] = "pace"
    max_rate: float | None = None
    rows_max: int = 10_000
    guaranteed: bool = False
    services: bool = False

    @property
    def reach(self) -> AgreementReach:
        """How far it goes."""
        return AgreementReach(self.domains, self.hops_max, self.routers)

    def agreement(self, prefix: str = "") -> Agreement:
        """Its names and filter; outside, names have `prefix` before them."""
        outside = ".".join(filter(None, (prefix, self.outside)))
        return Agreement(self.inside, outside, self.where)


class BackboneSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The bus of the routers; the same for all of them."""

    bus: str
    depth: int = 1
    classes: tuple[str, ...] = DEFAULT_CLASSES.names


class RouterSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A router: what it joins, whom it links with, and what passes."""

    name: str
    inside: str | dict[str, Any]
    backbone: str | BackboneSettings
    domain: str = ""
    group: str = ""
    listen: tuple[str, ...] = ()
    insecure: bool = False
    link: str = "lan"
    patience: dict[str, float] = {}
    zenoh: dict[str, Any] = {}
    journal: str = ""
    quality: QualitySettings | None = None
    neighbour: tuple[NeighbourSettings, ...] = ()
    agreement: tuple[AgreementSettings, ...] = ()

    @property
    def place(self) -> SitePlace:
        """Where it is; the routers of a group are one site."""
        return SitePlace(self.group or self.name, self.domain)

    @property
    def quality_part(self) -> tuple[str, bool] | None:
        """The group whose policy it keeps to, and whether it is the manager."""
        return None if self.quality is None else (self.quality.group, bool(self.quality.policy))

    @property
    def inside_options(self) -> dict[str, Any]:
        """How it joins the bus of its site: arguments of `connect`."""
        return {"bus": self.inside} if isinstance(self.inside, str) else dict(self.inside)

    @property
    def backbone_options(self) -> BackboneSettings:
        """The bus of the routers."""
        backbone = self.backbone
        return BackboneSettings(backbone) if isinstance(backbone, str) else backbone

    @property
    def link_patience(self) -> Patience:
        """How patient it is with other routers: as `link` says, but for what `patience` says."""
        usual = msgspec.structs.asdict(LINKS[self.link])
        # Other routers may be started later: none waits for them.
        return msgspec.convert({**usual, **self.patience, "reach_s": 0.0}, Patience)

    def remarks(self) -> list[str]:
        """What is allowed and may surprise: agreements by which a channel loses its order."""
        inside = int(self.inside_options.get("depth", 1))
        outside = self.backbone_options.depth
        return [
            f"agreement {number}: events of a channel inside ({one.inside or 'any'}) have several "
            f"channels on the backbone ({one.outside or 'any'}): after a repair or a detour, one "
            "may overtake another there"
            for number, one in enumerate(self.agreement, 1)
            if one.agreement().names.splits(inside, outside)
        ]


def load_router(path: str | Path) -> RouterSettings:
    """Read the settings of a router.

    Raises:
        UsageError: They cannot be read, or are wrong; the message says where, and what to write.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        settings = msgspec.convert(tomllib.loads(text), RouterSettings)
    except (OSError, ValueError) as error:
        raise UsageError(f"router settings {path}: {_plain(error)}") from None
    try:
        _check(settings)
    except BusError as error:
        raise UsageError(f"router settings {path}: {error}") from None
    return settings


def _plain(error: Exception) -> str:
    """An error of the reader, with the place first.

    >>> _plain(ValueError("Expected `str`, got `int` - at `$.agreement[0].inside`"))
    'agreement 1, inside: expected `str`, got `int`'
    """
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror}"
    what = str(error)
    found = _PLACES.search(what)
    where = "" if found is None else found[1]
    where = re.sub(r"\[(\d+)\]", lambda one: f" {int(one[1]) + 1}", where).replace(".", ", ")
    what = _PLACES.sub("", what)
    return f"{where}: {what[0].lower()}{what[1:]}" if where else what


def _check(settings: RouterSettings) -> None:
    _check_name("name", settings.name)
    if settings.group:
        _check_name("group", settings.group)
    if settings.quality is not None:
        _check_name("quality, group", settings.quality.group)
        if settings.quality.group == UNBOUNDED:
            raise UsageError(f"quality, group {UNBOUNDED!r} has another meaning: choose another")
    if settings.domain:
        _check_domain("domain", settings.domain)
    if settings.link not in LINKS:
        raise UsageError(f"link: expected one of {', '.join(LINKS)}, got {settings.link!r}")
    try:
        _ = settings.link_patience
    except msgspec.ValidationError as error:
        raise UsageError(f"patience: {_plain(error)}") from None
    unknown = [one for one in settings.inside_options if one not in _INSIDE_OPTIONS]
    if unknown or not settings.inside_options.get("bus"):
        known = ", ".join(_INSIDE_OPTIONS)
        wrong = f"{unknown[0]!r} is not a setting" if unknown else "it names no bus"
        raise UsageError(f"inside: {wrong}; expected the name of a bus, or a table of {known}")
    backbone = settings.backbone_options
    classes = Classes(backbone.classes)
    if not 1 <= backbone.depth <= 16:
        raise UsageError(f"backbone: depth must be from 1 to 16, got {backbone.depth}")
    if backbone.bus == settings.inside_options["bus"]:
        raise UsageError("backbone: it has the name of the bus inside; it is another bus")
    for endpoint in settings.listen:
        check_endpoint("listen", endpoint)
    _check_neighbours(settings)
    for number, one in enumerate(settings.agreement, 1):
        try:
            _check_agreement(one, settings, classes)
        except BusError as error:
            raise UsageError(f"agreement {number}: {error}") from None


def _check_neighbours(settings: RouterSettings) -> None:
    if not settings.neighbour:
        raise UsageError(
            "it names no [[neighbour]], and links only with those: name each router on the other "
            "end of a link, also those that call this one"
        )
    seen: set[str] = set()
    for one in settings.neighbour:
        _check_name("neighbour", one.name)
        if one.name == settings.name:
            raise UsageError(f"neighbour {one.name!r} has the name of this router")
        if one.name in seen:
            raise UsageError(f"neighbour {one.name!r} is there twice")
        seen.add(one.name)
        check_positive(f"neighbour {one.name!r}: bytes_per_s", one.bytes_per_s)
        for endpoint in one.connect:
            check_endpoint("connect", endpoint)
    if not settings.listen and not any(one.connect for one in settings.neighbour):
        raise UsageError(
            "it neither listens nor connects, so no neighbour can be linked: set `listen`, such as "
            '["tcp/0.0.0.0:7600"], or a neighbour\'s `connect`'
        )


def _check_agreement(one: AgreementSettings, settings: RouterSettings, classes: Classes) -> None:
    for domain in one.domains:
        _check_domain("domains", domain)
    if one.domains and not any(is_within(settings.domain, whole) for whole in one.domains):
        raise UsageError(
            f"it reaches the domains {', '.join(one.domains)}, and this router is in "
            f"{settings.domain or 'none'}: name one that it is within, or set `domain`"
        )
    for name in one.routers:
        _check_name("routers", name)
    for name in one.classes:
        classes.rank(name)
    for setting, value in (("hops_max", one.hops_max), ("rows_max", one.rows_max - 1)):
        if value < 0:
            raise UsageError(f"{setting} must not be below {0 if setting == 'hops_max' else 1}")
    if one.max_rate is not None and one.max_rate <= 0:
        raise UsageError(f"max_rate must be above 0 events a second, got {one.max_rate:g}")
    try:
        one.agreement()
    except BadSubject as error:
        raise UsageError(str(error)) from None
    try:
        if one.where:
            filters.compile(one.where)
    except BadFilter as error:  # its further lines draw where
        raise UsageError(f"where {one.where!r}: {str(error).splitlines()[0]}") from None


def _check_name(setting: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{setting} {name!r}: use 1 to 64 letters, digits, _ and -")


def _check_domain(setting: str, domain: str) -> None:
    if not _DOMAIN.fullmatch(domain):
        raise UsageError(f"{setting}: {domain!r} is not a domain: expected names joined by dots")
