"""The map of routers: each link once, with what waits at both ends."""

from xml.etree import ElementTree

from infobus.cli.router_map import draw_routers, links_of
from infobus.router.status import NeighbourStatus, RouterStatus


def router(name: str, **neighbours: object) -> RouterStatus:
    return RouterStatus(
        name=name,
        group="",
        domain="eu",
        inside=f"bus-{name}",
        backbone="company",
        pid=1,
        host="oak",
        version="1",
        since=0.0,
        is_carrying=True,
        endpoints={},
        neighbours=tuple(
            NeighbourStatus(name=other, **{"is_up": True, **told})
            for other, told in neighbours.items()
        ),
        routers=(),
        agreements=(),
    )


FOUND = [
    router("a", b={"waiting_bytes": 10}, c={"is_up": False}),
    router("b", a={"waiting_bytes": 5, "held": ("business",)}),
]


def test_a_link_is_there_once_and_up_only_if_both_ends_say_so():
    one, other = links_of(FOUND)
    assert (one.one, one.other, one.told) == ("a", "b", "15 B wait, business held")
    assert (other.one, other.other, other.told) == ("a", "c", "down")


def test_the_map_shows_every_router_also_one_that_does_not_answer():
    drawn = ElementTree.fromstring(draw_routers(FOUND))
    words = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"a", "b", "c", "bus-a · eu", "does not answer", "15 B wait, business held"} <= words
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}line"))) == 2


def test_the_map_of_one_router_alone_can_be_drawn():
    assert "bus-a" in draw_routers([router("a")])
