"""Guaranteed delivery: the server of ledgers, and the durable consumer."""
