"""A program's side: follows the views of one member, and of another one if that is silent."""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from infobus.protocols.effects import ToPeer
from infobus.protocols.frames.membership import (
    Candidate,
    Decide,
    Decided,
    Follow,
    GroupLabel,
    OperationRequest,
    ViewsTold,
)
from infobus.protocols.membership.effects import Answered

_HEARTBEAT_S = 0.5  # until a member has said what its own is
_ASKED_COUNT = 8  # questions whose answers still count
_PATIENCE = 2.3  # heartbeats without an answer, or with unstable ones times five


class ToldView(Struct, frozen=True):
    """The next view. If `is_anew`, it does not continue the one before: some may be missing."""

    number: int
    members: tuple[str, ...]
    is_anew: bool


class ToldState(Struct, frozen=True):
    """What is known now: until when the view is stable, else why not, and who is primary."""

    node: str  # of the member that is asked; empty: there is none
    until_s: float
    why: str
    primary_of: frozenset[str]
    nodes: dict[str, str]


class ViewFollower:
    """The machine of a program that wants to know who is there."""

    def __init__(self, node: str, name: str) -> None:
        self._node = node
        self._name = name
        self._daemons: dict[str, None] = {}
        self._avoided: dict[str, float] = {}  # members that were silent or unstable, and when
        self._member = ""
        self._number = 0
        self._asked: dict[int, float] = {}
        self._ask_s = self._steady_s = self._heard_s = -math.inf
        self._heartbeat_s = _HEARTBEAT_S
        self._group = GroupLabel()
        self._view = 0
        self._state = ToldState("", -math.inf, "", frozenset(), {})
        self.candidates: dict[str, Candidate] = {}
        self.passed_s: float | None = None  # when the program's check passed, if it has one
        self.for_s = 0.0
        self._requests: dict[str, OperationRequest] = {}

    # What the program wants.

    def ask_now(self, now_s: float) -> list[Any]:
        """Ask at once: something has changed."""
        self._ask_s = now_s
        return self.tick(now_s)

    def decide(self, request: OperationRequest, now_s: float) -> list[Any]:
        """Have an operation decided; it is asked for until it is, or withdrawn."""
        self._requests[request.id] = request
        return self._say(Decide(self._node, request))

    def withdraw(self, id: str) -> None:
        """Nobody waits for this request any more."""
        self._requests.pop(id, None)

    def leave(self, now_s: float) -> list[Any]:
        """Say that nobody here wants to know any more."""
        self.candidates.clear()
        return self._say(self._question(now_s, is_leaving=True))

    # The machine.

    def take(self, message: Any, now_s: float) -> list[Any]:
        """A message has come."""
        if isinstance(message, ViewsTold) and message.sender == self._member:
            return self._on_views(message, now_s)
        if isinstance(message, Decided) and self._requests.pop(message.id, None) is not None:
            return [Answered(message.id, message.result)]
        return []

    def peer_up(self, name: str, now_s: float) -> list[Any]:
        """A node shows that it has a member."""
        self._daemons[name] = None
        self._avoided.pop(name, None)
        if not self._member or name == self._node:
            return self._change(now_s)
        return []

    def peer_down(self, name: str, now_s: float) -> list[Any]:
        """A node shows no longer that it has one."""
        self._daemons.pop(name, None)
        self._avoided.pop(name, None)
        return self._change(now_s) if name == self._member else []

    def tick(self, now_s: float) -> list[Any]:
        """Time has passed."""
        effects: list[Any] = []
        patience_s = _PATIENCE * self._heartbeat_s
        is_silent = now_s - self._heard_s > patience_s
        is_useless = now_s - self._steady_s > 5 * patience_s and len(self._daemons) > 1
        if self._member and (is_silent or is_useless):
            self._avoided[self._member] = now_s
            effects += self._change(now_s)
        if self._member and now_s >= self._ask_s:
            effects += self._say(self._question(now_s))
            for request in self._requests.values():
                effects += self._say(Decide(self._node, request))
            self._ask_s = now_s + self._heartbeat_s / 2
        return effects

    def _change(self, now_s: float) -> list[Any]:
        """Ask another member from now on: its own, one of the same host, else any."""
        best = min(self._daemons, key=self._preference, default="")
        self._heard_s = self._steady_s = now_s
        if best == self._member:
            return []
        if self._member and self._member in self._daemons:
            effects = self._say(self._question(now_s, is_leaving=True))
        else:
            effects = []
        self._member = best
        self._asked.clear()
        self._ask_s = now_s
        why = "" if best else "no daemon: nobody on this bus agrees on who is there"
        effects += self._tell(ToldState(best, -math.inf, why, frozenset(), self._state.nodes))
        return effects + self.tick(now_s)

    def _preference(self, node: str) -> tuple[float, bool, bool, str]:
        host = self._node.rpartition("-")[0].rpartition("-")[0]
        is_near = bool(host) and node.startswith(f"{host}-")
        return self._avoided.get(node, -math.inf), node != self._node, not is_near, node

    def _say(self, message: Follow | Decide) -> list[Any]:
        return [ToPeer(self._member, message)] if self._member else []

    def _question(self, now_s: float, is_leaving: bool = False) -> Follow:
        self._number += 1
        self._asked[self._number] = now_s
        if len(self._asked) > _ASKED_COUNT:
            del self._asked[next(iter(self._asked))]
        return Follow(
            self._node,
            self._number,
            self._group,
            self._view,
            list(self.candidates.values()),
            self._name,
            0.0 if self.passed_s is None else now_s - self.passed_s,
            0.0 if self.passed_s is None else self.for_s,
            is_leaving,
        )

    def _on_views(self, told: ViewsTold, now_s: float) -> list[Any]:
        self._heard_s = now_s
        self._heartbeat_s = min(max(told.heartbeat_s, 0.01), 60.0)
        effects: list[Any] = []
        is_continued = told.group == self._group and not told.is_anew
        if not is_continued and not told.number:
            return self.ask_now(now_s)  # what has changed is told to who asks
        if is_continued and told.views and told.views[0].number > self._view + 1:
            return self.ask_now(now_s)  # one was lost on the way
        for view in told.views:
            if not is_continued or view.number > self._view:
                is_anew = not is_continued and view is told.views[0]
                effects.append(ToldView(view.number, view.members, is_anew))
                self._view = view.number
        self._group = told.group
        # A lease that it has is for the view before.
        state = replace(self._state, until_s=-math.inf) if effects else self._state
        return effects + self._take_lease(told, state, now_s)

    def _take_lease(self, told: ViewsTold, state: ToldState, now_s: float) -> list[Any]:
        """A lease counts from the question: the answer was given later, nobody knows when."""
        asked_s = self._asked.get(told.number)
        if told.left_s <= 0 or (told.views and told.views[-1].number != self._view):
            until_s, primary_of = -math.inf, frozenset[str]()
        else:
            self._steady_s = now_s
            until_s, primary_of = state.until_s, frozenset(told.primary_of)
            if asked_s is not None:
                until_s = max(until_s, asked_s + told.left_s)
            else:
                primary_of &= state.primary_of  # only an answer makes anybody primary
                self._ask_s = now_s
        primary_of &= self.candidates.keys()
        return self._tell(ToldState(self._member, until_s, told.why, primary_of, told.nodes))

    def _tell(self, state: ToldState) -> list[Any]:
        if state == self._state:
            return []
        self._state = state
        return [state]
