"""Tags at work: what a program asks and holds, and a node that has the table."""
