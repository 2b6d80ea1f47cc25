"""Graph expansion: from base passages through the graph to further ones, by linking, beam search and PageRank."""
