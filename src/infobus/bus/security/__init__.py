"""A node on a secured bus: whom it acts for."""
