"""The keys of events that a home holds: pairs of its own, and the public halves of others'."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from infobus.errors import StoreError, UsageError
from infobus.stores.private import make_private_folder, private_opener, repair

if TYPE_CHECKING:
    from infobus.security.event_keys import EventKey, PublicEventKey

FOLDER = "event_keys"
_PAIR, _PUBLIC = ".key", ".pub"


class EventKeyFolder:
    """The folder of a home with a file for each key: `NAME.key` has a pair, `NAME.pub` its half."""

    def __init__(self, home: Path) -> None:
        self.path = home / FOLDER
        self._pairs: dict[str, EventKey] = {}
        self._public: dict[str, PublicEventKey] = {}

    def names(self) -> dict[str, bool]:
        """The names of all keys, and whether the home has the whole pair."""
        try:
            files = sorted(self.path.iterdir())
        except FileNotFoundError:
            return {}
        public = {one.stem: False for one in files if one.suffix == _PUBLIC}
        return public | {one.stem: True for one in files if one.suffix == _PAIR}

    def make(self, name: str) -> EventKey:
        """Make a pair and keep it.

        Raises:
            UsageError: There is a key of that name, or it is no name.
        """
        from infobus.security.event_keys import SECRET_BYTES, EventKey

        key = EventKey(name, os.urandom(SECRET_BYTES))
        self._write(name, _PAIR, key.to_text())
        return key

    def add(self, text: str, name: str = "") -> PublicEventKey:
        """Keep a key of somebody else, or a pair, under its own name or another one.

        Raises:
            UsageError: It is no key, or there is a key of that name.
        """
        from infobus.security.event_keys import EventKey, PublicEventKey

        public = PublicEventKey.from_text(text)
        kept: EventKey | PublicEventKey = public
        if not text.startswith(f"{public.to_text().split()[0]} "):
            kept = EventKey.from_text(text)
        kept.name = name or kept.name
        self._write(kept.name, _PUBLIC if kept is public else _PAIR, kept.to_text())
        return public

    def pair(self, name: str) -> EventKey:
        """A pair of this home.

        Raises:
            UsageError: The home has no such pair.
        """
        from infobus.security.event_keys import EventKey

        if (known := self._pairs.get(name)) is None:
            known = self._pairs[name] = EventKey.from_text(self._read(name, (_PAIR,)))
        return known

    def public(self, name: str) -> PublicEventKey:
        """The public half of a key, whether or not the home has the pair.

        Raises:
            UsageError: The home does not know the key.
        """
        from infobus.security.event_keys import PublicEventKey

        if (known := self._public.get(name)) is None:
            known = PublicEventKey.from_text(self._read(name, (_PAIR, _PUBLIC)))
            self._public[name] = known
        return known

    def _read(self, name: str, kinds: tuple[str, ...]) -> str:
        from infobus.security.event_keys import check_key_name

        check_key_name(name)
        for kind in kinds:
            path = self.path / (name + kind)
            try:
                text = path.read_text("ascii", "replace")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error}", path=str(path)) from error
            if kind == _PAIR:
                repair(path)
            return text
        if kinds == (_PAIR,) and (self.path / (name + _PUBLIC)).exists():
            raise UsageError(
                f"this home has only the public half of the event key {name!r}: to sign, or to "
                "open what is sealed, it needs the pair"
            )
        known = ", ".join(self.names()) or "none"
        raise UsageError(
            f"there is no event key {name!r} in {self.path} (there: {known}); make one with: "
            f"infobus keys event {name}"
        )

    def _write(self, name: str, kind: str, text: str) -> None:
        if name in self.names():
            raise UsageError(f"there is an event key {name!r} in {self.path} already")
        path = self.path / (name + kind)
        try:
            make_private_folder(self.path)
            with open(path, "x", opener=private_opener) as file:
                file.write(text)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error}", path=str(path)) from error
