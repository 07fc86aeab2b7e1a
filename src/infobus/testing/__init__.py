"""For users' own tests: simulated nodes and networks, and conformance suites."""
