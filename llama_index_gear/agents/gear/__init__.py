"""GeAR's agent, over extracted triples or over an existing graph."""
