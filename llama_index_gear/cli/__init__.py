"""The command line: a folder of files into a store, questions to it, and what the graph is worth on them."""
