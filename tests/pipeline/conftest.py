"""The one small Spark that all tests share, and folders in memory."""

from tests.spark.conftest import quick_java, spark
from tests.stores.conftest import new_folder

__all__ = ["new_folder", "quick_java", "spark"]
