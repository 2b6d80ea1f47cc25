"""The errors that this package raises, and the checks of arguments that raise them.

    GeARError
    ├── TripleError             (ValueError)           a triple with an empty slot
    ├── ArgumentError           (ValueError)           an argument outside its range
    ├── MissingPackage          (ImportError)          a package that an extra brings is not installed
    ├── GraphFileError                                 a graph's file that breaks off
    ├── ReplyError                                     an LLM's reply that holds nothing readable
    ├── OutOfTime           (TimeoutError)             an LLM did not reply within its time limit
    ├── ModelServerError                               an LLM's server wrote an error into an answer of status 200
    ├── BatchError                                     a batch's answers that contradict what was sent
    └── StoreError
        ├── EmbeddingError      (ValueError)           a node without embedding, or of another dimension
        ├── TenantError                                    a call that names no tenant, or touches another's passages
        ├── StoreLockedError                           another process has the embedded store open
        ├── StoreUnavailable                           a server is away, and was waited for
        ├── UnsupportedFilter   (NotImplementedError)  a filter that the engine cannot honor
        └── UnsupportedCall     (NotImplementedError)  a call that the embedded engine cannot answer

Catch `GeARError` for all of them. Errors of LlamaIndex or an LLM's client, and those in which a Qdrant server says what
is wrong with a call, pass through unchanged.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from numbers import Integral, Number, Rational, Real
from pathlib import Path
from typing import Any, Self


class GeARError(Exception):
    """The root of all errors that this package raises."""


class TripleError(GeARError, ValueError):
    """A triple with an empty subject, predicate or object."""


class ArgumentError(GeARError, ValueError):
    """An argument of the wrong kind or outside its range; raised before any work is done."""


class MissingPackage(GeARError, ImportError):
    """A package that an extra brings is not installed."""

    @classmethod
    def of_extra(cls, package: str, extra: str) -> Self:
        """Return the error of a missing package, with the command that installs it.

        Args:
            package: its name, or what it is for.
            extra: of this package.

        """
        return cls(f"{package} is not installed: pip install 'llama-index-gear[{extra}]'")


class GraphFileError(GeARError):
    """A graph's file breaks off, or cannot be decompressed any further. What was read before is kept."""


class ReplyError(GeARError):
    """No list of facts could be read in an LLM's reply. A reply that says "no facts" is not an error."""


class OutOfTime(GeARError, TimeoutError):
    """An LLM did not reply within its time limit. Time-outs of the LLM's own client pass through unchanged."""


