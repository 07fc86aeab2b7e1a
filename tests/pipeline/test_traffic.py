"""Traffic: what was measured is what was sent, and the watermarks follow from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infobus import Event, UsageError
from infobus.pipeline.jobs import ResultPart
from infobus.pipeline.jobs.traffic import traffic
from infobus.pipeline.jobs.traffic.marks import HIGH_MIN, ServiceRate, advise, backlogs
from infobus.stores.journal.journal import JournalWriter
from infobus.stores.journal.upkeep import compact
from tests.stores.journals import NOW_S, Story

COUNTS = st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=40)


@given(COUNTS, st.floats(0.5, 40), st.sampled_from([0.5, 1.0, 2.0]))
def test_the_highest_class_is_served_first(rows, per_s, bin_s):
    arrivals = [np.array(column, float) for column in zip(*rows, strict=True)]
    service = ServiceRate(events_per_s=per_s, reaction_s=0.1, patience_s={})
    found = backlogs(arrivals, bin_s, service)
    waiting = [0.0, 0.0, 0.0]
    for at, row in enumerate(rows):
        left = per_s * bin_s
        for rank, count in enumerate(row):
            there = waiting[rank] + count
            taken = min(there, left)
            left -= taken
            waiting[rank] = there - taken
        assert [one[at] for one in found] == pytest.approx(waiting, abs=1e-6)


def service(per_s: float = 100.0, **patience_s: float) -> ServiceRate:
    return ServiceRate(events_per_s=per_s, reaction_s=0.1, patience_s=patience_s)


NAMES = ("emergency", "business", "regular")


def steady(*per_bin: float) -> list[np.ndarray]:
    return [np.full(600, one) for one in per_bin]


class TestWatermarks:
    def test_calm_classes_get_small_marks_and_the_highest_is_never_held(self):
        emergency, business, regular = advise(NAMES, steady(10, 20, 30), 1.0, service())
        assert [one.burst for one in (emergency, business, regular)] == [0, 0, 0]
        assert (business.marks.high, regular.marks.high) == (HIGH_MIN, HIGH_MIN)
        assert business.left_per_s == 90 and regular.left_per_s == 70
        assert "must not be held" in " ".join(emergency.reasons)

    def test_room_for_the_bursts_that_were_seen(self):
        arrivals = steady(0, 0, 30)
        arrivals[2][100:110] = 400  # ten seconds of four times what can be taken
        regular = advise(NAMES, arrivals, 1.0, service())[2]
        assert regular.marks.high == pytest.approx(3000 + 40, rel=0.02)
        assert regular.marks.low == 10
        # One that must not wait for longer than five seconds gets less room, and is told why.
        hurried = advise(NAMES, arrivals, 1.0, service(regular=5.0))[2]
        assert hurried.marks.high == 500
        assert "held at times" in " ".join(hurried.reasons)

    def test_no_mark_helps_where_more_comes_than_goes(self):
        regular = advise(NAMES, steady(0, 60, 60), 1.0, service())[2]
        assert "no mark is high enough" in " ".join(regular.reasons)
        drowned = advise(NAMES, steady(0, 120, 60), 1.0, service())[2]
        assert drowned.left_per_s == 0 and "beyond all measure" in drowned.reasons[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_was_sent_is_what_is_reported(spark, tmp_path):
    from infobus.pipeline import register

    register(spark)
    with JournalWriter.open(tmp_path / "j") as writer:
        for second in range(3):
            begin = second * 20
            events = [_event(number) for number in range(begin, begin + 20)]
            writer.append(events, now_s=NOW_S + second + 1.25)
            # Files that are merged, and merged again, still say when their events arrived.
            assert compact(writer, NOW_S + 9, fan=2) == min(second, 1)
    options = traffic.TrafficOptions(report=str(tmp_path / "report"), service_per_s=100.0)
    result = traffic.transform(traffic.observed(spark, tmp_path / "j"), options)
    rows = {(row.by, row.name): row for row in result.collect()}
    assert {name for by, name in rows if by == "class"} == {"emergency", "regular"}
    regular = rows["class", "regular"]
    assert (regular.events, regular.measured, regular.per_s_peak) == (45, 45, 15.0)
    # The first of a second waits for its end and a quarter; so do the others with it.
    assert regular.latency_s[-1] == pytest.approx(1.25 - 0.05, abs=0.001)
    assert regular.depth_max == 15 + 4
    assert rows["subject", "news.s1"].events == 20
    node = rows["node", "s0"]
    assert node.events == 30 and node.bytes_max > 20
    assert [one.sent for one in regular.bins if one.sent] == [15, 15, 15]

    traffic.write(result, options, ResultPart("q", 0))
    text = (tmp_path / "report/report.md").read_text()
    for part in (
        "60 events",
        "`news.s1`|20|6.78|",
        "|regular|",
        "low mark:",
        "100.0 events per second",
    ):
        assert part in text
    assert (tmp_path / "report/traffic.png").stat().st_size > 1000
    with pytest.raises(UsageError, match="bin_s"):
        traffic.TrafficOptions(bin_s=0)


def _event(number: int) -> Event:
    class_ = "regular" if number % 4 else "emergency"
    place = (f"s{number % 2}", number, NOW_S + number * 0.05, number)
    return Event(f"news.s{number % 3}", Story(headline=f"h{number}"), *place, class_)
