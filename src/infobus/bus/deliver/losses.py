"""Losses, in the words in which an application hears of them."""

from __future__ import annotations

from infobus.errors import LossError
from infobus.protocols.effects import Lost
from infobus.protocols.frames.lanes import channel_in, class_in, in_words


def loss_error(lost: Lost, default_class: str = "") -> LossError:
    """The error that tells of `lost`; the default class is the one that lanes do not name."""
    where = f" on {in_words(lost.lane)}" if lost.lane else ""
    if lost.last is None:
        what = (
            f"{lost.sender} took this node for dead, or may have done so: an unknown number of its "
            f"events{where} is lost{f', from number {lost.first} on' if lost.first else ''}"
        )
    else:
        what = f"events {lost.first} to {lost.last} of {lost.sender}{where} are lost"
    class_ = class_in(lost.lane) or (default_class if lost.lane else "")
    return LossError(
        what,
        sender=lost.sender,
        channel=channel_in(lost.lane),
        priority=class_,
        first=lost.first,
        last=lost.last,
    )
