"""The profile counts; it is not itself measured in time."""

import io
import sys
from collections import Counter

from rich.console import Console

from infobus.bench.pubsub.profile import _calls_of, _each, print_profile, profile


def test_calls_are_counted_by_function_python_and_c_alike():
    def helper() -> int:
        return len("abc")

    calls = _calls_of(lambda: [helper() for _ in range(7)] and None)
    assert calls["len"] == 7
    assert sum(count for where, count in calls.items() if where.endswith("helper")) == 7
    assert sys.getprofile() is None


def test_what_happens_once_in_a_while_is_left_out_and_the_most_comes_first():
    counts = Counter({"rare": 4, "often": 300, "each": 100})
    assert list(_each(counts, 100).items()) == [("often", 3.0), ("each", 1.0)]


def test_both_ways_of_an_event_are_seen():
    found = profile(events=200)
    assert any("publish" in where for where in found.publishing)
    assert any(where.endswith("_Arrivals.take") for where in found.receiving)
    console = Console(file=io.StringIO(), width=120)
    print_profile(found, console)
    assert "calls to receive it" in console.file.getvalue()
