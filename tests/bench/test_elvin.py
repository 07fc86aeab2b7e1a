"""The paper's own load: as it says, and as it arrives."""

import pytest

from infobus.bench.pubsub import elvin
from infobus.filters import compile


def test_a_tenth_of_the_load_matches_one_of_ten_subscriptions():
    filters = [compile(text) for text in elvin.filters()]
    load = elvin.notifications(1000)
    assert len(filters) == 10
    assert all(len(one.attributes) == 5 for one in filters)
    assert sum(any(one.matches(event) for one in filters) for event in load) == 100


@pytest.mark.parametrize("quench", [True, False])
def test_what_matches_arrives_in_another_process(quench):
    run = elvin.measure(1000, quench)
    assert (run.events, run.matched, run.quenched) == (1000, 100, quench)
    assert run.times_the_paper == run.events_per_s / 500
