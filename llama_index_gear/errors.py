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

import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from numbers import Integral, Number, Rational, Real
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


MAX_COUNT = 1_000_000
"""The highest top-k and the like: engines set aside memory for what they are asked for."""
MAX_QUESTION = 100_000
"""Characters of a question: beyond, it is a document that somebody pasted."""
_MAX_FLOAT = float(2**127)  # vectors are stored in 32 bits


def check_counts(*, least: int = 1, most: int = MAX_COUNT, **counts: Any) -> None:
    """Refuse what is no whole number, or is too small or too large.

    Args:
        least: the smallest that is allowed. Default 1.
        most: the largest. Default 1,000,000.
        **counts: the numbers, by the names of the arguments.

    Raises:
        ArgumentError: one is no `int`, or is outside; it is named.

    """
    for name, value in counts.items():
        if type(value) is not int or not least <= value <= most:
            raise ArgumentError(
                f"{name} must be a whole number (an int), {least} or more and at most {most:,}; got {shown(value)}"
            )


def check_numbers(allowed: str, is_allowed: Callable[[float], bool], **numbers: Any) -> None:
    """Refuse what is no finite number, or not an allowed one.

    Args:
        allowed: what is allowed, in words: "above 0".
        is_allowed: says whether a number is.
        **numbers: the numbers, by the names of the arguments.

    Raises:
        ArgumentError: one is not; it is named.

    """
    for name, value in numbers.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT
        if not is_number or not is_allowed(value):
            raise ArgumentError(f"{name} must be {allowed}, got {shown(value)}")


def check_kind(kind: type | tuple[type, ...], *, hint: str = "", optional: bool = False, **values: Any) -> None:
    """Refuse an object of another kind than an argument takes.

    Args:
        kind: the class that is taken, or several.
        hint: what to write instead, for the message. Default: nothing.
        optional: None is taken too. Default False.
        **values: the objects, by the names of the arguments.

    Raises:
        ArgumentError: one is of another kind; it is named.

    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in values.items():
        if not isinstance(value, kinds) and not (optional and value is None):
            names = " or ".join([taken.__name__ for taken in kinds] + ["None"] * optional)
            article = "an" if names[0] in "AEIO" or names.startswith("LLM") else "a"
            raise ArgumentError(f"{name} must be {article} {names}, got {shown(value)}{hint and f': {hint}'}")


def check_kinds(kind: type, *, hint: str = "", optional: bool = False, **lists: Any) -> None:
    """Refuse what is no list of such objects: one of them alone, text (which would be taken letter by letter), a dict.

    Args:
        kind: the class of the objects.
        hint: what to write instead, for the message. Default: nothing.
        optional: None is taken too. Default False.
        **lists: the lists, by the names of the arguments; any other collection of known size does.

    Raises:
        ArgumentError: one is no list, or holds something else; it is named.

    """
    for name, values in lists.items():
        if optional and values is None:
            continue
        is_list = isinstance(values, Collection) and not isinstance(values, str | bytes | Mapping)
        wrong = [value for value in values if not isinstance(value, kind)][:1] if is_list else [values]
        if wrong:
            what = f"{shown(wrong[0])} in it" if is_list else shown(values)
            raise ArgumentError(f"{name} must be a list of {kind.__name__}, got {what}{hint and f': {hint}'}")


def check_vector(what: str, vector: Any) -> None:
    """Refuse what is no vector of finite numbers.

    Args:
        what: what it is, for the message: "the query's embedding".
        vector: a list of numbers.

    Raises:
        EmbeddingError: it is something else, is empty, or holds what is no number of 32 bits.

    """
    if not isinstance(vector, list) or not vector:
        raise EmbeddingError(f"{what} must be a list of numbers that is not empty, got {shown(vector)}")
    kinds = set(map(type, vector))
    if wrong := [kind for kind in kinds if not _is_number_kind(kind)]:
        first = next(number for number, value in enumerate(vector) if type(value) in wrong)
        raise EmbeddingError(f"{what} must be a list of numbers, its value {first} is {shown(vector[first])}")
    if not _length(vector) <= _MAX_FLOAT:  # an engine may store it, and never find it again
        raise EmbeddingError(
            f"{what} holds NaN or infinity, or a number beyond 32 bits: the embedding model failed on this text"
        )


def _is_number_kind(kind: type) -> bool:
    """Python's and NumPy's whole numbers and floats; no truth values, no fractions."""
    is_fraction = issubclass(kind, Rational) and not issubclass(kind, Integral)
    return issubclass(kind, Real) and not issubclass(kind, bool) and not is_fraction


def _length(vector: list[Any]) -> float:
    try:
        return math.hypot(*vector)
    except OverflowError:  # a whole number beyond any float
        return math.inf


def is_whole(text: str) -> bool:
    """Whether a text holds no half characters (lone surrogates), which nothing can store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_characters(**texts: str) -> None:
    """Refuse half characters (lone surrogates), which no engine and no model can be asked about.

    Raises:
        ArgumentError: a text holds one; it is named.

    """
    for name, text in texts.items():
        if not is_whole(text):
            raise ArgumentError(
                f"{name} holds a lone surrogate, which is no character: repair the text first, e.g. "
                'text.encode("utf-8", "replace").decode()'
            )


def check_question(question: Any) -> None:
    """Refuse what is too long for a question, before anything reads it.

    Raises:
        ArgumentError: it is no text, has more than 100,000 characters, or half a character.

    """
    if not isinstance(question, str):
        raise ArgumentError(f"a question must be text, got {shown(question)}")
    check_characters(question=question)
    if len(question) > MAX_QUESTION:
        raise ArgumentError(
            f"the question has {len(question):,} characters, at most {MAX_QUESTION:,} are allowed: ask for what you "
            "want to know, and store long texts as passages"
        )


class _Shortened(reprlib.Repr):
    """Python's own, for numbers of any length: of thousands of digits it writes none; of objects it names the class."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= 128 else f"a whole number of {x.bit_length():,} bits"

    def repr_instance(self, x: object, level: int) -> str:
        if isinstance(x, type):
            return f"<class {x.__name__}>"
        is_value = type(x).__module__ == "builtins" or isinstance(x, Number | Enum)
        return super().repr_instance(x, level) if is_value else f"<{type(x).__name__}>"  # which may hold a key


def shown(value: Any) -> str:
    """A value as a message shows it, cut short."""
    return _Shortened().repr(value)


def repair_surrogates(text: str) -> str:
    """Join surrogates that are a pair; replace a lone one, which is no character and cannot be stored, by U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def describe_error(error: BaseException) -> str:
    """Name an error's class and repeat its words, for a record or a trace."""
    return repair_surrogates(f"{type(error).__name__}: {error}")
