"""The records of a JSON or JSON Lines file, each with its title and its text as people would write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any, NamedTuple

JSON = {".json", ".jsonl", ".ndjson"}
"""Endings of the files whose records are read."""
_TITLES = ("title", "headline", "heading", "subject", "name", "label")
_TEXTS = frozenset(("text", "content", "contents", "body", "passage", "abstract", "description", "message"))
_PARAGRAPH = "\n\n\n"  # the mark at which LlamaIndex's SentenceSplitter divides a text first
_MAX_TITLE = 120  # characters
_SPEAKERS = ("user_profile", "from", "author", "sender_name", "sender", "username", "actor", "role", "user")
_OWN_NAMES = ("displayName", "real_name", "nickname", "display_name", "global_name", "name", "username", "role")
_TIMES = (
    "ts",
    "date",
    "timestamp",
    "timestamp_ms",
    "time",
    "sent_at",
    "created_at",
    "create_time",
    "createdDateTime",
    "role",
)
"""Fields of a message of a chat: who wrote it, a person's name, and what tells it from another record."""
_WORDS = ("text", "content", "message", "body")
_OF_CHATS = frozenset((*_SPEAKERS, *_TIMES)).union(
    "type subtype id edited reactions attachments topic".split(),
    # Slack
    "client_msg_id team user_team source_team blocks files upload display_as_bot thread_ts parent_user_id reply_count"
    " reply_users_count latest_reply reply_users replies is_locked subscribed last_read bot_id bot_profile app_id icons"
    " inviter purpose root hidden pinned_to permalink metadata channel is_starred".split(),
    # Telegram
    "date_unixtime from_id text_entities edited_unixtime reply_to_message_id reply_to_peer_id forwarded_from"
    " forwarded_from_id forwarded_date saved_from photo photo_file_size width height file file_name file_size thumbnail"
    " thumbnail_file_size media_type media_spoiler sticker_emoji mime_type duration_seconds actor_id action members"
    " message_id via_bot inline_bot_buttons".split(),
    # Discord
    "timestampedited callendedtimestamp ispinned embeds stickers mentions inlineemojis reference interaction channel_id"
    " guild_id tts nonce mention_everyone mention_roles pinned flags components edited_timestamp message_reference"
    " referenced_message webhook_id position member sticker_items".split(),
    # Teams
    "body etag messagetype createddatetime lastmodifieddatetime importance locale weburl channelidentity chatid"
    " replytoid".split(),
    # Facebook, and models
    "is_geoblocked_for_viewer is_geoblocked_for_viewer_v2 is_unsent is_unsent_image_by_messenger_kid_parent"
    " is_taken_down bumped_message_metadata photos videos audio_files gifs share sticker tool_calls tool_call_id"
    " function_call refusal model status end_turn weight recipient".split(),
)
"""Fields that messages of chats have. A record with others is none: all that it says is kept."""
_ADDRESS = re.compile(
    r"<(?:mailto:)?(https?://[^<>|\s]+|[^<>|\s@]+@[^<>|\s]+)(?:\|([^<>]*))?>"
    r"|<[#!][^<>|]*(?:\|([^<>]*))?>|<@[A-Z0-9]+(?:\|([^<>]*))?>"
)
"""Matches an address, a channel or a person in a message of Slack."""
_TAG = re.compile(r"(<(?:br|/?(?:p|div|li))\b[^<>]*>)|<[^<>]*>")
_ID = re.compile(r"[A-Z0-9]{7,}")
_CAMEL = re.compile("[a-z]{2,}[0-9]*(?:[A-Z][a-z0-9]+)+")
"""Matches a key as programs write it: "mimeType", but neither "macOS" nor "JavaScript"."""
_HUMP = re.compile("(?=[A-Z])")


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
    entries_with_words = [entry for entry in entries if not isinstance(entry, dict) or _find_words(entry)]
    messages = [_read_message(entry) for entry in entries_with_words]
    if 2 * len(list(filter(None, messages))) > len(messages):
        name = value.get("name") if isinstance(value, dict) else ""
        texts = [
            message or _write_whole(_read_record(entry))
            for message, entry in zip(messages, entries_with_words, strict=True)
        ]
        return [Record(str(name) if _is_title(name) else "", "\n\n".join(filter(None, texts)))]
    records = [_read_record(entry) for entry in entries]
    if len(records) > 1 and all(record.title for record in records):
        return records
    if len(records) == 1:
        return records
    return [Record("", _PARAGRAPH.join(filter(None, map(_write_whole, records))))]


