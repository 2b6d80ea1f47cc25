"""GeAR's agent, over extracted triples or over a graph that exists already."""
