"""The capture server: what is published is stored, guaranteed events exactly once."""
# ruff: noqa: RUF012  (a default list in a data object is copied for each object)

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import uuid

import pytest

import infobus
from infobus import DataObject, Property, id_of
from infobus.errors import DurableInUse
from infobus.repository import Repository, database
from infobus.repository.capture import Capture
from infobus.repository.to_rows import Taking
from tests.bus.helpers import wait_until
from tests.cli.running import Shell
from tests.objects.worlds import another_process

KILL_ROUNDS = int(os.environ.get("INFOBUS_KILL_ROUNDS", "2"))
PATIENCE_S = 60.0
CLOSE_S = 30.0


class Story(DataObject, name="capture.Story"):
    title: str
    topics: list[str] = []


class Alert(Story, name="capture.Alert"):
    level: int = 0


@pytest.fixture
def buses(tmp_path):
    """A publisher's node, and the capture's."""
    name = f"test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(infobus.connect(name, engine="memory", home=tmp_path / "home"))
            for _ in range(2)
        ]


def wait_stored(capture: Capture, count: int) -> None:
    wait_until(lambda: capture.stored >= count, PATIENCE_S)


def test_everything_under_the_subjects_is_stored_with_subject_and_time(repository, buses):
    publisher, node = buses
    story = Story(title="GM up", topics=["cars"])
    with repository.capture(node, ["news.>", "orders.new"]) as capture:
        publisher.publish("news.equity.gmc", story)
        publisher.publish("news.equity.gmc", Property(name="k", value=["GM"], ref=id_of(story)))
        publisher.publish("orders.new", {"item": "valve"})
        publisher.publish("orders.old", {"item": "pump"})
        with publisher.transaction() as transaction:
            transaction.publish("news.a", Story(title="one of two"))
            transaction.publish("news.b", Story(title="two of two"))
        wait_stored(capture, 4)
    found = repository.query("capture.Story", order="title", rows=True)
    assert [row["title"] for row in found] == ["GM up", "one of two", "two of two"]
    assert (found[0]["_subject"], found[0]["_id"]) == ("news.equity.gmc", id_of(story))
    assert found[0]["_time"] is not None
    assert found[0]["_properties"] == {"k": ["GM"]}
    assert repository.query("dict") == [{"item": "valve"}]


def test_what_comes_live_and_out_of_a_ledger_is_stored_once(repository, buses):
    publisher, node = buses
    with repository.capture(node, ["orders.>"]) as capture:
        publisher.publish("orders.new", {"item": "valve"}, guaranteed=True)
        publisher.publish("orders.new", {"item": "pump"})
        wait_stored(capture, 2)
    assert sorted(found["item"] for found in repository.query("dict")) == ["pump", "valve"]


def test_guaranteed_events_wait_while_nobody_captures(repository, buses):
    publisher, node = buses
    with repository.capture(node, ["news.>"]):
        pass
    stories = [Story(title=f"{n:03}") for n in range(300)]
    with node.subscribe("news.a") as others:
        publisher.publish_many([("news.a", story) for story in stories], guaranteed=True)
        publisher.publish("news.a", Story(title="not guaranteed"))
        # What is still on its way is news to whoever begins to capture meanwhile.
        while others.receive(PATIENCE_S).data.title != "not guaranteed":
            pass
    with repository.capture(node, ["news.>"]) as capture:
        wait_stored(capture, 300)
    assert repository.query("capture.Story", order="title") == stories


def test_types_of_a_publisher_that_is_gone_are_known(tmp_path):
    name, home, url = f"test-{uuid.uuid4().hex}", tmp_path / "home", f"sqlite:///{tmp_path}/o.db"
    with infobus.connect(name, engine="memory", home=home) as publisher:
        with Repository(url) as repository, repository.capture(publisher, ["news.>"]):
            pass
        publisher.publish("news.a", Story(title="a"), guaranteed=True)
        publisher.publish("news.a", Alert(title="b", level=2), guaranteed=True)
        with publisher.transaction(guaranteed=True) as transaction:
            transaction.publish("news.a", Alert(title="c", level=3))
    with (
        another_process(),
        infobus.connect(name, engine="memory", home=home) as node,
        Repository(url) as repository,
    ):
        with repository.capture(node, ["news.>"]) as capture:
            wait_stored(capture, 3)
        found = repository.query("capture.Story", order="title")
        assert [one.title for one in found] == ["a", "b", "c"]
        assert [one.level for one in repository.query("capture.Alert", order="title")] == [2, 3]


