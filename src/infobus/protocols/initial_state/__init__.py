"""Initial state for newcomers, as a protocol."""
