"""A graph that exists already, in place of extraction: its store, and readers of files and of Wikidata."""
