"""What drives the protocols: the lock, the threads, and the way to the engine."""
