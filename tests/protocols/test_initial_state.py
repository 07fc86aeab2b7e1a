"""Initial state: who is asked, for how long, and what a newcomer begins with."""

from infobus.protocols.effects import Learn, ToPeer
from infobus.protocols.frames.wire import Items, State, WantState
from infobus.protocols.initial_state.newcomers import Came, Give, Newcomers

KEY = object()


def state(sender, request=1, descriptors=()):
    return State(sender, request, {"a": 7}, Items.of([]), list(descriptors))


def asked(*peers, patience_s=2.0):
    newcomers = Newcomers("me", patience_s)
    newcomers.ask(KEY, ["a.>"], peers, 0.0)
    return newcomers


def test_everyone_is_asked_and_the_node_itself():
    want = WantState("me", 1, ["a.>"])
    effects = Newcomers("me", 2.0).ask(KEY, ["a.>"], ["p", "q"], 0.0)
    assert effects == [Give(want), ToPeer("p", want, bulk=True), ToPeer("q", want, bulk=True)]


def test_a_peer_that_asks_is_given_the_state():
    want = WantState("p", 5, ["a.>"])
    assert Newcomers("me", 2.0).take(want, 0.0) == [Give(want)]


def test_the_states_come_together_once_all_have_answered():
    newcomers = asked("p")
    assert newcomers.take(state("p", descriptors=[b"d"]), 0.1) == [Learn([b"d"], "p")]
    assert newcomers.take(state("me"), 0.2) == [
        Came(KEY, [state("p", descriptors=[b"d"]), state("me")])
    ]
    assert newcomers.tick(9.0) == []


def test_those_who_do_not_answer_are_waited_for_within_the_patience():
    newcomers = asked("p", "q", patience_s=3.0)
    newcomers.take(state("me"), 0.1)
    assert newcomers.tick(2.9) == []
    assert newcomers.tick(3.0) == [Came(KEY, [state("me")], ("p", "q"))]
    assert newcomers.take(state("p"), 3.1) == []


def test_nobody_answers_twice_or_unasked():
    newcomers = asked("p", "q")
    newcomers.take(state("p"), 0.1)
    assert newcomers.take(state("p"), 0.1) == []
    assert newcomers.take(state("stranger"), 0.1) == []
    assert newcomers.take(state("q", request=99), 0.1) == []
    newcomers.take(state("me"), 0.1)
    assert newcomers.take(state("q"), 0.1) == [Came(KEY, [state("p"), state("me"), state("q")])]


def test_what_was_asked_for_before_a_further_loss_is_too_old():
    newcomers = asked("p")
    newcomers.take(state("me"), 0.1)
    newcomers.ask(KEY, ["a.>"], ["p"], 1.0)
    assert newcomers.take(state("p", request=1), 1.1) == []
    newcomers.take(state("p", request=2), 1.2)
    assert newcomers.take(state("me", request=2), 1.3) == [
        Came(KEY, [state("p", request=2), state("me", request=2)])
    ]


def test_peers_that_come_and_go_change_nothing():
    newcomers = asked("p")
    assert newcomers.peer_up("q", 0.1) == newcomers.peer_down("p", 0.1) == []
    newcomers.take(state("me"), 0.2)
    assert newcomers.take(state("p"), 0.3) == [Came(KEY, [state("me"), state("p")])]
