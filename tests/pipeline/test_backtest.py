"""Back-tests: what subscriptions would have matched, as if each had looked at each event."""

import json

import pytest

from infobus import BadFilter, UsageError
from infobus.filters import compile
from infobus.pipeline import register
from infobus.pipeline.jobs import ResultPart, backtest
from infobus.pipeline.jobs.history import histories
from infobus.pipeline.jobs.subscription import TrialSubscription
from infobus.subjects import matches
from tests.cli.running import Shell
from tests.stores.journals import NOW_S, Source, Story, Wire, event, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TEXTS = """
    n > 10
    n > 100
    n >= 5 && n < 50
    isa("journals.Story")
    isa("journals.Wire") && n > 20
    "oil" in topics
    source.name == "s1"
    !exists(headline)
    kind == "raw" || price > 30
    headline matches("^h1")
    _subject == "news.s1"
    n > 1000
    n > 2000
    value.deep == 3
""".strip().splitlines()


def made():
    events = []
    for n in range(60):
        kind = Wire if n % 2 else Story
        story = kind(
            headline=f"h{n}",
            n=n,
            price=None if n % 7 == 0 else n * 1.5,
            topics=["oil"] if n % 3 == 0 else [],
            source=Source(name=f"s{n % 2}"),
            value={"deep": n},
        )
        data = story if n % 5 else {"n": n, "kind": "raw"}
        events.append(event(n, data, f"news.s{n % 3}", test=n == 59))
    return events


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    events = made()
    return write(tmp_path_factory.mktemp("backtest") / "j", events[:25], events[25:])


@pytest.fixture(scope="module")
def tried(spark, journal):
    """All subscriptions, and the rows of their back-test."""
    register(spark)
    subscriptions = [
        TrialSubscription(subject=subject, where=None if text is None else text.strip())
        for subject in (">", "news.*", "news.s1")
        for text in (None, *TEXTS)
    ]
    options = backtest.BacktestOptions(subscriptions=subscriptions, journal=str(journal.folder))
    result = backtest.over(histories(spark, journal.folder), options)
    rows = result.orderBy("subscription").collect()
    return subscriptions, rows, result


def wanted(journal, one: TrialSubscription):
    """What a subscription matches, found out event by event."""
    filter = None if one.where is None else compile(one.where)
    return [
        event
        for event in journal.select(subject=one.subject).events()
        if not event.test
        and (filter is None or filter.matches(event.data) or _envelope(filter, event))
    ]


def _envelope(filter, event) -> bool:
    return "_subject" in filter.attributes and filter.matches({"_subject": event.subject})


def test_each_subscription_is_counted_as_if_it_were_alone(tried, journal):
    subscriptions, rows, _ = tried
    assert len(rows) == len(subscriptions)
    for one, row in zip(subscriptions, rows, strict=True):
        expected = wanted(journal, one)
        assert (row.subject, row.where, row.events) == (one.subject, one.where, len(expected)), one
        if expected:
            times = [event.time for event in expected]
            assert row.first.timestamp() == pytest.approx(min(times))
            assert row.last.timestamp() == pytest.approx(max(times))
            assert row.bytes > 5 * row.events
    assert sum(row.events > 0 for row in rows) > len(rows) / 2


def test_subscriptions_that_ask_for_more_are_named(tried):
    subscriptions, rows, _ = tried
    numbers = {(one.subject, one.where): at for at, one in enumerate(subscriptions)}
    above = {at: set(row.subsumed_by) for at, row in enumerate(rows)}
    few, all_, more = (
        numbers["news.s1", "n > 100"],
        numbers[">", None],
        numbers["news.*", "n > 10"],
    )
    assert {all_, more, numbers["news.s1", "n > 10"]} <= above[few]
    assert above[all_] == set()
    # What matched nothing is compared, too; and nobody subsumes who was seen to miss an event.
    assert numbers[">", "n > 1000"] in above[numbers[">", "n > 2000"]]
    for at, others in above.items():
        for other in others:
            assert rows[other].events >= rows[at].events
            assert matches(subscriptions[other].subject, "news.s1")


def test_the_result_is_written_the_busiest_first(tried, tmp_path):
    _, rows, result = tried
    options = backtest.BacktestOptions(report=str(tmp_path / "r.jsonl"))
    backtest.write(result, options, ResultPart("q", 0))
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    counts = [line["events"] for line in lines]
    assert counts == sorted((row.events for row in rows), reverse=True)


def test_mistakes_are_told(tmp_path):
    path = tmp_path / "subscriptions.txt"
    path.write_text('# mine\n\nn > 1\n{"subject": "news.>"}\n')
    assert backtest.read_file(path) == [
        TrialSubscription(where="n > 1"),
        TrialSubscription(subject="news.>"),
    ]
    for line, message in [("n >", "line 2: expected"), ('{"wher": "n"}', "line 2: .*wher")]:
        path.write_text(f"n > 1\n{line}\n")
        with pytest.raises(UsageError, match=message):
            backtest.read_file(path)
    with pytest.raises(UsageError, match="no subscription"):
        backtest.BacktestOptions().all()
    with pytest.raises(UsageError, match="cannot be read"):
        backtest.read_file(tmp_path / "none")
    with pytest.raises(BadFilter):
        TrialSubscription(where="n >")


def test_the_command(quick_java, journal, tmp_path):
    shell = Shell(tmp_path)
    try:
        (tmp_path / "more.txt").write_text("n > 20\n")
        process = shell.start(
            "backtest", "--where", "n > 10", "--file", "more.txt", "--journal", str(journal.folder),
            "--json", "--spark",
        )  # fmt: skip
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")  # nothing of what Spark has to say
        first, second = map(json.loads, out.splitlines())
        assert (first["events"], second["events"]) == (48, 38)
        assert second["subsumed_by"] == [0]
        assert first["first"].startswith("2026-11-16T") and NOW_S
        code, _, err = shell.run("backtest", "--journal", str(journal.folder))
        assert code == 2 and "--where EXPR or --file FILE" in err
        shell.environment["JAVA_HOME"] = "nowhere"
        code, _, err = shell.run(
            "backtest", "--where", "n > 10", "--journal", str(journal.folder), "--spark"
        )
        *said, told = err.splitlines()
        assert any("nowhere/bin/java" in line for line in said)
        assert code == 2 and told.startswith("infobus: Spark did not start: ")
        assert "nowhere/bin/java: No such file" in told and "apt-get install" in told
    finally:
        shell.close()
