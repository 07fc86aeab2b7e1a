"""Members that agree on who is there: what they cost, and how soon all know of a failure."""
