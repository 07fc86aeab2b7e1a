"""Where a bus's settings come from, and where in its home it keeps what must survive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from infobus.bounds import DEFAULT_BOUNDS, Bounds
from infobus.errors import UsageError
from infobus.patience import DEFAULT_PATIENCE, LINKS, Patience
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Limits, Upgrade
from infobus.protocols.reliable.peer import DEFAULT_UPGRADE, NO_LIMITS

if TYPE_CHECKING:
    from pathlib import Path

_KNOWN: dict[str, type | tuple[type, ...]] = {
    "bus": str,
    "name": str,
    "home": str,
    "engine": str,
    "listen": list,
    "connect": list,
    "multicast": str,
    "insecure": bool,
    "link": str,
    "attach": (str, list),
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

# What reaches beyond this program counts only where its user has put it: a working directory may be
# anybody's.
_REACHING_OUT = ("connect", "listen", "multicast", "insecure", "attach", "home", "zenoh")

_IN_A_HOME = {"buses", "event_keys", "infobus.toml", "keys", "staging", "tdl_history"}

_NAME_BYTES_MAX = 64  # of a bus, after which a folder is named, and of an application

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
    name: str = ""
    home: Path
    engine: str = "zenoh"
    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    multicast: str = "off"
    insecure: bool = False
    link: str = "lan"
    attach: str | tuple[str, ...] = "auto"
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
    `infobus.toml` in the working directory, else the one in the home folder. What reaches beyond
    this program (see `_REACHING_OUT`) is refused in the working directory.
    """
    values = {
        "bus": os.environ.get("INFOBUS_BUS") or None,
        "name": os.environ.get("INFOBUS_NAME") or None,
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
    if "attach" in values:
        values["attach"] = _attach(values["attach"])
    if "classes" in values:
        if isinstance(values["classes"], str):
            raise UsageError(f"classes={values['classes']!r}: expected a list of names")
        values["classes"] = Classes(tuple(values["classes"]))
    values["patience"] = _patience(values.get("link", "lan"), values.get("patience", {}))
    for name, kind in _TABLES.items():
        if name in values:
            values[name] = _table(name, values[name], kind)
    settings = Settings(**values)
    _check_name("bus", settings.bus, "leave it out to use 'default'")
    if "name" in values:
        _check_name("application", settings.name, "leave it out to have none")
    if not isinstance(settings.depth, int) or settings.depth < 1:
        raise UsageError(f"depth must be an int of at least 1, got {settings.depth!r}")
    return settings


def check_bus_name(name: str) -> None:
    """Raise `UsageError` unless a bus can have this name."""
    _check_name("bus", name, "give one")


def _check_name(whose: str, name: Any, otherwise: str) -> None:
    if not isinstance(name, str):
        raise UsageError(f"the {whose}'s name must be a str, got {name!r}")
    if not name:
        raise UsageError(f"the {whose}'s name is empty; {otherwise}")
    is_readable = all(letter.isalnum() or letter in "_.-" for letter in name)
    if not is_readable or not name[0].isalnum():
        hint = "; an address belongs into connect=[...]" if "/" in name or ":" in name else ""
        raise UsageError(
            f"the {whose}'s name {name!r}: expected letters, digits, '_', '-' and '.', beginning "
            f"with a letter or digit{hint}"
        )
    if len(name.encode()) > _NAME_BYTES_MAX:
        raise UsageError(
            f"the {whose}'s name has {len(name.encode())} bytes; at most {_NAME_BYTES_MAX} are "
            "accepted"
        )


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
    from infobus.engines.zenoh.endpoints import check_endpoint  # seldom needed

    if isinstance(given, str):  # a str is iterable, too
        raise UsageError(f"{name} takes a list of endpoints, got the str {given!r}")
    endpoints = tuple(given)
    for endpoint in endpoints:
        if not isinstance(endpoint, str):
            raise UsageError(f"{name}: an endpoint must be a str, got {endpoint!r}")
        check_endpoint(name, endpoint)
    return endpoints


def _attach(given: Any) -> str | tuple[str, ...]:
    from infobus.engines.zenoh.endpoints import checked_attach

    return checked_attach(given)


def _table(name: str, given: Any, kind: type[Any]) -> Any:
    if isinstance(given, kind):
        return given
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        room = "infobus" if kind in (Patience, Bounds) else "infobus.qos"
        what = f"expected an {room}.{kind.__name__}, or a table of its numbers"
        raise UsageError(f"{name}: {error}; {what}") from None


def _patience(link: Any, given: Any) -> Any:
    """What is given goes before what the kind of link stands for: a table, number by number."""
    if link not in LINKS:
        raise UsageError(f"link={link!r}: expected one of {', '.join(map(repr, LINKS))}")
    if not isinstance(given, dict):
        return given
    return {**msgspec.structs.asdict(LINKS[link]), **given}


def _read_file(home: Path) -> dict[str, Any]:
    from pathlib import Path

    named = os.environ.get("INFOBUS_SETTINGS")
    if named:
        return _parse(Path(named))
    here, there = Path("infobus.toml"), home / "infobus.toml"
    if _is_file(here):
        values = _parse(here)
        if not (_is_file(there) and here.samefile(there)):
            _refuse_reaching_out(values, there)
        return values
    return _parse(there) if _is_file(there) else {}


def _refuse_reaching_out(values: dict[str, Any], allowed: Path) -> None:
    found = [name for name in _REACHING_OUT if name in values]
    if found:
        raise UsageError(
            f"settings file infobus.toml of the working directory: {', '.join(found)}: whoever "
            "made this folder must not decide where you connect to or where you keep things. Put "
            f"it into {allowed}, or name the file in INFOBUS_SETTINGS if it is yours"
        )


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
            kinds = expected if isinstance(expected, tuple) else (expected,)
            what = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"settings file {path}: {name} must be a {what}, got {value!r}")
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


def daemon_folder(home: Path, bus: str) -> Path:
    """The folder of what a host's daemon keeps in a home that it looks after."""
    return _bus_folder(home, bus) / "daemon"


def keys_folder(home: Path, bus: str) -> Path:
    """The folder of the keys of a bus, for all processes that share a home."""
    from urllib.parse import quote

    return home / "keys" / quote(bus, safe="")


def has_identity(home: Path, bus: str) -> bool:
    """Whether this home is somebody in particular on a bus: then the bus is secured."""
    return (keys_folder(home, bus) / "identity.infobus").exists()


def shut_home(home: Path) -> None:
    """Shut other users out of a home that an older version, or somebody else, left open."""
    from infobus.stores.private import repair_tree

    try:
        is_ours_alone = {entry.name for entry in os.scandir(home)} <= _IN_A_HOME
    except OSError:  # there is none yet
        return
    # A folder that also holds other things may be shared on purpose.
    repair_tree(home if is_ours_alone else home / "buses")


def _bus_folder(home: Path, bus: str) -> Path:
    from urllib.parse import quote  # seldom needed, and `import infobus` is to be quick

    return home / "buses" / quote(bus, safe="")