class ModelServerError(GeARError):
    """An LLM's server wrote an error into an answer of status 200.

    Args:
        message: in the server's words.
        status_code: the HTTP status that says the same; None: none does.

    """

    def __init__(self, message: str, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


class BatchError(GeARError):
    """A batch's answers contradict what was sent, or another call has held the batch for too long."""


class StoreError(GeARError):
    """The vector store cannot do what was asked."""


class EmbeddingError(StoreError, ValueError):
    """A node has no embedding, or one of another dimension than the collection's."""


class TenantError(StoreError):
    """A call on a store with tenants names no tenant, or touches another tenant's passages."""


class StoreLockedError(StoreError):
    """Another process has the embedded store open. The call can be repeated.

    Attributes:
        details: who has it, where the system tells, and how long it was waited for: "process 4711, python, waited for
            2 s".

    """

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class StoreUnavailable(StoreError):
    """A Qdrant server was not reached or did not answer, although the call was repeated. The call can be repeated."""


class UnsupportedFilter(StoreError, NotImplementedError):
    """The engine cannot honor a metadata filter. It is refused rather than ignored."""


class UnsupportedCall(StoreError, NotImplementedError):
    """The embedded engine cannot answer a `QdrantClient` call, or an option of one."""


THOUGHT_PROBLEM = "the reply was cut off in the model's thoughts: raise its max_tokens, or have it think less"
"""The problem of a passage whose reply was cut off before the model said anything."""

MAX_COUNT = 1_000_000
"""Upper limit of a top-k and the like: engines reserve memory for as many results."""
MAX_QUESTION = 100_000
"""Upper limit of a question's characters: a longer one is a pasted document."""
_MAX_FLOAT = float(2**127)  # vectors are stored in 32 bits


def check_counts(*, least: int = 1, most: int = MAX_COUNT, **counts: Any) -> None:
    """Refuse numbers that are no `int`, or outside a range.

    Args:
        least: the lowest number allowed. Default 1.
        most: the highest. Default 1,000,000.
        **counts: the numbers, by the names of their arguments.

    Raises:
        ArgumentError: a number is refused; the message names its argument.

    """
    for name, value in counts.items():
        if type(value) is not int or not least <= value <= most:
            raise ArgumentError(
                f"{name} must be a whole number (an int), {least} or more and at most {most:,}; "
                f"got {format_value(value)}"
            )


def check_numbers(allowed: str, is_allowed: Callable[[float], bool], **numbers: Any) -> None:
    """Refuse what is no finite number of 32 bits, and numbers that are not allowed.

    Args:
        allowed: the allowed numbers, in words: "above 0".
        is_allowed: returns True for an allowed number.
        **numbers: the numbers, by the names of their arguments.

    Raises:
        ArgumentError: a number is refused; the message names its argument.

    """
    for name, value in numbers.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT
        if not is_number or not is_allowed(value):
            raise ArgumentError(f"{name} must be {allowed}, got {format_value(value)}")


def check_kind(kind: type | tuple[type, ...], *, hint: str = "", optional: bool = False, **values: Any) -> None:
    """Refuse objects of another class than their argument takes.

    It is for what would otherwise end in a wrong result, or in an error that misleads.

    Args:
        kind: the class that the arguments take, or several.
        hint: what to write instead, for the message. Default: nothing.
        optional: True takes None too. Default False.
        **values: the objects, by the names of their arguments.

    Raises:
        ArgumentError: an object is refused; the message names its argument.

    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for name, value in values.items():
        if not isinstance(value, kinds) and not (optional and value is None):
            names = " or ".join([class_.__name__ for class_ in kinds] + ["None"] * optional)
            article = "an" if names[0] in "AEIO" or names.startswith("LLM") else "a"
            raise ArgumentError(f"{name} must be {article} {names}, got {format_value(value)}{hint and f': {hint}'}")


def check_kinds(kind: type, *, hint: str = "", optional: bool = False, **lists: Any) -> None:
    """Refuse what is no list of objects of a class. Text, a dict and a single object are no lists.

    Args:
        kind: the class of the objects.
        hint: what to write instead, for the message. Default: nothing.
        optional: True takes None too. Default False.
        **lists: the lists, by the names of their arguments; any other collection of known size is taken too.

    Raises:
        ArgumentError: a list is refused; the message names its argument.

    """
    for name, values in lists.items():
        if optional and values is None:
            continue
        is_list = isinstance(values, Collection) and not isinstance(values, str | bytes | Mapping)
        wrong = [value for value in values if not isinstance(value, kind)][:1] if is_list else [values]
        if wrong:
            what = f"{format_value(wrong[0])} in it" if is_list else format_value(values)
            raise ArgumentError(f"{name} must be a list of {kind.__name__}, got {what}{hint and f': {hint}'}")


def check_vector(what: str, vector: Any) -> None:
    """Refuse what is no vector of finite numbers.

    Args:
        what: name of the vector, for the message: "the query's embedding".
        vector: a list of numbers.

    Raises:
        EmbeddingError: `vector` is no list, is empty, or holds something else than finite numbers of 32 bits.

    """
    if not isinstance(vector, list) or not vector:
        raise EmbeddingError(f"{what} must be a list of numbers that is not empty, got {format_value(vector)}")
    kinds = set(map(type, vector))
    if wrong := [kind for kind in kinds if not _is_number_kind(kind)]:
        first = next(index for index, value in enumerate(vector) if type(value) in wrong)
        raise EmbeddingError(f"{what} must be a list of numbers, its value {first} is {format_value(vector[first])}")
    if not _vector_length(vector) <= _MAX_FLOAT:  # an engine may store such a vector, and never find it again
        raise EmbeddingError(
            f"{what} holds NaN or infinity, or a number beyond 32 bits: the embedding model failed on this text"
        )


def _is_number_kind(kind: type) -> bool:
    """Accept Python's and NumPy's whole numbers and floats, but no truth values and no fractions."""
    is_fraction = issubclass(kind, Rational) and not issubclass(kind, Integral)
    return issubclass(kind, Real) and not issubclass(kind, bool) and not is_fraction


def _vector_length(vector: list[Any]) -> float:
    try:
        return math.hypot(*vector)
    except OverflowError:  # a whole number beyond any float
        return math.inf


def is_whole(text: str) -> bool:
    """Return True if a text holds no half characters (lone surrogates), which nothing can store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_characters(**texts: str) -> None:
    """Refuse texts with half characters (lone surrogates), which no engine and no model accepts.

    Raises:
        ArgumentError: a text is refused; the message names its argument.

    """
    for name, text in texts.items():
        if not is_whole(text):
            raise ArgumentError(
                f"{name} holds a lone surrogate, which is no character: repair the text first, e.g. "
                'text.encode("utf-8", "replace").decode()'
            )


def check_question(question: Any) -> None:
    """Refuse what cannot be a question, before anything reads it.

    Raises:
        ArgumentError: `question` is no text, has more than 100,000 characters, or holds half a character.

    """
    if not isinstance(question, str):
        raise ArgumentError(f"a question must be text, got {format_value(question)}")
    check_characters(question=question)
    if len(question) > MAX_QUESTION:
        raise ArgumentError(
            f"the question has {len(question):,} characters, at most {MAX_QUESTION:,} are allowed: ask for what you "
            "want to know, and store long texts as passages"
        )


class _ShortRepr(reprlib.Repr):
    """Python's `reprlib`, but a huge whole number is shown by its size, and an object by its class."""

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= 128 else f"a whole number of {x.bit_length():,} bits"

    def repr_instance(self, x: object, level: int) -> str:
        if isinstance(x, type):
            return f"<class {x.__name__}>"
        is_value = type(x).__module__ == "builtins" or isinstance(x, Number | Enum)
        return super().repr_instance(x, level) if is_value else f"<{type(x).__name__}>"  # its repr may hold a secret


def format_value(value: Any) -> str:
    """Format a value for a message, cut short."""
    return _ShortRepr().repr(value)


def repair_surrogates(text: str) -> str:
    """Join pairs of surrogates, and replace a lone one by U+FFFD: it is no character and cannot be stored."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_NO_QUOTA = re.compile(r"insufficient_quota|\b(?:error|status)(?: code)?:? 402\b|\b402 payment required", re.IGNORECASE)


def is_of_quota(error: BaseException | str) -> bool:
    """Return True if a server refused a call because the account has no money or quota left.

    OpenAI says so by a code, others (DeepSeek, OpenRouter) by the status 402.

    Args:
        error: the error, or its description by `describe_error`.

    """
    return getattr(error, "status_code", None) == 402 or bool(_NO_QUOTA.search(str(error)))


def describe_error(error: BaseException) -> str:
    """Return an error's class and message, for a record or a trace."""
    return repair_surrogates(f"{type(error).__name__}: {error}")


def read_path(*, hint: str = "", **path: Any) -> Path:
    """Return a path, with the user's home folder in place of a `~` at its beginning.

    To name a file or folder `~`, write `./~`.

    Args:
        hint: what to write instead, for the message. Default: nothing.
        **path: the path, by the name of its argument.

    Raises:
        ArgumentError: it is no path.

    """
    check_kind((str, Path), hint=hint, **path)
    (value,) = path.values()
    return Path(os.path.expanduser(value))
