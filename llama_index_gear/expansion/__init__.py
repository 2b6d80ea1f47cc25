"""From base passages through the graph to further ones: reading, linking, beam search, PageRank, fusion."""
