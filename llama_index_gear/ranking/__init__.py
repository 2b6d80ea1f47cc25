"""Ranking: the passages of a pool, looked at together."""
