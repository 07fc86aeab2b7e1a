"""The engine that carries frames between processes, on Eclipse Zenoh."""
