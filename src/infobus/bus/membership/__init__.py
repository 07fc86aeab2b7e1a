"""Membership at work: the role of a daemon, and what programs are told."""
