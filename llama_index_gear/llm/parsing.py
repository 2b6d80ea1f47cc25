"""A tolerant parser for the triples in a reply. It never evaluates code, splits names or changes case.

It reads JSON (fenced, in prose, cut off, with trailing commas), Python-like tuples, `subject | predicate | object`
lines and tables, and "no facts" in words. A name may have commas, apostrophes, quotes and pipes where the form allows
it. Time and memory grow linearly with the reply, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_index_gear.errors import ReplyError, TripleError, repair_surrogates
from llama_index_gear.llm.json_scan import Number, scan
from llama_index_gear.triple import Triple

_ENDS = (("subject", "object"), ("head", "tail"), ("source", "target"))
_MAX_FACT_LENGTH = 10_000  # characters; no honest fact is longer, and a fact becomes a query of the index
_LINKS = ("predicate", "relation", "relationship")
_HEADINGS = [[first, link, last] for first, last in _ENDS for link in _LINKS]
_ROLES = {*_LINKS, *(end for ends in _ENDS for end in ends)}

MAX_REPLY_LENGTH = 500_000
"""Maximum length of a reply that is parsed, in characters; none that was asked for is longer."""

_THOUGHTS_OPEN = re.compile(r"\s*<think(?:ing)?>([ \t\r]*\n)?", re.IGNORECASE)
_THOUGHTS_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_THOUGHTS_CLOSE_LINE = re.compile(r"^[^|\[\](){}\"“<\n]*</think(?:ing)?>[ \t\r]*$", re.IGNORECASE | re.MULTILINE)
_NOTHING = re.compile(
    r"^\W*(?:none|n/?a|nothing|empty|(?:there (?:are|is) )?no (?:\w+ ){0,3}(?:facts?|triples?|information)\b.*)\W*$",
    re.IGNORECASE | re.DOTALL,
)
_EMPTY = re.compile(r"[\"']?(?:triples|facts)[\"']?\s*[:=]\s*[\[(]\s*[\])]", re.IGNORECASE)
_ENTITIES = re.compile(r"entit\w*[\"'”]?\s*[:=]\s*\Z", re.IGNORECASE)  # before a list of entities
_BULLET = re.compile(r"^\s*(?:[-*•]|\(\d{1,2}\)|\d{1,3}[.)])\s+")
_TOKEN = re.compile(r"[(\[{]|[)\]}]|[,:]|[\"'“]|[^\s()\[\]{},:\"'“]+")
_BEFORE_SLOT = ("(", "[", "{", ",", ":")
_BARE = re.compile(r"(?:-?\d+(?:\.\d+)?|null|None|[Tt]rue|[Ff]alse)(?=\s*[,)\]}])")
_AFTER_QUOTE = re.compile(r"\s*(?:[,:)\]};\n]|\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


@dataclass(frozen=True)
class ParsedTriples:
    """The triples of a reply.

    Attributes:
        triples: the facts, in order, without repetition. Empty: the model said that there are none.
        malformed: number of entries that were meant as triples and aren't (two slots, an empty slot, a nested list, …).

    """

    triples: tuple[Triple, ...]
    malformed: int


def parse_triples(reply: str) -> ParsedTriples:
    """Read the triples of a reply.

    Raises:
        ReplyError: the reply is empty, or has neither triples nor a word that there are none.

    """
    text = strip_thoughts(reply)
    if not text:
        raise ReplyError("the reply is empty")
    for read in (_read_json, _read_groups, _read_lines):
        entries = read(text)
        if entries is not None:
            break
    else:
        if _NOTHING.match(text):
            return ParsedTriples((), 0)
        raise ReplyError(f"no triples can be read in the reply {_shorten(text)!r}")
    triples, malformed = _build_triples(entries)
    if malformed and not triples:
        raise ReplyError(f"none of the {malformed} entries in the reply is a triple of three texts: {_shorten(text)!r}")
    return ParsedTriples(triples, malformed)


def collect_triples(value: Any) -> tuple[Triple, ...]:
    """Return the triples of a JSON value, in order, without repetition; malformed entries are left out."""
    return _build_triples(_find_entries(value))[0]


def parse_numbered(reply: str, passages: int) -> dict[int, tuple[Triple, ...]]:
    """Read a reply with one JSON object a passage, `{"passage": 1, …, "triples": […]}`: passage number → triples.

    A passage is left out if its object is cut off, if the object has entries and none is a triple, or if two objects of
    its number differ. A reply that is too long gives nothing. Never raises.

    Args:
        reply: the model's.
        passages: how many passages there are, numbered from 1; other numbers are ignored.

    """
    try:
        text = strip_thoughts(reply)
    except ReplyError:
        return {}
    read: dict[int, tuple[Triple, ...] | None] = {}
    for span in scan(text):
        for number, entry in find_numbered(span.value):
            triples, _ = _build_triples(_find_entries(entry))
            is_valid = (bool(triples) or _says_none(entry)) and read.get(number, triples) == triples
            read[number] = triples if is_valid else None
    return {number: triples for number, triples in read.items() if triples is not None and 1 <= number <= passages}


def find_numbered(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Find the objects with a passage's number, at the top or in lists."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        number = value.get("passage") if isinstance(value, dict) else None
        if isinstance(number, str) and re.fullmatch(r"[1-9]\d{0,5}", number, re.ASCII):
            yield int(number), value
        elif isinstance(value, dict):
            waiting.extend(entry for entry in reversed(value.values()) if isinstance(entry, list))
        elif isinstance(value, list):
            waiting.extend(entry for entry in reversed(value) if _is_nested(entry))


def _build_triples(entries: Iterable[tuple[Any, ...]]) -> tuple[tuple[Triple, ...], int]:
    """Return the triples among entries, in order, without repetition, and the number of malformed entries."""
    triples: dict[Triple, None] = {}
    malformed = 0
    for slots in entries:
        try:
            triple = Triple(*map(_to_text, slots))
        except (TripleError, TypeError, AttributeError):
            malformed += 1
            continue
        if len(triple.text) > _MAX_FACT_LENGTH:
            malformed += 1
        else:
            triples[triple] = None
    return tuple(triples), malformed


def strip_thoughts(reply: str) -> str:
    """Remove what the model thought aloud (`<think>…</think>`) from the beginning of a reply.

    Thoughts end with the first closing tag that ends a line of prose: no statement ends with one, while a text in JSON
    may contain one. Thoughts that are opened and have no such line end with the first closing tag; without any, they
    are the whole reply.

    Raises:
        ReplyError: the reply is longer than `MAX_REPLY_LENGTH`.

    """
    if len(reply) > MAX_REPLY_LENGTH:
        raise ReplyError(f"the reply has {len(reply)} characters; none of more than {MAX_REPLY_LENGTH} is read")
    text = repair_surrogates(reply)
    position = 0 if _THOUGHTS_OPEN.match(text) else _find_end_of_thoughts(text)
    last_line = max((match.end() for match in _THOUGHTS_CLOSE_LINE.finditer(text)), default=0)
    while opened := _THOUGHTS_OPEN.match(text, position):
        line = _THOUGHTS_CLOSE_LINE.search(text, opened.end()) if opened[1] and opened.end() < last_line else None
        closed = line or _THOUGHTS_CLOSE.search(text, opened.end())
        position = len(text) if closed is None else closed.end()
    return text[position:].strip()


def _find_end_of_thoughts(text: str) -> int:
    """Find the end of thoughts whose opening tag was in the prompt; 0 if there are none."""
    if _THOUGHTS_CLOSE.search(text) is None:
        return 0
    values = (span for span in scan(text) if span.is_read)
    value = next(values, None)
    for closed in _THOUGHTS_CLOSE_LINE.finditer(text):
        while value is not None and value.end <= closed.start():
            value = next(values, None)
        if value is None or closed.end() <= value.start:
            return closed.end()
    return 0


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:150]} … {text[-40:]}"


def _to_text(slot: Any) -> Any:
    """Return a text or a number as plain text, anything else as it is."""
    return str(slot) if isinstance(slot, str) else slot


def _read_json(text: str) -> list[tuple[Any, ...]] | None:
    """Read the entries of all JSON values in the text; return None if none of them could list triples.

    From the first unreadable value on, `_read_groups` reads the rest.
    """
    entries: list[tuple[Any, ...]] = []
    is_found = False
    end = 0
    for span in scan(text):
        if not span.is_read:
            return [*entries, *(_read_groups(text[end:]) or [])] if is_found else None
        end = span.end
        if is_entity_list(text, span.start):
            continue
        in_value = list(_find_entries(span.value))
        is_found = is_found or bool(in_value) or span.value == [] or _says_none(span.value)
        entries.extend(in_value)
    return entries if is_found else None


def is_entity_list(text: str, opening: int) -> bool:
    """Return True if the value that opens there is a list of entities."""
    return bool(_ENTITIES.search(text, max(0, opening - 40), opening))


def _says_none(value: Any) -> bool:
    """Return True for an object whose "triples" or "facts" is empty."""
    lists = {key.lower(): entry for key, entry in value.items()} if isinstance(value, dict) else {}
    return any(key in lists and not lists[key] for key in ("triples", "facts"))


def _find_entries(value: Any) -> Iterator[tuple[Any, ...]]:
    """Find the entries of a JSON value that are, or were meant as, triples; in order, without recursion."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            slots = _read_named_slots(value)
            waiting.extend(reversed(_select_members(value) if slots is None else [slots]))
        elif isinstance(value, list):
            waiting.extend(reversed(_select_elements(value)))
        elif isinstance(value, str):
            yield from _read_lines(value) or ()
        elif isinstance(value, tuple) and not all(isinstance(slot, Number) for slot in value):
            yield value


