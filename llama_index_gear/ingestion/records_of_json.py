"""The records of a JSON or JSON Lines file, each with its title and its text as people would write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

JSON = {".json", ".jsonl", ".ndjson"}
"""Endings of the files whose records are read."""
_TITLES = ("title", "headline", "heading", "subject", "name", "label")
_TEXTS = frozenset(("text", "content", "contents", "body", "passage", "abstract", "description", "message"))
_PARAGRAPH = "\n\n\n"  # the mark at which LlamaIndex's SentenceSplitter divides a text first
_MAX_TITLE = 120  # characters
_SPEAKERS = ("user_profile", "from", "author", "sender_name", "sender", "username", "actor", "role", "user")
_OWN_NAMES = ("real_name", "nickname", "display_name", "global_name", "name", "username", "role")
_TIMES = ("ts", "date", "timestamp", "timestamp_ms", "time", "sent_at", "created_at", "create_time", "role")
"""Fields of a message of a chat: who wrote it, a person's name, and what tells it from another record."""
_ADDRESS = re.compile(r"<(https?://[^<>|\s]+)(?:\|([^<>]*))?>|<[#!][^<>|]*\|([^<>]*)>|<@[A-Z0-9]+(?:\|([^<>]*))?>")
"""Matches an address, a channel or a person in a message of Slack."""
_ID = re.compile(r"[A-Z0-9]{7,}")


class Record(NamedTuple):
    """A record: its title, "" if it has none, and its text."""

    title: str
    text: str


def read_json(text: str, ending: str) -> list[Record]:
    """Read the records of a file: the objects of its outermost list, of its lines, or the file itself.

    The text of a record is that of its longest fields, and its other fields as a sentence: "name: Ada; office: Berlin."
    The messages of a chat are one text of paragraphs: "Ada: The office is open." Other records without titles are
    paragraphs of one text. A file in another dialect stays as it is.

    Args:
        text: the file.
        ending: of its name.

    Raises:
        ValueError: a line of JSON Lines is no JSON.

    """
    try:
        value = json.loads(text) if ending == ".json" else _read_lines(text)
    except json.JSONDecodeError:
        return [Record("", text)]
    entries = _find_entries(value)
    if messages := [message for message in map(_read_message, entries) if message]:
        if 2 * len(messages) > sum(isinstance(entry, dict) and _find_words(entry) != "" for entry in entries):
            name = value.get("name") if isinstance(value, dict) else ""
            return [Record(str(name) if _is_title(name) else "", "\n\n".join(messages))]
    records = [_read_record(entry) for entry in entries]
    if len(records) > 1 and all(record.title for record in records):
        return records
    title = records[0].title if len(records) == 1 else ""
    return [Record(title, _PARAGRAPH.join(record.text for record in records if record.text))]


def _read_lines(text: str) -> list[Any]:
    values = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number} is no JSON: {error.msg}; write an object a line") from error
    return values


def _find_entries(value: Any) -> list[Any]:
    """Return the objects of a list, which may be the one long field of an object."""
    if isinstance(value, dict):
        lists = [part for part in value.values() if isinstance(part, list) and len(part) > 1]
        if len(lists) == 1 and all(isinstance(entry, dict) for entry in lists[0]):
            return lists[0]
    return value if isinstance(value, list) else [value]


def _read_message(entry: Any) -> str:
    """Return a message of a chat as "name: text"; "" for what is none."""
    if not isinstance(entry, dict) or not any(key in entry for key in _TIMES) or _is_title(entry.get("title")):
        return ""
    who = next((entry[key] for key in _SPEAKERS if entry.get(key)), None)
    if isinstance(who, dict):
        who = next((who[key] for key in _OWN_NAMES if who.get(key)), None)
    words = _find_words(entry)
    if not isinstance(who, str) or not words:
        return ""
    return words if _ID.fullmatch(who) else f"{who}: {words}"


def _find_words(entry: Mapping[str, Any]) -> str:
    """Return what a message says: a text, or pieces of one."""
    said = next((entry[key] for key in ("text", "content", "message", "body") if entry.get(key)), "")
    pieces = said if isinstance(said, list) else [said]
    words = "".join(str(piece.get("text", "")) if isinstance(piece, dict) else str(piece) for piece in pieces)
    return _ADDRESS.sub(_write_address, words).strip()


def _write_address(match: re.Match[str]) -> str:
    address, text, channel, person = match.groups(default="")
    return f"{text} ({address})" if address and text else address or channel or person


def _read_record(entry: Any) -> Record:
    if not isinstance(entry, dict):
        return Record("", "; ".join(value for _, value in _flatten(entry)))
    own = {str(key).casefold(): value for key, value in entry.items()}
    key = next((key for key in _TITLES if _is_title(own.get(key))), "")
    bodies = {name: value for name, value in own.items() if name in _TEXTS and isinstance(value, str)}
    rest = {name: value for name, value in own.items() if name != key and name not in bodies}
    fields = "; ".join(f"{name}: {value}" for name, value in _flatten(rest))
    sentence = [f"{fields}." if fields[-1] not in ".!?" else fields] if fields else []
    title = " ".join(str(own[key]).split()) if key else ""
    return Record(title, "\n\n".join([*filter(str.strip, bodies.values()), *sentence]))


def _is_title(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _MAX_TITLE


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a value that say something, each with its path as words."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{name} {key}".strip().replace("_", " "))
    elif isinstance(value, list):
        plain = [str(inner) for inner in value if isinstance(inner, str | int | float) and str(inner).strip()]
        if plain:
            yield name, ", ".join(plain)
        for inner in value:
            if isinstance(inner, Mapping | list):
                yield from _flatten(inner, name)
    elif value is not None and str(value).strip():
        yield name, " ".join(str(value).split())
