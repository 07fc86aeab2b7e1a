"""The judge of the arena sees what is wrong: else a clean verdict means nothing."""

from typing import Any

import pytest

from tests.chaos.checker import MEET_S, SETTLE_S, TAIL_S, TOLD_S, Apart, judge

LATE_S = MEET_S + SETTLE_S


def line(what: str, at: float = 0.0, **facts: Any) -> dict[str, Any]:
    return {"what": what, "at": at, **facts}


def accepted(n: int, at: float = LATE_S) -> dict[str, Any]:
    return line("accepted", at, begun=at, by="p-1", lane="red/regular", n=n)


def got(n: int, at: float = LATE_S) -> dict[str, Any]:
    return line("got", at, by="p-1", lane="red/regular", n=n)


def loss(at: float = LATE_S, **facts: Any) -> dict[str, Any]:
    told = {"sender": "pn", "channel": "red", "priority": "regular", "first": 1, "last": None}
    return line("loss", at, **told | facts)


def lane(*seen: dict[str, Any], count: int = 3) -> list[str]:
    """What the judge says of a listener that has seen this of `count` events."""
    published = [line("born", node="pn"), *(accepted(n + 1) for n in range(count)), line("ended")]
    heard = [line("up"), *seen, line("ended", LATE_S + 2 * TAIL_S)]
    return judge({"publisher": {"p-1": published}, "listener": {"l-1": heard}}).violations


def test_all_events_in_order_are_no_violation() -> None:
    assert lane(got(1), got(2), got(3)) == []


@pytest.mark.parametrize(
    "told",
    [loss(), loss(channel="", priority=""), loss(priority=""), loss(first=2, last=2)],
)
def test_a_hole_that_was_told_is_no_violation(told: dict[str, Any]) -> None:
    assert lane(got(1), told, got(3)) == []
    assert lane(told, got(3)) == []
    assert lane(got(1), told) == []


@pytest.mark.parametrize(
    "seen",
    [
        [got(1), got(3)],
        [got(2), got(3)],
        [got(1), got(2)],
        [],
        [got(1), got(2), got(2), got(3)],
        [got(1), got(3), got(2)],
        [got(1), got(3), loss()],
        [got(1), loss(sender="other"), got(3)],
        [got(1), loss(channel="blue"), got(3)],
        [got(1), loss(priority="business"), got(3)],
    ],
)
def test_silent_holes_doubles_and_disorder_are_seen(seen: list[dict[str, Any]]) -> None:
    assert lane(*seen)


def test_what_came_before_the_subscription_is_not_owed() -> None:
    early = [accepted(n, at=0.0) for n in (1, 2)]
    published = [line("born", node="pn"), *early, accepted(3), line("ended")]
    heard = [line("up", 1.0), got(3), line("ended", LATE_S + 2 * TAIL_S)]
    lives = {"publisher": {"p-1": published}, "listener": {"l-1": heard}}
    assert judge(lives).violations == []


def beside_one_that_stood_still(*seen: dict[str, Any], gone_at: float) -> list[str]:
    """What the judge says of a listener that wrote nothing from 5 to 9; a publisher came at 6."""
    later = [accepted(2, at=30.0)] if gone_at > 30.0 else []
    published = [line("born", 6.0, node="pn"), accepted(1, at=7.0), *later, line("ended", gone_at)]
    heard = [line("up", -10.0), line("tick", 5.0), line("tick", 9.0), *seen, line("ended", 99.0)]
    lives = {"publisher": {"p-1": published}, "listener": {"l-1": heard}}
    return judge(lives).violations


def test_nobody_owes_word_of_a_publisher_that_passed_by_while_they_stood_still() -> None:
    assert beside_one_that_stood_still(gone_at=9.5) == []
    assert beside_one_that_stood_still(gone_at=40.0), "they had time to meet"


def between_hosts(
    first_seen: int, since: float, until: float, apart: tuple[str, ...] = ("h1", "h2")
) -> list[str]:
    """What the judge says of a listener on one host that first gets this of three events, after
    the two hosts, or one life, have been apart. The publisher was born at 2."""
    published = [
        line("born", 2.0, node="pn", host="h1"),
        *(accepted(n + 1, at=LATE_S + n) for n in range(3)),
        line("ended"),
    ]
    began = [line("born", host="h2"), line("up")]
    heard = [*began, *(got(n) for n in range(first_seen, 4))]
    ended = line("ended", 10 * LATE_S)
    lives = {"publisher": {"p-1": published}, "listener": {"l-1": [*heard, ended]}}
    return judge(lives, [Apart(frozenset(apart), since, until)]).violations


