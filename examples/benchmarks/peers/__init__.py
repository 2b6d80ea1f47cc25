"""Peers by their own code, each in an environment of its own: they rank, and know no gold."""
