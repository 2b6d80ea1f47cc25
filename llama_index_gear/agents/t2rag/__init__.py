"""T²RAG: a question as triples with unknowns, which retrieval fills in."""
