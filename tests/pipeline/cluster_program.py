"""Runs the job decompose on a cluster, and prints from where its workers have the package.

Arguments: the URL of the master, and the folder with the journal.
"""

import sys
from pathlib import Path

from infobus.pipeline import jobs
from infobus.pipeline.runner.cluster import open_session
from infobus.pipeline.runner.plan import Plan


def where(batches):
    import infobus

    for batch in batches:
        yield batch.from_pydict({"file": [infobus.__file__] * batch.num_rows})


def main(master, folder):
    state = folder / "state"
    state.mkdir()
    memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = open_session(Plan(name="c", master=master, spark=memory, sources={}, jobs={}), state)
    for row in spark.range(2).mapInArrow(where, "file string").collect():
        print(row["file"])
    journal = str(folder / "journal")
    options = jobs.options_for("decompose", {"journal": journal, "tables": str(folder / "tables")})
    jobs.run(
        "decompose",
        spark.read.format("infobus").option("journal", journal).load(),
        options,
        query="c",
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
