"""The job `decompose`: objects out of a journal, into tables."""
