"""The city's numbers and promises: reports in, verdicts out."""

import pytest
from rich.console import Console

from infobus.demo.city import plot, screen
from infobus.demo.city.model import Arrival, City, CityLimits, CityReport


def report(arrivals=(), *, sent=(), expired=(), starving_since=None):
    return CityReport(
        sent=dict(sent),
        expired=dict(expired),
        arrivals=[Arrival(name=name, at=at, took=took) for name, at, took in arrivals],
        starving_since=starving_since,
    )


def city_of(
    *, emergency_s=0.5, business_s=9.9, libraries_at=(101.0, 102.5), sent=2, starving_since=100.0
):
    """A city that keeps its promises, unless told otherwise."""
    city = City(CityLimits())
    city.take("supplier", report(sent={"emergency": sent, "business": 9, "library": 9}))
    arrivals = [("emergency", 100.0, 0.1), ("emergency", 101.0, emergency_s)]
    arrivals += [("business", 110.0, business_s)]
    arrivals += [("library", at, 5.0) for at in libraries_at]
    city.take("room", report(arrivals, expired={"business": 3}, starving_since=starving_since))
    return city


def verdicts(city):
    return [promise.held for promise in city.promises()]


def test_a_city_that_keeps_its_promises():
    assert verdicts(city_of()) == [True, True, True]


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        ({"emergency_s": 3.1}, 0),
        ({"sent": 3}, 0),  # one has not arrived
        ({"business_s": 10.5}, 1),
        ({"libraries_at": (101.0, 103.1)}, 2),
        ({"libraries_at": (102.1,)}, 2),  # the pause begins at the watermark
        ({"libraries_at": ()}, 2),
        ({"starving_since": None}, 2),  # nothing was shown, then
    ],
)
def test_each_promise_can_be_broken(wrong, broken):
    assert verdicts(city_of(**wrong)) == [place != broken for place in range(3)]


def test_nothing_is_promised_by_a_city_that_did_nothing():
    assert verdicts(City(CityLimits())) == [False, False, False]


def test_a_pause_is_seen_across_reports_and_only_within_a_room():
    city = City(CityLimits())
    city.take("north", report([("library", 100.5, 1.0)], starving_since=100.0))
    city.take("south", report([("library", 101.9, 1.0)], starving_since=101.0))
    city.take("north", report([("library", 102.0, 1.0)], starving_since=100.0))
    assert city.longest_pause_s == 1.5


def test_what_waits_is_what_is_not_accounted_for_otherwise():
    tally = city_of().tallies()["business"]
    assert (tally.sent, tally.delivered, tally.expired, tally.waiting) == (9, 1, 3, 5)


def test_a_short_run_has_a_short_age_limit_and_the_same_limit_for_emergencies():
    limits = CityLimits.within(3.0)
    assert (limits.business_s, limits.emergency_s) == (1.0, 3.0)
    assert CityLimits.within(300.0) == CityLimits()


def test_the_screen_shows_every_class_and_what_happened_lately():
    console = Console(width=100, record=True, force_terminal=True)
    console.print(screen.draw(city_of(), 7.0, 110.2))
    shown = console.export_text()
    for text in ("emergency", "business", "library", "starves", "7 s left", "█"):
        assert text in shown


def test_a_broken_promise_is_told_as_such():
    kept, broken = city_of().promises()[0], city_of(emergency_s=4.0).promises()[0]
    assert str(screen.verdict(kept)).startswith("held")
    assert str(screen.verdict(broken)).startswith("BROKEN")
    assert "the slowest in 4.000 s" in str(screen.verdict(broken))


def test_the_picture_has_a_point_for_each_arrival(tmp_path):
    figure = plot.latency_figure(city_of())
    points = {line.get_label(): len(line.get_xdata()) for line in figure.axes[0].lines[:3]}
    assert points == {"emergency": 2, "business": 1, "library": 2}
    assert plot.latency_figure(City(CityLimits())) is None
