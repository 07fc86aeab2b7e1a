"""The job `decompose`: stores the objects of a journal in tables."""
