"""Triples out of what a language model wrote: a tolerant reader that never evaluates, splits names or changes case.

Understood: JSON (fenced, in prose, cut off, with trailing commas), Python-like tuples, `subject | predicate | object`
lines and tables, and "no facts" in words. A name may hold commas, apostrophes, quotes and pipes where the form allows
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
_LONGEST_FACT = 10_000  # characters; no honest fact is longer, and it becomes a question to the index
_LINKS = ("predicate", "relation", "relationship")
_HEADINGS = [[first, link, last] for first, last in _ENDS for link in _LINKS]
_ROLES = {*_LINKS, *(end for ends in _ENDS for end in ends)}

LONGEST_REPLY = 500_000
"""Characters of a reply that is read; a longer one is none that was asked for."""

_OPENED = re.compile(r"\s*<think(?:ing)?>([ \t\r]*\n)?", re.IGNORECASE)
_CLOSED = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_CLOSED_LINE = re.compile(r"^[^|\[\](){}\"“<\n]*</think(?:ing)?>[ \t\r]*$", re.IGNORECASE | re.MULTILINE)
_NOTHING = re.compile(
    r"^\W*(?:none|n/?a|nothing|empty|(?:there (?:are|is) )?no (?:\w+ ){0,3}(?:facts?|triples?|information)\b.*)\W*$",
    re.IGNORECASE | re.DOTALL,
)
_EMPTY = re.compile(r"[\"']?(?:triples|facts)[\"']?\s*[:=]\s*[\[(]\s*[\])]", re.IGNORECASE)
_ENTITIES = re.compile(r"entit\w*[\"'”]?\s*[:=]\s*\Z", re.IGNORECASE)  # what stands before a list of entities
_BULLET = re.compile(r"^\s*(?:[-*•]|\(\d{1,2}\)|\d{1,3}[.)])\s+")
_TOKEN = re.compile(r"[(\[{]|[)\]}]|[,:]|[\"'“]|[^\s()\[\]{},:\"'“]+")
_BEFORE_SLOT = ("(", "[", "{", ",", ":")
_BARE = re.compile(r"(?:-?\d+(?:\.\d+)?|null|None|[Tt]rue|[Ff]alse)(?=\s*[,)\]}])")
_AFTER_QUOTE = re.compile(r"\s*(?:[,:)\]};\n]|\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


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
    text = spoken(reply)
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
    triples, malformed = _built(found)
    if malformed and not triples:
        raise ReplyError(
            f"none of the {malformed} entries in the reply is a triple of three texts: {_shortened(text)!r}"
        )
    return ParsedTriples(triples, malformed)


def triples_in(value: Any) -> tuple[Triple, ...]:
    """Read the triples of a JSON value, in order, without repetition; entries that are none are left out."""
    return _built(_entries(value))[0]


def parse_numbered(reply: str, passages: int) -> dict[int, tuple[Triple, ...]]:
    """Read the triples of each of several passages, numbered from 1, in a reply that has one JSON object a passage.

    Objects of the form `{"passage": 1, …, "triples": […]}` count, wherever they stand, if they are whole. Those of
    which no entry is a triple don't, nor do those of one number that differ. A reply that is too long says nothing.
    Never raises.
    """
    try:
        text = spoken(reply)
    except ReplyError:
        return {}
    read: dict[int, tuple[Triple, ...] | None] = {}
    for span in scan(text):
        for number, entry in _numbered(span.value):
            triples, _ = _built(_entries(entry))
            is_said = (bool(triples) or _says_none(entry)) and read.get(number, triples) == triples
            read[number] = triples if is_said else None
    return {number: triples for number, triples in read.items() if triples is not None and 1 <= number <= passages}


def _numbered(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with a passage's number, at the top or in lists."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        number = value.get("passage") if isinstance(value, dict) else None
        if isinstance(number, str) and re.fullmatch(r"[1-9]\d{0,5}", number, re.ASCII):
            yield int(number), value
        elif isinstance(value, dict):
            waiting.extend(each for each in reversed(value.values()) if isinstance(each, list))
        elif isinstance(value, list):
            waiting.extend(each for each in reversed(value) if _is_nested(each))


def _built(found: Iterable[tuple[Any, ...]]) -> tuple[tuple[Triple, ...], int]:
    """The triples among these entries, in order, without repetition, and how many are none."""
    triples: dict[Triple, None] = {}
    malformed = 0
    for slots in found:
        try:
            triple = Triple(*map(_plain, slots))
        except (TripleError, TypeError, AttributeError):
            malformed += 1
            continue
        if len(triple.text) > _LONGEST_FACT:
            malformed += 1
        else:
            triples[triple] = None
    return tuple(triples), malformed


def spoken(reply: str) -> str:
    """Take off a reply what the model thought aloud before it.

    Thoughts stand before the first closing tag that ends a line of prose; no statement ends with one, and a text in
    JSON may hold one. Thoughts that are opened and have no such line end with the first closing tag, or never.

    Raises:
        ReplyError: the reply is longer than `LONGEST_REPLY`.

    """
    if len(reply) > LONGEST_REPLY:
        raise ReplyError(f"the reply has {len(reply)} characters; none of more than {LONGEST_REPLY} is read")
    text = repair_surrogates(reply)
    position = 0 if _OPENED.match(text) else _end_of_thoughts(text)
    last_line = max((found.end() for found in _CLOSED_LINE.finditer(text)), default=0)
    while opened := _OPENED.match(text, position):
        line = _CLOSED_LINE.search(text, opened.end()) if opened[1] and opened.end() < last_line else None
        closed = line or _CLOSED.search(text, opened.end())
        position = len(text) if closed is None else closed.end()
    return text[position:].strip()


def _end_of_thoughts(text: str) -> int:
    """Find where thoughts end that were opened in the prompt; 0 if there are none."""
    if _CLOSED.search(text) is None:
        return 0
    values = (span for span in scan(text) if span.is_read)
    value = next(values, None)
    for closed in _CLOSED_LINE.finditer(text):
        while value is not None and value.end <= closed.start():
            value = next(values, None)
        if value is None or closed.end() <= value.start:
            return closed.end()
    return 0


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:150]} … {text[-40:]}"


def _plain(slot: Any) -> Any:
    """A text as it is, a number as a text."""
    return str(slot) if isinstance(slot, str) else slot


def _from_json(text: str) -> list[tuple[Any, ...]] | None:
    """The triples of all JSON values in the text; None if there is no such value that holds a list.

    From the first value on that is cut off, or not JSON, the looser reader of groups takes over.
    """
    found: list[tuple[Any, ...]] = []
    seen = False
    behind = 0
    for span in scan(text):
        if not span.is_read:
            return [*found, *(_from_groups(text[behind:]) or [])] if seen else None
        behind = span.end
        if _is_entity_list(text, span.start):
            continue
        entries = list(_entries(span.value))
        seen = seen or bool(entries) or span.value == [] or _says_none(span.value)
        found.extend(entries)
    return found if seen else None


def _is_entity_list(text: str, opening: int) -> bool:
    return bool(_ENTITIES.search(text, max(0, opening - 40), opening))


def _says_none(value: Any) -> bool:
    lists = {key.lower(): entry for key, entry in value.items()} if isinstance(value, dict) else {}
    return any(key in lists and not lists[key] for key in ("triples", "facts"))


def _entries(value: Any) -> Iterator[tuple[Any, ...]]:
    """Entries that are, or were meant as, triples, in a decoded JSON value; in order, without recursion."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            slots = _named_slots(value)
            waiting.extend(reversed(_members(value) if slots is None else [slots]))
        elif isinstance(value, list):
            waiting.extend(reversed(_elements(value)))
        elif isinstance(value, str):
            yield from _from_lines(value) or ()
        elif isinstance(value, tuple) and not all(isinstance(slot, Number) for slot in value):
            yield value


