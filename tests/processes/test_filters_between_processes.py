"""Real processes: filters are judged where events are made, and follow whoever comes and goes."""

from typing import Any

from tests.processes.conftest import Start
from tests.processes.programs.node import Node


def publish_until(node: Node, condition: str) -> None:
    """Publish {"n": 0}, which no filter here wants, until `condition` holds at that node."""
    node(
        "exec",
        "import time\n"
        "deadline_s = time.monotonic() + 60\n"
        f"while not ({condition}):\n"
        "    assert time.monotonic() < deadline_s\n"
        "    bus.publish('x.y', {'n': 0})\n"
        "    time.sleep(0.01)\n",
    )


def received(node: Node, count: int) -> list[Any]:
    entries = node("account", "x.>", count, 60.0)
    return [number for account in entries.values() for number, _ in account]


def test_only_what_somebody_wants_leaves_the_publisher(start: Start) -> None:
    publisher, odd, large = start(), start(), start()
    odd("subscribe", "x.>", {"where": "n % 2 == 1 && n < 100"})
    large("subscribe", "x.>", {"where": "n > 900"})
    publisher("publish", "x.y", 1, 1000)
    assert received(odd, 50) == list(range(1, 100, 2))
    assert received(large, 100) == list(range(901, 1001))
    assert publisher("stats", "sent_events") == 150
    assert publisher("stats", "quenched") == 850
    assert odd("stats", "lost") == large("stats", "lost") == 0


def test_a_killed_subscriber_takes_its_filter_with_it(start: Start) -> None:
    publisher, victim, other = start(), start(), start()
    victim("subscribe", "x.>", {})
    other("subscribe", "x.>", {"where": "n > 5"})
    publisher("publish", "x.y", 1, 10)
    assert publisher("stats", "quenched") == 0
    victim.kill()
    publish_until(publisher, "bus.stats().quenched > 0")
    publisher("publish", "x.y", 1, 10)
    assert received(other, 10) == [6, 7, 8, 9, 10] * 2


def test_a_publisher_that_comes_later_learns_the_filters(start: Start) -> None:
    subscriber = start()
    subscriber("subscribe", "x.>", {"where": "n > 5"})
    publisher = start()
    publisher("publish", "x.y", 1, 10)
    assert received(subscriber, 5) == [6, 7, 8, 9, 10]
    assert publisher("stats", "quenched") == 5


def test_a_filter_changed_in_a_flood_neither_loses_nor_repeats(start: Start) -> None:
    publisher, subscriber = start(), start()
    subscriber(
        "exec",
        "infobus.seen = seen = []\n"
        "infobus.sub = bus.subscribe('x.>', lambda event: seen.append(event.data['n']),"
        " where='n % 2 == 0')",
    )
    publisher.begin("publish", "x.y", 1, 100_000)
    for change in range(10):
        divisor = 4 - 2 * (change % 2)
        subscriber("exec", f"infobus.sub.change_filter('n % {divisor} == 0 && n > -{change}')")
    publisher.answer()
    subscriber(
        "exec",
        "import time\n"
        "deadline_s = time.monotonic() + 60\n"
        "while 100_000 not in infobus.seen[-1:]:\n"
        "    assert time.monotonic() < deadline_s\n"
        "    time.sleep(0.01)\n",
    )
    seen = subscriber("exec", "answer = infobus.seen")
    assert seen == sorted(set(seen))
    assert set(range(4, 100_001, 4)) <= set(seen)


def test_thousands_of_filters_in_one_process(start: Start) -> None:
    publisher, subscriber = start(), start()
    subscriber(
        "exec",
        "infobus.seen = seen = []\n"
        "infobus.subs = [bus.subscribe('x.>', lambda event: seen.append(event.data['n']),"
        " where=f'n == {n}') for n in range(2000)]",
    )
    publisher("publish", "x.y", 1990, 2009)
    publisher("close")
    wait = "import time\nwhile len(infobus.seen) < 10: time.sleep(0.01)\nanswer = infobus.seen"
    assert sorted(subscriber("exec", wait)) == list(range(1990, 2000))
