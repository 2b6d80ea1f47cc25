"""Graph expansion, from passages to further ones, by linking, beam search and PageRank; `GraphRetriever`'s pool."""
