"""A driver that turns live readings into alerts, with executors on other hosts.

Arguments: the URL of the master, the address of this host, and a folder that all hosts see. It
prints where its executors run, then a line for each batch, and ends with its standard input.
"""

import sys
from pathlib import Path

from infobus.pipeline.jobs.session import session


def where(batches):
    import os

    for batch in batches:
        yield batch.from_pydict({"host": [os.uname().nodename] * batch.num_rows})


def main(master, address, shared):
    spark = session(
        "across hosts",
        master=master,
        settings={
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
        },
    )
    for row in spark.range(2).mapInArrow(where, "host string").distinct().collect():
        print(f"executor on {row['host']}", flush=True)
    live = spark.readStream.format("infobus").option("live", "true")
    readings = live.option("journal", str(shared / "journal")).option("subject", "readings.>")
    hot = readings.option("where", "celsius >= 100").load()
    rows = hot.selectExpr("_attributes['n'].int AS n", "_attributes['celsius'].float AS celsius")
    alerts = rows.writeStream.format("infobus").option("type", "Alert")
    alerts = alerts.option("subject", "alerts.hot")
    alerts = alerts.option("guaranteed", "true").option("staging", str(shared / "staging"))
    query = alerts.option("checkpointLocation", str(shared / "checkpoint")).start()
    print("started", flush=True)
    sys.stdin.read()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
