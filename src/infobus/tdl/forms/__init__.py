"""The special forms of TDL: what is not evaluated like a call."""
