"""Triples from passages: by a language model, in batches, or by rule; and an account of every passage."""
