"""Routing: how frames find their way from router to router, by all shortest paths."""
