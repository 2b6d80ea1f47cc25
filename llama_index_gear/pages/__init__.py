"""Pages that need no network: their frame and style, and the page of a store's graph."""
