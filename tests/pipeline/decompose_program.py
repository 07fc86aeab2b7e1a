"""Runs the job decompose as a pipeline over a journal, and kills itself when it is told.

Arguments: the folder, the moment (before, inside or after the transaction, or never), and the
number of the batch, counted from where it begins.
"""

import os
import signal
import sys
from pathlib import Path

from infobus.pipeline.jobs.decompose import decompose, tables
from infobus.pipeline.runner.plan import JobUse, Plan
from infobus.pipeline.runner.runner import Pipeline
from infobus.repository import Repository

moment, number = "never", 0


class DyingRepository(Repository):
    """Counts what it stores, in the same transaction; dies when it is time."""

    batch = -1

    def store_records(self, records, within=None, *, keep_newer=False):
        DyingRepository.batch += 1
        is_time = DyingRepository.batch == number

        def settle(connection):
            die_if(is_time and moment == "before")
            if not within(connection):
                return False
            connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS stored (events INTEGER)")
            connection.exec_driver_sql(
                "INSERT INTO stored SELECT 0 WHERE NOT EXISTS (SELECT * FROM stored)"
            )
            connection.exec_driver_sql(f"UPDATE stored SET events = events + {len(records)}")
            die_if(is_time and moment == "inside")
            return True

        count = super().store_records(records, settle, keep_newer=keep_newer)
        die_if(is_time and moment == "after")
        return count


def die_if(is_time):
    if is_time:
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder):
    decompose.Repository = DyingRepository
    tables.FILES_MAX = 3  # so that some are merged between the kills
    options = {
        "journal": str(folder / "journal"),
        "db": f"sqlite:///{folder}/objects.db",
        "tables": str(folder / "tables"),
    }
    batch = 10_000 if moment == "never" else 30  # the last one reads the rest in one piece
    plan = Plan(
        name="killed",
        master="local[1]",
        state=str(folder / "state"),
        spark={"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": 1},
        sources={"journal": {"journal": options["journal"], "maxEventsPerTrigger": batch}},
        jobs={"decompose": JobUse(source="journal", when="now", options=options)},
    )
    return Pipeline(plan).run()


if __name__ == "__main__":
    moment, number = sys.argv[2], int(sys.argv[3])
    sys.exit(not main(Path(sys.argv[1])))
