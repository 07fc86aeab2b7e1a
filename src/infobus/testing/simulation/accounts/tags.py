"""The account of tags: one table for all, each name created once, nothing accepted is lost."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from infobus.protocols.frames.tags import TagOperation, TagOutcome
from infobus.testing.simulation.accounts.reliable import Uneven
from infobus.testing.simulation.nodes.tags import TagDaemonNode, TagProgramNode

_operations = msgspec.msgpack.Decoder(TagOperation)
_outcomes = msgspec.msgpack.Decoder(TagOutcome)


class TagAccount:
    """Compares what daemons have decided with each other, and with what programs were told.

    What tables have taken is a sequence, of which each table has a beginning. The account keeps
    the longest, with the bytes that a table has after each step. A table that was restored may be
    at any step after which a table has these bytes, until its next steps tell.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[bytes, bytes]] = []  # what was taken, and the table after it
        self.creators: dict[str, str] = {}
        self.outcomes: dict[str, TagOutcome] = {}  # by the id of the request
        self.joins_count = 0
        self.trace: list[object] = []
        self._places: dict[bytes, list[int]] = {b"": [0]}
        self._hosts: dict[str, str] = {}
        self._versions: dict[str, tuple[str, int]] = {}
        self._error: Exception | None = None

    # The witness.

    def failed(self, error: Exception) -> None:
        self._error = self._error or error

    def applied(self, daemon: TagDaemonNode, operation: bytes, result: bytes) -> None:
        if self._step(daemon, operation + result):
            self._decided(_operations.decode(operation), _outcomes.decode(result))

    def viewed(self, daemon: TagDaemonNode, slot: int, members: tuple[str, ...]) -> None:
        if self._step(daemon, msgspec.msgpack.encode((slot, members))):
            for name, host in list(self._hosts.items()):
                if host not in members:
                    del self._hosts[name], self.creators[name]

    def restored(self, daemon: TagDaemonNode, state: bytes) -> None:
        daemon.places = self._places.get(state, [])
        if not daemon.places:
            raise self._uneven(f"{daemon.node} was given a table that nobody had")
        self.joins_count += bool(state)

    def _step(self, daemon: TagDaemonNode, taken: bytes) -> bool:
        """A table takes the next step; whether it is the first one to."""
        step = (taken, daemon.role.table.snapshot())
        count = len(self.steps)
        known = [at + 1 for at in daemon.places if at < count and self.steps[at] == step]
        if not known and count not in daemon.places:
            raise self._uneven(f"{daemon.node} has another table after step {daemon.places}")
        daemon.places = known or [count + 1]
        if not known:
            self.steps.append(step)
            self._places.setdefault(step[1], []).append(count + 1)
            self.trace.append(taken)
        return not known

    def _decided(self, asked: TagOperation, outcome: TagOutcome) -> None:
        """The rules once more, as far as they are promises."""
        if asked.id in self.outcomes:
            if self.outcomes[asked.id] != outcome:
                raise self._uneven(f"request {asked.id} has two outcomes")
            return
        if outcome.why == "no member":
            return
        self.outcomes[asked.id] = outcome
        owner = self.creators.get(asked.name)
        if outcome.why:
            return
        if asked.act == "create":
            if owner not in (None, asked.asker):
                raise self._uneven(f"{asked.name} was created twice: {owner}, {asked.asker}")
            if owner is None and asked.host:
                self._hosts[asked.name] = asked.host
            self.creators[asked.name] = asked.asker
        elif owner != asked.asker:
            raise self._uneven(f"{asked.name} of {owner} was changed by {asked.asker}")
        elif asked.act == "delete":
            del self.creators[asked.name]
            self._hosts.pop(asked.name, None)

    def _uneven(self, what: str) -> Uneven:
        error = Uneven(what)
        self.failed(error)
        return error

    # What programs were told.

    def check(self, programs: Iterable[TagProgramNode]) -> None:
        """Raise what went wrong; what programs were told must be what was decided."""
        if self._error is not None:
            raise self._error
        for program in programs:
            for id in program.asked:
                told = program.driver.decided.get(id)
                if told is not None and self.outcomes.get(id) != told.outcome:
                    raise Uneven(f"{program.node} was told {told}, not {self.outcomes.get(id)}")
            before = self._versions.get(program.node, ("", 0))
            now = program.version
            if now[1] and now[0] == before[0] and now[1] < before[1]:
                raise Uneven(f"{program.node} went back from {before} to {now}")
            if now[1]:
                self._versions[program.node] = now

    def difference(
        self, daemons: Iterable[TagDaemonNode], programs: Iterable[TagProgramNode]
    ) -> str:
        """What is not yet as it must become once nothing fails any more; empty if all is."""
        tables = {daemon.role.table.snapshot() for daemon in daemons}
        if len(tables) != 1 or tables != {self.steps[-1][1] if self.steps else b""}:
            return "the tables differ"
        daemon = next(iter(daemons))
        rows = {row.name: row for row in daemon.role.table.table}
        if {name: row.creator for name, row in rows.items()} != self.creators:
            return f"the table has {rows}, created were {self.creators}"
        everyone = [*programs, *daemons]
        for program in everyone:
            if None in program.driver.decided.values():
                return f"{program.node} has no answer"
            if program.driver.holder.tags != rows:
                return f"{program.node} does not hold what there is"
        for daemon in daemons:
            for name in rows:
                publishers = {user.node for user in daemon.role.server.publishers(name)}
                if publishers != {one.node for one in everyone if name in one.publishes}:
                    return f"{daemon.node} lists {publishers} as publishers under {name}"
        return ""
