"""What survives a publisher or a consumer: ledgers, positions, and kept replies."""
