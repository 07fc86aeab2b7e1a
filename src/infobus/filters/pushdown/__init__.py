"""Translates filters into conditions for a database or for Spark, as far as these agree."""
