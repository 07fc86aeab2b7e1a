"""The built-in functions that every TDL program can call."""
