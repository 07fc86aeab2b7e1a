"""Carries the frames of a node through a daemon if there is one, and directly if there is none.

`ways` decides which way to take next, without clocks and sockets. `engine` takes it: it remembers
what the node has declared, and moves it from one engine to the next. `daemons` knows the ways.
"""
