"""Triples out of what a language model wrote: a tolerant reader that never evaluates, splits names or changes case.

Understood: JSON (fenced, in prose, cut off, with trailing commas), Python-like tuples, `subject | predicate | object`
lines, and "no facts" in words. A name may hold commas, apostrophes, quotes and pipes where the form allows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llama_index_gear.errors import ReplyError, TripleError
from llama_index_gear.triple import Triple

_SLOTS = (
    ("subject", "predicate", "object"),
    ("subject", "relation", "object"),
    ("head", "relation", "tail"),
    ("source", "relation", "target"),
)
_ENTITY_LIST = re.compile(r'"(?:named_)?entities"\s*:\s*\[[^\]]*(?:\]|\Z)', re.IGNORECASE)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d+[.):])\s+")
_NOTHING = re.compile(
    r"^\W*(?:none|n/?a|nothing|empty|(?:there (?:are|is) )?no (?:\w+ ){0,3}(?:facts?|triples?|information)\b.*)\W*$",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class ParsedTriples:
    """What a reply says.

    Attributes:
        triples: the facts, in order, without repetition. Empty: the model said that there are none.
        malformed: entries that were meant as triples and aren't (two slots, an empty slot, a nested list, …).

    """

    triples: tuple[Triple, ...]
    malformed: int


def parse_triples(reply: str) -> ParsedTriples:
    """Read the triples of a reply.

    Raises:
        ReplyError: the reply is empty, or holds neither triples nor a word that there are none.

    """
    text = _THINKING.sub(" ", reply).strip()
    if not text:
        raise ReplyError("the reply is empty")
    for read in (_from_json, _from_groups, _from_lines):
        found = read(text)
        if found is not None:
            break
    else:
        if _NOTHING.match(text):
            return ParsedTriples((), 0)
        raise ReplyError(f"no triples can be read in the reply {_shortened(text)!r}")
    triples: dict[Triple, None] = {}
    malformed = 0
    for slots in found:
        try:
            triples[Triple(*slots)] = None
        except (TripleError, TypeError, AttributeError):
            malformed += 1
    if malformed and not triples:
        raise ReplyError(
            f"none of the {malformed} entries in the reply is a triple of three texts: {_shortened(text)!r}"
        )
    return ParsedTriples(tuple(triples), malformed)


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:150]} … {text[-40:]}"


def _from_json(text: str) -> list[tuple[Any, ...]] | None:
    """The triples of all complete JSON values in the text; None if there is no such value that holds a list."""
    decoder = json.JSONDecoder(strict=False)
    found: list[tuple[Any, ...]] = []
    seen = False
    position = 0
    while (start := _next_opening(text, position)) is not None:
        try:
            value, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return None if not seen else found  # cut off, or not JSON: the looser reader sees the whole
        entries = list(_walk(value))
        seen = seen or bool(entries) or value == [] or (isinstance(value, dict) and _says_none(value))
        found.extend(entries)
    return found if seen else None


def _next_opening(text: str, position: int) -> int | None:
    places = [place for bracket in "{[" if (place := text.find(bracket, position)) >= 0]
    return min(places, default=None)


def _says_none(value: dict[str, Any]) -> bool:
    return any(key.lower() in ("triples", "facts") and entries in ([], None) for key, entries in value.items())


def _walk(value: Any) -> Iterator[tuple[Any, ...]]:
    """Entries that are, or were meant as, triples, in a decoded JSON value."""
    if isinstance(value, dict):
        lowered = {str(key).lower(): entry for key, entry in value.items()}
        for slots in _SLOTS:
            if any(slot in lowered for slot in (slots[0], slots[2])):
                yield tuple(_as_text(lowered.get(slot)) for slot in slots)
                return
        for key, entry in lowered.items():
            if "entit" not in key and isinstance(entry, dict | list):
                yield from _walk(entry)
    elif isinstance(value, list) and value:
        if any(isinstance(entry, dict | list) for entry in value) and not _is_flat(value):
            for entry in value:
                yield from _walk(entry) if isinstance(entry, dict | list) else _piped(str(entry))
        elif all(isinstance(entry, str) and entry.count("|") == 2 for entry in value):
            for entry in value:
                yield from _piped(entry)
        else:
            yield tuple(_as_text(entry) for entry in value)


def _is_flat(value: list[Any]) -> bool:
    """Three slots of which one holds a list by mistake: one malformed triple, not a list of lists."""
    return len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], str)


def _as_text(slot: Any) -> Any:
    return str(slot) if isinstance(slot, int | float) and not isinstance(slot, bool) else slot


def _piped(line: str) -> Iterator[tuple[Any, ...]]:
    parts = [part.strip().strip("\"'") for part in line.split("|")]
    if len(parts) == 3:
        yield tuple(parts)


def _from_groups(text: str) -> list[tuple[Any, ...]] | None:
    """Innermost (…), […] or {…} groups of quoted texts: tuples, cut-off JSON, trailing commas."""
    bare = _ENTITY_LIST.sub(" ", text)
    found = [group for group in map(tuple, _groups(bare)) if group]
    if found:
        return found
    empty = re.search(r"[\"']?(?:triples|facts)[\"']?\s*[:=]\s*[\[(]\s*[\])]", bare, re.IGNORECASE)
    return [] if empty else None


def _groups(text: str) -> Iterator[list[str]]:
    """Quoted texts of each innermost complete group; of a `{…}` group the values of its subject, predicate, object."""
    stack: list[tuple[str, list[str]]] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character in "([{":
            if stack:
                stack[-1][1].clear()  # what stands before an inner group is not a slot
            stack.append((character, []))
        elif character in ")]}" and stack:
            opening, slots = stack.pop()
            if opening == "{":
                slots = [slots[n + 1] for n in range(0, len(slots) - 1, 2) if slots[n].lower() in _KEYS]
            if len(slots) >= 2:
                yield slots
        elif character in "\"'“" and (not stack or _opens(text, position)):
            end = _closing_quote(text, position)
            if end is None:
                return
            if stack:
                stack[-1][1].append(text[position + 1 : end].replace('\\"', '"').replace("\\'", "'"))
            position = end
        position += 1


_KEYS = {slot for slots in _SLOTS for slot in slots}


def _opens(text: str, position: int) -> bool:
    """Whether a quote opens a slot: it follows a bracket, a comma, or a colon."""
    before = text[:position].rstrip()
    return before[-1:] in "([{,:"


def _closing_quote(text: str, opening: int) -> int | None:
    """The quote that ends the text: the first that a comma, a colon, a bracket, or the end of the line follows."""
    quote = {"“": "”"}.get(text[opening], text[opening])
    end = opening
    while (end := text.find(quote, end + 1)) >= 0:
        if text[end - 1] != "\\" and re.match(r"\s*(?:[,:)\]};]|\n|\Z)", text[end + 1 : end + 40]):
            return end
    return None


def _from_lines(text: str) -> list[tuple[Any, ...]] | None:
    """`subject | predicate | object` lines and unquoted `(subject, predicate, object)` lines."""
    found: list[tuple[Any, ...]] = []
    for raw in text.splitlines():
        line = _BULLET.sub("", raw).strip()
        if line.count("|") >= 2:
            parts = [part.strip() for part in line.strip("|").split("|")]
            if set("".join(parts)) <= set("-: ") or [part.lower() for part in parts] in map(list, _SLOTS):
                continue  # the rule or the heading of a table
            found.append(tuple(part.strip("\"'()") for part in parts))
        elif line.startswith("(") and line.rstrip(".,;").endswith(")"):
            found.append(tuple(part.strip() for part in line.rstrip(".,;")[1:-1].split(",")))
    return found or None
