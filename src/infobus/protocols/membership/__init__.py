"""Strong membership: who is there, as one agreed sequence of decisions."""
