"""Reliable delivery: numbered routes out, numbered streams in, and the node that joins them."""
