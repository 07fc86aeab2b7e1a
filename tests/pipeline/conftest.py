"""The one small Spark that all tests share, folders in memory, and nodes with patience."""

from tests.cli.conftest import patient
from tests.spark.conftest import quick_java, spark
from tests.stores.conftest import new_folder

__all__ = ["new_folder", "patient", "quick_java", "spark"]
