"""The matching engine: which of many filters match an event."""
