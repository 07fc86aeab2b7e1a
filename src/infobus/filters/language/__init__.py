"""The language itself: from text to a checked tree, and from the tree to a function."""
