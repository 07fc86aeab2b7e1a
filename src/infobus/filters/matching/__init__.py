"""The matcher: finds those of many filters that match an event."""
