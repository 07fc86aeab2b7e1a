"""The algebra of filters: whether one covers another, and what many ask for together."""
