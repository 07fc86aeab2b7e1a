"""Losses, in the words in which an application hears of them."""

from __future__ import annotations

from infobus.errors import LossError
from infobus.protocols.effects import Lost


def loss_error(lost: Lost) -> LossError:
    """The error that tells of `lost`."""
    where = f" on channel {lost.channel!r}" if lost.channel else ""
    if lost.last is None:
        what = (
            f"{lost.sender} had taken this node for dead: an unknown number of its events"
            f"{where} is lost, from number {lost.first} on"
        )
    else:
        what = f"events {lost.first} to {lost.last} of {lost.sender}{where} are lost"
    return LossError(
        what, sender=lost.sender, channel=lost.channel, first=lost.first, last=lost.last
    )
