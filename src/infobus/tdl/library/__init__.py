"""The functions that every TDL program can call."""
