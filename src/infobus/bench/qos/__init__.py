"""Emergencies beside a flood of regular events."""
