"""Publish and subscribe, beside raw zenoh-python, nats-py with nats-server, and pyzmq."""