def _write_whole(record: Record) -> str:
    """Return a record's text with its title in front."""
    return ": ".join(filter(None, record))


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
    if not isinstance(entry, dict) or not any(key in entry for key in _TIMES):
        return ""
    said = [key for key in _WORDS if entry.get(key)]
    if len(said) != 1 or not all(key in said or key.casefold() in _OF_CHATS for key, value in entry.items() if value):
        return ""
    who = next((entry[key] for key in _SPEAKERS if entry.get(key)), None)
    if isinstance(who, dict):
        who = next((who[key] for key in ("user", "application") if isinstance(who.get(key), dict)), who)
        who = next((who[key] for key in _OWN_NAMES if who.get(key)), None)
    words = _find_words(entry)
    if not isinstance(who, str) or not words:
        return ""
    return words if _ID.fullmatch(who) else f"{who}: {words}"


def _find_words(entry: Mapping[str, Any]) -> str:
    """Return what a message says: a text, or pieces of one."""
    said = next((entry[key] for key in _WORDS if entry.get(key)), "")
    if isinstance(said, dict) and isinstance(said.get("content"), str):
        is_html = said.get("contentType") == "html"
        said = said["content"]
        if is_html:
            said = " ".join(unescape(_TAG.sub(lambda tag: " " if tag[1] else "", said)).split())
    pieces = said if isinstance(said, list) else [said]
    words = "".join(str(piece.get("text", "")) if isinstance(piece, dict) else str(piece) for piece in pieces)
    return _ADDRESS.sub(_write_address, words).strip()


def _write_address(match: re.Match[str]) -> str:
    address, text, channel, person = match.groups(default="")
    return f"{text} ({address})" if address and text not in ("", address) else address or channel or person


def _read_record(entry: Any) -> Record:
    if not isinstance(entry, dict):
        return Record("", "; ".join(value for _, value in _flatten(entry)))
    own = {str(key).casefold(): value for key, value in entry.items()}
    names = {str(key).casefold(): _name_field(str(key)).casefold() for key in entry}
    key = next((key for key in _TITLES if _is_title(own.get(key))), "")
    bodies = {name: value for name, value in own.items() if name in _TEXTS and isinstance(value, str)}
    rest = [(names[name], value) for name, value in own.items() if name != key and name not in bodies]
    fields = "; ".join(f"{name}: {inner}" for field, value in rest for name, inner in _flatten(value, field))
    sentence = [f"{fields}." if fields[-1] not in ".!?" else fields] if fields else []
    title = " ".join(str(own[key]).split()) if key else ""
    return Record(title, "\n\n".join([*filter(str.strip, bodies.values()), *sentence]))


def _is_title(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _MAX_TITLE


def _name_field(key: str) -> str:
    """Return a key as words. One in capitals and small letters is no name that a text would have."""
    return (_HUMP.sub(" ", key).lower() if _CAMEL.fullmatch(key) else key).replace("_", " ")


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a value that say something, each with its path as words."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{name} {_name_field(str(key))}".strip())
    elif isinstance(value, list):
        plain = [str(inner) for inner in value if isinstance(inner, str | int | float) and str(inner).strip()]
        if plain:
            yield name, ", ".join(plain)
        for inner in value:
            if isinstance(inner, Mapping | list):
                yield from _flatten(inner, name)
    elif value is not None and str(value).strip():
        yield name, " ".join(str(value).split())
