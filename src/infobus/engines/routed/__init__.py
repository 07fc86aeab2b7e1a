"""The engine of routers: from neighbour to neighbour, by all shortest paths."""
