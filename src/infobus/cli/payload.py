"""The options `--text` and `--raw`: a text or bytes instead of an object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from infobus import UsageError
from infobus.cli.terminal import stdin
from infobus.objects.kinds import PAYLOAD_BYTES_MAX


@dataclass(frozen=True)
class Payload:
    """A payload that has no attributes to name."""

    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help="Publish this text; [b]-[/b] is all of stdin."),
    ] = None
    raw: Annotated[
        str | None,
        typer.Option(
            "--raw", metavar="FILE", help="Publish these bytes; [b]-[/b] is all of stdin."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.text is not None or self.raw is not None

    def read(self) -> str | bytes | None:
        """What is to be published; None if neither option is given."""
        if self.text is not None and self.raw is not None:
            raise UsageError("--text and --raw exclude each other")
        if self.raw is not None:
            return _read(self.raw)
        if self.text != "-":
            return self.text
        try:
            return _read("-").decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"--text: stdin is not UTF-8: {error}; use --raw -") from None


def _read(place: str) -> bytes:
    if place == "-":
        return _bounded(lambda size: bytes(stdin().buffer.read(size)), "stdin")
    try:
        with Path(place).open("rb") as file:
            return _bounded(file.read, place)
    except OSError as error:
        raise UsageError(f"--raw: {error}") from None


def _bounded(read: Callable[[int], bytes], place: str) -> bytes:
    """All of a file; refused before it fills the memory."""
    found = read(PAYLOAD_BYTES_MAX + 1)
    if len(found) > PAYLOAD_BYTES_MAX:
        raise UsageError(f"{place} holds more than {PAYLOAD_BYTES_MAX:,} bytes")
    return found
