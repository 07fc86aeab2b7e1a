"""Finds commits in a write-ahead log that SQLite would skip because of damage before them.

SQLite reads a log up to the first frame whose checksum is wrong, and assumes that a crash stopped
the writing there. That is right for the last commit only: each commit is synced before the next is
written. So two commits or more after that place mean that the disk has damaged synced data. SQLite
treats a log with a wrong head as empty. But the head is synced before the first frame is written:
if anything follows it, it must be whole.

This module reads only the log. SQLite knows how far it has read, and stores that in the index. But
a process that closes the index, or the main file, loses all locks that SQLite holds on it in the
same process. The next process that opens it then assumes that it is the only one and truncates the
index, which crashes all others. The layout is that of https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

PAGE_BYTES = 4096
LOG_HEADER, FRAME_HEADER = 32, 24
_FRAME_BYTES = FRAME_HEADER + PAGE_BYTES
_MAGIC = 0x377F0682  # or one more, if the checksums are over big-endian words

Sums = tuple[int, int]


def is_head_damaged(log: Path) -> bool:
    """Return whether frames follow a head that is not as SQLite wrote it.

    Somebody may write to the log meanwhile.
    """
    # A head that was read while it was being written differs the next time.
    return (head := _damaged_head(log)) is not None and head == _damaged_head(log)


def _damaged_head(log: Path) -> bytes | None:
    try:
        with log.open("rb") as file:
            head = file.read(LOG_HEADER + 1)
    except FileNotFoundError:
        return None
    return head if len(head) > LOG_HEADER and not _is_whole(head) else None


def log_problems(log: Path) -> list[str]:
    """Describe the problems of a log after its head; nobody may write to it meanwhile."""
    try:
        content = log.read_bytes()
    except FileNotFoundError:
        return []
    if len(content) < LOG_HEADER + _FRAME_BYTES:
        return []
    read_count = _readable_count(content)
    passed_over = sum(_is_commit(content, frame) for frame in _frames(content, read_count))
    if passed_over < 2:
        return []
    return [f"frame {read_count + 1} of its log is damaged, and {passed_over} commits follow it"]


def _frames(content: bytes, after: int = 0) -> Iterator[int]:
    """Return the positions of the frames that follow the first `after`."""
    start = LOG_HEADER + after * _FRAME_BYTES
    return iter(range(start, len(content) - _FRAME_BYTES + 1, _FRAME_BYTES))


def _readable_count(content: bytes) -> int:
    """Return how many frames are whole, up to the first that is not."""
    order = _order(content)
    sums: Sums = struct.unpack_from(">2I", content, 24)
    count = 0
    for frame in _frames(content):
        if not _is_of_this_round(content, frame):
            break
        sums = _summed(order, content[frame : frame + 8], sums)
        sums = _summed(order, content[frame + FRAME_HEADER : frame + _FRAME_BYTES], sums)
        if sums != struct.unpack_from(">2I", content, frame + 16):
            break
        count += 1
    return count


def _is_commit(content: bytes, frame: int) -> bool:
    (pages_after_commit,) = struct.unpack_from(">I", content, frame + 4)
    return pages_after_commit > 0 and _is_of_this_round(content, frame)


def _is_of_this_round(content: bytes, frame: int) -> bool:
    """Return whether a frame was written since the log last restarted; older ones lie behind."""
    return content[frame + 8 : frame + 16] == content[16:24]


def _is_whole(head: bytes) -> bool:
    if int.from_bytes(head[:4], "big") not in (_MAGIC, _MAGIC + 1):
        return False
    return _summed(_order(head), head[:24], (0, 0)) == struct.unpack_from(">2I", head, 24)


def _order(head: bytes) -> str:
    return ">" if head[3] & 1 else "<"


def _summed(order: str, content: bytes, sums: Sums) -> Sums:
    one, two = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return one, two
