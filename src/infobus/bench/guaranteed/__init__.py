"""Guaranteed events, beside what the disk allows and NATS JetStream."""
