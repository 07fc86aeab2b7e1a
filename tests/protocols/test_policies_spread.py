"""How a policy gets around: whatever is lost on the way, all end up with the newest."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadFrame
from infobus.protocols.effects import ToAll, ToPeer
from infobus.protocols.frames import policies as frames
from infobus.protocols.frames.wire import encode
from infobus.protocols.security.policies import PolicyCame, PolicyExchange


class Nodes:
    """Some nodes that see each other, over links that lose frames as a seed says."""

    def __init__(self, count: int, random: Random, loss: float) -> None:
        self.all = {f"n{at}": PolicyExchange(f"n{at}", 1, b"1") for at in range(count)}
        self.random, self.loss, self.now_s, self.sent = random, loss, 0.0, 0

    def meet(self) -> None:
        for name, node in self.all.items():
            for other in self.all:
                if other != name:
                    self.carry(name, node.peer_up(other, self.now_s))

    def carry(self, name: str, effects) -> None:
        for one in effects:
            match one:
                case ToPeer(peer, message):
                    self.put(peer, message)
                case ToAll(message):
                    for peer in self.all:
                        self.put(peer, message) if peer != name else None
                case PolicyCame(_, policy) if int(policy) > self.all[name].version:
                    self.carry(name, self.all[name].hold(int(policy), policy))

    def put(self, peer: str, message) -> None:
        self.sent += 1
        if self.random.random() >= self.loss:
            self.carry(peer, self.all[peer].take(frames.decode(encode(message)), self.now_s))

    def tick(self) -> None:
        self.now_s += 1.0
        for name, node in self.all.items():
            self.carry(name, node.tick(self.now_s))


@given(
    st.integers(2, 6), st.integers(0, 2**32), st.lists(st.integers(0, 5), min_size=1, max_size=4)
)
def test_all_end_up_with_the_newest_and_know_it(count, seed, changes):
    nodes = Nodes(count, Random(seed), loss=0.5)
    nodes.meet()
    for version, at in enumerate(changes, 2):
        name = f"n{at % count}"
        if nodes.all[name].version < version:
            nodes.carry(name, nodes.all[name].hold(version, str(version).encode()))
    nodes.loss = 0.0
    for _ in range(3):
        nodes.tick()
    newest = max(node.version for node in nodes.all.values())
    assert newest == len(changes) + 1
    assert all(node.version == newest for node in nodes.all.values())
    assert all(node.has_everyone(newest) for node in nodes.all.values())
    nodes.sent = 0
    nodes.tick()
    assert nodes.sent == 0  # and then nobody says any more


def test_a_node_that_never_answers_is_told_so_often_and_no_more():
    node = PolicyExchange("a", 1, b"1")
    node.peer_up("silent", 0.0)
    assert sum(len(node.tick(float(second))) for second in range(1, 1000)) == 60


@given(st.binary(max_size=60))
def test_other_bytes_are_no_frame_about_a_policy(data):
    with pytest.raises(BadFrame):
        frames.decode(data)
