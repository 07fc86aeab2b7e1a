"""The journal: events in columns, with their types, in files that anyone can read."""
