"""Contexts: settings files of the user's own, by name, of which one may be in use.

    ~/.config/infobus/contexts/NAME.toml     the settings, as in `infobus.toml`
    ~/.config/infobus/context                the name of the one in use

They say where programs connect to, so nobody but the user may write them.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infobus import UsageError
from infobus.stores.private import make_private_folder, private_opener

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OTHERS = 0o077


def _folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "infobus"


def path_of(name: str) -> Path:
    """The file of a context, whether it is there or not."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a context cannot be called {name!r:.80}: expected letters, digits, '_', '-' and '.'"
        )
    return _folder() / "contexts" / f"{name}.toml"


def known() -> list[str]:
    """The names of all contexts."""
    return sorted(path.stem for path in (_folder() / "contexts").glob("*.toml"))


def existing(name: str) -> Path:
    """The file of a context that is there, and is the user's own."""
    path = path_of(name)
    try:
        found = path.stat()
    except FileNotFoundError:
        there = ", ".join(known()) or "none yet"
        raise UsageError(f"there is no context {name!r}; there are: {there}") from None
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & _OTHERS:
        raise UsageError(f"{path} is not yours alone: it says where you connect to; chmod 600 it")
    return path


def read(name: str) -> dict[str, Any]:
    """The settings of a context."""
    path = existing(name)
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def add(name: str, settings: Mapping[str, Any]) -> Path:
    """Write a new context, for its owner alone."""
    path = path_of(name)
    # Strings, lists of them, and bools are written alike in JSON and in TOML.
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    try:
        tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"context {name!r}: {error}") from None
    make_private_folder(path.parent)
    try:
        with open(path, "x", encoding="utf-8", opener=private_opener) as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"there is a context {name!r}: remove it first, or edit {path}") from None
    return path


def remove(name: str) -> None:
    """Remove a context; if it was in use, none is."""
    path = path_of(name)
    if not path.exists():
        existing(name)  # says which there are
    if used() == name:
        use(None)
    path.unlink()


def use(name: str | None) -> None:
    """Use a context from now on, or none."""
    mark = _folder() / "context"
    if name is None:
        mark.unlink(missing_ok=True)
        return
    existing(name)
    fresh = mark.with_suffix(".new")
    with open(fresh, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(f"{name}\n")
    fresh.replace(mark)


def used() -> str | None:
    """The name of the context in use."""
    mark = _folder() / "context"
    try:
        found = mark.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & _OTHERS:
            raise UsageError(f"{mark} is not yours alone: chmod 600 it, or remove it")
        return mark.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(f"{mark} cannot be read: {error}") from None


def enter() -> None:
    """Let this process have the settings of the context that is asked for or in use, if any."""
    name = os.environ.get("INFOBUS_CONTEXT")
    if name is None and not os.environ.get("INFOBUS_SETTINGS"):
        name = used()
    if name:
        os.environ["INFOBUS_SETTINGS"] = str(existing(name))
