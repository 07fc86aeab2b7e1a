"""Rights at work: refused where the call is made, and again where it arrives."""

import time

import pytest

import infobus
from infobus import NotAllowed, Service
from infobus.bus.bus import interior
from infobus.stores.key_folder import KeyFolder
from infobus.testing.tags import table_of_its_own
from tests.bus.helpers import wait_until
from tests.bus.members import Plant
from tests.patience import PATIENCE_S

OPERATOR = """
[roles.operator]
publish = ["plant.command.>"]
subscribe = ["plant.>"]
call = ["svc.pay/look"]
serve = ["svc.clock"]
hold = ["plant.>"]
[roles.admin]
publish = [">"]
subscribe = [{ to = [">", "~audit.>"], except = ["hr.>"] }]
call = [">"]
serve = [">"]
hold = [">"]
manage = [">"]
tag = [">"]
"""


@pytest.fixture
def plant(tmp_path):
    plant = Plant(tmp_path, OPERATOR)
    yield plant
    for bus in plant.drivers:
        bus.close(timeout_s=0.5)


class Pay(Service):
    def look(self) -> int:
        return 5

    def transfer(self, amount: int) -> int:
        return amount


class TestAtTheCaller:
    def test_a_denied_publish_raises_with_what_is_allowed(self, plant):
        bob = plant.node("bob", "operator")
        bob.publish("plant.command.stop", {"n": 1})
        for guaranteed in (False, True):
            with pytest.raises(NotAllowed) as caught:
                bob.publish("orders.new", {"n": 1}, guaranteed=guaranteed)
            error = caught.value
            told = (error.action, error.subject, error.principal, error.rule, error.policy)
            assert told == ("publish", "orders.new", "bob", "", 2)
            assert "bob may publish: plant.command.>" in str(error)
        with pytest.raises(NotAllowed):
            bob.publish_many([("plant.command.go", {"n": 1}), ("orders.new", {"n": 1})])
        with pytest.raises(NotAllowed), bob.transaction() as tx:
            tx.publish("plant.command.go", {"n": 1})
            tx.publish("orders.new", {"n": 1})
        with pytest.raises(NotAllowed):
            bob.publish("orders.new", {"n": 1}, test=True)
        assert bob.stats().denied == 5

    def test_a_wide_subscription_is_refused_or_narrowed(self, plant):
        bob, admin = plant.node("bob", "operator"), plant.node("ann", "admin")
        with pytest.raises(NotAllowed, match=r"bob may subscribe: plant\.>"):
            bob.subscribe(">")
        with pytest.raises(NotAllowed):
            bob.subscribe(">", durable="all")
        narrow = bob.subscribe(">", narrow=True)
        assert narrow.patterns == ("plant.>",)
        admin.publish("orders.new", {"n": 1})
        admin.publish("plant.oven", {"n": 2})
        assert narrow.receive(PATIENCE_S).data["n"] == 2

    def test_what_a_rule_excludes_is_left_out_of_a_narrow_subscription(self, plant):
        ann, amy = plant.node("ann", "admin"), plant.node("amy", "admin")
        with pytest.raises(NotAllowed):
            ann.subscribe(">")
        narrow = ann.subscribe(">", narrow=True)
        for publisher in (amy, ann):
            publisher.publish("hr.pay", {"n": 1})
            publisher.publish("it.pay", {"n": 2})
            assert narrow.receive(PATIENCE_S).subject == "it.pay"

    def test_serving_calling_and_making_wait_need_their_rights(self, plant):
        bob, ann = plant.node("bob", "operator"), plant.node("ann", "admin")
        with pytest.raises(NotAllowed):
            bob.serve("svc.pay", Pay())
        ann.serve("svc.pay", Pay())
        client = bob.service("svc.pay")
        assert client.look() == 5
        with pytest.raises(NotAllowed) as caught:
            client.transfer(7)
        assert (caught.value.action, caught.value.subject) == ("call", "svc.pay/transfer")
        with pytest.raises(NotAllowed):
            ann.subscribe("~stats.>")
        bob.subscribe("plant.>", when_full="block")

    def test_nobody_waits_for_a_consumer_without_that_right(self, tmp_path):
        plant = Plant(tmp_path, '[roles.r]\nsubscribe = [">"]')
        with plant.node("eve", "r") as eve:
            assert eve.subscribe("a.>").when_full == "drop_oldest"
            with pytest.raises(NotAllowed) as caught:
                eve.subscribe("a.>", when_full="block")
            assert caught.value.action == "hold"


