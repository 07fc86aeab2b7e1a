"""Descriptors of types, kept on disk, so that a daemon can answer for programs that have gone.

A node asks for a type by its fingerprint, and any node that knows it may answer. A daemon asks the
programs for all types that they know, so it can answer when they have gone, even after a restart.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from infobus.errors import BadFrame
from infobus.objects import codec, registry
from infobus.stores.private import private_opener

log = logging.getLogger("infobus.daemon")

FILE_BYTES_MAX = 64 * 1024 * 1024


class KeptTypes:
    """The types that a daemon has learned, in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved: set[int] = set()
        self._failed = ""

    def load(self) -> int:
        """Learn what was saved; how many types these are. A damaged file counts as none."""
        try:
            with open(self._path, "rb", opener=private_opener) as file:
                descriptors = msgspec.msgpack.decode(file.read(FILE_BYTES_MAX), type=list[bytes])
        except FileNotFoundError:
            return 0
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s cannot be read, types are learned anew: %s", self._path, error)
            return 0
        for descriptor in descriptors:
            with suppress(BadFrame):  # of a newer version, perhaps
                self._saved.add(codec.learn(descriptor))
        return len(self._saved)

    def save(self) -> None:
        """Save the types that were learned from others, if there are new ones."""
        learned = set(registry.learned.copy())
        if learned <= self._saved:
            return
        told = msgspec.msgpack.encode(codec.descriptors(sorted(learned)))
        fresh = self._path.with_suffix(".new")
        try:
            with open(fresh, "wb", opener=private_opener) as file:
                file.write(told)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError as error:
            # They are answered all the same, and saved when that is possible.
            if self._failed != str(error):
                self._failed = str(error)
                log.error("types cannot be saved, which is tried again: %s", error)
        else:
            self._saved, self._failed = learned, ""

    @property
    def count(self) -> int:
        """How many types are safe on disk."""
        return len(self._saved)
