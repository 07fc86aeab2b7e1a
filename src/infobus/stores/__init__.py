"""What survives a crash: the publisher's ledgers, and how far durable consumers have come."""
