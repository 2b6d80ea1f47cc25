"""Every error that this package raises on its own account.

    GeARError
    ├── TripleError             (ValueError)           a triple with an empty slot
    ├── ArgumentError           (ValueError)           an argument outside its range
    ├── ReplyError                                     an LLM's reply that holds nothing readable
    ├── ExtractionError                                passages failed and `raise_on_error` was asked for
    └── StoreError
        ├── EmbeddingError      (ValueError)           a node without embedding, or of another dimension
        ├── StoreLockedError                           another process has the embedded store open
        ├── UnsupportedFilter   (NotImplementedError)  a filter that the engine cannot honour
        └── UnsupportedCall     (NotImplementedError)  a call that the embedded engine cannot answer

Catch `GeARError` for all of them. Errors of LlamaIndex, Qdrant or an LLM's client pass through unchanged.
"""


class GeARError(Exception):
    """The root of all errors that this package raises."""


class TripleError(GeARError, ValueError):
    """A triple with an empty subject, predicate or object."""


class ArgumentError(GeARError, ValueError):
    """An argument outside its range, said before any work is done."""


class ReplyError(GeARError):
    """A reply of a language model in which no list of facts could be read; "no facts" is not such an error."""


class ExtractionError(GeARError):
    """Some passages could not be extracted and the extractor was told to raise (`raise_on_error=True`)."""


class StoreError(GeARError):
    """The vector store cannot do what was asked."""


class EmbeddingError(StoreError, ValueError):
    """A node has no embedding, or one of another dimension than the collection's."""


class StoreLockedError(StoreError):
    """Another process has the embedded store open."""


class UnsupportedFilter(StoreError, NotImplementedError):
    """A metadata filter that the engine cannot honour; it is refused rather than ignored."""


class UnsupportedCall(StoreError, NotImplementedError):
    """A `QdrantClient` call, or an option of one, that the embedded engine has no answer for."""
