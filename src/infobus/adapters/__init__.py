"""Adapters: one module for each outside world that connects to the bus."""
