"""Nodes of a secured bus shake hands, and then seal each frame for exactly its receivers."""
