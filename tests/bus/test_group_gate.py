"""A transaction waits on one lane for the others, but never for ever, and never for a lie."""

import pytest

from infobus.bus.deliver import group_gate
from infobus.bus.deliver.event import Run
from infobus.bus.deliver.group_gate import GroupGate
from infobus.protocols.frames.wire import Item, Items

NAME = ("lima", 100)


class Scene:
    """A gate for what one sender puts on the lanes `a` and `b`; `a` has come up to 7."""

    def __init__(self) -> None:
        self.places: dict[str, int | None] = {"a": 7, "b": 9}
        self.delivered: list[str] = []
        self.gate = GroupGate(
            lambda sender, lane: self.places[lane],
            lambda run: self.delivered.append("group"),
            lambda run: self.delivered.append(run.items.subjects[0]),
        )

    def arrive(self, places: dict[str, int], now_s: float = 0.0) -> bool:
        """The copy on `b` comes, as number 8."""
        return self.gate.arrive(run("b.group", 8), NAME, places, now_s)


def run(subject: str, seq: int, count: int = 1) -> Run:
    items = Items.of([Item(subject, 100 + seq + at, 1.0, 0, b"\x80") for at in range(count)])
    return Run("node", subject[0], range(seq, seq + count), items)


@pytest.fixture
def waiting() -> Scene:
    scene = Scene()
    assert not scene.arrive({"a": 7, "b": 8})
    scene.gate.hold(run("b.next", 9))
    return scene


def test_it_goes_when_it_comes_on_the_other_lane_and_what_follows_goes_after_it(
    waiting: Scene,
) -> None:
    waiting.gate.look_again(1.0)
    assert waiting.delivered == []
    assert waiting.gate.arrive_again(run("a.group", 7), NAME)
    assert waiting.delivered == ["group", "b.next"]
    assert not waiting.gate.lanes


@pytest.mark.parametrize("place", [8, None], ids=["it has passed", "nothing is taken there"])
def test_it_goes_when_it_will_not_come_on_the_other_lane(waiting: Scene, place: int | None) -> None:
    waiting.places["a"] = place
    waiting.gate.look_again(1.0)
    assert waiting.delivered == ["group", "b.next"]


def test_it_goes_when_it_has_waited_for_too_long(waiting: Scene) -> None:
    waiting.gate.look_again(group_gate._WAIT_S_MAX + 0.1)
    assert waiting.delivered == ["group", "b.next"]


def test_it_goes_when_too_much_waits_behind_it(waiting: Scene) -> None:
    waiting.gate.hold(run("b.flood", 10, group_gate._HELD_COUNT_MAX))
    assert waiting.delivered[:3] == ["group", "b.next", "b.flood"]
    assert not waiting.gate.lanes


@pytest.mark.parametrize("lane", ["b", ""])
def test_it_goes_before_a_loss_on_its_lane_is_told(waiting: Scene, lane: str) -> None:
    waiting.gate.open_for("another", lane)
    waiting.gate.open_for("node", "c")
    assert waiting.delivered == []
    waiting.gate.open_for("node", lane)
    assert waiting.delivered == ["group", "b.next"]


@pytest.mark.parametrize(
    "places",
    [{}, {"b": 8}, {"a": 2**60, "b": 9}, {"a": 6, "b": 8}, {"a": 7}],
    ids=["none", "its own", "another own", "passed", "not its own"],
)
def test_it_does_not_wait_for_places_that_are_behind_or_make_no_sense(
    places: dict[str, int],
) -> None:
    assert Scene().arrive(places)
