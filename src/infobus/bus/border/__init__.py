"""One bus as a router sees it: its interest, and the events from it and to it."""
