"""The accounts that must come out even: what was promised against what happened."""
