"""A subscription begins when it is made, also on a node that has just closed another one."""

from infobus import Bus
from tests.bus.helpers import numbers_of, send, take


def test_it_gets_nothing_of_before_though_the_node_had_one_until_just_now(
    bus: Bus, other: Bus
) -> None:
    for first in range(0, 200, 10):
        sub = other.subscribe("x.y")
        send(bus, "x.y", *range(first, first + 5))
        assert numbers_of(take(sub, 5)) == list(range(first, first + 5))
        sub.close()
        send(bus, "x.y", *range(first + 5, first + 10))


def test_it_gets_nothing_of_before_though_another_one_has_just_closed(bus: Bus, other: Bus) -> None:
    for first in range(0, 200, 10):
        sub = other.subscribe("x.y" if first % 20 else "x.>")
        send(bus, "x.y", *range(first, first + 5))
        assert numbers_of(take(sub, 5)) == list(range(first, first + 5))
        sub.close()
        send(bus, "x.y", *range(first + 5, first + 10))
