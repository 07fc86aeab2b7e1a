"""What `infobus bench pipeline` makes of its numbers; the measuring itself is the command's."""

from infobus.bench.common.plots import save
from infobus.bench.common.rounds import Rounds
from infobus.bench.pipeline import benchmark, measure
from infobus.bench.pipeline.measure import BATCHES, FULL, NARROW, NATIVE, OURS
from infobus.bench.pipeline.rules import COUNT, FOLLOWED, RULE
from infobus.stores.journal.journal import Journal


def found(full=(8.0, 9.0, 10.0), narrow=(4.0, 4.0, 4.0), batches=(8.0, 8.0, 8.0)):
    """What was measured, with a native rate of 10 everywhere."""
    rates = {FULL: full, NARROW: narrow, BATCHES: batches}
    return [
        Rounds(load=load, engine=by, values={"rate": list(taken) if by == OURS else [10.0] * 3})
        for load, taken in rates.items()
        for by in (OURS, NATIVE)
    ]


def verdicts(measured):
    return [bar.ok for bar in benchmark.bars_of(measured, [], [])][:5]


def test_the_bars_compare_with_spark_round_by_round():
    bars = benchmark.bars_of(found(), [], [])
    assert [bar.measured for bar in bars[:3]] == [0.9, 0.4, 0.8]
    assert bars[0].spread == (0.8, 1.0)
    assert verdicts(found()) == [True, True, True, None, None]


def test_each_bar_can_be_missed():
    assert verdicts(found(full=(7.0, 7.0, 7.0)))[:3] == [False, True, True]
    assert verdicts(found(narrow=(3.0, 3.0, 3.0)))[:3] == [True, False, True]
    assert verdicts(found(batches=(7.0, 7.0, 7.0)))[:3] == [True, True, False]
    assert verdicts([]) == [None] * 5


def test_a_rule_may_take_four_times_as_long_as_a_count():
    def judged(**seconds):
        took = [
            Rounds(load=FOLLOWED, engine=by, values={"seconds": seconds[key]})
            for by, key in ((RULE, "rule"), (COUNT, "count"))
            if key in seconds
        ]
        return benchmark.bars_of([], [], took)[-1]

    bar = judged(rule=[6.0, 8.0, 12.0], count=[2.0, 2.0, 2.0])
    assert (bar.measured, bar.spread, bar.ok) == (4.0, (3.0, 6.0), True)
    assert judged(rule=[6.0, 8.0, 12.0], count=[1.0, 1.0, 1.0]).ok is False
    assert judged().ok is None


def test_the_journal_has_as_many_events_as_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK_COUNT", 40)
    parts = []
    assert measure.write_journal(tmp_path, 100, parts.append) > 0
    journal = Journal.open(tmp_path)
    assert (journal.next_offset, parts) == (100, [40, 80, 100])
    assert len({one.data.note for one in journal.select(measure.TYPE).events()}) == 40


def test_large_files_are_read_as_a_journal_makes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK_COUNT", 20)
    measure.write_journal(tmp_path / "j", 400, lambda done: None)
    journal = Journal.open(measure.merged(tmp_path / "j"))
    assert (len(journal.files()), journal.next_offset) == (1, 400)
    assert len(Journal.open(tmp_path / "j").files()) == 20


def test_a_picture_is_drawn_of_it(tmp_path):
    assert save(benchmark.drawings_of(found()), tmp_path)
