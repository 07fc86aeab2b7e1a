"""Who is asked for initial state, for how long the answers are waited for, and what came.

A subscription that starts (anew) asks every node that can be seen, its own included. It gets what
came once all have answered, or once its time is over; what comes later than that, or to a question
that was asked again meanwhile, is too old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct, field

from infobus.protocols.effects import Learn, ToPeer
from infobus.protocols.frames.wire import State, WantState

Key = Any
"""Whatever asks; one question of it is open at a time."""


class Give(Struct, frozen=True):
    """Collect this node's state, and send it; if it is for this node itself, `take` it."""

    want: WantState


class Came(Struct, frozen=True):
    """Hand these states to whoever asked; those who are `silent` have not answered in time."""

    key: Key
    states: list[State]
    silent: tuple[str, ...] = ()


OwnEffect = Give | Came
"""What only initial state wants done."""

Effects = list[ToPeer[WantState] | Learn | OwnEffect]


class _Question(Struct):
    key: Key
    awaited: set[str]
    until_s: float
    states: list[State] = field(default_factory=list)


class Newcomers:
    """Both halves: being asked for state, and asking."""

    def __init__(self, name: str, patience_s: float) -> None:
        self.name = name
        self.patience_s = patience_s
        self._questions: dict[int, _Question] = {}
        self._last_request = 0

    def ask(self, key: Key, patterns: list[str], peers: Iterable[str], now_s: float) -> Effects:
        """Ask every one of `peers`, and this node itself, for the state of `patterns`."""
        self.forget(key)
        self._last_request += 1
        awaited = {self.name, *peers}
        until_s = now_s + self.patience_s
        self._questions[self._last_request] = _Question(key, awaited, until_s)
        want = WantState(self.name, self._last_request, patterns)
        others: Effects = [ToPeer(name, want, bulk=True) for name in sorted(awaited - {self.name})]
        return [Give(want), *others]

    def forget(self, key: Key) -> None:
        """What was asked for before is of no use any more."""
        for request, question in list(self._questions.items()):
            if question.key is key:
                del self._questions[request]

    @property
    def waiting(self) -> Collection[Key]:
        """Those whose answers have not all come."""
        return [question.key for question in self._questions.values()]

    def take(self, message: WantState | State, now_s: float) -> Effects:
        """A peer asks for state, or sends what it was asked for."""
        if isinstance(message, WantState):
            return [Give(message)] if message.sender != self.name else []
        question = self._questions.get(message.request)
        if question is None or message.sender not in question.awaited:
            return []
        effects: Effects = []
        if message.descriptors:
            effects.append(Learn(message.descriptors, message.sender))
        question.awaited.discard(message.sender)
        question.states.append(message)
        if not question.awaited:
            del self._questions[message.request]
            effects.append(Came(question.key, question.states))
        return effects

    def peer_up(self, name: str, now_s: float) -> Effects:
        """A newcomer among the nodes has published nothing yet that anyone could have missed."""
        return []

    def peer_down(self, name: str, now_s: float) -> Effects:
        """It may be back in time to answer: a link may have been cut for a moment."""
        return []

    def tick(self, now_s: float) -> Effects:
        """Let nobody wait for longer than the patience allows."""
        effects: Effects = []
        for request, question in list(self._questions.items()):
            if now_s >= question.until_s:
                del self._questions[request]
                silent = tuple(sorted(question.awaited))
                effects.append(Came(question.key, question.states, silent))
        return effects
