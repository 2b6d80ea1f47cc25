"""Graphs for what others made: for a Qdrant collection that exists, and from a property graph."""
