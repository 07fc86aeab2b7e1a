"""Whole runs of secured buses."""
