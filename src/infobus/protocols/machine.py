"""The contract of a protocol: it is told what happens, and answers with what to do about it.

A machine has no clock, no thread and no socket. Time comes in as `now_s`; effects go out and are
carried out in order. Whoever registers one with the runtime says where its steps run, and who
carries out the effects that only this machine knows; the runtime does the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

M_contra = TypeVar("M_contra", contravariant=True)


class Machine(Protocol[M_contra]):
    """One protocol's side of the conversation with other nodes."""

    def take(self, message: M_contra, now_s: float) -> Sequence[Any]:
        """A message has come."""

    def peer_up(self, name: str, now_s: float) -> Sequence[Any]:
        """A peer can be seen (again)."""

    def peer_down(self, name: str, now_s: float) -> Sequence[Any]:
        """A peer can no longer be seen."""

    def tick(self, now_s: float) -> Sequence[Any]:
        """Time has passed."""
