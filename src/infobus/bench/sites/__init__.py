"""What it costs that sites are joined by routers: on the links, in time, and of the processors."""
