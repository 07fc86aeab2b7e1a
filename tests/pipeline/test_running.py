"""`infobus pipeline` as a user runs it, on this machine and on a cluster of it."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import MagicMock

import msgspec
import pyarrow.dataset as ds
import pytest

import infobus
from infobus import Property, UsageError, id_of
from infobus.pipeline import register
from infobus.pipeline.runner import runner as running
from infobus.pipeline.runner.checkpoints import check_checkpoint
from infobus.pipeline.runner.plan import JobUse, Plan
from infobus.pipeline.runner.progress import read_status
from infobus.pipeline.runner.runner import Pipeline
from infobus.pipeline.source import live
from infobus.repository import Repository
from tests.cli.running import Shell
from tests.spark.java import OPTIONS, needs_java
from tests.stores.journals import Source, Story, event, stories, write

PLAN = """
master = "local[1]"

[spark]
"spark.driver.memory" = "512m"
"spark.sql.shuffle.partitions" = 1

[sources.news]
subject = "news.>"

[sinks.annotations]
type = "Property"

[jobs.decompose]
source = "news"
every = "1 second"
options.db = "sqlite:///news.db"

[jobs.keywords]
source = "news"
sink = "annotations"
every = "1 second"
options.categories.energy = ["oil"]
"""
CLUSTER_PROGRAM = Path(__file__).with_name("cluster_program.py")
PATIENCE_S = 240.0

pytestmark = pytest.mark.usefixtures("quick_java")


@pytest.fixture
def shell(tmp_path):
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def wait_until(is_so, process):
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_what_is_published_is_stored_and_annotated_until_the_pipeline_is_stopped(shell, tmp_path):
    (tmp_path / "news.toml").write_text(PLAN)
    state = tmp_path / "news.state"
    running = shell.start("pipeline", "run", "news.toml")

    def phase():
        status = read_status(state)
        return "" if status is None else status.phase

    # The journal is open from then on; Spark may be there before anybody looks.
    wait_until(lambda: phase() in ("starting Spark", "live"), running)
    with infobus.connect(shell.bus, home=tmp_path) as bus:
        news = bus.subscribe("news.>")
        made = [Story(headline=f"oil {n}", n=n, source=Source(name="s")) for n in range(20)]
        bus.publish_many([("news.energy", story) for story in made])
        found = []
        while len(found) < 20:
            event = news.receive(PATIENCE_S)
            if isinstance(event.data, Property):
                found.append(event)
    assert {one.data.ref for one in found} == {id_of(story) for story in made}
    assert {(one.subject, tuple(one.data.value)) for one in found} == {("news.energy", ("oil",))}

    wait_until(lambda: phase() == "live", running)  # jobs work before that is written down
    code, out, _ = shell.run("pipeline", "status", "news.toml", "--json")
    told = json.loads(out)
    assert (code, told["running"], told["phase"]) == (0, True, "live")
    assert {job["name"]: job["state"] for job in told["jobs"]} == {
        "decompose": "running",
        "keywords": "running",
    }
    code, _, err = shell.run("pipeline", "run", "news.toml")
    assert (code, "runs already" in err) == (2, True)

    stopping = shell.start("pipeline", "stop", "news.toml")
    assert stopping.wait(PATIENCE_S) == 0
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert err.splitlines()[-1].startswith("ended; decompose: ")
    code, out, _ = shell.run("pipeline", "status", "news.toml")
    assert (code, "does not run now" in out) == (3, True)
    with Repository(f"sqlite:///{tmp_path}/news.db") as repository:
        objects = repository.query("journals.Story")
        assert sorted(one.n for one in objects) == list(range(20))
        # What a job publishes while the pipeline ends is still taken.
        assert all(objects.properties_of(one)["keywords"].value == ["oil"] for one in objects)


def plan_for(tmp_path, **source):
    return Plan(
        name="p",
        state=str(tmp_path / "state"),
        sources={"s": source},
        jobs={"decompose": JobUse(source="s", options={"db": f"sqlite:///{tmp_path}/x.db"})},
    )


def test_without_java_it_says_which_package_to_install(tmp_path, monkeypatch):
    journal = write(tmp_path / "journal", stories(range(3)))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install openjdk-17-jre-headless"):
        Pipeline(plan_for(tmp_path, journal=str(journal.folder))).run()
    status = read_status(tmp_path / "state")
    assert status is not None
    assert status.phase.startswith("failed: Spark needs a Java runtime")


def test_a_source_or_a_job_that_makes_no_sense_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(UsageError, match="no option 'jurnal'"):
        Pipeline(plan_for(tmp_path, jurnal="x"))
    with pytest.raises(UsageError, match="an empty element"):
        Pipeline(plan_for(tmp_path, subject="news..>"))
    with pytest.raises(UsageError, match="expected a name"):
        Pipeline(plan_for(tmp_path, where="price >"))
    plan = plan_for(tmp_path, journal="x")
    wrong = Plan(
        name="p",
        state=plan.state,
        sources=plan.sources,
        jobs={"keywords": JobUse(source="s", options={"categories": {}})},
    )
    with pytest.raises(UsageError, match="job keywords: categories has no words"):
        Pipeline(wrong)


class Query:
    """A query that was started and is done."""

    isActive = False
    recentProgress = ()

    def exception(self):
        return None


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A pipeline of one job, and a Spark that does nothing."""
    journal = write(tmp_path / "journal", stories(range(3)))
    monkeypatch.setattr(running, "open_session", lambda plan, folder: MagicMock())
    plan = plan_for(tmp_path, journal=str(journal.folder))
    return Pipeline(plan, look_s=0.0, pause_s=0.0)


