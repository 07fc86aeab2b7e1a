"""What must be true of all diaries together, whatever was killed, stopped, filled or attacked."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tests.chaos import diary

Line = dict[str, Any]

_FIGURES = {
    "accepted": "plain events accepted",
    "loss": "losses told",
    "refused": "guaranteed events refused",
}

SETTLE_S = 5.0
"""A publisher that ends so soon after a listener went on may not have met it."""
STILL_S = 1.0
"""A listener that writes nothing for so long may have stood still, and been taken for dead."""
MEET_S = 20.0
"""Programs that can reach each other for so long know each other. `subscribe` waits for 2 s, and
names in a warning who has not answered; a program that its daemon has lost returns to it after 5 to
10 s. Once a publisher has said that it knows a subscription, no event is excused."""
TAIL_S = 15.0
"""That a sender's last events are lost is told once it is given up: 5 s, after 7 s of a freeze."""

TOLD_S = 20.0
"""So long before or after a hole, its loss may be told if a router on the way has died.

The next one goes on at once, and does not wait until the old one is given up."""


class Verdict(Struct):
    """What was found: figures for people, and violations, of which there must be none."""

    figures: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Apart(Struct, frozen=True):
    """Two hosts could not reach each other for a while, or one of them stood still.

    Or one life of a program could reach nobody, and has said so.
    """

    hosts: frozenset[str]
    since: float
    until: float


def check(folder: Path, apart: Sequence[Apart] = ()) -> Verdict:
    """Judge the diaries in `folder`. All programs have ended, the last of each in good order."""
    lives: dict[str, dict[str, list[Line]]] = defaultdict(dict)
    for path in sorted(folder.iterdir()):
        role, _, life = path.name.partition(".")
        if lines := [*diary.read(path)]:  # else it was killed before it began
            lives[role][life] = lines
    return judge(lives, apart)


def judge(lives: Mapping[str, Mapping[str, list[Line]]], apart: Sequence[Apart] = ()) -> Verdict:
    """Judge the lines of each life, by role."""
    verdict = Verdict()
    for role, ones in lives.items():
        verdict.figures[f"{role}s started"] = len(ones)
        for line in (line for lines in ones.values() for line in lines):
            if line["what"] in ("accepted", "loss", "refused"):
                verdict.figures[_FIGURES[line["what"]]] += 1
    published = {life: Published.of(lines) for life, lines in lives.get("publisher", {}).items()}
    nodes = {
        line["node"]
        for ones in lives.values()
        for lines in ones.values()
        for line in lines
        if "node" in line
    }
    for life, lines in lives.get("listener", {}).items():
        _check_listener(verdict, life, lines, published, nodes, apart)
    _check_kept(verdict, lives.get("keeper", {}), lives.get("consumer", {}))
    _check_calls(verdict, lives.get("caller", {}), lives.get("server", {}))
    return verdict


class Published(Struct):
    """What one life of a publisher has accepted, by lane."""

    node: str
    host: str
    born: float
    last: float
    accepted: dict[str, list[Line]]
    is_whole: bool

    @classmethod
    def of(cls, lines: list[Line]) -> Published:
        """Read it from the lines of that life."""
        born = next((line for line in lines if line["what"] == "born"), {})
        accepted: dict[str, list[Line]] = defaultdict(list)
        for line in lines:
            if line["what"] == "accepted":
                accepted[line["lane"]].append(line)
        is_whole = lines[-1]["what"] == "ended"
        who = born.get("node", ""), born.get("host", "")
        return cls(*who, born.get("at", 0.0), lines[-1]["at"], accepted, is_whole)


def _check_listener(
    verdict: Verdict,
    life: str,
    lines: list[Line],
    published: Mapping[str, Published],
    nodes: Collection[str],
    apart: Sequence[Apart],
) -> None:
    """What one listener got of each publisher: in order, once, and every hole was told."""
    up = next((line["at"] for line in lines if line["what"] == "up"), None)
    if up is None:
        return
    host = next((line.get("host", "") for line in lines if line["what"] == "born"), "")
    got: dict[tuple[str, str], list[tuple[int, Line]]] = defaultdict(list)
    told: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    known: dict[str, float] = {}
    for place, line in enumerate(lines):
        if line["what"] == "known to":
            known[line["node"]] = line["at"]
        elif line["what"] == "got":
            got[line["by"], line["lane"]].append((place, line))
        elif line["what"] == "loss":
            told[line["sender"]].append((place, line | {"by router": line["sender"] not in nodes}))
    heard_of = {by for by, _ in got}
    # Routers keep no diaries. What one tells as lost is of publishers at other sites.
    by_routers = [loss for sender, ones in told.items() if sender not in nodes for loss in ones]
    still = [(a["at"], b["at"]) for a, b in pairwise(lines) if b["at"] - a["at"] > STILL_S]
    for by, one in published.items():
        if by not in heard_of and one.node not in told and _passed_by(one, still):
            continue
        hosts = frozenset((host, one.host))
        parted = [a for a in apart if a.hosts == hosts or a.hosts < {life, by}]
        since = min(known.get(one.node, math.inf), _met(up, one.born, parted) + MEET_S)
        lost = told[one.node] + (by_routers if host != one.host else [])
        for lane, events in one.accepted.items():
            losses = [(at, loss) for at, loss in lost if _concerns(loss, lane)]
            view = [line for _, line in sorted([*got[by, lane], *losses], key=itemgetter(0))]
            where = f"{life} of {by} on {lane}"
            _check_lane(verdict, where, view, events, since, lines[-1], one.is_whole)