class TestAtTheReceiver:
    """A node that does not keep to its own rights: its guard is taken off."""

    def lawless(self, plant, *arguments):
        bus = plant.node(*arguments)
        runtime = plant.drivers[bus].guard
        runtime.check = lambda action, subject: None
        runtime.wanted = lambda patterns, narrow: list(patterns)
        runtime.may_hear = lambda subject: True
        return bus

    def test_events_that_may_not_be_published_are_left_out_and_that_is_told(self, plant):
        mallory, ann = self.lawless(plant, "mallory", "operator"), plant.node("ann", "admin")
        taken = ann.subscribe("orders.>")
        others = ann.subscribe("plant.>")
        mallory.publish("orders.new", {"n": 1})
        with mallory.transaction() as tx:
            tx.publish("plant.command.go", {"n": 2})
            tx.publish("orders.new", {"n": 3})
        mallory.publish("plant.command.stop", {"n": 4})
        assert others.receive(PATIENCE_S).data["n"] == 4
        assert not taken.waiting_count
        assert ann.stats().denied == 1 + 2 + 2  # the transaction comes once for each channel
        assert ann.stats().lost == 0
        wait_until(lambda: mallory.stats().denied > 0)

    def test_rows_that_may_not_be_held_are_not(self, plant):
        ann, mallory = plant.node("ann", "admin"), self.lawless(plant, "mallory", "operator")
        stolen = mallory.subscribe("orders.>")
        fair = mallory.subscribe("plant.>")
        ann.publish("orders.new", {"n": 1})
        ann.publish("plant.oven", {"n": 2})
        assert fair.receive(PATIENCE_S).data["n"] == 2
        assert not stolen.waiting_count
        assert ann.stats().quenched == 1

    def test_a_call_that_may_not_be_made_is_refused_with_the_reason(self, plant):
        ann, mallory = plant.node("ann", "admin"), self.lawless(plant, "mallory", "operator")
        ann.serve("svc.pay", Pay())
        with pytest.raises(NotAllowed) as caught:
            mallory.service("svc.pay").transfer(7)
        error = caught.value
        assert (error.action, error.subject) == ("call", "svc.pay/transfer")
        assert (error.principal, error.policy) == ("mallory", 2)
        assert mallory.service("svc.pay").look() == 5

    def test_nobody_believes_in_a_server_that_may_not_serve(self, plant):
        ann, mallory = plant.node("ann", "admin"), self.lawless(plant, "mallory", "operator")
        mallory.serve("svc.pay", Pay())
        with pytest.raises(infobus.NoServer):
            ann.service("svc.pay", timeout_s=0.5).look()
        ann.serve("svc.pay", Pay())
        mallory.replace("svc.pay", Pay())
        assert ann.service("svc.pay").look() == 5


class TestAPolicyThatChanges:
    def test_it_counts_on_every_node_soon_after_one_has_it(self, plant):
        nodes = [plant.node(f"n{n}", "operator") for n in range(4)]
        sub = nodes[1].subscribe("plant.>")
        plant.give(nodes[0], plant.published(OPERATOR.replace("plant.command.>", "orders.>")))
        wait_until(lambda: all(plant.drivers[bus].guard.policy.version == 3 for bus in nodes))
        for bus in nodes:
            bus.publish("orders.new", {"n": 1})
            with pytest.raises(NotAllowed):
                bus.publish("plant.command.stop", {"n": 1})
        assert not sub.is_closed
        assert plant.drivers[nodes[0]].wait_spread(3, PATIENCE_S) == (3, 3)

    def test_a_subscription_whose_right_has_ended_is_closed_with_that(self, plant):
        bob, ann = plant.node("bob", "operator"), plant.node("ann", "admin")
        sub = bob.subscribe("plant.>")
        plant.give(ann, plant.published(OPERATOR.replace('["plant.>"]', '["other.>"]')))
        with pytest.raises(NotAllowed) as caught:
            sub.receive(PATIENCE_S)
        assert (caught.value.subject, caught.value.policy) == ("plant.>", 3)

    def test_rights_that_are_given_take_effect_on_what_was_refused(self, plant):
        bob, ann = plant.node("bob", "operator"), plant.node("ann", "admin")
        with pytest.raises(NotAllowed):
            bob.subscribe("orders.>")
        plant.give(ann, plant.published(OPERATOR.replace('["plant.>"]', '["plant.>", "orders.>"]')))
        wait_until(lambda: plant.drivers[bob].guard.policy.version == 3)
        sub = bob.subscribe("orders.>")
        ann.publish("orders.new", {"n": 1})
        assert sub.receive(PATIENCE_S).data["n"] == 1

    def test_one_that_somebody_else_has_signed_is_not_taken_up(self, plant):
        bob = plant.node("bob", "operator")
        stranger = Plant(plant.home, OPERATOR, bus=plant.bus, salt="stranger")
        plant.give(bob, stranger.published(OPERATOR))
        wait_until(lambda: "has a policy" in str(bob.stats().complaints.get("test")))
        assert plant.drivers[bob].guard.policy.version == 2

    def test_a_home_remembers_the_newest_and_brings_one_that_was_put_there(self, plant, tmp_path):
        folder = KeyFolder(tmp_path / "keys")
        bob, ann = plant.node("bob", "operator", folder=folder), plant.node("ann", "admin")
        plant.give(ann, plant.published(OPERATOR))
        wait_until(lambda: (kept := folder.policy()) is not None and kept.version == 3)
        folder.keep_policy(plant.published(OPERATOR))
        wait_until(lambda: plant.drivers[ann].guard.policy.version == 4)
        assert not folder.keep_policy(plant.verified(plant.record.signed).signed)
        assert plant.drivers[bob].guard.policy.version == 4


