"""Text from strangers, spelled out: no terminal obeys it, and it makes no line of a log its own.

Names, values and messages of other nodes may hold escape sequences, line ends, and marks that turn
the direction of writing. What you print or log of them goes through here.
"""

from __future__ import annotations

import logging
import traceback


def printable(text: str) -> str:
    """Return `text` with everything that does not print spelled out.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return `text` with its line ends, and everything else that does not print spelled out."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return JSON on one line that means the same as `text`, and holds nothing that does not print.

    >>> printable_json('"a' + chr(0x9B) + '"')
    '"a\\\\u009b"'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def printable_cell(text: str) -> str:
    """Return `text` for a cell of CSV: spelled out, and never a formula to a spreadsheet.

    >>> printable_cell("=HYPERLINK(1)"), printable_cell("-1")
    ("'=HYPERLINK(1)", "'-1")
    """
    return f"'{printable(text)}" if text[:1] in ("=", "+", "-", "@") else printable(text)


class PrintableLog(logging.Filter):
    """Spells out every message of the loggers that it is added to, and the exceptions in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; it is always logged."""
        record.msg, record.args = printable(record.getMessage()), ()
        if record.exc_info and record.exc_info[0] is not None:
            lines = "".join(traceback.format_exception(*record.exc_info))
            record.exc_text = printable_lines(lines.rstrip("\n"))  # handlers print this one
        return True


def spell_out_logs() -> None:
    """Let everything that the bus logs be spelled out."""
    for name in ("infobus", "infobus.engine"):  # a filter of a logger is not one of its children
        logging.getLogger(name).addFilter(PrintableLog(name))


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
