"""Running a pipeline: its plan, its session of Spark, and its progress."""
