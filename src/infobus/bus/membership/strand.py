"""The strand of membership: one thread for everything that a node does about it.

It is separate from events, and neither waits for the other. Its frames leave as control frames, so
a full link does not delay them; the next heartbeat repeats what was lost.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from infobus.bus.runtime.registration import Background, Do, Part
from infobus.bus.runtime.runtime import Runtime
from infobus.protocols.frames.membership import MEMBERSHIP_TAGS, decode_membership
from infobus.protocols.frames.node_names import is_node_name
from infobus.protocols.machine import Machine

DAEMONS_KEY = "d"
_DAEMONS_COUNT_MAX = 1000


class MembersStrand(Background):
    """Where the steps of a member, of its reception and of a program's followers run.

    Its machines hear of the nodes that show a token `d/<node>`: these have a member.
    """

    def __init__(self, runtime: Runtime) -> None:
        name = f"infobus-{runtime.name}-members"
        super().__init__(runtime, name, decode_membership, self._nothing)
        self.daemons: dict[str, None] = {}
        runtime.register(self, MEMBERSHIP_TAGS)
        self._watch = runtime.engine.watch(f"{DAEMONS_KEY}/*", self._on_token)

    def add(self, name: str, machine: Machine[Any], do: Do) -> Part:
        """Let a machine take part; returns its part. Called on the strand."""
        part = Part(name, machine, do)
        self.parts[part] = None
        for daemon in self.daemons:
            self.step_now(part, partial(machine.peer_up, daemon))
        return part

    def remove(self, part: Part) -> None:
        """Let it take part no longer."""
        self.do(lambda: self.parts.pop(part, None))

    def note_own(self, is_here: bool) -> None:
        """The node itself has a member, or has none any more."""
        self.do(lambda: self._note(self.runtime.name, is_here))

    def on_peer(self, name: str, alive: bool) -> None:
        """Only daemons count."""

    def on_tick(self) -> None:
        """Its machines have ticks of their own."""

    def close(self) -> None:
        """Take no more steps."""
        self._watch.undeclare()
        self.stop(0.0)

    def _on_token(self, key: str, alive: bool) -> None:
        name = key.rpartition("/")[2]
        if is_node_name(name):
            self.do(lambda: self._note(name, alive))

    def _note(self, name: str, alive: bool) -> None:
        if not alive:
            self.daemons.pop(name, None)
        elif len(self.daemons) < _DAEMONS_COUNT_MAX:
            self.daemons[name] = None
        super().on_peer(name, alive)

    def _nothing(self) -> None:
        pass
