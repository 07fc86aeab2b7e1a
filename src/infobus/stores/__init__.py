"""Stores that survive a crash: ledgers, positions of consumers, replies, and journals."""