def _read_named_slots(value: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the slots of a `{"subject": …}`, `{"head": …}` or `{"source": …}`; None if the object is no triple."""
    lowered = {key.lower(): entry for key, entry in value.items()}
    link = next((link for link in _LINKS if link in lowered), "")
    for first, last in _ENDS:
        named = sum(name in lowered for name in (first, link, last))
        if named == 3 or (named == 2 and not any(map(_is_nested, lowered.values()))):
            return tuple(lowered.get(name) for name in (first, link, last))
    return None


def _select_members(value: dict[str, Any]) -> list[Any]:
    """Return the values of an object that may hold triples: no lists of entities."""
    return [entry for key, entry in value.items() if "entit" not in key.lower() and _is_nested(entry)]


def _select_elements(value: list[Any]) -> list[Any]:
    """Return the elements of a list: entries as tuples, and other values to search."""
    nested = [_is_nested(element) for element in value]
    if nested == [False, False, True]:  # three slots, the last a list by mistake
        return [tuple(value)]
    if any(nested):
        return [
            tuple(element) if isinstance(element, list) and not any(map(_is_nested, element)) else element
            for element in value
        ]
    return value if all(isinstance(line, str) and _read_lines(line) for line in value) else [tuple(value)]


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


@dataclass
class _Group:
    """A group in brackets, while it is read.

    Attributes:
        opening: its bracket: "(", "[" or "{".
        is_ignored: it holds no triple: a list of entities, or a group that stands in a slot by mistake.
        slots: the texts and numbers read so far; None for null, true, false, and a group in their place.

    """

    opening: str
    is_ignored: bool
    slots: list[Any] = field(default_factory=list)

    def open_group(self, opening: str) -> _Group:
        """Open a group inside this one.

        If it takes the place of a slot, it is a mistake, and ignored. Otherwise this group is no triple itself, and
        its slots are dropped.
        """
        is_slot = str(*self.slots[-1:]).lower() in _ROLES if self.opening == "{" else len(self.slots) == 2
        if is_slot:
            self.slots.append(None)
        else:
            self.slots.clear()
        return _Group(opening, self.is_ignored or is_slot)

    def to_entry(self) -> tuple[Any, ...] | None:
        """Return the slots of the group if it is, or was meant as, a triple, else None."""
        if self.is_ignored or len(self.slots) < 2 or all(isinstance(slot, Number) for slot in self.slots):
            return None
        if self.opening != "{":
            return tuple(self.slots)
        return _read_named_slots(dict(zip(map(str, self.slots[::2]), self.slots[1::2], strict=False)))


def _read_groups(text: str) -> list[tuple[Any, ...]] | None:
    """Read the innermost (…), […] and {…} groups of quoted texts: tuples, cut-off JSON, trailing commas.

    Return None if there are none, and the text has no empty list of triples either.
    """
    return list(_scan_groups(text)) or ([] if _EMPTY.search(text) else None)


def _scan_groups(text: str) -> Iterator[tuple[Any, ...]]:
    """Find the entries of a text token by token, with a stack of open groups."""
    stack: list[_Group] = []
    unclosed = ""  # kinds of quotes that nothing closes any more
    before = mark = ""
    position = 0
    while token := _TOKEN.search(text, position):
        start, position = token.span()
        before, mark = mark, token.group()
        may_be_slot = bool(stack) and before in _BEFORE_SLOT
        if mark in "([{":
            group = stack[-1].open_group(mark) if stack else _Group(mark, False)
            group.is_ignored |= before[-1:] in (":", "=") and is_entity_list(text, start)
            stack.append(group)
        elif mark in ")]}":
            entry = stack.pop().to_entry() if stack else None
            if entry:
                yield entry
        elif may_be_slot and mark in "\"'“" and mark not in unclosed:
            end = _find_closing_quote(text, start)
            if end is None:
                unclosed += mark
            else:
                stack[-1].slots.append(_unescape(text[start + 1 : end]))
                position = end + 1
        elif may_be_slot and (bare := _BARE.match(text, start)):
            stack[-1].slots.append(None if bare.group().isalpha() else Number(bare.group()))
            position = bare.end()


def _find_closing_quote(text: str, opening: int) -> int | None:
    """Find the quote that ends a text: the first that a comma, a colon, a bracket, or the end of the line follows."""
    quote = {"“": "”"}.get(text[opening], text[opening])
    end = opening
    while (end := text.find(quote, end + 1)) >= 0:
        escapes = 0
        while text[end - 1 - escapes] == "\\":
            escapes += 1
        if escapes % 2 == 0 and _AFTER_QUOTE.match(text, end + 1):
            return end
    return None


def _unescape(text: str) -> str:
    """Replace JSON's escapes by their characters."""
    whitespace = {"n": "\n", "t": "\t", "r": "\r"}
    return repair_surrogates(
        _ESCAPE.sub(lambda code: chr(int(code[1], 16)) if code[1] else whitespace.get(code[2], code[2]), text)
    )


def _read_lines(text: str) -> list[tuple[Any, ...]] | None:
    """Read `subject | predicate | object` lines, tables, and unquoted `(subject, predicate, object)` lines.

    Return None if there are none.
    """
    rows: list[tuple[Any, ...]] = []
    follows_row = False
    for raw in text.splitlines():
        line = _BULLET.sub("", raw).strip().rstrip(",;")
        inner = _strip_brackets(line.rstrip("."))
        row = _split_row(line if inner is None else inner)
        if row and set("".join(row)) <= set("-: "):  # the rule of a table: the row above it is the heading
            if follows_row:
                rows.pop()
            row = []
        elif not row and inner is not None:
            row = [part.strip() for part in inner.split(",")]
        follows_row = bool(row) and [slot.lower() for slot in row] not in _HEADINGS
        if follows_row:
            rows.append(tuple(row))
    return rows or None


def _split_row(line: str) -> list[str]:
    """Return the cells of a line with at least two pipes; none of any other line."""
    return [_unquote(cell.strip()) for cell in line.strip("|").split("|")] if line.count("|") >= 2 else []


def _strip_brackets(line: str) -> str | None:
    """Return the inside of a line that is bracketed as a whole, else None."""
    if line[:1] + line[-1:] != "()":
        return None
    depth = 0
    for position, character in enumerate(line):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return line[1:-1] if position == len(line) - 1 else None
    return None


def _unquote(cell: str) -> str:
    """Remove the quotes around a cell; an apostrophe, or the quotes of a nickname, are part of the name."""
    inner = cell[1:-1]
    return inner if cell[:1] + cell[-1:] in ('""', "''", "“”") and cell[0] not in inner else cell
