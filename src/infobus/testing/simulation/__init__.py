"""Whole runs of the protocols over networks and disks that fail, each drawn from one seed."""
