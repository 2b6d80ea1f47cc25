"""The JSON values in what a language model wrote: one scanner for all parsers.

A value may stand in prose or in a fence; what is cut off is no value, but holds some. Time and memory grow linearly
with the text: values do not overlap, and the search ends when it has failed too often, or for too long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_MOST_FAILURES = 50
_LONGEST_FAILURES = 4  # lengths of the text: a value that is cut off three levels deep is read as often

_OPENING = re.compile(r"[\[{]")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class Number(str):
    """A number, as the model wrote it: a text like any other, but numbers alone are `[1, 2]` in prose."""

    __slots__ = ()


class Fields(dict[str, Any]):
    """A JSON object; of a name that stands twice it has the last value, and `pairs` has both."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


class _Nothing:
    """The type of what stands for a value where there is none."""


UNREADABLE = _Nothing()
"""The value of a place that looks like JSON and is not."""
UNSEARCHED = _Nothing()
"""The value of what stands behind the place where the search ended early."""


class Span(NamedTuple):
    """A value and its place in the text; what is `UNREADABLE` spans its first character alone."""

    start: int
    end: int
    value: Any

    @property
    def is_read(self) -> bool:
        """Whether there is a value."""
        return not isinstance(self.value, _Nothing)


_DECODER = json.JSONDecoder(
    strict=False, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Fields
)


def scan(text: str) -> Iterator[Span]:
    """Find the objects and lists of a text that stand in no other, in order; in their texts are no half characters."""
    clean = _ESCAPE.sub(lambda found: r"\ufffd" if found["lone"] else found.group(), text)  # as long as the text
    position = failures = wasted = 0
    while opening := _OPENING.search(clean, position):
        if failures == _MOST_FAILURES or wasted > _LONGEST_FAILURES * len(text):
            yield Span(position, len(text), UNSEARCHED)
            return
        start, position = opening.span()
        value: Any = UNREADABLE
        try:
            value, position = _DECODER.raw_decode(clean, start)
        except json.JSONDecodeError as error:
            failures, wasted = failures + 1, wasted + error.pos - start
        except RecursionError:  # soon: the depth is bounded
            failures += 1
        yield Span(start, position, value)


def objects(values: Iterable[Any]) -> Iterator[Fields]:
    """Find every object in JSON values, outermost first, in order, without recursion."""
    waiting = list(values)[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Fields):
            yield value
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def forms(values: Iterable[Any], key: str) -> list[dict[str, list[Any]]]:
    """Find the objects that have a key, as lower-cased names with every value that each is given."""
    found: list[dict[str, list[Any]]] = []
    for fields in objects(values):
        form: dict[str, list[Any]] = {}
        for name, value in fields.pairs:
            form.setdefault(name.lower(), []).append(value)
        if key in form:
            found.append(form)
    return found


def texts(value: Any) -> Iterator[str]:
    """Find the texts and numbers in a value and in its lists, in order, without recursion."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield str(value)
        elif isinstance(value, list):
            waiting.extend(reversed(value))
