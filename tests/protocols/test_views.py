"""Who sees whom: nodes with different views say who is missed, and miss nobody by mistake."""

from hypothesis import given
from hypothesis import strategies as st

from infobus.protocols.effects import Complain, ToAll, ToPeer
from infobus.protocols.frames import wire
from infobus.protocols.reliable.node import Node
from infobus.protocols.reliable.views import Views


class Mesh:
    """Nodes that tick together, and links between some of them."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: Node(name) for name in names}
        self.links: set[frozenset[str]] = set()
        self.now_s = 0.0
        self.complaints: list[tuple[str, str]] = []  # who complains of whom
        self.asked_count = 0

    def link(self, one: str, other: str, up: bool = True) -> None:
        (self.links.add if up else self.links.discard)(frozenset((one, other)))
        for here, there in ((one, other), (other, one)):
            node = self.nodes[here]
            self.do(here, (node.peer_up if up else node.peer_down)(there, self.now_s))

    def link_all(self, *but: str) -> None:
        names = list(self.nodes)
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                if {one, other} != set(but):
                    self.link(one, other)

    def do(self, name: str, effects: list) -> None:
        for effect in effects:
            match effect:
                case Complain(of, what) if "is seen by" in what:
                    self.complaints.append((name, of))
                case ToPeer(peer, message):
                    self.asked_count += isinstance(message, wire.Seen)
                    self.give(name, peer, message)
                case ToAll(message):
                    for other in self.nodes:
                        self.give(name, other, message)

    def give(self, name: str, other: str, message: object) -> None:
        if frozenset((name, other)) in self.links and other != name:
            self.do(other, self.nodes[other].take(message, self.now_s))

    def pass_time(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.1
            for name, node in list(self.nodes.items()):
                self.do(name, node.tick(self.now_s))


def test_two_nodes_with_no_way_between_them_complain_of_each_other_once_and_soon():
    mesh = Mesh("a", "b", "c")
    mesh.link_all("b", "c")
    mesh.pass_time(10.0)
    assert sorted(mesh.complaints) == [("b", "c"), ("c", "b")]
    assert mesh.nodes["b"].missed() == {"c": "a"}
    mesh.pass_time(60.0)
    assert len(mesh.complaints) == 2
    mesh.link("b", "c")
    assert mesh.nodes["b"].missed() == {}


def test_a_newcomer_has_met_all_when_it_sees_whom_those_see_that_it_asked():
    mesh = Mesh("old", "far", "new")
    mesh.link("old", "far")
    mesh.link("new", "old")
    new = mesh.nodes["new"]
    assert new.is_synced()
    mesh.do("new", new.ask_around())
    assert not new.has_met_all()
    mesh.link("new", "far")
    assert new.has_met_all()
    assert not mesh.complaints


def test_a_newcomer_waits_for_no_answer_of_who_is_gone_or_was_never_asked():
    lonely, mesh = Node("lonely"), Mesh("old", "new")
    lonely.ask_around()
    assert lonely.has_met_all()
    mesh.link("new", "old")
    mesh.nodes["new"].ask_around()
    assert not mesh.nodes["new"].has_met_all()
    mesh.link("new", "old", up=False)
    assert mesh.nodes["new"].has_met_all()


def test_nodes_that_see_the_same_ask_nothing():
    mesh = Mesh(*(f"n{number}" for number in range(8)))
    mesh.link_all()
    mesh.pass_time(30.0)
    assert (mesh.complaints, mesh.asked_count) == ([], 0)


def test_many_nodes_ask_little_when_one_link_is_missing():
    mesh = Mesh(*(f"n{number}" for number in range(20)))
    mesh.link_all("n3", "n4")
    mesh.pass_time(60.0)
    assert sorted(mesh.complaints) == [("n3", "n4"), ("n4", "n3")]
    assert mesh.asked_count < 20 * 20


def test_nodes_that_come_and_go_are_not_missed():
    """Links go and come back within 3 s, a node dies and another is born, again and again."""
    mesh = Mesh(*(f"n{number}" for number in range(6)))
    mesh.link_all()
    for turn in range(40):
        dead, new = f"n{turn}", f"n{turn + 6}"
        for other in [name for name in mesh.nodes if name != dead]:
            mesh.link(dead, other, up=False)
            mesh.pass_time(0.2)  # not everyone notices at once
        del mesh.nodes[dead]
        mesh.nodes[new] = Node(new)
        for other in [name for name in mesh.nodes if name != new]:
            mesh.link(new, other)
            mesh.pass_time(0.2)
    assert mesh.complaints == []


def test_older_nodes_that_do_not_say_whom_they_see_are_not_asked():
    views = Views("me")
    views.saw("old")
    assert [views.on_beat("old", (0, 0), t) for t in (1.0, 3.0, 5.0)] == [False] * 3


def test_what_strangers_say_they_see_counts_for_nothing():
    views = Views("me")
    assert views.on_seen("nobody", ["ghost"], 0.0) == []
    assert not views.missed


def test_names_without_end_fill_no_memory():
    views = Views("me")
    views.saw("liar")
    for turn in range(5):
        views.on_seen("liar", [f"ghost-{turn}-{number}" for number in range(700)], float(turn))
        assert len(views.missed) <= 1_000


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=30))
def test_a_view_depends_on_whom_a_node_sees_and_on_nothing_else(changes):
    views = Views("me")
    for name, is_seen in changes:
        (views.saw if is_seen else views.lost)(name)
    fresh = Views("me")
    for name in sorted(views.seen.keys() - {"me"}):
        fresh.saw(name)
    assert fresh.view == views.view
