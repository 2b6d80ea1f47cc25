"""The evidence of a question: what was searched, found and concluded, as data, as text and as a page."""
