"""One bus as a router sees it: what is wanted there, what comes from there, what goes there."""