def test_a_guaranteed_state_that_comes_late_does_not_replace_a_newer_one(repository, buses):
    publisher, node = buses
    story = Story(title="old")
    with repository.capture(node, ["news.>"]):
        pass
    publisher.publish("news.a", story, guaranteed=True)
    story.title = "new"
    subscription = node.subscribe("news.a")
    publisher.publish("news.a", story)
    while (event := subscription.receive(PATIENCE_S)).data.title != "new":
        pass  # the old one may have been on its way
    repository.store([event])
    with repository.capture(node, ["news.>"]) as capture:
        wait_stored(capture, 1)
    assert capture.set_aside == 0
    assert [one.title for one in repository.query("capture.Story")] == ["new"]


def test_what_the_database_refuses_is_set_aside_and_the_others_go_on(
    url, repository, buses, database
):
    publisher, node = buses
    repository.store([Story(title="before")])
    for view in ("every_capture_story", "every_capture_story_topics", "every_data_object"):
        database(f"DROP VIEW IF EXISTS {view}")
    database("ALTER TABLE capture_story DROP COLUMN title")
    with repository.capture(node, ["news.>"]) as capture:
        publisher.publish("news.a", Story(title="refused"))
        publisher.publish("news.a", Story(title="refused, too"), guaranteed=True)
        publisher.publish("news.b", {"fine": True})
        wait_until(lambda: capture.set_aside == 2 and capture.stored == 1, PATIENCE_S)
    assert repository.query("dict") == [{"fine": True}]
    aside = repository.all_set_aside()
    assert {one.record().obj.title for one in aside} == {"refused", "refused, too"}
    database("ALTER TABLE capture_story ADD COLUMN title TEXT")
    assert repository.take_back() == 2
    found = repository.query("capture.Story")
    # What was stored before has lost its title, and is no `Story` without it.
    titles = {one.title for one in found if isinstance(one, Story)}
    assert titles == {"refused", "refused, too"} and len(found) == 3


def test_an_object_that_nobody_reckoned_with_does_not_end_the_capture(tmp_path, buses, monkeypatch):
    publisher, node = buses
    take = Taking.add

    def stumble(taking, records):
        if any(record.obj.title == "poison" for record in records):
            raise RuntimeError("a mistake of ours")
        take(taking, records)

    monkeypatch.setattr(Taking, "add", stumble)
    with Repository(f"sqlite:///{tmp_path}/poison.db") as repository:
        with repository.capture(node, ["news.>"]) as capture:
            for title in ("before", "poison", "after"):
                publisher.publish("news.a", Story(title=title))
            wait_until(lambda: capture.set_aside == 1 and capture.stored == 2, PATIENCE_S)
        assert len(repository.query("capture.Story")) == 2
        (aside,) = repository.all_set_aside()
        assert aside.reason == "RuntimeError: a mistake of ours"


def test_a_subscription_that_ends_is_made_anew(tmp_path, buses, monkeypatch):
    publisher, node = buses
    durable = []
    subscribe = Capture._subscribe

    def remember(capture, *names):
        durable.append(subscribe(capture, *names))
        return durable[-1]

    monkeypatch.setattr(Capture, "_subscribe", remember)
    with Repository(f"sqlite:///{tmp_path}/again.db") as repository:
        with Capture(repository, node, ["news.>"], name="capture", pause_s_max=0.01) as capture:
            durable[0].offer(DurableInUse("another one has it", name="capture"))
            wait_until(lambda: len(durable) == 2, PATIENCE_S)
            story = Story(title="guaranteed")
            publisher.publish("news.a", story, guaranteed=True)
            wait_stored(capture, 1)
        assert repository.query("capture.Story") == [story]


