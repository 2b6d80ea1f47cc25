"""Every error that this package raises on its own account.

    GeARError
    ├── TripleError             (ValueError)           a triple with an empty slot
    ├── ArgumentError           (ValueError)           an argument outside its range
    ├── GraphFileError                                 a file of a graph that breaks off
    ├── ReplyError                                     an LLM's reply that holds nothing readable
    ├── OutOfTime           (TimeoutError)             an LLM did not reply within the time that it was given
    ├── BatchError                                     a batch's answers that contradict what was sent
    ├── ExtractionError                                passages failed and `raise_on_error` was asked for
    └── StoreError
        ├── EmbeddingError      (ValueError)           a node without embedding, or of another dimension
        ├── TenantError                                    a call that names no tenant, or touches another's passages
        ├── StoreLockedError                           another process has the embedded store open
        ├── UnsupportedFilter   (NotImplementedError)  a filter that the engine cannot honour
        └── UnsupportedCall     (NotImplementedError)  a call that the embedded engine cannot answer

Catch `GeARError` for all of them. Errors of LlamaIndex, Qdrant or an LLM's client pass through unchanged.
"""

from numbers import Integral
from typing import Any


class GeARError(Exception):
    """The root of all errors that this package raises."""


class TripleError(GeARError, ValueError):
    """A triple with an empty subject, predicate or object."""


class ArgumentError(GeARError, ValueError):
    """An argument outside its range, said before any work is done."""


class GraphFileError(GeARError):
    """A file that holds a graph breaks off, or cannot be decompressed any further; what was read before is kept."""


class ReplyError(GeARError):
    """A reply of a language model in which no list of facts could be read; "no facts" is not such an error."""


class OutOfTime(GeARError, TimeoutError):
    """A language model did not reply within the time that it was given; its client's own time-outs stay its own."""


class BatchError(GeARError):
    """A batch was answered with something else than what it asked."""


class ExtractionError(GeARError):
    """Some passages could not be extracted and the extractor was told to raise (`raise_on_error=True`)."""


class StoreError(GeARError):
    """The vector store cannot do what was asked."""


class EmbeddingError(StoreError, ValueError):
    """A node has no embedding, or one of another dimension than the collection's."""


class TenantError(StoreError):
    """A store that is divided between tenants was asked without one, or for another one's passages."""


class StoreLockedError(StoreError):
    """Another process has the embedded store open."""


class UnsupportedFilter(StoreError, NotImplementedError):
    """A metadata filter that the engine cannot honour; it is refused rather than ignored."""


class UnsupportedCall(StoreError, NotImplementedError):
    """A `QdrantClient` call, or an option of one, that the embedded engine has no answer for."""


def check_counts(**counts: Any) -> None:
    """Refuse numbers that must be whole and 1 or more.

    Raises:
        ArgumentError: one isn't; it is named.

    """
    for name, value in counts.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ArgumentError(f"{name} must be a whole number, 1 or more; got {value!r}")
