"""Names that a named-entity recognizer of the user's finds, brought to the sentences of a passage."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_index_gear.errors import ArgumentError, format_value
from llama_index_gear.extraction.names import Name
from llama_index_gear.extraction.sentences import Sentence

_RETURNS = "return the names as the passage writes them, (start, end) pairs of its characters, or an object with .ents"


def describe_recognizer(recognizer: Callable[[str], Any]) -> str:
    """Return a text that differs for different recognizers: a function's name, or an object's class and model."""
    named = recognizer if hasattr(recognizer, "__qualname__") else type(recognizer)
    meta = getattr(recognizer, "meta", None)
    model = (
        "-".join(str(meta[key]) for key in ("lang", "name", "version") if key in meta) if isinstance(meta, dict) else ""
    )
    return f"{named.__module__}.{named.__qualname__} {model}".strip()


def recognize_names(recognizer: Callable[[str], Any], text: str, sentences: Sequence[Sentence]) -> list[list[Name]]:
    """Ask a recognizer for a passage's names, and find the sentences that they stand in.

    Raises:
        ArgumentError: it returned something else than names or places of the text.

    """
    found: list[list[Name]] = [[] for _ in sentences]
    places = [(number, index) for number, sentence in enumerate(sentences) for index in range(len(sentence.words))]
    starts = [start for sentence in sentences for start, _ in sentence.places]
    for start, end in sorted(set(_spans(recognizer(text), text))):
        first, last = (max(0, bisect_right(starts, place) - 1) for place in (start, end - 1))
        name = text[start:end].strip()
        if not name or not places:
            continue
        number, index = places[first]
        length = last - first + 1 if places[last][0] == number else 1
        found[number].append(Name(index, index + length, name))
    return found


def _spans(returned: Any, text: str) -> Iterator[tuple[int, int]]:
    entries = getattr(returned, "ents", returned)
    if isinstance(entries, str | bytes) or not isinstance(entries, Iterable):
        raise ArgumentError(f"the recognizer returned {format_value(returned)}: {_RETURNS}")
    names: set[str] = set()
    for entry in entries:
        if isinstance(entry, str):
            if entry not in names:
                yield from _occurrences(entry, text)
            names.add(entry)
            continue
        start, end = _ends_of(entry)
        if not 0 <= start < end <= len(text):
            raise ArgumentError(
                f"the recognizer returned the place {(start, end)!r} in a passage of {len(text)} characters: {_RETURNS}"
            )
        yield start, end


def _ends_of(entry: Any) -> tuple[int, int]:
    """Return the start and end of a pair, of a dict with both, or of an entity with `start_char` and `end_char`."""
    if isinstance(entry, Mapping):
        entry = (entry.get("start"), entry.get("end"))
    elif hasattr(entry, "start_char") and hasattr(entry, "end_char"):
        entry = (entry.start_char, entry.end_char)
    if not isinstance(entry, tuple | list) or len(entry) != 2 or not all(type(place) is int for place in entry):
        raise ArgumentError(f"the recognizer returned {format_value(entry)} among the names: {_RETURNS}")
    return entry[0], entry[1]


def _occurrences(name: str, text: str) -> list[tuple[int, int]]:
    """Find a name in its passage: as a word, or within words if it stands nowhere as one, as in Chinese."""
    name = name.strip()
    inside = re.escape(name)
    for pattern in (rf"(?<!\w){inside}(?!\w)", inside):
        if name and (spans := [match.span() for match in re.finditer(pattern, text)]):
            return spans
    raise ArgumentError(
        f"the recognizer returned {format_value(name)}, which does not stand in the passage: {_RETURNS}"
    )
