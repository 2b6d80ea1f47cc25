"""Traces: the evidence of a question as data, as text in a terminal, and as a page."""