class TestTheAudit:
    def test_what_was_decided_is_told_to_those_who_may_hear_it(self, plant):
        ann = plant.node("ann", "admin")
        trail = ann.subscribe("~audit.denied")
        bob = plant.node("bob", "operator")
        for _ in range(20):
            with pytest.raises(NotAllowed):
                bob.publish("orders.new", {"n": 1})
        told = trail.receive(PATIENCE_S).data
        assert (told.what, told.principal, told.action) == ("denied", "bob", "publish")
        assert (told.subject, told.policy) == ("orders.new", 2)
        assert 1 <= told.count <= 20
        with pytest.raises(NotAllowed):
            bob.subscribe("~audit.>")

    def test_what_is_allowed_is_told_if_the_policy_says_so(self, tmp_path):
        plant = Plant(tmp_path, OPERATOR)
        text = 'audit = ["call svc.pay.>", "call svc.pay"]\n' + OPERATOR
        plant.published(text)
        with plant.node("ann", "admin") as ann, plant.node("bob", "operator") as bob:
            trail = ann.subscribe("~audit.managed")
            ann.serve("svc.pay", Pay())
            bob.service("svc.pay").look()
            told = trail.receive(PATIENCE_S).data
            assert (told.what, told.principal) == ("managed", "bob")
            assert (told.action, told.subject) == ("call", "svc.pay/look")

    def test_a_durable_consumer_has_all_of_it(self, plant):
        bob = plant.node("bob", "operator")
        with pytest.raises(NotAllowed):
            bob.publish("orders.new", {"n": 1})
        ann = plant.node("ann", "admin")
        trail = ann.subscribe("~audit.denied", durable="auditor")
        with pytest.raises(NotAllowed):
            bob.publish("orders.two", {"n": 1})
        told = trail.receive(PATIENCE_S).data
        assert (told.what, told.principal) == ("denied", "bob")


class TestTags:
    ROLES = """
[roles.keeper]
publish = [">"]
subscribe = [">"]
[roles.designer]
tag = ["plant.>"]
"""

    def test_tags_need_the_right_to_tag_where_they_are_asked_for_and_where_they_are_kept(
        self, tmp_path
    ):
        plant = Plant(tmp_path, self.ROLES)
        keeper = plant.node("kim", "keeper")
        with (
            keeper,
            plant.node("dora", "designer") as dora,
            plant.node("bob", "keeper") as bob,
            table_of_its_own(keeper),
        ):
            dora.tags.create("plant.oven.>", timeout_s=PATIENCE_S)
            with pytest.raises(NotAllowed, match="dora may tag: plant"):
                dora.tags.create("orders.new")
            with pytest.raises(NotAllowed) as caught:
                bob.tags.delete("plant.oven.>", force=True)
            assert (caught.value.action, caught.value.subject) == ("tag", "plant.oven.>")
            plant.drivers[bob].guard.check = lambda action, subject: None
            with pytest.raises(NotAllowed, match=r"bob .* may not tag plant\.oven"):
                bob.tags.delete("plant.oven.>", force=True, timeout_s=PATIENCE_S)
            assert keeper.stats().denied == 1
            dora.tags.delete("plant.oven.>", timeout_s=PATIENCE_S)


class TestRates:
    ROLE = '[roles.sensor]\npublish = ["plant.>"]\nrate = { events_per_s = 20 }\n'
    OTHERS = '[roles.admin]\npublish = [">"]\nsubscribe = [">"]\nhold = [">"]\n'

    def test_all_nodes_of_a_principal_share_the_rate_of_its_role(self, tmp_path):
        plant = Plant(tmp_path, self.ROLE, self.OTHERS)
        with (
            plant.node("ann", "admin") as ann,
            plant.node("bob", "sensor") as greedy,
            plant.node("bob", "sensor") as other,
            plant.node("eve", "sensor") as eve,
            plant.node("amy", "admin") as amy,
        ):
            taken = ann.subscribe("plant.>")
            for bus, count in ((greedy, 500), (other, 1), (eve, 1), (amy, 500)):
                bus.publish_many([("plant.oven", {"n": n}) for n in range(count)])
            for _ in range(1002):
                assert taken.receive(PATIENCE_S)
            clients, now_s = interior(ann).runtime.clients, time.monotonic()
            held = [clients.is_throttled(bus.node, now_s) for bus in (greedy, other, eve, amy)]
            assert held == [True, True, False, False]
            plant.give(ann, plant.published(self.ROLE.replace("20", "20_000"), self.OTHERS))
            wait_until(lambda: not clients.is_throttled(greedy.node, time.monotonic()))
            plant.give(ann, plant.published(self.OTHERS))
            wait_until(lambda: not clients.has_limits)