def test_a_job_that_cannot_be_started_is_tried_again(pipeline, tmp_path, monkeypatch):
    outcomes = [OSError("Python worker failed to connect back"), OSError("again"), Query()]
    monkeypatch.setattr(running.jobs, "run", MagicMock(side_effect=outcomes))
    assert pipeline.run()
    [job] = read_status(tmp_path / "state").jobs
    assert (job.state, job.restarts) == ("done", 2)


@pytest.mark.parametrize(
    ("problem", "tries"),
    [("infobus.errors.UsageError: there is no type 'x'", 1), ("no room", running.FAILURES_MAX)],
)
def test_a_job_that_can_never_be_started_fails(pipeline, tmp_path, monkeypatch, problem, tries):
    monkeypatch.setattr(running.jobs, "run", start := MagicMock(side_effect=OSError(problem)))
    assert not pipeline.run()
    [job] = read_status(tmp_path / "state").jobs
    assert (job.state, job.problem) == ("failed", problem.removeprefix("infobus.errors."))
    assert start.call_count == tries


def test_garbage_in_a_checkpoint_is_told_at_once_with_what_to_remove(
    pipeline, tmp_path, monkeypatch
):
    folder = tmp_path / "state" / "checkpoints" / "decompose"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"6b0b1c1e"}')
    (folder / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"offset":3}')
    check_checkpoint(folder)
    (folder / "offsets" / "1").write_bytes(b"\0" * 40)
    (folder / "offsets" / ".1.crc").write_bytes(b"\0")
    monkeypatch.setattr(running.jobs, "run", start := MagicMock())
    assert not pipeline.run()
    [job] = read_status(tmp_path / "state").jobs
    assert (job.state, job.restarts, start.call_count) == ("failed", 0, 0)
    assert f"{folder / 'offsets' / '1'} is damaged" in job.problem
    assert f"remove the folder {folder};" in job.problem


def test_how_a_journal_is_kept_is_said_to_the_process_that_writes_it(tmp_path, monkeypatch):
    plan = plan_for(tmp_path, subject="news.>", home=str(tmp_path), keepDays=7, keepMb=1.5)
    [use] = Pipeline(plan)._uses.values()
    assert "keepDays" not in use._read  # a query only reads
    commands = []

    def refuse(command, **_):
        commands.append(command)
        raise OSError

    monkeypatch.setattr(live.subprocess, "Popen", refuse)
    with pytest.raises(OSError):
        live.ensure(use.source)
    assert commands[0][-4:] == ["--keep-days", "7.0", "--keep-mb", "1.5"]


def test_a_job_reads_no_attributes_that_its_rules_do_not_ask_for(tmp_path):
    rule = {"kind": "repetition", "name": "r", "key": "{room}", "within_s": 1, "count": 2}
    rules = [rule | {"step": {"where": 'state.open && _subject != "x"'}}]
    plan = plan_for(tmp_path, journal=str(tmp_path))
    for source, asked in (({}, "room,state"), ({"type": "T"}, None), ({"columns": "x"}, None)):
        changed = msgspec.structs.replace(
            plan,
            sources={"s": {"journal": str(tmp_path), **source}},
            jobs={"correlate": JobUse(source="s", sink="s", options={"rules": rules})},
            sinks={"s": {}},
        )
        [use] = Pipeline(changed)._uses.values()
        assert use._read.get("attributes") == asked


def java_of(pid):
    """The Java that a process has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            name, _, fields = stat.read_text().rpartition(") ")
            if name.endswith("(java") and int(fields.split()[1]) == pid:
                return int(stat.parent.name)
    raise AssertionError("there is none")


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_a_signal_to_its_group_ends_it_in_order_and_the_end_of_java_is_told(shell, tmp_path):
    write(tmp_path / "journal", stories(range(30)))
    (tmp_path / "all.toml").write_text("""
        master = "local[1]"
        [spark]
        "spark.driver.memory" = "512m"
        [sources.all]
        journal = "journal"
        [jobs.decompose]
        source = "all"
        every = "1 second"
        options.db = "sqlite:///all.db"
    """)

    def started():
        running = shell.start("pipeline", "run", "all.toml", start_new_session=True)

        def is_live():
            status = read_status(tmp_path / "all.state")
            return status and (status.pid, status.phase) == (running.pid, "live")

        wait_until(is_live, running)
        return running

    running = started()
    os.killpg(running.pid, signal.SIGTERM)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    assert err.splitlines()[-1] == "ended; decompose: 30 events, 0 behind"

    running = started()
    os.kill(java_of(running.pid), signal.SIGKILL)
    _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1
    assert err.splitlines()[-1].startswith("infobus: Java, in which Spark runs, has ended: it was")
    assert "Traceback" not in err


class Kept:
    """The Spark that all tests share: a pipeline does not end it."""

    def __init__(self, spark):
        self.read, self.readStream = spark.read, spark.readStream
        self.streams = spark.streams

    def stop(self):
        pass


@pytest.fixture
def annotate(spark, tmp_path, monkeypatch):
    """Runs a pipeline that publishes a keyword for each story, and tells whether it ended well."""
    register(spark)
    monkeypatch.setattr(running, "open_session", lambda plan, folder: Kept(spark))

    def run(when, word="story", state="state"):
        sink = {"type": "Property", "bus": "b", "home": str(tmp_path / "h"), "guaranteed": True}
        use = JobUse(
            source="s",
            sink="s",
            job="keywords",
            when=when,
            options={"categories": {"c": [word]}},
        )
        plan = Plan(
            name="p",
            state=str(tmp_path / state),
            sources={"s": {"journal": str(tmp_path / "journal"), "maxEventsPerTrigger": 10_000}},
            sinks={"s": sink},
            jobs={"found": use},
        )
        return Pipeline(plan, pause_s=0.1).run()

    return run


def told(numbers):
    return [event(n, Story(headline=f"story {n}")) for n in numbers]


def published(tmp_path):
    """The records of the bus's ledgers, of which none is there twice."""
    found = []
    for path in tmp_path.rglob("ledgers/*.db"):
        with sqlite3.connect(path) as connection:
            found += connection.execute("SELECT record FROM records").fetchall()
    assert len(found) == len(set(found))
    return len(found)