def test_a_listener_is_owed_what_is_published_once_the_publisher_knows_of_it() -> None:
    def beside(known_at: float | None, first_got: int = 3) -> list[str]:
        known = [] if known_at is None else [line("known to", known_at, node="pn")]
        published = [
            line("born", 2.0, node="pn"),
            *(accepted(n, at=10.0 * n) for n in range(1, 7)),
            line("ended"),
        ]
        heard = [line("up"), *known, *(got(n) for n in range(first_got, 7))]
        ended = line("ended", 10 * LATE_S)
        return judge(
            {"publisher": {"p-1": published}, "listener": {"l-1": [*heard, ended]}}
        ).violations

    assert beside(known_at=9.0), "the publisher knew of it before it published what is missing"
    assert beside(known_at=21.0) == []
    assert beside(known_at=None) == [], "it has missed nothing of what came later"
    assert beside(known_at=None, first_got=4), "they had time to meet"


def test_who_begins_without_its_daemon_is_heard_from_when_it_is_attached() -> None:
    assert between_hosts(3, since=1.0, until=6.0, apart=("p-1",)) == []
    assert between_hosts(3, since=1.0, until=6.0, apart=("l-1",)) == []
    assert between_hosts(3, since=1.0, until=6.0, apart=("p-2",)), "another life"


def test_who_is_born_out_of_reach_is_heard_from_when_they_have_met() -> None:
    assert between_hosts(3, since=1.0, until=6.0) == []
    assert between_hosts(1, since=1.0, until=6.0) == []
    assert between_hosts(3, since=-20.0, until=-10.0), "they were together all the time"
    assert between_hosts(3, since=MEET_S + 3.0, until=MEET_S + 4.0), "they had met before"


def kept(*consumed: dict[str, Any]) -> list[str]:
    published = [line("kept", 2.0, begun=1.0, by="k-1", n=n) for n in (1, 2)]
    lives = {"keeper": {"k-1": published}, "consumer": {"c-1": [line("up"), *consumed]}}
    return judge(lives).violations


def consumed(n: int, deliveries: int = 1) -> dict[str, Any]:
    return line("got", 3.0, by="k-1", n=n, deliveries=deliveries)


def test_guaranteed_events_come_all_in_order_and_again_only_when_that_is_said() -> None:
    assert kept(consumed(1), consumed(2)) == []
    assert kept(consumed(1), consumed(1, deliveries=2), consumed(2)) == []
    for wrong in ([1], [2, 1], [1, 1, 2]):
        assert kept(*map(consumed, wrong)), wrong


def test_calls_run_once_and_only_if_they_may_have() -> None:
    ran = line("ran", key="a")
    answered, failed = line("answered", key="a"), line("failed", key="a", why="NoServer")
    assert judge({"caller": {"c": [answered]}, "server": {"s": [ran]}}).violations == []
    assert judge({"caller": {"c": [failed]}, "server": {"s": []}}).violations == []
    assert judge({"caller": {"c": [answered]}, "server": {"s": [ran, ran]}}).violations
    assert judge({"caller": {"c": [answered]}, "server": {"s": []}}).violations
    assert judge({"caller": {"c": [failed]}, "server": {"s": [ran]}}).violations


def across_sites(*seen: dict[str, Any]) -> list[str]:
    """What the judge says of a listener at another site than the publisher's."""
    published = [line("born", node="pn", host="h1"), *map(accepted, (1, 2, 3)), line("ended")]
    ended = line("ended", LATE_S + 2 * TAIL_S)
    heard = [line("born", node="ln", host="h2"), line("up"), *seen, ended]
    return judge({"publisher": {"p-1": published}, "listener": {"l-1": heard}}).violations


def test_what_a_router_tells_as_lost_counts_for_publishers_at_other_sites() -> None:
    of_router = loss(sender="a router's node")
    assert across_sites(got(1), of_router, got(3)) == []
    assert across_sites(got(1), got(3), loss(LATE_S + TOLD_S / 2, sender="a router's node")) == []
    assert across_sites(got(1), got(3), loss(LATE_S + TOLD_S * 2, sender="a router's node"))
    assert across_sites(got(1), loss(sender="ln"), got(3)), "a program's own loss is not a router's"
    assert across_sites(got(1), of_router, got(3), got(2)), "order is kept across sites"
    assert across_sites(got(1), got(2), of_router, got(2), got(3)), "and nothing comes twice"
