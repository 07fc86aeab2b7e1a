"""Recovers whole rows from a damaged SQLite file, without the help of SQLite.

It parses every page of the main file and of the write-ahead log that looks like a leaf of a table.
A result may be old, torn, or never have been a row; the checksum in each row decides. The layout is
that of https://sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from mmap import ACCESS_READ, mmap
from pathlib import Path

from infobus.stores.sqlite.wal_check import FRAME_HEADER, LOG_HEADER, PAGE_BYTES

Value = int | float | bytes | str | None
Row = tuple[int, list[Value]]

_LEAF = 0x0D
_FILE_HEADER = 100
_ROW_BYTES_MAX = 1_000_000_000  # SQLite's own limit
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class _Torn(Exception):
    """The bytes looked like a row, but are none."""


def salvage(main: Path, log: Path) -> Iterator[Row]:
    """Return everything that can be read as a row of any table: its rowid and its columns.

    `log` is the write-ahead log, which need not exist.
    """
    with ExitStack() as files:
        pages = _Pages(_content(main, files), _content(log, files))
        for number, page in pages.each():
            start = _FILE_HEADER if number == 1 else 0
            if page[start] == _LEAF:
                yield from _rows(page, start, pages)


def _content(path: Path, files: ExitStack) -> bytes | mmap:
    if not path.exists() or path.stat().st_size == 0:
        return b""
    descriptor = files.enter_context(path.open("rb")).fileno()
    return files.enter_context(mmap(descriptor, 0, access=ACCESS_READ))


class _Pages:
    """All pages of a file; a page may have several versions, in the order of writing."""

    def __init__(self, main: bytes | mmap, log: bytes | mmap) -> None:
        self._main = main
        self._log = log
        self._places: dict[int, list[int]] = {}  # page -> where in the log
        step = FRAME_HEADER + PAGE_BYTES
        for frame in range(LOG_HEADER, len(log) - step + 1, step):
            (number,) = struct.unpack_from(">I", log, frame)
            self._places.setdefault(number, []).append(frame + FRAME_HEADER)

    def each(self) -> Iterator[tuple[int, bytes]]:
        for number in range(1, len(self._main) // PAGE_BYTES + 1):
            yield number, self._main[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]
        for number, places in self._places.items():
            for place in places:
                yield number, self._log[place : place + PAGE_BYTES]

    def version(self, number: int, *, is_newest: bool) -> bytes:
        """Return the newest or the oldest version of a page; empty if there is none."""
        places = self._places.get(number, ())
        old = self._main[max(number - 1, 0) * PAGE_BYTES : number * PAGE_BYTES]
        if places and (is_newest or len(old) < PAGE_BYTES):
            place = places[-1 if is_newest else 0]
            return self._log[place : place + PAGE_BYTES]
        return old if len(old) == PAGE_BYTES else b""


def _rows(page: bytes, start: int, pages: _Pages) -> Iterator[Row]:
    (count,) = struct.unpack_from(">H", page, start + 3)
    for index in range(min(count, (len(page) - start - 8) // 2)):
        (at,) = struct.unpack_from(">H", page, start + 8 + 2 * index)
        try:
            size, at = _varint(page, at)
            rowid, at = _varint(page, at)
        except IndexError:
            continue
        for payload in _payloads(page, at, size, pages):
            try:
                yield _signed(rowid), _columns(payload)
            except (_Torn, IndexError, struct.error, UnicodeDecodeError):
                continue


def _payloads(page: bytes, at: int, size: int, pages: _Pages) -> Iterator[bytes]:
    """Return the bytes of a row; a long one is read with the newest and the oldest pages."""
    if size <= PAGE_BYTES - 35:
        yield page[at : at + size]
        return
    least = (PAGE_BYTES - 12) * 32 // 255 - 23
    local = least + (size - least) % (PAGE_BYTES - 4)
    local = local if local <= PAGE_BYTES - 35 else least
    if at + local + 4 > PAGE_BYTES or size > _ROW_BYTES_MAX:
        return
    for is_newest in (True, False):
        pieces, left = [page[at : at + local]], size - local
        (number,) = struct.unpack_from(">I", page, at + local)
        while left and (more := pages.version(number, is_newest=is_newest)):
            (number,) = struct.unpack_from(">I", more)
            pieces.append(more[4 : 4 + left])
            left -= len(pieces[-1])
        if not left:
            yield b"".join(pieces)


def _columns(payload: bytes) -> list[Value]:
    head, at = _varint(payload, 0)
    if head > len(payload):
        raise _Torn
    kinds = []
    while at < head:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise _Torn
    return values


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    size = _INTEGER_SIZES.get(kind, 8 if kind == 7 else (kind - 12) // 2)
    piece = payload[at : at + size]
    if kind in (10, 11) or len(piece) < size:
        raise _Torn
    if kind < 7:
        return int.from_bytes(piece, "big", signed=True), at + size
    if kind == 7:
        return struct.unpack(">d", piece)[0], at + size
    return (piece if kind % 2 == 0 else piece.decode()), at + size


def _varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        byte = page[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | page[at + 8], at + 9


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
