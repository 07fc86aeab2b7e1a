"""Stores that outlive a publisher or a consumer: ledgers, positions and replies."""
