"""When what waits at its sender is raised, and what it says then."""

import pytest

from infobus.protocols.frames.items import Items, Qos
from infobus.protocols.frames.lane_upgrade import LaneUpgrade
from infobus.protocols.qos.classes import Upgrade


def leaving(held_s: float, *times_s: float, qos: tuple[Qos | None, ...] = ()) -> Items:
    """Events of these times that leave a lane that was full for so long, since second 100."""
    lane = LaneUpgrade(Upgrade(after_s=1.0, period_s=2.0))
    lane.held(100.0)
    lane.held(100.5)  # it still is
    lane.moves(100.0 + held_s)
    count = len(times_s)
    items = Items(["x"], [1], list(times_s), [0], [b""] * count, {}, list(qos))
    return lane.marked(items, 100.0 + held_s)


@pytest.mark.parametrize(
    ("held_s", "until"),
    [(0.0, 0), (0.9, 0), (1.0, 103), (2.9, 103), (3.0, 0), (3.9, 0), (4.0, 106), (6.5, 0)],
)
def test_what_starves_is_raised_falls_back_and_must_starve_again(held_s, until):
    assert leaving(held_s, 99.0).raised_until() == until


def test_what_came_after_the_upgrade_began_is_not_raised():
    assert leaving(1.5, 99.0, 100.9, 101.2).qos == [Qos(raised_until=103)] * 2 + [None]


def test_what_is_alike_for_all_is_said_once():
    assert leaving(1.5, 99.0, 99.5).qos == [Qos(raised_until=103)]


def test_what_the_supplier_asked_for_stays():
    asked = Qos(5.0, "low", kept=True)
    assert leaving(1.5, 99.0, qos=(asked,)).qos == [Qos(5.0, "low", 103, True)]


def test_what_leaves_once_it_is_over_says_nothing():
    lane = LaneUpgrade(Upgrade())
    lane.held(100.0)
    lane.moves(101.5)
    items = Items(["x"], [1], [99.0], [0], [b""])
    assert lane.marked(items, 101.9).raised_until() == 102
    assert lane.marked(items, 102.0) is items
    lane.moves(103.5)  # nothing was held meanwhile
    assert lane.marked(items, 103.5) is items
