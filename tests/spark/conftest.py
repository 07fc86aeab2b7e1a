"""One small Spark for all tests of this folder: starting it is most of what they cost."""

import os
import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.java import quick_java

__all__ = ["quick_java", "spark"]


@pytest.fixture(scope="session")
def spark(quick_java: None) -> Iterator[SparkSession]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs a Java runtime (on Debian: openjdk-17-jre-headless)")
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # So that nothing is right only because all clocks show the same.
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