def publisher(tmp_path):
    """The process that publishes for a sink of the bus: it holds the ledger's lock."""
    locks = {str(path) for path in tmp_path.rglob("sinks/*.lock")}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            held = {os.readlink(one) for one in (folder / "fd").iterdir()}
        except OSError:
            continue  # it has ended, or is somebody else's
        if held & locks:
            return int(folder.name)
    return None


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_a_job_whose_publishing_process_is_killed_publishes_all_once(annotate, tmp_path):
    write(tmp_path / "journal", told(range(3_000)))
    killed = []

    def kill():
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s and not killed:
            for path in tmp_path.rglob("sinks/*.json"):
                if json.loads(path.read_bytes())["next"] and (pid := publisher(tmp_path)):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.001)

    killer = threading.Thread(target=kill)
    killer.start()
    assert annotate("now")
    killer.join()
    [job] = read_status(tmp_path / "state").jobs
    assert killed
    assert (job.restarts, published(tmp_path)) == (1, 3_000)
    assert [one for one in (tmp_path / "h" / "staging").rglob("*") if one.is_file()] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_another_pipeline_of_the_same_name_publishes_its_own(annotate, tmp_path):
    write(tmp_path / "journal", told(range(20)))
    assert annotate("now")
    assert annotate("now")
    assert published(tmp_path) == 20
    assert annotate("now", state="other")
    assert published(tmp_path) == 40
    shutil.rmtree(tmp_path / "state")
    assert annotate("now")
    assert published(tmp_path) == 60


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_a_job_at_the_end_publishes_once_for_what_it_covers(annotate, tmp_path):
    journal = tmp_path / "journal"
    write(journal, told(range(20)))
    assert annotate("end")
    assert annotate("end")
    assert published(tmp_path) == 20
    write(journal, told(range(20, 25)))
    assert annotate("end")
    assert published(tmp_path) == 45
    assert annotate("end", "19")
    assert published(tmp_path) == 46


@contextmanager
def programs_of_spark(*commands):
    """Programs that PySpark brings, while they are needed."""
    import pyspark

    folder = Path(pyspark.__path__[0]) / "bin"
    processes = [
        subprocess.Popen(
            [str(folder / program), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for program, *arguments in commands
    ]
    try:
        yield
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def cluster(port, folder):
    """A master and a worker on this machine."""
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    worker = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    return programs_of_spark(
        ["spark-class", f"{deploy}.master.Master", *host, "--port", str(port)],
        ["spark-class", f"{deploy}.worker.Worker", *host, *worker, f"spark://127.0.0.1:{port}"],
    )


def connect_server(port):
    """A server of Spark Connect on this machine."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    given = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    return programs_of_spark(["spark-submit", "--master", "local[1]", *given, "--class", server])


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_workers_of_a_cluster_are_sent_the_package_and_do_the_work(tmp_path):
    journal = write(tmp_path / "journal", stories(range(30)))
    port = free_port()
    with cluster(port, tmp_path):
        done = subprocess.run(
            [sys.executable, str(CLUSTER_PROGRAM), f"spark://127.0.0.1:{port}", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    [where] = {Path(line) for line in done.stdout.splitlines()}
    assert where.parts[-3].endswith(".zip")  # not the one that is installed here
    found = ds.dataset(tmp_path / "tables" / "journals_story").to_table()["n"].to_pylist()
    assert sorted(found) == list(range(journal.next_offset))


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_java
def test_a_server_of_spark_connect_does_the_work(shell, tmp_path):
    write(tmp_path / "journal", stories(range(30)))
    (tmp_path / "all.toml").write_text(f"""
        [sources.all]
        journal = "journal"
        [jobs.decompose]
        source = "all"
        when = "now"
        options.db = "sqlite:///{tmp_path}/all.db"
    """)
    port = free_port()
    with connect_server(port):
        url = f"sc://127.0.0.1:{port}"
        running = shell.start("pipeline", "run", "all.toml", "--master", url)
        _, err = running.communicate(timeout=500)
    assert running.returncode == 0, err
    assert err.splitlines()[-1] == "ended; decompose: 30 events, 0 behind"
    with Repository(f"sqlite:///{tmp_path}/all.db") as repository:
        assert sorted(one.n for one in repository.query("journals.Story")) == list(range(30))
