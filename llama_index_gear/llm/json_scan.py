"""A scanner for the JSON values in a reply, which all parsers share, and what reads one value, such as yes or no.

A value may stand in prose or in a fence, and may be written as Python or JavaScript write it. A value that is cut off
is unreadable; whole values inside it are found. Time and memory grow linearly with the text: values do not overlap, and
the search ends after too many failures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from llama_index_gear.errors import ReplyError

MAX_REPLY_LENGTH = 500_000
"""Maximum length of a reply that is parsed, in characters; none that was asked for is longer."""

_MAX_FAILURES = 50
_MAX_WASTED_LENGTHS = 4  # read in vain, in lengths of the text; a value cut off three levels deep takes three

_OPENING = re.compile(r"[\[{]")
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_CLOSING = r"(?=\s{0,99}(?:[,:)\]};\n]|\Z))"
_LOOSE = re.compile(
    r"(?P<blank>\s+|//[^\n]*|#[^\n]*|/\*[^*]*\*/)"
    rf"|(?P<text>\"(?:[^\"\\]|\\.|\"(?!{_CLOSING}))*\"|'(?:[^'\\]|\\.|'(?!{_CLOSING}))*'|“[^“”]*”)"
    r"|(?P<open>[\[{(])|(?P<close>[\]})])|(?P<mark>[,:])|(?P<number>-?\d[\d.eE+-]*(?!\w))"
    r"|(?P<word>(?:[Tt]rue|[Ff]alse|null|None)\b(?!\s*:))|(?P<key>[A-Za-z_]\w*(?=\s{0,99}:))",
    re.DOTALL,
)
"""A part of a value as Python or JavaScript write it."""
_LOOSE_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|([\"\\/bfnrt])|(.))|\"", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}


class Number(str):
    """A number, as the text that the model wrote.

    A list of nothing but numbers is no triple: prose has citations such as `[1, 2]`.
    """

    __slots__ = ()


class Fields(dict[str, Any]):
    """A JSON object. For a name that stands in it twice, the dict has the last value, and `pairs` has both."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


class _Nothing:
    """The type of the markers for a place without a value."""


UNREADABLE = _Nothing()
"""Marks a place that looks like JSON and is not."""
UNSEARCHED = _Nothing()
"""Marks the rest of the text after a search that ended early."""


class Span(NamedTuple):
    """A value and its place in the text. An `UNREADABLE` one spans its first character."""

    start: int
    end: int
    value: Any

    @property
    def is_read(self) -> bool:
        """True if there is a value."""
        return not isinstance(self.value, _Nothing)


_YES_OR_NO = {"true": True, "yes": True, "1": True, "1.0": True, "false": False, "no": False, "0": False, "0.0": False}
_DECODER = json.JSONDecoder(
    strict=False, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=Fields
)


def scan(text: str) -> Iterator[Span]:
    """Find the outermost objects and lists of a text, in order.

    Lone surrogates in their texts are replaced by U+FFFD.
    """
    clean = _ESCAPE.sub(lambda match: r"\ufffd" if match["lone"] else match.group(), text)  # of the same length
    position = failures = wasted = 0
    while opening := _OPENING.search(clean, position):
        if failures == _MAX_FAILURES or wasted > _MAX_WASTED_LENGTHS * len(text):
            yield Span(position, len(text), UNSEARCHED)
            return
        start, position = opening.span()
        value: Any = UNREADABLE
        try:
            value, position = _DECODER.raw_decode(clean, start)
        except json.JSONDecodeError as error:
            is_loose = clean[error.pos : error.pos + 1] not in ("", '"', "[", "{")
            value, end = _read_loose(clean, start) if is_loose else (UNREADABLE, error.pos)
            if value is UNREADABLE:
                failures, wasted = failures + 1, wasted + max(end, error.pos) - start
            else:
                position = end
        except RecursionError:  # it comes early, so little was read in vain
            failures += 1
        yield Span(start, position, value)


def _read_loose(text: str, start: int) -> tuple[Any, int]:
    """Read a value with quotes, words, comments or commas that JSON doesn't have.

    Returns:
        The value, `UNREADABLE` if there is none; and where it ends, or where it could not be read any further.

    """
    parts: list[str] = []
    depth, position = 0, start
    while found := _LOOSE.match(text, position):
        kind, part, position = found.lastgroup, found[0], found.end()
        if kind == "blank":
            continue
        if kind == "close" and parts[-1] == ",":
            parts.pop()
        depth += (kind == "open") - (kind == "close")
        parts.append(_write_json(kind, part))
        if depth == 0:
            try:
                return _DECODER.decode("".join(parts)), position
            except (json.JSONDecodeError, RecursionError):
                break
    return UNREADABLE, position


def _write_json(kind: str | None, part: str) -> str:
    """Write a part of a value as JSON does: a tuple as a list."""
    if kind == "text":
        return f'"{_LOOSE_ESCAPE.sub(_escape, part[1:-1])}"'
    if kind == "key":
        return f'"{part}"'
    return _WORDS.get(part, part).translate({ord("("): "[", ord(")"): "]"})


