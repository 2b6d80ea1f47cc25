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
from llama_index_gear.llm.json_scan import Number, ScannedReply, scan
from llama_index_gear.triple import Triple

_ENDS = (
    *(("subject", "object"), ("head", "tail"), ("source", "target"), ("from", "to"), ("start", "end")),
    *(("entity1", "entity2"), ("node1", "node2"), ("arg1", "arg2"), ("subj", "obj"), ("s", "o"), ("h", "t")),
)
_LABEL = 100  # characters: how far before a list its label is looked for
_MAX_FACT_LENGTH = 10_000  # characters; no honest fact is longer, and a fact becomes a query of the index
_LINKS = (
    *("predicate", "relation", "relationship", "relationtype", "relationshiptype", "type", "label", "edge", "verb"),
    *("pred", "rel", "p", "r"),
)
_USUAL = 3  # of both: one of these names alone shows that a triple was meant
_HEADINGS = [[first, link, last] for first, last in _ENDS for link in _LINKS]
_ROLES = {*_LINKS, *(end for ends in _ENDS for end in ends)}
_LONGEST_ROLE = 60  # letters
_KIND = re.compile(r"(?<=[a-z\d])(?:name|id|text|value|label|node|entity|phrase|argument)\Z")
"""Is found at the end of a slot's name: `subject_name`, `source_node_id`."""

_NOTHING = re.compile(
    r"^\W*(?:none|n/?a|nothing|empty|(?:there (?:are|is) )?no (?:\w+ ){0,3}(?:facts?|triples?|information)\b.*)\W*$",
    re.IGNORECASE | re.DOTALL,
)
_CONFIDENCE = re.compile(
    r"\W*(?:confidence|score)?\W*(?:0?\.\d+|[01](?:\.0+)?|\d{1,3}(?:\.\d+)? ?%|(?:very[ -])?(?:high|medium|low|certain)"
    r"(?: confidence)?)\W*|\[\d+\]|passage \d+",
    re.IGNORECASE,
)
"""Matches how sure a model is, or which passage says so."""
_EMPTY = re.compile(r"[\"']?(?:triples|facts)[\"']?\s*[:=]\s*[\[(]\s*[\])]", re.IGNORECASE)
_ENTITY_WORD = r"(?:entit\w*|nodes?|names?|people|persons?|places?|organi[sz]ations?|keywords?|concepts?)"
_ENTITY_KEY = re.compile(rf"\w*entit\w*|{_ENTITY_WORD}", re.IGNORECASE)
_ENTITIES = re.compile(
    rf"(?:entit\w*|^\W*{_ENTITY_WORD}(?=\W*[:=\n]))(?!\w)(?:(?!triple|fact|relation|[.!?]\s)[^\[\]{{}}|]){{0,60}}\Z",
    re.IGNORECASE | re.MULTILINE,
)
"""Is found before a list of entities."""
_ENTITY_NAMES = ("name", "text", "label", "title", "value", "entity", "id")
_ENTITY_ROW = re.compile(r"\W*(?:\w+ )?entit\w*:", re.IGNORECASE)
_SECTION = re.compile(r"\s*(?:#|\*\*|\d+[.)] ).*|.*:\W*", re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[-*•]|\(\d{1,2}\)|\d{1,3}[.)])\s+")
_TOKEN = re.compile(r"[(\[{]|[)\]}]|[,:]|[\"'“]|[^\s()\[\]{},:\"'“]+")
_BEFORE_SLOT = ("(", "[", "{", ",", ":")
_BARE = re.compile(r"(?:-?\d+(?:\.\d+)?|null|None|[Tt]rue|[Ff]alse)(?=\s*[,)\]}])")
_AFTER_QUOTE = re.compile(r"\s*(?:[,:)\]};\n]|\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_MARKED = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)`|«([^«»]+)»")
"""Matches a name in bold, as code, or in quotes of French."""


@dataclass(frozen=True)
class ParsedTriples:
    """The triples of a reply.

    Attributes:
        triples: the facts, in order, without repetition. Empty: the model said that there are none.
        malformed: number of entries that were meant as triples and aren't (two slots, an empty slot, a nested list, …).

    """

    triples: tuple[Triple, ...]
    malformed: int


def parse_triples(reply: ScannedReply) -> ParsedTriples:
    """Read the triples of a reply.

    Raises:
        ReplyError: the reply is empty, or has neither triples nor a word that there are none.

    """
    text = reply.text
    if not text:
        raise ReplyError("the reply is empty")
    entries = _read_json(reply)
    entries = _read_groups(text) if entries is None else entries
    entries = _read_lines(text) if entries is None else entries
    if entries is None:
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


