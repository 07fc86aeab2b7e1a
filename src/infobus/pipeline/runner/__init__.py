"""Runs a pipeline: its plan, its Spark session, and its progress."""
