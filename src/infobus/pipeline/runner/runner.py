"""Runs a pipeline: its journals, its Spark session and its jobs, until it is stopped.

Every job has its position in a checkpoint, and every sink knows what it has published, so you can
kill a pipeline at any moment and start it again. A job that fails is started again from its
checkpoint while the others continue.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from infobus.errors import BusError, StoreCorrupt, UsageError
from infobus.pipeline import jobs
from infobus.pipeline.jobs.session import while_java_runs
from infobus.pipeline.runner.checkpoints import check_checkpoint
from infobus.pipeline.runner.cluster import LOG, open_session
from infobus.pipeline.runner.plan import JobUse, Plan, texts
from infobus.pipeline.runner.progress import LOCK, STOP, JobProgress, Status, write_status
from infobus.pipeline.runner.spark_errors import class_of, what_happened
from infobus.pipeline.source import live
from infobus.pipeline.source.options import SourceOptions
from infobus.pipeline.source.positions import behind_s
from infobus.stores.journal.journal import Journal
from infobus.stores.private import make_private_folder
from infobus.stores.sqlite.locks import FileLock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.5
DRAIN_S = 120.0
"""A pipeline that is to end waits so long for a job that makes no progress."""
FAILURES_MAX = 8
"""A job that fails so often without a batch in between is not started again."""
PAUSE_S, PAUSE_S_MAX = 1.0, 30.0
"""How long a job rests after it has failed; twice as long each time."""
EVENTS_MAX = 50_000
"""How many events a batch takes, unless the source says otherwise: a batch fits into memory."""

_OF_JOURNAL = ("path", "live", "keepdays", "keepmb")
"""Options of a source that say how its journal is written."""

OnStatus = Callable[[Status], object]


class Pipeline:
    """One run of a pipeline. `run` does all of it; `stop` may be called from anywhere.

    Args:
        plan: What to run.
        look_s: How often to look at the jobs.
        pause_s: How long a job rests after it has failed; twice as long each time.
    """

    def __init__(self, plan: Plan, *, look_s: float = LOOK_S, pause_s: float = PAUSE_S) -> None:
        self.plan = plan
        self._look_s = look_s
        self.folder = plan.state_folder
        self._is_stopping = threading.Event()
        self._uses = {name: _Use(name, use, plan, pause_s) for name, use in plan.jobs.items()}
        self._began_at = time.time()
        self._phase = "starting"
        self._on_status: OnStatus = lambda status: None

    def stop(self) -> None:
        """Let `run` end, after the jobs have read the events that have arrived."""
        self._is_stopping.set()

    def run(self, on_status: OnStatus | None = None) -> bool:
        """Run until `stop` is called, or all jobs are done; return whether none has failed.

        Raises:
            UsageError: It runs already, or cannot be run as it is written.
            StoreError: A journal cannot be written.
            DeliveryError: Java has ended before the pipeline did.
        """
        self._on_status = on_status or self._on_status
        make_private_folder(self.folder)
        with FileLock(self.folder / LOCK) as lock:
            if not lock.acquire(patience_s=0.2):  # an inspecting process holds it for a moment
                raise UsageError(
                    f"the pipeline {self.plan.name} runs already (its state is in {self.folder}): "
                    "infobus pipeline stop FILE ends it"
                )
            (self.folder / STOP).unlink(missing_ok=True)
            try:
                with while_java_runs(self.folder / LOG):
                    self._run()
            except BaseException as error:
                self._tell(f"failed: {error}" if isinstance(error, BusError) else "interrupted")
                raise
            finally:
                for use in self._uses.values():
                    live.release(use.source)
        return all(use.progress.state != "failed" for use in self._uses.values())

    def _run(self) -> None:
        self._tell("opening journals")
        for use in self._uses.values():
            if use.source.live:
                live.ensure(use.source)
        self._tell("starting Spark")
        spark = open_session(self.plan, self.folder)
        try:
            for use in self._uses.values():
                if use.use.when != "end":
                    use.start(spark)
            self._watch(spark)
            self._finish(spark)
            for use in self._uses.values():
                if use.use.when == "end":
                    self._tell(f"running {use.name}")
                    use.run_once(spark)
            self._tell("ended")
        finally:
            spark.stop()

    def _watch(self, spark: SparkSession) -> None:
        while any(use.progress.state == "running" for use in self._uses.values()):
            if self._is_stopping.is_set() or (self.folder / STOP).exists():
                return
            for use in self._uses.values():
                use.look(spark)
            self._tell("live" if any(use.use.when == "live" for use in self._live()) else "at work")
            self._is_stopping.wait(self._look_s)

    def _finish(self, spark: SparkSession) -> None:
        """Let the jobs read the events that have arrived, and stop them between two batches.

        The journals may record events that the jobs publish meanwhile, so they are closed after
        that.
        """
        now = {use.name: use.journal_end for use in self._live()}
        self._drain(spark, lambda use: use.progress.offset >= now[use.name])
        for use in self._uses.values():
            live.release(use.source)
        self._drain(spark, lambda use: use.progress.offset >= use.journal_end)
        for use in self._live():
            use.stop()

    def _drain(self, spark: SparkSession, is_there: Callable[[_Use], bool]) -> None:
        read, moved_s = -1, time.monotonic()
        while time.monotonic() < moved_s + DRAIN_S:
            for use in self._live():
                use.look(spark)
            self._tell("ending")
            if all(map(is_there, self._live())):
                return
            if (now := sum(use.progress.offset for use in self._live())) > read:
                read, moved_s = now, time.monotonic()
            time.sleep(self._look_s / 5)

    def _live(self) -> list[_Use]:
        return [use for use in self._uses.values() if use.progress.state == "running"]

    def _tell(self, phase: str) -> None:
        self._phase = phase
        status = Status(
            name=self.plan.name,
            master=self.plan.master,
            pid=os.getpid(),
            began_at=self._began_at,
            at=time.time(),
            phase=phase,
            jobs=[use.progress for use in self._uses.values()],
        )
        write_status(self.folder, status)
        self._on_status(status)


class _Use:
    """One use of a job, while the pipeline runs."""

    def __init__(self, name: str, use: JobUse, plan: Plan, pause_s: float) -> None:
        self.name, self.use = name, use
        self._pause_s = pause_s
        self.job = use.job or name
        self.progress = JobProgress(name=name)
        given = texts(plan.sources[use.source])
        self.source = SourceOptions.of(given, is_stream=True)
        # The pipeline starts the journal's process itself; queries only read.
        read = {key: value for key, value in given.items() if key.lower() not in _OF_JOURNAL}
        self._read = read | {"journal": str(self.source.journal), "live": "false"}
        if not {"maxeventspertrigger", "maxbytespertrigger"} & {key.lower() for key in read}:
            self._stream = {"maxEventsPerTrigger": str(EVENTS_MAX)}
        else:
            self._stream = {}
        self._asked = [given, use.options]
        self._sink = None if use.sink is None else texts(plan.sinks[use.sink])
        self._query_name = f"{plan.name}.{name}"
        self._checkpoint = str(plan.state_folder / "checkpoints" / name)
        self._query: StreamingQuery | None = None
        self._batch = -1
        self._failures, self._start_at_s = 0, 0.0
        table = dict(use.options)
        if "journal" in jobs.find(self.job).Options.__struct_fields__:
            table.setdefault("journal", str(self.source.journal))
        self.options = jobs.options_for(self.job, table)
        asked = jobs.attributes_for(self.job, self.options)
        if asked is not None and self.source.type is None and self.source.columns is None:
            self._read.setdefault("attributes", ",".join(sorted(asked)))

    def start(self, spark: SparkSession) -> None:
        """Start the job from its checkpoint; if that fails now, it is tried again.

        Raises:
            UsageError: It can never start.
        """
        self.progress.state = "running"
        is_live = self.use.when == "live"
        trigger = {"processingTime": self.use.every} if is_live else {"availableNow": True}
        stream = spark.readStream.format("infobus").options(**self._read, **self._stream)
        try:
            check_checkpoint(Path(self._checkpoint))
            self._query = self._begin(stream.load(), trigger)
        except UsageError:
            raise
        except Exception as error:  # such as a Spark process that started too slowly
            self._note_failure(error)

    def run_once(self, spark: SparkSession) -> None:
        """Run the job over the whole journal, in one batch."""
        self.progress.state = "running"
        try:
            covered = (
                self._covered()
            )  # before it is read: events that arrive meanwhile belong to the next run
            # Where a query begins is no matter of a job that reads everything.
            read = {k: v for k, v in self._read.items() if not k.lower().startswith("starting")}
            events = spark.read.format("infobus").options(**read).load()
            self._begin(events, None, covered)
        except Exception as error:  # of Spark, of a database, of anything that the job works with
            self.progress.state, self.progress.problem = "failed", what_happened(error)
        else:
            self.progress.state = "done"

    def _covered(self) -> dict[str, str]:
        """Return options that tell the sink which run over the journal this is."""
        journal = Journal.open(self.source.journal)
        asked = zlib.crc32(msgspec.json.encode(self._asked, order="sorted"))
        # Both only ever grow, so equal sums mean equal values of both.
        batch = journal.first_offset + journal.next_offset
        return {"covers": f"{journal.id}.{asked:08x}", "batch": str(batch)}

    def _begin(
        self,
        events: DataFrame,
        trigger: Mapping[str, Any] | None,
        covered: Mapping[str, str] | None = None,
    ) -> StreamingQuery | None:
        return jobs.run(
            self.job,
            events,
            self.options,
            query=self._query_name,
            sink=None if self._sink is None else {**(covered or {}), **self._sink},
            checkpoint=self._checkpoint,
            trigger=trigger,
        )

    def look(self, spark: SparkSession) -> None:
        """Check the progress of the job; start it again if it has failed."""
        if self.progress.state != "running":
            return
        if self._query is None:
            if time.monotonic() >= self._start_at_s:
                self.progress.restarts += 1
                self.start(spark)
            return
        is_active = self._query.isActive
        self._note_progress(self._query)
        if is_active:
            return
        error = self._query.exception()
        if error is None:
            self.progress.state = "done"
            return
        self._query = None
        self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        """Schedule a restart of the job after a pause, unless it has failed too often."""
        self._failures += 1
        self.progress.problem = what_happened(error)
        if self._failures == FAILURES_MAX or _is_for_good(self.progress.problem):
            self.progress.state = "failed"
        else:
            self._start_at_s = time.monotonic() + min(
                self._pause_s * 2 ** (self._failures - 1), PAUSE_S_MAX
            )

    def _note_progress(self, query: StreamingQuery) -> None:
        progress = self.progress
        for one in query.recentProgress:
            source = one["sources"][0]
            begin, end = _offset_in(source["startOffset"]), _offset_in(source["endOffset"])
            progress.offset = max(progress.offset, end)
            if one["batchId"] > self._batch and end > begin:
                self._batch, self._failures, progress.problem = one["batchId"], 0, ""
                # Spark does not always count the rows that a job caches.
                count = one["numInputRows"] or end - begin
                progress.batches += 1
                progress.events += count
                progress.batch_s = one["durationMs"].get("triggerExecution", 0) / 1e3
                progress.events_per_s = count / max(progress.batch_s, 1e-3)
        journal = Journal.open(self.source.journal)
        progress.end = journal.next_offset
        progress.behind_s = behind_s(journal, progress.offset, time.time())

    @property
    def journal_end(self) -> int:
        """Return the offset that the next event in the journal will get."""
        return Journal.open(self.source.journal).next_offset

    def stop(self) -> None:
        """Stop the job, between two batches if possible."""
        if self._query is not None:
            deadline_s = time.monotonic() + DRAIN_S
            while self._query.status["isTriggerActive"] and time.monotonic() < deadline_s:
                time.sleep(LOOK_S / 10)
            self._query.stop()
        self.progress.state = "failed" if self.progress.problem else "stopped"


def _offset_in(place: str | None) -> int:
    """Return the offset of a position in the stream; 0 if there is none yet."""
    return int((json.loads(place or "null") or {}).get("offset", 0))


def _is_for_good(problem: str) -> bool:
    """Return whether a retry would change nothing."""
    found = class_of(problem)
    return found is not None and issubclass(found, (UsageError, StoreCorrupt))


def request_stop(folder: Path) -> None:
    """Ask the process that runs the pipeline to stop."""
    (folder / STOP).touch()
