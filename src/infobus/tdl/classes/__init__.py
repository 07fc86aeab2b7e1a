"""The classes of a program: making them, changing them, and what their slots need."""
