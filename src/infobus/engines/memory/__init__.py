"""The engine within one process: a live network, or a simulated one with seeded faults."""
