"""What travels between nodes: frames, the events in them, lanes, and transactions."""
