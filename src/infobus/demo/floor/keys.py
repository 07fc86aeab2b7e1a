"""Read keys from a terminal, one at a time, without waiting for Enter."""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from types import TracebackType
from typing import TextIO

_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)
_NAMES = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down"}


class Keys:
    """The keys pressed while it is open, which are not echoed; none if there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._file = stream.fileno() if stream.isatty() else None
        self._before = [] if self._file is None else termios.tcgetattr(self._file)

    def __enter__(self) -> Keys:
        if self._file is not None:
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def pressed(self) -> list[str]:
        """The keys since the last call: `up`, `down`, or the characters themselves."""
        if self._file is None or not select.select([self._file], [], [], 0)[0]:
            return []
        text = os.read(self._file, 64).decode(errors="ignore")
        return [_NAMES.get(key, key) for key in _KEY.findall(text)]
