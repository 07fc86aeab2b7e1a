"""What programs on several hosts cost: on the wire, in time, and of the processors."""
