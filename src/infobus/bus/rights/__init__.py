"""What a node may do on a secured bus, what it accepts of others, and what it tells of that."""
