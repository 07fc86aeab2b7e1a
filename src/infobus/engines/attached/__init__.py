"""Carries a node's frames by a daemon where there is one, and by itself where there is none.

`ways` decides which way next, without clocks and sockets; `engine` does it: it remembers what the
node has declared and moves it from one engine to the next; `daemons` knows which ways there are.
"""
