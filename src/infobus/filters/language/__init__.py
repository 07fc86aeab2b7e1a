"""The subscription language: turns text into a checked tree, and the tree into a function."""
