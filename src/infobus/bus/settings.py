"""Where a bus's settings come from, and where in its home it keeps what must survive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.errors import UsageError
from infobus.patience import DEFAULT_PATIENCE, Patience
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Limits, Upgrade
from infobus.protocols.reliable.peer import DEFAULT_UPGRADE, NO_LIMITS

if TYPE_CHECKING:
    from pathlib import Path

_KNOWN = {
    "bus": str,
    "home": str,
    "engine": str,
    "listen": list,
    "connect": list,
    "multicast": str,
    "zenoh": dict,
    "depth": int,
    "test": bool,
    "classes": list,
    "upgrade": dict,
    "limits": dict,
    "capacity": dict,
    "group": str,
    "patience": dict,
    "bounds": dict,
}

_TABLES: dict[str, type[Struct]] = {
    "limits": Limits,
    "capacity": Limits,
    "upgrade": Upgrade,
    "patience": Patience,
    "bounds": Bounds,
}


class Settings(Struct, frozen=True, kw_only=True):
    """What `connect` needs to know to join a bus."""

    bus: str = "default"
    home: Path
    engine: str = "zenoh"
    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    multicast: str = "loopback"
    zenoh: dict[str, Any] = field(default_factory=dict)
    depth: int = 1
    test: bool = False
    classes: Classes = DEFAULT_CLASSES
    upgrade: Upgrade = DEFAULT_UPGRADE
    limits: Limits = NO_LIMITS
    capacity: Limits = NO_LIMITS
    group: str = ""
    patience: Patience = DEFAULT_PATIENCE
    bounds: Bounds = DEFAULT_BOUNDS


def load_settings(**given: Any) -> Settings:
    """Merge what was given with the environment and the settings file.

    The file is the one named by the environment variable `INFOBUS_SETTINGS`, else
    `infobus.toml` in the working directory, else the one in the home folder.
    """
    values = {
        "bus": os.environ.get("INFOBUS_BUS") or None,
        "home": os.environ.get("INFOBUS_HOME") or None,
        "test": _flag("INFOBUS_TEST"),
        **{name: value for name, value in given.items() if value is not None},
    }
    values = {name: value for name, value in values.items() if value is not None}
    home = _folder(values.get("home", "~/.infobus"))
    values = {**_read_file(home), **values}
    values["home"] = _folder(values.get("home", home))
    for name in ("listen", "connect"):
        if name in values:
            values[name] = _endpoints(name, values[name])
    if "classes" in values:
        if isinstance(values["classes"], str):
            raise UsageError(f"classes={values['classes']!r}: expected a list of names")
        values["classes"] = Classes(tuple(values["classes"]))
    for name, kind in _TABLES.items():
        if name in values:
            values[name] = _table(name, values[name], kind)
    settings = Settings(**values)
    if not settings.bus:
        raise UsageError("the bus's name is empty; leave it out to use 'default'")
    if not isinstance(settings.bus, str):
        raise UsageError(f"the bus's name must be a str, got {settings.bus!r}")
    if not isinstance(settings.depth, int) or settings.depth < 1:
        raise UsageError(f"depth must be an int of at least 1, got {settings.depth!r}")
    return settings


def _flag(variable: str) -> bool | None:
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise UsageError(f"{variable}={value!r}: expected 1 or 0")
    return bool(int(value)) if value else None


def _folder(given: Any) -> Path:
    from pathlib import Path  # late: `import infobus` is to be quick

    if not isinstance(given, str | Path):
        raise UsageError(f"home must be a folder's path, got {given!r}")
    try:
        return Path(given).expanduser()
    except RuntimeError:  # this user has no home folder, as in some containers
        return Path(given)


def _endpoints(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):  # a str is iterable, too
        raise UsageError(f"{name} takes a list of endpoints, got the str {given!r}")
    endpoints = tuple(given)
    for endpoint in endpoints:
        if not isinstance(endpoint, str):
            raise UsageError(f"{name}: an endpoint must be a str, got {endpoint!r}")
    return endpoints


def _table(name: str, given: Any, kind: type[Any]) -> Any:
    if isinstance(given, kind):
        return given
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        room = "infobus" if kind in (Patience, Bounds) else "infobus.qos"
        what = f"expected an {room}.{kind.__name__}, or a table of its numbers"
        raise UsageError(f"{name}: {error}; {what}") from None


def _read_file(home: Path) -> dict[str, Any]:
    from pathlib import Path

    named = os.environ.get("INFOBUS_SETTINGS")
    candidates = [Path(named)] if named else [Path("infobus.toml"), home / "infobus.toml"]
    for path in candidates:
        if named or _is_file(path):
            return _parse(path)
    return {}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # somebody else's folder
        return False


def _parse(path: Path) -> dict[str, Any]:
    import tomllib  # seldom needed, and `import infobus` is to be quick

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"settings file {path} cannot be read: {error}") from error
    for name, value in values.items():
        expected = _KNOWN.get(name)
        if expected is None:
            raise UsageError(
                f"settings file {path}: {name!r} is not a setting; known are {', '.join(_KNOWN)}"
            )
        if not isinstance(value, expected):
            raise UsageError(
                f"settings file {path}: {name} must be a {expected.__name__}, got {value!r}"
            )
    return values


def ledgers_folder(home: Path, bus: str) -> Path:
    """The folder of the ledgers of all processes that share a home."""
    return _bus_folder(home, bus) / "ledgers"


def consumers_folder(home: Path, bus: str) -> Path:
    """The folder of the durable consumers of all processes that share a home."""
    return _bus_folder(home, bus) / "consumers"


def replies_folder(home: Path, bus: str) -> Path:
    """The folder of the replies of calls that must run once, of all processes of a home."""
    return _bus_folder(home, bus) / "replies"


def _bus_folder(home: Path, bus: str) -> Path:
    from urllib.parse import quote  # seldom needed, and `import infobus` is to be quick

    return home / "buses" / quote(bus, safe="")
