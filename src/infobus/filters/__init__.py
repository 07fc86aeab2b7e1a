"""The subscription language: filters over the attributes of events."""
