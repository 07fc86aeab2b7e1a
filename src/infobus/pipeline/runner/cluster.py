"""Opens the Spark session of a pipeline: on this machine, on a cluster, or by Spark Connect.

Workers elsewhere need this package. They get it as a zip file, as by `spark-submit --py-files`. Its
dependencies have compiled parts and must be in the workers' Python already, or arrive in a packed
environment (`spark.archives`). See docs/pipeline.md.
"""

from __future__ import annotations

import signal
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import infobus
from infobus.pipeline.jobs.session import UNIX_SOCKETS, session
from infobus.pipeline.runner.plan import Plan, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "spark.log"
"""In the state folder: what Spark and its workers complain about."""


def open_session(plan: Plan, folder: Path) -> SparkSession:
    """Open the session that a plan asks for, in which the workers have this package.

    Raises:
        UsageError: Spark or Java is not installed.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    with (folder / LOG).open("a+b") as log:
        # Java remembers the path of each Unix socket until it ends, and pipelines run for
        # weeks.
        settings = {UNIX_SOCKETS: "false"} | texts(plan.spark)
        spark = session(plan.name, master=plan.master, settings=settings, complaints=log)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handling of Ctrl-C cancels batches halfway.
        signal.signal(signal.SIGINT, on_interrupt)
    if plan.ship and not plan.master.startswith("local"):
        packed = str(pack(folder))
        if plan.master.startswith("sc://"):
            spark.addArtifacts(packed, pyfile=True)
        else:
            spark.sparkContext.addPyFile(packed)
    return spark


def pack(folder: Path) -> Path:
    """Write this package as a zip file to `folder`, for `--py-files`."""
    package = Path(infobus.__file__).parent
    path = folder / f"infobus-{infobus.__version__}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(package.parent))
    return path