def _named_slots(value: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Subject, predicate, object of a `{"subject": …}`, `{"head": …}` or `{"source": …}`; None if it is none."""
    lowered = {key.lower(): entry for key, entry in value.items()}
    link = next((link for link in _LINKS if link in lowered), "")
    for first, last in _ENDS:
        named = sum(name in lowered for name in (first, link, last))
        if named == 3 or (named == 2 and not any(map(_is_nested, lowered.values()))):
            return tuple(lowered.get(name) for name in (first, link, last))
    return None


def _members(value: dict[str, Any]) -> list[Any]:
    """The values of an object that may hold triples."""
    return [entry for key, entry in value.items() if "entit" not in key.lower() and _is_nested(entry)]


def _elements(value: list[Any]) -> list[Any]:
    """What a list holds: tuples are entries, the rest is to be looked into."""
    nested = [_is_nested(each) for each in value]
    if nested == [False, False, True]:  # three slots of which one holds a list by mistake
        return [tuple(value)]
    if any(nested):
        return [tuple(each) if isinstance(each, list) and not any(map(_is_nested, each)) else each for each in value]
    return value if all(isinstance(each, str) and _from_lines(each) for each in value) else [tuple(value)]


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


@dataclass
class _Group:
    opening: str
    is_passed_over: bool
    slots: list[Any] = field(default_factory=list)

    def opens(self, opening: str) -> _Group:
        """The group that opens inside: by mistake in the place of a slot, or else not behind any slot of this one."""
        is_slot = str(*self.slots[-1:]).lower() in _ROLES if self.opening == "{" else len(self.slots) == 2
        if is_slot:
            self.slots.append(None)
        else:
            self.slots.clear()
        return _Group(opening, self.is_passed_over or is_slot)

    def entry(self) -> tuple[Any, ...] | None:
        """What the group says, or was meant to say, of a triple."""
        if self.is_passed_over or len(self.slots) < 2 or all(isinstance(slot, Number) for slot in self.slots):
            return None
        if self.opening != "{":
            return tuple(self.slots)
        return _named_slots(dict(zip(map(str, self.slots[::2]), self.slots[1::2], strict=False)))


def _from_groups(text: str) -> list[tuple[Any, ...]] | None:
    """Innermost (…), […] or {…} groups of quoted texts: tuples, cut-off JSON, trailing commas."""
    return list(_groups(text)) or ([] if _EMPTY.search(text) else None)


def _groups(text: str) -> Iterator[tuple[Any, ...]]:
    stack: list[_Group] = []
    open_ended = ""  # quotes that nothing closes any more
    before = mark = ""
    position = 0
    while token := _TOKEN.search(text, position):
        start, position = token.span()
        before, mark = mark, token.group()
        may_be_slot = bool(stack) and before in _BEFORE_SLOT
        if mark in "([{":
            group = stack[-1].opens(mark) if stack else _Group(mark, False)
            group.is_passed_over |= before[-1:] in (":", "=") and _is_entity_list(text, start)
            stack.append(group)
        elif mark in ")]}":
            entry = stack.pop().entry() if stack else None
            if entry:
                yield entry
        elif may_be_slot and mark in "\"'“" and mark not in open_ended:
            end = _closing_quote(text, start)
            if end is None:
                open_ended += mark
            else:
                stack[-1].slots.append(_unescaped(text[start + 1 : end]))
                position = end + 1
        elif may_be_slot and (bare := _BARE.match(text, start)):
            stack[-1].slots.append(None if bare.group().isalpha() else Number(bare.group()))
            position = bare.end()


def _closing_quote(text: str, opening: int) -> int | None:
    """The quote that ends the text: the first that a comma, a colon, a bracket, or the end of the line follows."""
    quote = {"“": "”"}.get(text[opening], text[opening])
    end = opening
    while (end := text.find(quote, end + 1)) >= 0:
        escapes = 0
        while text[end - 1 - escapes] == "\\":
            escapes += 1
        if escapes % 2 == 0 and _AFTER_QUOTE.match(text, end + 1):
            return end
    return None


def _unescaped(text: str) -> str:
    whitespace = {"n": "\n", "t": "\t", "r": "\r"}
    return repair_surrogates(
        _ESCAPE.sub(lambda code: chr(int(code[1], 16)) if code[1] else whitespace.get(code[2], code[2]), text)
    )


def _from_lines(text: str) -> list[tuple[Any, ...]] | None:
    """`subject | predicate | object` lines, tables, and unquoted `(subject, predicate, object)` lines."""
    found: list[tuple[Any, ...]] = []
    follows_row = False
    for raw in text.splitlines():
        line = _BULLET.sub("", raw).strip().rstrip(",;")
        inner = _inside_brackets(line.rstrip("."))
        row = _row(line if inner is None else inner)
        if row and set("".join(row)) <= set("-: "):  # the rule of a table: what stands above it is the heading
            if follows_row:
                found.pop()
            row = []
        elif not row and inner is not None:
            row = [part.strip() for part in inner.split(",")]
        follows_row = bool(row) and [slot.lower() for slot in row] not in _HEADINGS
        if follows_row:
            found.append(tuple(row))
    return found or None


def _row(line: str) -> list[str]:
    """The cells of a line with two pipes or more between or around them."""
    return [_unquoted(cell.strip()) for cell in line.strip("|").split("|")] if line.count("|") >= 2 else []


def _inside_brackets(line: str) -> str | None:
    """What stands between the brackets of a line that is bracketed as a whole, else None."""
    if line[:1] + line[-1:] != "()":
        return None
    depth = 0
    for position, character in enumerate(line):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return line[1:-1] if position == len(line) - 1 else None
    return None


def _unquoted(cell: str) -> str:
    """The cell without quotes around it; an apostrophe, or the quotes of a nickname, are part of the name."""
    inner = cell[1:-1]
    return inner if cell[:1] + cell[-1:] in ('""', "''", "“”") and cell[0] not in inner else cell
