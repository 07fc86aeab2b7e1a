"""Reports of nodes: events of the bus's own, made only while somebody wants them."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest

import infobus
from infobus import BadSubject, Bus, NodeStats, Service, Subscription
from infobus.bus.statistics.reporter import Reporter
from infobus.bus.statistics.snapshot import ROWS_COUNT_MAX, ReportSources
from tests.bus.conftest import Connect
from tests.bus.helpers import take, wait_until
from tests.patience import PATIENCE_S


def report_of(reports: Subscription, bus: Bus) -> NodeStats:
    """The next report of a node."""
    while (event := reports.receive(PATIENCE_S)).data.node != bus.node:
        pass
    return event.data


def test_a_node_tells_what_it_does_while_somebody_wants_it(bus: Bus, other: Bus) -> None:
    wanted = other.subscribe("q.>", where="n > 0", queue_count_max=100)
    bus.publish("q.a", {"n": 1}, priority="business")
    bus.publish("q.a", {"n": 0})
    bus.publish("nobody.wants", {})
    wait_until(lambda: wanted.waiting_count == 1)
    reports = other.subscribe("~stats.>")
    event = reports.receive(PATIENCE_S)
    assert re.fullmatch(r"~stats\.[\w-]+\.[\w-]+", event.subject)
    sender, receiver = report_of(reports, bus), report_of(reports, other)
    assert (sender.published, sender.quenched, sender.sent_events) == (3, 2, 1)
    [route] = [one for one in sender.routes if one.sent]
    assert (route.channel, route.priority, route.sent, route.receivers) == ("q", "business", 1, 1)
    [inflow] = [one for one in receiver.inflows if one.received]
    assert (inflow.sender, inflow.channel, inflow.received) == (bus.node, "q", 1)
    [told] = [one for one in receiver.subscriptions if one.patterns == ["q.>"]]
    assert (told.where, told.waiting, told.queue_count_max, told.lost) == ("n > 0", 1, 100, 0)
    [queue] = told.queues
    assert (queue.priority, queue.waiting, queue.high, queue.low) == ("business", 1, 50, 25)
    assert (sender.pid, sender.version) == (infobus_pid(bus), infobus.__version__)
    assert sender.at > sender.since
    assert sender.cpu_s > 0


def infobus_pid(bus: Bus) -> int:
    return int(bus.node.split("-")[-2])


def test_reports_follow_each_other_and_end_with_interest(
    bus: Bus, other: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(ReportSources, "report", counted(ReportSources.report, made))
    ticks: list[str] = []
    monkeypatch.setattr(Reporter, "on_tick", counted(Reporter.on_tick, ticks))
    threads = threading.active_count()
    wait_until(lambda: len(ticks) > 10)
    assert not made, "nothing is made unless somebody wants it"
    with other.subscribe(">"), other.subscribe("*.*.*"):
        ticks.clear()
        wait_until(lambda: len(ticks) > 10)
        assert not made, "and wildcards do not want what is the bus's own"
    with other.subscribe(f"~stats.*.{bus.node}") as reports:
        first, second = take(reports, 2)
        assert (second.data.at - first.data.at).total_seconds() > 0.5
        assert threading.active_count() <= threads + 1  # what reads from the engine
        assert set(made) == {bus.node}, "only whom the pattern names"
    made.clear()
    ticks.clear()
    wait_until(lambda: len(ticks) > 10)
    assert len(made) <= 1


def counted(function: Any, made: list[str]) -> Any:
    def call(self: Any) -> Any:
        made.append(self.runtime.name if isinstance(self, ReportSources) else self.subject)
        return function(self)

    return call


def test_reports_do_not_count_themselves(bus: Bus, other: Bus) -> None:
    with other.subscribe("~stats.>") as reports:
        take(reports, 3)
        for node in (bus, other):
            stats = node.stats()
            assert (stats.published, stats.quenched) == (0, 0)
            assert (stats.sent_events, stats.received_events) == (0, 0)


def test_filters_choose_among_nodes(bus: Bus, other: Bus) -> None:
    reports = other.subscribe("~stats.>", where="published > 0")
    bus.publish("q.a", {})
    assert {event.data.node for event in take(reports, 2)} == {bus.node}


def test_a_consumer_that_does_not_take_them_holds_nobody_up(bus: Bus, other: Bus) -> None:
    slow = other.subscribe("~stats.>", when_full="block", queue_count_max=1)
    got = other.subscribe("q.>")
    wait_until(lambda: slow.waiting_count > 1)
    bus.publish("q.a", {"n": 1})
    assert got.receive(PATIENCE_S).data == {"n": 1}


def test_applications_may_not_tell_for_others(bus: Bus, other: Bus) -> None:
    with pytest.raises(BadSubject, match="begins with '~'"):
        bus.publish(f"~stats.host.{other.node}", {})


def test_services_and_ledgers_are_told(connect: Connect, tmp_path: Path) -> None:
    class Echo(Service):
        def echo(self, text: str) -> str:
            return text

    server, reader = connect(home=tmp_path), connect()
    server.serve("svc.echo", Echo())
    server.subscribe("q.>", durable="billing").close()
    server.publish("q.a", {}, guaranteed=True)
    told = report_of(reader.subscribe("~stats.>"), server)
    assert [(one.subject, one.name, one.load) for one in told.services] == [("svc.echo", "Echo", 0)]
    [ledger] = told.ledgers
    assert (ledger.last, ledger.behind) == (1, {"billing": 1})


def test_a_report_is_bounded(bus: Bus, other: Bus) -> None:
    for n in range(ROWS_COUNT_MAX + 50):
        bus.subscribe(f"many.s{n}", timeout_s=0)
    told = report_of(other.subscribe("~stats.>"), bus)
    assert told.subscription_count == ROWS_COUNT_MAX + 50
    assert len(told.subscriptions) == ROWS_COUNT_MAX
