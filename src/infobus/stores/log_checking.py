"""Whether a write-ahead log holds commits that SQLite passes over because of damage before them.

SQLite reads a log up to the first frame whose checksum is wrong, and takes that for the place
at which a crash stopped the writing. That is right for the last commit only: each is synced
before the next is written. So two commits or more after that place mean that the disk has
damaged what was synced. The layout is that of https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

PAGE_BYTES = 4096
LOG_HEADER, FRAME_HEADER = 32, 24
_FRAME_BYTES = FRAME_HEADER + PAGE_BYTES
_INDEX_HEADER = 48


def log_problems(log: Path, index: Path) -> list[str]:
    """Return what is wrong with a log whose index was made anew by SQLite, in words."""
    try:
        content = log.read_bytes()
        state = index.read_bytes()[:_INDEX_HEADER]
    except FileNotFoundError:
        return []
    if len(content) < LOG_HEADER + _FRAME_BYTES or len(state) < _INDEX_HEADER:
        return []
    (read_count,) = struct.unpack_from("=I", state, 16)
    salt = content[16:24]
    if not _header_is_whole(content):
        salt = content[LOG_HEADER + 8 : LOG_HEADER + 16]
    passed_over = sum(_commits_after(content, read_count, salt))
    if passed_over < 2:
        return []
    return [f"frame {read_count + 1} of its log is damaged, and {passed_over} commits follow it"]


def _commits_after(content: bytes, read_count: int, salt: bytes) -> Iterator[bool]:
    """Go through the frames after those that were read, of this round of writing the log."""
    start = LOG_HEADER + read_count * _FRAME_BYTES
    for frame in range(start, len(content) - _FRAME_BYTES + 1, _FRAME_BYTES):
        (pages_after_commit,) = struct.unpack_from(">I", content, frame + 4)
        yield content[frame + 8 : frame + 16] == salt and pages_after_commit > 0


def _header_is_whole(content: bytes) -> bool:
    magic = int.from_bytes(content[:4], "big")
    order = ">" if magic & 1 else "<"
    words = struct.unpack_from(f"{order}6I", content)
    one = two = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return (one, two) == struct.unpack_from(">2I", content, 24)
