"""Runs of routers beside that of `infobus.testing.simulation.routing`."""
