"""What `infobus bench pipeline` makes of its numbers; the measuring itself is the command's."""

from infobus.bench import pipeline, pipeline_report, pipeline_rules
from infobus.bench.pipeline import BATCHES, FULL, NARROW, NATIVE, OURS, Found
from infobus.bench.pipeline_rules import COUNT, RULE, Took
from infobus.stores.journal.journal import Journal


def found(full=(8.0, 9.0, 10.0), narrow=(4.0, 4.0, 4.0), batches=(8.0, 8.0, 8.0)):
    """What was measured, with a native rate of 10 everywhere."""
    rates = {FULL: full, NARROW: narrow, BATCHES: batches}
    return [
        Found(what=what, by=by, rates=list(taken) if by == OURS else [10.0] * 3)
        for what, taken in rates.items()
        for by in (OURS, NATIVE)
    ]


def verdicts(measured):
    return [bar.ok for bar in pipeline.judge(measured, [])]


def test_the_bars_compare_with_spark_round_by_round():
    bars = pipeline.judge(found(), [])
    assert [bar.measured for bar in bars[:3]] == [0.9, 0.4, 0.8]
    assert bars[0].spread == (0.8, 1.0)
    assert verdicts(found()) == [True, True, True, None, None]


def test_each_bar_can_be_missed():
    assert verdicts(found(full=(7.0, 7.0, 7.0)))[:3] == [False, True, True]
    assert verdicts(found(narrow=(3.0, 3.0, 3.0)))[:3] == [True, False, True]
    assert verdicts(found(batches=(7.0, 7.0, 7.0)))[:3] == [True, True, False]
    assert verdicts([]) == [None] * 5


def test_a_rule_may_take_four_times_as_long_as_a_count():
    took = [Took(by=RULE, rounds_s=[6.0, 8.0, 12.0]), Took(by=COUNT, rounds_s=[2.0, 2.0, 2.0])]
    bar = pipeline_rules.judge(took)
    assert (bar.measured, bar.spread, bar.ok) == (4.0, (3.0, 6.0), True)
    assert pipeline_rules.judge([took[0], Took(by=COUNT, rounds_s=[1.0, 1.0, 1.0])]).ok is False
    assert pipeline_rules.judge([]).ok is None


def test_the_journal_has_as_many_events_as_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "CHUNK_COUNT", 40)
    parts = []
    assert pipeline.write_journal(tmp_path, 100, parts.append) > 0
    journal = Journal.open(tmp_path)
    assert (journal.next_offset, parts) == (100, [40, 80, 100])
    assert len({one.data.note for one in journal.select(pipeline.TYPE).events()}) == 40


def test_a_picture_is_drawn_of_it(tmp_path):
    assert pipeline_report.write_plots(found(), tmp_path)
