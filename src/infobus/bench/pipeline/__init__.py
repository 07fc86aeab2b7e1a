"""Spark with the bus's source, beside Spark alone."""