class TestDurableNames:
    ADMIN = '[roles.admin]\npublish = [">"]\nsubscribe = [">"]\nhold = [">"]\nmanage = [">"]\n'
    READER = '[roles.reader]\nsubscribe = ["plant.>", "hr.>"]\n'
    FORMER = '[roles.reader]\nsubscribe = ["plant.>"]\n'

    @staticmethod
    def keep(bus, subject, *numbers):
        for n in numbers:
            bus.publish(subject, {"n": n}, guaranteed=True)

    def test_a_durable_subscription_whose_right_ends_is_closed_with_the_reason(self, tmp_path):
        plant = Plant(tmp_path, self.ADMIN, self.READER)
        with plant.node("ann", "admin") as ann, plant.node("rob", "reader") as rob:
            pay = rob.subscribe("hr.>", durable="pay")
            self.keep(ann, "hr.pay", 1)
            assert pay.receive(PATIENCE_S).data["n"] == 1
            plant.give(ann, plant.published(self.ADMIN, self.FORMER))
            with pytest.raises(NotAllowed) as caught:
                pay.receive(PATIENCE_S)
            assert (caught.value.subject, caught.value.policy) == ("hr.>", 3)

    def test_what_was_revoked_is_not_sent_whatever_the_consumer_believes(self, tmp_path):
        plant = Plant(tmp_path, self.ADMIN, self.READER)
        with plant.node("ann", "admin") as ann, plant.node("rob", "reader") as rob:
            deaf = plant.drivers[rob]
            deaf._consider = lambda signed, source: []  # it stays with the policy of yesterday
            pay, both = rob.subscribe("hr.>", durable="pay"), rob.subscribe(">", narrow=True)
            self.keep(ann, "hr.pay", 1)
            assert pay.receive(PATIENCE_S).data["n"] == 1
            plant.give(ann, plant.published(self.ADMIN, self.FORMER))
            wait_until(lambda: plant.drivers[ann].guard.policy.version == 3)
            self.keep(ann, "hr.pay", 2)
            self.keep(ann, "plant.oven", 3)
            while both.receive(PATIENCE_S).subject != "plant.oven":
                pass
            with pytest.raises(TimeoutError):
                pay.receive(0.5)
            wait_until(lambda: rob.stats().denied > 0 and ann.node in rob.stats().complaints)
            plant.give(ann, plant.published(self.ADMIN, self.READER))
            assert pay.receive(PATIENCE_S).data["n"] == 2  # nothing of it was lost meanwhile

    def test_what_a_rule_excludes_is_left_out_of_a_ledger_too(self, tmp_path):
        reader = '[roles.reader]\nsubscribe = [{ to = ["plant.>"], except = ["plant.secret"] }]'
        plant = Plant(tmp_path, self.ADMIN, reader)
        with plant.node("ann", "admin") as ann, plant.node("rob", "reader") as rob:
            guard = plant.drivers[rob].guard
            guard.wanted = lambda patterns, narrow: list(patterns)
            guard.may_hear = lambda subject: True
            taken = rob.subscribe("plant.>", durable="all")
            self.keep(ann, "plant.secret", 1)
            with ann.transaction(guaranteed=True) as tx:
                tx.publish("plant.oven", {"n": 2})
                tx.publish("plant.secret", {"n": 3})
            self.keep(ann, "plant.oven", 4)
            assert taken.receive(PATIENCE_S).data["n"] == 4

    def test_events_of_a_ledger_are_those_of_who_serves_it(self, tmp_path):
        plant = Plant(tmp_path, self.ADMIN, '[roles.oven]\npublish = ["plant.>"]\n')
        with plant.node("ann", "admin") as ann, plant.node("max", "oven") as mallory:
            plant.drivers[mallory].guard.check = lambda action, subject: None
            taken = ann.subscribe(">", durable="all")
            self.keep(mallory, "hr.pay", 1)
            self.keep(mallory, "plant.oven", 2)
            with mallory.transaction(guaranteed=True) as tx:
                tx.publish("plant.oven", {"n": 3})
                tx.publish("hr.pay", {"n": 4})
            self.keep(mallory, "plant.oven", 5)
            for n in (2, 5):
                assert taken.receive(PATIENCE_S).data["n"] == n
            assert ann.stats().denied == 2
