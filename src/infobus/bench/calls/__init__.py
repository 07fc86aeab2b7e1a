"""Calls of a service, beside Zenoh queries, NATS requests and gRPC."""
