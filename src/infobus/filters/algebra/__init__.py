"""Comparing and joining filters: what covers what, and what a set asks for together."""
