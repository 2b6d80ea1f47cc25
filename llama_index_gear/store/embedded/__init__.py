"""The embedded engine, Qdrant Edge, behind the methods of a Qdrant client."""
