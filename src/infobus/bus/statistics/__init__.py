"""What a node tells of itself, as events of the bus's own, while somebody wants that."""
