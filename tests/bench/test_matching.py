"""The bench of matching, at sizes at which it only shows that it works."""

import pytest
from typer.testing import CliRunner

from infobus.bench.common.plots import save
from infobus.bench.matching import benchmark, loads, measure
from infobus.bench.matching.loads import ELVIN, EQUAL, RANGE, REGEX, WIDE, MatchCondition
from infobus.cli.bench import app

LOADS = [ELVIN, EQUAL, RANGE, REGEX, WIDE]


@pytest.fixture(scope="module")
def found():
    return [
        measure.measure(load, count, turns=2, seconds=0.005)
        for load, count in ((EQUAL, 10), (EQUAL, 40), (REGEX, 60))
    ]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_load_is_the_same_for_the_same_seed_and_has_fresh_events_for_others(load):
    assert load.subscriptions(5) == load.subscriptions(5)
    assert load.events(5, seed=1) == load.events(5, seed=1)
    assert load.events(5, seed=1) != load.events(5, seed=2)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_filters_and_plain_lambdas_say_the_same(load):
    subscriptions = load.subscriptions(60)
    holds = loads.predicates_of(subscriptions)
    for event in load.events(40):
        for subscription, predicate in zip(subscriptions, holds, strict=True):
            assert loads.filter_of(subscription).matches(event) == predicate(event)


def test_elvins_load_is_wanted_now_and_then():
    holds = loads.predicates_of(ELVIN.subscriptions(10))
    events = ELVIN.events(2000)
    share = sum(any(one(event) for one in holds) for event in events) / len(events)
    assert 0.04 < share < 0.16
    assert {len(event) for event in events} == {5}


def test_a_disagreement_ends_the_run(monkeypatch):
    monkeypatch.setattr(measure, "predicates_of", lambda some: [lambda event: False for _ in some])
    with pytest.raises(AssertionError, match="disagrees"):
        measure.measure(RANGE, 300, turns=1, seconds=0.05)


def test_a_measurement_has_all_its_numbers(found):
    for one in found:
        assert min(one.single_us, one.batch_us, one.naive_us, one.add_us, one.change_us) > 0
        assert len(one.ratios) == len(one.batch_ratios) == 16


def test_a_measurement_can_be_made_in_a_process_of_its_own():
    assert measure.measure_apart(ELVIN, 10, turns=1, seconds=0.01).subscriptions == 10


def test_bars_that_were_not_measured_say_so(found):
    assert all(bar.ok is None for bar in benchmark.bars_of(found))


def test_the_quick_plan_is_a_part_of_the_full_one():
    assert set(measure.plan(quick=True)) < set(measure.plan(quick=False))


def test_loads_of_two_sizes_are_drawn(found, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = save({"match-rates": lambda: benchmark.rates_figure(found)}, tmp_path)
    assert [path.name for path in drawn] == ["match-rates.png", "match-rates.svg"]


def test_the_command_prints_tables_and_writes_numbers(found, monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "plan", lambda quick: [(EQUAL, 10), (REGEX, 60)])
    monkeypatch.setattr(
        measure, "measure_apart", lambda load, count, **_: found[0] if count == 10 else found[2]
    )
    result = CliRunner().invoke(app, ["match", "--quick", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert "Matching" in result.output
    assert "Bars" in result.output
    assert (tmp_path / "new" / "match.json").exists()


def test_a_condition_can_search():
    [holds] = loads.predicates_of([(MatchCondition("msg", "regex", "oil|gas"),)])
    assert holds({"msg": "natural gas"})
    assert not holds({})
