"""How fast the bus is: the same work done by infobus and by its peers, in one run.

Absolute numbers mean nothing on a shared machine, so every figure here is a ratio to raw
zenoh-python, nats-py with nats-server, and pyzmq, taken in the same run, interleaved and
repeated. `plan` says what is measured, `harness` measures one thing, `peers` holds one small
adapter per engine, `bars` judges, `report` and `plots` show.
"""
