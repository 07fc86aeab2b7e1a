"""The trading floor of paper 000, section 5, in a terminal."""
