"""Tags in a running node: a program's copy of the tags, and the role of a node with the table."""
