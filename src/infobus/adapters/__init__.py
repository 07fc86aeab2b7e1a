"""Adapters: one module per outside world that the bus is connected with."""
