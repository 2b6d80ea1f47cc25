r"""Text as people see it: one spelling, numbers of things, and what can't be seen, as JSON writes it (`\u202e`).

Unseen characters move a terminal's cursor, turn the direction of writing, end a line, or make two names look alike.
"""

from __future__ import annotations

import re
import unicodedata

_EMPTY = r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\uffa0"
"""Letters and marks that show nothing."""
_ALWAYS = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # of format
    rf"{_EMPTY}\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
    r"\ud800-\udfff"  # half characters
)
_JOINED = r"\u0620-\u109f\u1780-\u17ff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
"""Letters and pictures that joiners belong to: of Arabic, of India's scripts, of emoji."""
_VARIED = r"#*0-9\xa9\xae\u203c-\u3299\u3400-\u9fff\uf900-\ufaff\U0001f000-\U0003ffff"
"""Signs that a variation selector may follow."""
_UNSEEN = re.compile(
    rf"[{_ALWAYS}]|\r(?!\n)|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])"
    rf"|(?<![{_VARIED}])[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_IGNORED = re.compile(rf"[{_EMPTY}\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Matches what shows nothing and is no format character: variation selectors too."""
_MARK = re.compile(r"[^\w\s]")
_MARKS = re.compile(r"([^\w\s]{64})")
"""Matches marks that may all belong to one letter: they are put in order in a time that grows with their square."""


def unify_spelling(text: str) -> str:
    """Return the one spelling of a text: Unicode NFKC, without invisible characters.

    Two texts that look alike to a reader, with composed and decomposed letters, ligatures, full-width letters or soft
    hyphens, are then the same.
    """
    if text.isascii():
        return text
    text = _IGNORED.sub("", text)
    marks = () if text.replace("\n", " ").isprintable() else set(text)  # what is printable isn't invisible
    unseen = {ord(mark): None for mark in marks if unicodedata.category(mark) == "Cf"}
    return normalize(text.translate(unseen) if unseen else text)  # one between letter and accent would keep them apart


def normalize(text: str) -> str:
    """Return a text in Unicode's NFKC, in bounded time: of more than 64 marks in a row each 64 are taken alone."""
    if not _MARK.search(text[63::64]):  # nearly all texts: 64 in a row would have one of these places
        return unicodedata.normalize("NFKC", text)
    return "".join(unicodedata.normalize("NFKC", part) for part in _MARKS.split(text))


def escape_unseen(text: str) -> str:
    r"""Escape what can't be seen; line breaks and tabs stay.

    What JSON's strings hold is the same JSON afterwards: `\u009b` means the character.
    """
    return text if text.isprintable() and text.isascii() else _UNSEEN.sub(lambda match: _escape(match[0]), text)


def escape_line(text: str) -> str:
    """Escape what can't be seen, line breaks and tabs too."""
    return re.sub(r"[\t\r\n]", lambda match: _escape(match[0]), escape_unseen(text))


def escape_unwritable(text: str, encoding: str) -> str:
    """Escape the characters that an encoding doesn't have."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(mark if mark.encode(encoding, "ignore") else _escape(mark) for mark in text)
    return text


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def count(number: int, noun: str) -> str:
    """Return a number of things in words.

    Args:
        number: how many there are.
        noun: what one of them is called; several have an "s".

    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