def _build_triples(entries: Iterable[tuple[Any, ...]]) -> tuple[tuple[Triple, ...], int]:
    """Return the triples among entries, in order, without repetition, and the number of malformed entries."""
    triples: dict[Triple, None] = {}
    malformed = 0
    for slots in entries:
        try:
            triple = Triple(*map(_to_text, _drop_confidence(slots)))
        except (TripleError, TypeError, AttributeError):
            malformed += 1
            continue
        if len(triple.text) > _MAX_FACT_LENGTH:
            malformed += 1
        else:
            triples[triple] = None
    return tuple(triples), malformed


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:150]} … {text[-40:]}"


def _to_text(slot: Any) -> Any:
    """Return a text or a number as plain text, without marks, an object as its name, anything else as it is."""
    slot = slot[0] if isinstance(slot, list) and len(slot) == 1 else slot
    slot = _find_name(slot) if isinstance(slot, dict) else slot
    if not isinstance(slot, str):
        return slot
    marked = _MARKED.fullmatch(slot.strip())
    return str(slot) if marked is None else next(filter(None, marked.groups())).strip()


def _find_name(fields: Mapping[str, Any]) -> Any:
    """Return the name in an object that stands for an entity, or the only text in it; None if it has none."""
    lowered = {key.lower(): entry for key, entry in fields.items()}
    named = next((lowered[key] for key in _ENTITY_NAMES if isinstance(lowered.get(key), str)), None)
    only = next(iter(lowered.values())) if len(lowered) == 1 else None
    return only if named is None and isinstance(only, str) else named


