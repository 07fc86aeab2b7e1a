"""How fast infobus is, measured on your machine beside other ways to do the same work.

Absolute numbers mean nothing on a shared machine. So every figure is a ratio to a peer, taken in
the same run, interleaved and repeated. `common` is the scaffold; each other folder is a benchmark
with its loads, measurements, bars and figures.
"""
