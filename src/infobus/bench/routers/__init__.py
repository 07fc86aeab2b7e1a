"""A backbone of many sites, simulated: what routers tell each other, and how soon all know."""
