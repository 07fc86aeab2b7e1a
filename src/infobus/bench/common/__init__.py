"""The scaffold that all benchmarks share.

A benchmark is a function that takes its measurements and returns `Findings`: tables, values, bars
and drawings. The scaffold does the rest. It shows progress, prints the tables, judges the bars,
writes the JSON file, and draws the plots.
"""
