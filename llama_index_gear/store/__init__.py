"""Where passages and triples live: two Qdrant collections that change together."""
