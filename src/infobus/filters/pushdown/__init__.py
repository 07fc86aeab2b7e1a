"""Handing a filter to a database or to Spark, as far as both mean the same by it."""
