"""The data that travels between nodes: frames, their events, lanes, and transactions."""
