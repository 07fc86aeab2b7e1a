"""Guaranteed delivery at work: ledgers, durable subscriptions, and dead letters."""
