"""Errors of the parser: a `Complaint` has a position, and becomes a `BadFilter` for the user."""

from __future__ import annotations

from infobus.errors import BadFilter

_SHOWN_BEFORE = 50
_SHOWN_AFTER = 25


class Complaint(Exception):
    """An error at `position` (None: the tree was made by a program, not from text)."""

    def __init__(self, position: int | None, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem
        self.hint = hint

    def about(self, text: str) -> BadFilter:
        """Return the error for the user, which points at the place in `text`."""
        lines = [self.problem]
        if self.position is not None and text:
            lines += _pointed_at(text, self.position)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return BadFilter("\n".join(lines), text=text, position=self.position, hint=self.hint)


def _pointed_at(text: str, position: int) -> list[str]:
    first, last = max(0, position - _SHOWN_BEFORE), position + _SHOWN_AFTER
    # Each is replaced by one character, so that the caret stays in place.
    shown = "".join(c if c.isprintable() else " " for c in text[first:last])
    before, after = "..." if first else "", "..." if last < len(text) else ""
    return [f"  {before}{shown}{after}", f"  {' ' * (len(before) + position - first)}^"]
