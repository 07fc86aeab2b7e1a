"""Storing objects in a database, beside SQLAlchemy."""