def _passed_by(one: Published, still: Sequence[tuple[float, float]]) -> bool:
    """Whether a publisher came and went while a listener stood still, so that they never met."""
    return any(since < one.born < until and one.last < until + SETTLE_S for since, until in still)


def _met(up: float, born: float, apart: Sequence[Apart]) -> float:
    """When a listener and a publisher could begin to hear of each other."""
    met = max(up, born)
    for one in apart:  # in the order of their beginnings
        if one.since - MEET_S < met < one.until:
            met = one.until
    return met


def _concerns(loss: Line, lane: str) -> bool:
    channel, _, class_ = lane.partition("/")
    return loss["channel"] in ("", channel) and (
        not loss["channel"] or loss["priority"] in ("", class_)
    )


def _check_lane(
    verdict: Verdict,
    where: str,
    view: list[Line],
    accepted: list[Line],
    since: float,
    end: Line,
    is_whole: bool,
) -> None:
    # What was published before the publisher knew of the subscription may come, and need not.
    owed = next((line["n"] for line in accepted if line["begun"] > since), None)
    last, is_told = None if owed is None else owed - 1, False
    is_first = True
    told_at = [line["at"] for line in view if line["what"] == "loss" and line["by router"]]
    for line in view:
        if line["what"] == "loss":
            is_told = True
            continue
        number = line["n"]
        if is_first and (last is None or number <= last):
            pass
        elif last is not None and number <= last:
            verdict.violations.append(f"{where}: {number} came after {last}")
        elif last is not None and number > last + 1 and not is_told:
            if any(abs(at - line["at"]) < TOLD_S for at in told_at):
                verdict.figures["losses told by routers at another time"] += 1
                last, is_first = number, False
                continue
            verdict.violations.append(
                f"{where}: {last + 1} to {number - 1} are missing before {number}, untold"
            )
        last, is_told, is_first = number, False, False
        verdict.figures["plain events received"] += 1
    if end["what"] == "ended" and is_whole and last is not None and not is_told:
        final = max((e["n"] for e in accepted if e["at"] < end["at"] - TAIL_S), default=0)
        if final > last:
            verdict.violations.append(f"{where}: {last + 1} to {final} are missing at the end")


def _check_kept(
    verdict: Verdict, keepers: Mapping[str, list[Line]], consumers: Mapping[str, list[Line]]
) -> None:
    """Every durable name gets all that was accepted since it was first registered."""
    kept = [line for lines in keepers.values() for line in lines if line["what"] == "kept"]
    verdict.figures["guaranteed events accepted"] = len(kept)
    by_name: dict[str, list[list[Line]]] = defaultdict(list)
    for life, lines in sorted(consumers.items(), key=lambda one: one[1][0]["at"]):
        by_name[life.partition("-")[0]].append(lines)
    for name, lives in by_name.items():
        ups = [line["at"] for lines in lives for line in lines if line["what"] == "up"]
        got: dict[str, dict[int, None]] = defaultdict(dict)
        for lines in lives:
            _check_life(verdict, name, lines, got)
        owed = [line for line in kept if ups and line["begun"] > ups[0]]
        missing = [line for line in owed if line["n"] not in got[line["by"]]]
        verdict.violations += [f"{name} never got {line['n']} of {line['by']}" for line in missing]


def _check_life(
    verdict: Verdict, name: str, lines: list[Line], got: dict[str, dict[int, None]]
) -> None:
    here: set[tuple[str, int]] = set()
    for line in lines:
        if line["what"] != "got":
            continue
        verdict.figures["guaranteed events consumed"] += 1
        by, number = line["by"], line["n"]
        if (by, number) in here and line["deliveries"] == 1:
            verdict.violations.append(f"{name} got {number} of {by} twice in one life")
        if number not in got[by] and number < max(got[by], default=0):
            verdict.violations.append(f"{name} got {number} of {by} after {max(got[by])}")
        here.add((by, number))
        got[by][number] = None


def _check_calls(
    verdict: Verdict, callers: Mapping[str, list[Line]], servers: Mapping[str, list[Line]]
) -> None:
    """No call ran twice; what was answered ran; what certainly did not run, did not."""
    ran = Counter(
        line["key"] for lines in servers.values() for line in lines if line["what"] == "ran"
    )
    verdict.violations += [f"{key} ran {count} times" for key, count in ran.items() if count > 1]
    for line in (line for lines in callers.values() for line in lines):
        if line["what"] == "answered":
            verdict.figures["calls answered"] += 1
            if not ran[line["key"]]:
                verdict.violations.append(f"{line['key']} was answered, and never ran")
        elif line["what"] == "failed":
            verdict.figures[f"calls that failed: {line['why']}"] += 1
            if line["why"] == "NoServer" and ran[line["key"]]:
                verdict.violations.append(f"{line['key']} ran, and its caller was told NoServer")