def _drop_confidence(slots: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the slots without a fourth one that says how sure the model is, or which passage says so."""
    if len(slots) != 4:
        return slots
    last = slots[3]
    is_confidence = last is None or isinstance(last, Number) or (isinstance(last, str) and _CONFIDENCE.fullmatch(last))
    return slots[:3] if is_confidence else slots


def _read_json(reply: ScannedReply) -> list[tuple[Any, ...]] | None:
    """Read the entries of all JSON values of a reply; return None if none of them could list triples.

    From the first unreadable value on, `_read_groups` reads the rest.
    """
    entries: list[tuple[Any, ...]] = []
    is_found = is_flat = False
    text, end = reply.text, 0
    for span in reply.spans:
        if not span.is_read:
            return [*entries, *(_read_groups(text[end:]) or [])] if is_found else None
        end = span.end
        if is_entity_list(text, span.start):
            continue
        in_value = list(_find_entries(span.value))
        was_flat, is_flat = is_flat, _is_flat(span.value) and (is_flat or not entries)
        if was_flat and in_value and not is_flat:
            entries.clear()  # texts before a list of lists are its entities
        is_found = is_found or bool(in_value) or span.value == [] or _says_none(span.value)
        entries.extend(in_value)
    return entries if is_found else None


def is_entity_list(text: str, opening: int) -> bool:
    """Return True if the value that opens there is a list of entities."""
    return bool(_ENTITIES.search(text, max(0, opening - _LABEL), opening))


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
            yield from _spread(value)


def _spread(slots: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield an entry for each object of a triple that lists several."""
    several = slots[2] if len(slots) == 3 and _is_flat(slots[2]) else []
    yield from [(*slots[:2], name) for name in several] or [slots]


def _read_named_slots(value: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the slots of a `{"subject": …}`, `{"head": …}` or `{"source": …}`; None if the object is no triple."""
    lowered = {_to_role(key): entry for key, entry in reversed(list(value.items()))}
    lowered.update({key.lower(): entry for key, entry in value.items()})
    link = next((link for link in _LINKS if link in lowered), "")
    for first, last in _ENDS:
        named = (first in lowered) + (link in lowered) + (last in lowered)
        is_usual = link in _LINKS[:_USUAL] or (not link and (first, last) in _ENDS[:_USUAL])
        if named == 3 or (named == 2 and is_usual and not any(map(_is_nested, lowered.values()))):
            return tuple(lowered.get(name) for name in (first, link, last))
    return None


def _to_role(name: str) -> str:
    """Return the role that the name of a slot tells: "source" of `source_node_id`, "entity1" of `Entity_1`."""
    letters = re.sub(r"[\W_]", "", name.lower())
    while len(letters) <= _LONGEST_ROLE and (shorter := _KIND.sub("", letters)) != letters:
        letters = shorter
    return letters


def _select_members(value: dict[str, Any]) -> list[Any]:
    """Return the values of an object that may hold triples: no lists of entities, and what a text holds as JSON."""
    members = [_decode(entry) for key, entry in value.items() if not _ENTITY_KEY.fullmatch(key)]
    members = [entry for entry in members if _is_nested(entry)]
    has_lists = any(isinstance(entry, list) and any(map(_is_nested, entry)) for entry in members)
    return [entry for entry in members if not (has_lists and _is_flat(entry))]


def _decode(value: Any) -> Any:
    """Return the list or object that a text holds as JSON; another value stays."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    span = next(scan(value.strip()), None)
    return span.value if span is not None and span.is_read and span.end == len(value.strip()) else value


def _select_elements(value: list[Any]) -> list[Any]:
    """Return the elements of a list: entries as tuples, and other values to search."""
    nested = [_is_nested(element) for element in value]
    if nested == [False, False, True]:  # three slots, the last a list by mistake
        return [tuple(value)]
    if slots := _read_loose_slots(value):
        return [slots]
    if any(nested):
        return [
            tuple(element)
            if isinstance(element, list) and not (any(map(_is_nested, element)) or _are_rows(element))
            else element
            for element in value
        ]
    decoded = list(map(_decode, value))
    if all(_is_nested(element) and element for element in decoded):
        return decoded
    return value if _are_rows(value) else [tuple(value)]


def _are_rows(value: list[Any]) -> bool:
    """Return True for texts that are each a triple: `subject | predicate | object`."""
    return bool(value) and all(isinstance(line, str) and _read_lines(line) for line in value)


def _read_loose_slots(value: list[Any]) -> tuple[Any, ...] | None:
    """Return the slots of a triple with objects as ends, with a list around each slot, or with an object behind."""
    behind = [element for slot in value[3:] if isinstance(slot, list) for element in slot]
    is_of_passages = all(isinstance(element, Number) for element in behind)  # the triple's sources
    if len(value) not in (3, 4) or not any(map(_is_nested, value)) or not is_of_passages:
        return None
    slots = [slot[0] if isinstance(slot, list) and len(slot) == 1 else slot for slot in value[:3]]
    texts = [_find_name(slot) if isinstance(slot, dict) and _read_named_slots(slot) is None else slot for slot in slots]
    are_triples = any(isinstance(slot, dict) and _read_named_slots(slot) for slot in value)
    is_read = isinstance(slots[1], str) and all(isinstance(text, str) for text in texts) and not are_triples
    return tuple(texts) if is_read else None


def _is_flat(value: Any) -> bool:
    """Return True for a list of nothing but texts."""
    return isinstance(value, list) and bool(value) and not any(map(_is_nested, value))


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


@dataclass
class _Group:
    """A group in brackets, while it is read.

    Attributes:
        opening: its bracket: "(", "[" or "{".
        is_ignored: it holds no triple: a list of entities, or a group that stands in a slot.
        is_slot: it stands in a slot: an object that may have a name.
        slots: the texts and numbers read so far; None for null, true, false, and a group in their place.

    """

    opening: str
    is_ignored: bool
    is_slot: bool = False
    slots: list[Any] = field(default_factory=list)

    def open_group(self, opening: str) -> _Group:
        """Open a group inside this one.

        If it takes the place of a slot, it is ignored, but for a name in it. Otherwise this group is no triple itself,
        and its slots are dropped.
        """
        is_slot = _to_role(str(*self.slots[-1:])) in _ROLES if self.opening == "{" else len(self.slots) == 2
        if is_slot:
            self.slots.append(None)
        else:
            self.slots.clear()
        return _Group(opening, self.is_ignored or is_slot, is_slot)

    def to_entry(self) -> tuple[Any, ...] | None:
        """Return the slots of the group if it is, or was meant as, a triple, else None."""
        if self.is_ignored or len(self.slots) < 2 or all(isinstance(slot, Number) for slot in self.slots):
            return None
        if self.opening != "{":
            return tuple(self.slots)
        return _read_named_slots(self.to_fields())

    def to_fields(self) -> dict[str, Any]:
        """Return the slots as the fields of an object."""
        return dict(zip(map(str, self.slots[::2]), self.slots[1::2], strict=False))


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
            group.is_ignored |= (not stack or before[-1:] in (":", "=")) and is_entity_list(text, start)
            stack.append(group)
        elif mark in ")]}":
            group = stack.pop() if stack else _Group(mark, True)
            if entry := group.to_entry():
                yield entry
            elif group.is_slot and group.opening == "{" and stack:
                stack[-1].slots[-1] = _find_name(group.to_fields())
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
    follows_row = is_of_entities = False
    for raw in text.splitlines():
        if "|" not in raw and _SECTION.fullmatch(raw):
            is_of_entities = is_entity_list(raw, len(raw))
        line = _BULLET.sub("", raw).strip().rstrip(",;")
        inner = _strip_brackets(line.rstrip("."))
        row = _split_row(line if inner is None else inner)
        if row and set("".join(row)) <= set("-: "):  # the rule of a table: the row above it is the heading
            if follows_row:
                rows.pop()
            row = []
        elif not row and inner is not None:
            row = [part.strip() for part in inner.split(",")]
        is_fact = not is_of_entities and not (row and _ENTITY_ROW.match(row[0]))
        follows_row = is_fact and bool(row) and list(map(_to_role, row)) not in _HEADINGS
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
