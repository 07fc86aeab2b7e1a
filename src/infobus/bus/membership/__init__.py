"""Membership in a running node: the role of a daemon, and the views that programs follow."""
