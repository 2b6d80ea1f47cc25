"""Passages and triples in two Qdrant collections that change together."""
