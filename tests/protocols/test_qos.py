"""Classes, rates, reservations and policies: the arithmetic of quality of service."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus.errors import BadSubject, QosRefused, UsageError
from infobus.protocols.qos.admission import Admission, Load, Shares
from infobus.protocols.qos.classes import DEFAULT_CLASSES, Classes, Limits, Marks, Rate, Upgrade
from infobus.protocols.qos.policy import Denied, Granted, Policy, RaisedClass


class TestClasses:
    def test_ranks_count_from_the_highest(self):
        assert [DEFAULT_CLASSES.rank(name) for name in DEFAULT_CLASSES.names] == [0, 1, 2]

    def test_the_default_is_regular_or_else_the_lowest(self):
        assert Classes(("regular", "bulk")).default == "regular"
        assert Classes(("gold", "silver")).default == "silver"

    @pytest.mark.parametrize(
        "names", [(), tuple(f"c{i}" for i in range(17)), ("a", "a"), ("",), ("A",), ("a b",)]
    )
    def test_names_that_are_no_classes_are_refused(self, names):
        with pytest.raises(UsageError, match="priority class"):
            Classes(names)

    @pytest.mark.parametrize(("high", "low"), [(0, 0), (1, 2), (5, -1)])
    def test_marks_that_make_no_sense_are_refused(self, high, low):
        with pytest.raises(UsageError, match=f"high={high}, low={low}"):
            Marks(high, low)

    @pytest.mark.parametrize("time_s", [0.0, -1.0, math.nan])
    def test_an_upgrade_takes_time(self, time_s):
        with pytest.raises(UsageError, match="must be above 0"):
            Upgrade(after_s=time_s)
        with pytest.raises(UsageError, match="must be above 0"):
            Upgrade(period_s=time_s)

    @pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
    @pytest.mark.parametrize("name", ["events_per_s", "bytes_per_s"])
    def test_rates_are_positive(self, name, value):
        with pytest.raises(UsageError, match=name):
            Rate(**{name: value})
        with pytest.raises(UsageError, match=name):
            Limits(**{name: value})


class TestRate:
    requests = st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 5_000), st.floats(0, 0.5)), min_size=1
    )

    @given(requests, st.floats(0.5, 1000), st.floats(10, 10_000), st.floats(0.01, 2))
    def test_in_any_stretch_no_more_goes_than_the_rate_and_one_burst(
        self, requests, events_per_s, bytes_per_s, burst_s
    ):
        rate = Rate(events_per_s, bytes_per_s, burst_s)
        now_s, gone = 0.0, []
        for count, size, pause_s in requests:
            now_s += pause_s + rate.allow(now_s + pause_s, count, size)
            assert rate.allow(now_s, count, size) == 0.0  # who waits as told may go
            rate.take(now_s, count, size)
            gone.append((now_s, count, size))
        for first, (start_s, _, _) in enumerate(gone):
            # The last of a stretch may be larger than a burst: the rest waits for it.
            *before, last = gone[first:]
            allowed_s = last[0] - start_s + burst_s + 1e-6
            counts, sizes = sum(c for _, c, _ in before), sum(s for _, _, s in before)
            assert counts <= events_per_s * allowed_s
            assert sizes <= bytes_per_s * allowed_s

    def test_nobody_waits_below_the_rate(self):
        rate = Rate(events_per_s=10)
        for tenth in range(100):
            assert rate.allow(tenth / 10, 1, 1000) == 0.0
            rate.take(tenth / 10, 1, 1000)

    def test_a_huge_event_passes_a_full_bucket_and_the_next_one_waits_for_it(self):
        rate = Rate(bytes_per_s=1000, burst_s=0.5)
        assert rate.allow(0.0, 1, 10_000) == 0.0
        rate.take(0.0, 1, 10_000)
        assert rate.allow(0.0, 1, 1) == pytest.approx(9.501)
        assert rate.allow(10.0, 1, 10_000) == 0.0

    def test_without_numbers_there_is_no_limit(self):
        rate = Rate()
        rate.take(0.0, 10**9, 10**12)
        assert rate.allow(0.0, 10**9, 10**12) == 0.0


class TestAdmission:
    @given(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.integers(0, 60), st.integers(0, 600)), max_size=30
        )
    )
    def test_the_sum_stays_within_what_was_given(self, requests):
        admission, held = Admission(100, 1000), {}
        for name, events_per_s, bytes_per_s in requests:
            wanted = {**held, name: (events_per_s, bytes_per_s)}
            fits = (
                not events_per_s or sum(e for e, _ in wanted.values()) <= 100,
                not bytes_per_s or sum(b for _, b in wanted.values()) <= 1000,
            )
            if all(fits):
                admission.reserve(name, events_per_s, bytes_per_s)
                held = wanted
            else:
                with pytest.raises(QosRefused):
                    admission.reserve(name, events_per_s, bytes_per_s)
            assert dict(admission.held) == {key: Load(*load) for key, load in held.items()}
            assert admission.excess() == Load()

    def test_a_refusal_says_what_was_asked_what_is_free_and_what_to_do(self):
        admission = Admission(events_per_s=100, bytes_per_s=5000)
        admission.reserve("prices", 80, 1000)
        with pytest.raises(QosRefused, match=r"'news' asks for 4500 bytes/s, but only 4000 of 5000"
                           r" are free: ask for less, release") as refused:  # fmt: skip
            admission.reserve("news", 10, 4500)
        assert (refused.value.asked, refused.value.free) == (4500, 4000)

    def test_what_is_released_can_be_had_by_another(self):
        admission = Admission(events_per_s=100)
        admission.reserve("prices", 80)
        admission.release("prices")
        admission.release("prices")
        admission.reserve("news", 100)

    def test_fractions_that_add_up_fit(self):
        admission = Admission(events_per_s=0.3)
        admission.reserve("a", 0.1)
        admission.reserve("b", 0.2)

    def test_a_narrower_bound_leaves_what_was_granted_and_tells_the_excess(self):
        admission = Admission(events_per_s=100)
        admission.reserve("prices", 80)
        admission.bound(60)
        assert admission.excess() == Load(events_per_s=20)
        with pytest.raises(QosRefused, match="only 0 of 60 are free"):
            admission.reserve("news", 1)
        admission.reserve("prices", 50)  # less than before: it fits now
        admission.bound(None)
        admission.reserve("news", 50)

    def test_a_bound_does_not_give_more_than_the_node_has(self):
        admission = Admission(events_per_s=100)
        admission.bound(1000)
        with pytest.raises(QosRefused, match="only 100 of 100"):
            admission.reserve("prices", 101)

    @pytest.mark.parametrize("rate", [-1, math.nan, math.inf])
    def test_a_reservation_is_a_number(self, rate):
        with pytest.raises(UsageError, match="events_per_s"):
            Admission(None).reserve("prices", rate)


class TestShares:
    def test_the_bound_holds_for_the_sum_over_the_nodes(self):
        shares = Shares(events_per_s=100)
        shares.reserve("node1", "prices", Load(60))
        shares.reserve("node2", "prices", Load(40))
        with pytest.raises(QosRefused, match="only 0 of 100 are free"):
            shares.reserve("node3", "prices", Load(1))
        assert list(shares.nodes) == ["node1", "node2"]

    def test_asking_again_changes_nothing(self):
        shares = Shares(events_per_s=100)
        for _ in range(3):
            shares.reserve("node1", "prices", Load(60))
        assert shares.nodes == {"node1": {"prices": Load(60)}}
        shares.reserve("node2", "prices", Load(40))

    def test_the_share_of_a_lost_node_is_free(self):
        shares = Shares(events_per_s=100)
        shares.reserve("node1", "prices", Load(100))
        shares.lost("node1")
        shares.lost("node1")
        shares.reserve("node2", "prices", Load(100))

    def test_another_bound_leaves_what_was_granted(self):
        shares = Shares(events_per_s=100)
        shares.reserve("node1", "prices", Load(80))
        shares.bound(50)
        assert shares.excess() == Load(events_per_s=30)
        with pytest.raises(QosRefused, match="only 0 of 50 are free"):
            shares.reserve("node2", "prices", Load(1))

    def test_what_nodes_tell_is_believed_and_may_be_too_much(self):
        shares = Shares(events_per_s=100)
        shares.told("node1", {"prices": Load(80)})
        shares.told("node2", {"news": Load(50), "weather": Load(10)})
        assert shares.excess() == Load(events_per_s=40)
        shares.told("node2", {"weather": Load(10)})
        assert shares.excess() == Load()
        shares.reserve("node1", "prices", Load(90))


ONLY = Denied("class 'emergency' is only for city.911.>, plant.alarm")


class TestPolicy:
    policy = Policy(
        deny={"secret.plan": "it is secret", "*.internal": "keep out"},
        only_on={"emergency": ("city.911.>", "plant.alarm"), "business": ("bank.>", "city.>")},
        raise_to={"bank.>": "business", "bank.fraud.>": "emergency", "city.*": "no-such-class"},
    )

    @pytest.mark.parametrize(
        ("pattern", "class_", "verdict"),
        [
            ("news.equity", "regular", Granted("regular")),
            ("secret.plan", "regular", Denied("it is secret")),
            (">", "regular", Denied("it is secret")),
            ("city.internal", "business", Denied("keep out")),
            ("city.911.fire", "emergency", Granted("emergency")),
            ("city.911.*", "emergency", Granted("emergency")),
            ("city.*.x", "emergency", ONLY),
            ("bank.orders", "regular", RaisedClass("business")),
            ("bank.orders", "business", Granted("business")),
            ("bank.fraud.card", "regular", RaisedClass("emergency")),
            ("bank.fraud.card", "business", RaisedClass("emergency")),
            ("*.orders", "regular", Granted("regular")),
            ("city.library", "regular", Granted("regular")),
        ],
    )  # fmt: skip
    def test_requests_are_granted_raised_or_denied(self, pattern, class_, verdict):
        assert self.policy.judge(pattern, class_, DEFAULT_CLASSES) == verdict

    def test_no_rules_grant_everything(self):
        assert Policy().judge(">", "emergency", DEFAULT_CLASSES) == Granted("emergency")

    def test_a_request_for_a_class_that_there_is_not_is_a_mistake(self):
        with pytest.raises(UsageError, match="no priority class 'urgent'"):
            Policy().judge("news", "urgent", DEFAULT_CLASSES)

    @pytest.mark.parametrize("rules", [{"deny": {"a..b": "x"}}, {"raise_to": {"": "business"}},
                                       {"only_on": {"business": ("a.>.b",)}}])  # fmt: skip
    def test_patterns_are_checked(self, rules):
        with pytest.raises(BadSubject):
            Policy(**rules)

    def test_bounds_are_not_negative(self):
        with pytest.raises(UsageError, match="not negative, not -1"):
            Policy(events_per_s=-1)