def test_while_the_database_is_busy_events_wait(tmp_path, buses):
    publisher, node = buses
    with Repository(f"sqlite:///{tmp_path}/busy.db", busy_s=0.05) as repository:
        repository.store([Story(title="before")])
        with repository.capture(node, ["news.>"]) as capture:
            other = sqlite3.connect(tmp_path / "busy.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            publisher.publish("news.a", Story(title="waits"))
            wait_until(lambda: "locked" in capture.problem, PATIENCE_S)
            assert capture.stored == 0
            other.execute("COMMIT")
            other.close()
            wait_stored(capture, 1)
            assert capture.problem == ""
        assert len(repository.query("capture.Story")) == 2


def closes(capture: Capture) -> bool:
    closing = threading.Thread(target=capture.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)
    return not closing.is_alive()


def test_closing_ends_while_guaranteed_events_keep_coming(tmp_path, buses):
    publisher, node = buses
    published, is_over = [], threading.Event()

    def publish():
        while not is_over.wait(0.001):  # or the capture, in the same process, has no time to work
            story = Story(title=f"{len(published):06}")
            publisher.publish("news.a", story, guaranteed=True)
            published.append(story)

    publishing = threading.Thread(target=publish)
    with Repository(f"sqlite:///{tmp_path}/flood.db") as repository:
        capture = repository.capture(node, ["news.>"])
        publishing.start()
        try:
            wait_stored(capture, 10)
            assert closes(capture) and publishing.is_alive()
        finally:
            is_over.set()
            publishing.join()
        first = capture.stored
        assert repository.query("capture.Story", order="title") == published[:first]
        # What had not come yet comes now, and nothing else.
        with repository.capture(node, ["news.>"]) as rest:
            wait_stored(rest, len(published) - first)
        assert first + rest.stored == len(published)
        assert repository.query("capture.Story", order="title") == published


def test_closing_ends_although_whatever_is_stored_brings_more(tmp_path, buses, monkeypatch):
    _, node = buses
    is_over = threading.Event()
    store = Repository.store

    def store_and_publish(repository, objects, **options):
        if not is_over.is_set():
            node.publish("news.a", Story(title="one more"))
        return store(repository, objects, **options)

    monkeypatch.setattr(Repository, "store", store_and_publish)
    with Repository(f"sqlite:///{tmp_path}/more.db") as repository:
        capture = repository.capture(node, ["news.>"])
        node.publish("news.a", Story(title="the first"))
        try:
            wait_stored(capture, 10)
            assert closes(capture)
        finally:
            is_over.set()
        assert len(repository.query("capture.Story")) == capture.stored


def test_the_effects_of_a_batch_are_in_its_transaction(repository):
    marks = []

    def refuse(connection):
        marks.append(connection)
        return False

    assert repository.store([Story(title="never")], within=refuse) == 0
    assert len(marks) == 1 and repository.query("capture.Story") == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_however_often_it_is_killed_each_guaranteed_event_is_stored_once(url, tmp_path):
    """`kill -9` while it stores; every state of every object arrives, the last one counts."""
    shell = Shell(tmp_path)
    published = 0
    stories = [Story(title="", topics=[str(n)]) for n in range(40)]
    with infobus.connect(shell.bus, home=tmp_path) as bus:
        for _ in range(KILL_ROUNDS):
            capture = shell.start("capture", "news.>", "--db", url)
            assert capture.stderr.readline().startswith("capturing")
            for _ in range(5):
                published += 1
                for story in stories:
                    story.title = f"state {published}"
                bus.publish_many([("news.a", story) for story in stories], guaranteed=True)
            capture.send_signal(signal.SIGKILL)
            capture.wait(PATIENCE_S)
        events = 40 * published
        last = shell.start("capture", "news.>", "--db", url)
        assert last.stderr.readline().startswith("capturing")
        with Repository(url) as repository:
            wait_until(lambda: _position(repository) >= events, PATIENCE_S)
            last.send_signal(signal.SIGTERM)
            last.communicate(timeout=PATIENCE_S)
            assert last.returncode == 0
            found = repository.query("capture.Story")
            assert sorted(map(repr, found)) == sorted(map(repr, stories))
    shell.close()


def _position(repository: Repository) -> int:
    with database.reading(repository._engine) as connection:
        rows = connection.exec_driver_sql("SELECT position FROM infobus_positions")
        return max((row[0] for row in rows), default=0)
