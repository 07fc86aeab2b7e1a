"""The links of a router: with those it calls or who call, and with nobody else."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from infobus.patience import Patience
from infobus.router.links import NeighbourLinks
from tests.router.sites import eventually


class Ends:
    """Routers by letters, with what each has heard and seen."""

    def __init__(self) -> None:
        self.links: dict[str, NeighbourLinks] = {}
        self.heard: dict[str, Counter[bytes]] = {}
        self.seen: dict[str, set[str]] = {}
        with ExitStack() as held:
            found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in "abc"]
            ports = [one.getsockname()[1] for one in found]
        self.at = {
            name: (f"tcp/127.0.0.1:{port}",) for name, port in zip("abc", ports, strict=True)
        }

    def start(self, name: str, calls: str) -> NeighbourLinks:
        links = self.links[name] = NeighbourLinks(
            "backbone",
            name,
            listen=self.at[name],
            connect={other: self.at[other] for other in calls},
            insecure=False,
            patience=Patience(reach_s=0.0, lease_s=5.0),
            config={},
        )
        links.open(name)
        self.heard[name], self.seen[name] = Counter(), set()
        links.announce(f"l/{name}")
        links.declare(f"r/{name}/0", lambda frame: self.heard[name].update([frame]))
        links.watch("l/*", lambda token, is_there: self.note(name, token, is_there))
        return links

    def note(self, name: str, token: str, is_there: bool) -> None:
        change = self.seen[name].add if is_there else self.seen[name].discard
        change(token.rpartition("/")[2])


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    for links in made.links.values():
        links.close()


def test_only_neighbours_see_each_other(ends):
    ends.start("a", "")
    ends.start("b", "a")
    ends.start("c", "b")
    eventually(lambda: ends.seen == {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}})
    ends.links["a"].put("r/c/0", b"not a neighbour")
    ends.links["a"].put("r/b/0", b"1")
    ends.links["c"].put("r/b/0", b"2")
    eventually(lambda: len(ends.heard["b"]) == 2)
    assert not ends.heard["c"]


def test_two_that_call_each_other_speak_once(ends):
    ends.start("a", "b")
    ends.start("b", "a")
    eventually(lambda: ends.seen == {"a": {"b"}, "b": {"a"}})
    for number in range(20):
        ends.links["a"].put("r/b/0", b"%d" % number)
    eventually(lambda: len(ends.heard["b"]) == 20)
    assert set(ends.heard["b"].values()) == {1}


def test_a_neighbour_comes_and_goes_and_the_others_stay(ends):
    ends.start("a", "")
    ends.start("b", "")
    links = ends.start("c", "a")
    eventually(lambda: ends.seen["c"] == {"a"})
    links.call({"a": ends.at["a"], "b": ends.at["b"]}, ())
    eventually(lambda: ends.seen["c"] == {"a", "b"} and ends.seen["b"] == {"c"})
    links.put("r/b/0", b"1")
    eventually(lambda: ends.heard["b"][b"1"])
    links.call({"a": ends.at["a"]}, ["b"])
    eventually(lambda: ends.seen["c"] == {"a"} and ends.seen["b"] == set())
    links.put("r/a/0", b"2")
    eventually(lambda: ends.heard["a"][b"2"])