def _escape(match: re.Match[str]) -> str:
    """Return an escape as JSON knows it; a stroke that escapes nothing is one."""
    if match[0] == '"':
        return r"\""
    return match[0] if match[2] is None else match[2] if match[2] == "'" else rf"\\{match[2]}"


class ScannedReply:
    """A reply and the JSON values in it, found once for all its parsers.

    Attributes:
        text: the reply, stripped.

    Args:
        reply: without thoughts, as `Reply.text` is.

    Raises:
        ReplyError: it is longer than `MAX_REPLY_LENGTH`.

    """

    def __init__(self, reply: str) -> None:
        if len(reply) > MAX_REPLY_LENGTH:
            raise ReplyError(f"the reply has {len(reply)} characters; none of more than {MAX_REPLY_LENGTH} is read")
        self.text = reply.strip()

    @cached_property
    def spans(self) -> list[Span]:
        """The outermost values and their places; see `scan`."""
        return list(scan(self.text))


def _decode_arguments(name: str, value: Any) -> Any:
    """Return what the arguments of a function hold as JSON; another value stays."""
    if name != "arguments" or not isinstance(value, str):
        return value
    return next((span.value for span in scan(value) if span.is_read), value)


def find_objects(values: Iterable[Any]) -> Iterator[Fields]:
    """Find every object in JSON values, outermost first, in order, without recursion."""
    waiting = list(values)[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Fields):
            yield value
            waiting.extend(reversed([_decode_arguments(name, entry) for name, entry in value.items()]))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def find_forms(values: Iterable[Any], key: str) -> list[dict[str, list[Any]]]:
    """Find the objects that have a key. Return each as a dict: name in lower case → all values that it has there."""
    result: list[dict[str, list[Any]]] = []
    for fields in find_objects(values):
        form: dict[str, list[Any]] = {}
        for name, value in fields.pairs:
            form.setdefault(name.lower(), []).append(value)
        if key in form:
            result.append(form)
    return result


def find_texts(value: Any) -> Iterator[str]:
    """Find the texts and numbers in a value and in its lists, in order, without recursion."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield str(value)
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def find_forms_and_prose(reply: ScannedReply, key: str) -> tuple[list[dict[str, list[Any]]], str]:
    """Find the JSON objects of a reply that have this key, and the prose around all JSON.

    Returns:
        The objects, as dicts: name in lower case → all its values. And the prose.

    Raises:
        ReplyError: beside such objects there is one that is cut off, or the text has too much that looks like JSON and
            is not.

    """
    text, spans = reply.text, reply.spans
    forms = find_forms((span.value for span in spans), key)
    parts, end = [], 0
    for span in spans:
        if span.is_read:
            parts.append(text[end : span.start])
            end = span.end
    prose = "\n".join([*parts, text[end:]])
    if spans and spans[-1].value is UNSEARCHED:
        raise ReplyError(f"no {key} can be read, too much looks like JSON and is not, in the reply {text[:200]!r}")
    if forms and re.search(rf"[{{,]\s*[\"']{key}[\"']\s*:", prose, re.IGNORECASE):
        raise ReplyError(f"one of several JSON objects with {key!r} cannot be read in the reply {text[:200]!r}")
    return forms, prose


def parse_yes_or_no(reply: ScannedReply, key: str, what: str) -> tuple[bool, list[dict[str, list[Any]]]]:
    """Read the value of a key that is true or false, in JSON or as a label in prose, with or without Markdown.

    Args:
        reply: the model's.
        key: in lower case.
        what: the name of the value in errors.

    Returns:
        The value, and the objects that have the key; see `find_forms_and_prose`.

    Raises:
        ReplyError: the reply gives neither true nor false, or both.

    """
    text = reply.text
    forms, prose = find_forms_and_prose(reply, key)
    label = rf"(?<!\w)(?<!not )_{{0,3}}{key}[\"'`*_]*\s*[:=]"
    flags = re.findall(rf"{label}[\s\"'`*_]*(true|false|yes|no)_{{0,3}}(?!\w)", prose, re.IGNORECASE)
    values = [*(value for form in forms for value in form[key]), *flags]
    if not values and re.fullmatch(r"\W*(?:true|false|yes|no)\W*", text, re.IGNORECASE):
        values = [text.strip("\"'`*_ \n")]  # nothing else was asked for
    answers = {
        _YES_OR_NO.get(str(value).strip(" .").lower()) if isinstance(value, str | bool) else None for value in values
    }
    if None in answers or not answers:
        raise ReplyError(f"no {what} can be read in the reply {text[:200]!r}")
    if len(answers) > 1:
        raise ReplyError(f"no {what} can be read, {key!r} is both true and false, in the reply {text[:200]!r}")
    return answers == {True}, forms


def require_one(values: Iterable[str], text: str) -> str:
    """Return the one value that these are, up to case and white space. Empty values are left out; "" if all are empty.

    Raises:
        ReplyError: two values differ; the error quotes the reply, `text`.

    """
    distinct = {" ".join(value.split()).casefold(): value for value in values if value.strip()}
    if len(distinct) > 1:
        raise ReplyError(f"the reply gives {len(distinct)} answers, where one is asked for: {text[:200]!r}")
    return next(iter(distinct.values()), "")
