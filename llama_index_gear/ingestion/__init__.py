"""Files of a folder as documents, a Qdrant collection that exists, a property graph: made by others."""
