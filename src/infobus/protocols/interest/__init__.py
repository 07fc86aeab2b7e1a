"""The interest table: this node's own rows, the rows of its peers, and what they ask for."""
