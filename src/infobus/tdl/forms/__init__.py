"""The special forms of TDL, which are not evaluated like function calls."""
