"""Java for tests: most of what they cost is its start, so it compiles quickly instead of well.

Programs that tests start inherit it through the environment.
"""

import os
import shutil
import sys

import pytest

from infobus.pipeline.jobs.session import python_for

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

ENVIRONMENT = {
    # As in a pipeline: Spark gives its Python processes ten seconds to start, not one more.
    "PYSPARK_PYTHON": python_for("local[1]"),
    "INFOBUS_SPARK_PYTHON": sys.executable,
    "PYSPARK_SUBMIT_ARGS": (
        f"--driver-java-options '{OPTIONS}' "
        f"--conf 'spark.executor.extraJavaOptions={OPTIONS}' pyspark-shell"
    ),
    "SPARK_DAEMON_JAVA_OPTS": OPTIONS,
    "SPARK_DAEMON_MEMORY": "512m",
    "SPARK_LAUNCHER_OPTS": OPTIONS,
    # Spark asks for the name of this host otherwise, which may be nobody's address.
    "SPARK_LOCAL_IP": "127.0.0.1",
}

needs_java = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ,
    reason="Spark needs a Java runtime (on Debian: openjdk-17-jre-headless)",
)


@pytest.fixture(scope="session")
def quick_java():
    """What has Java in it and is started from now on starts quickly."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield
