"""Letters: what the converter would lose of them is kept, and what only programs read is left out."""

from __future__ import annotations

import email
import email.encoders
import email.errors
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from llama_index_gear.extraction.lines import HIDDEN, hide

_UNSEEN = re.compile(r"(?i)<meta\b[^<>]*>|<a\b[^<>]*>\s*+(?:<img\b[^<>]*>\s*+)++</a\s*>")
"""Matches what the HTML of a letter has that no reader sees, and pictures that are links."""
_DELIMITER = re.compile(r"(?:-- ?|_{20,})[ \t]*\r?")
"""Matches the line above a letter's signature, or above what a list adds to each letter."""
_MOST_OF_FOOTER = 12  # lines
_HEADER = re.compile(r"[A-Z][\w-]*:[ \t]")
_QUOTED_FOOTER = re.compile(r"(?m)^(>[> \t]*)_{20,}[ \t]*\r?\n(?:\1.*(?:\n|\Z)){1,6}(?!>)")
"""Matches what a list added to a letter that is quoted, at the end of the quotation."""
_END_OF_LINE, _END_OF_MARKDOWN, _ESCAPE = "%0A;%0D;", "%0A;%0C;", "%5C;%0D;"
"""Stand for the end of a line of a letter while it is converted, for that of its Markdown, and for a backslash."""
_ENDED = re.compile(rf" ?(?:{_END_OF_LINE}|{_END_OF_MARKDOWN}) ?")
_NO_HEADING = re.compile(r"(?m)^(?:[-=]{2,}(?=[ \t]*$)|#{1,6}(?=\s))")
"""Matches what would make a heading of plain text."""
_TRACE = re.compile(
    r"(?mi)^[> \t]*(?:Received: (?:from|by) |Return-Path: <|D[\w-]+-Signature: \w+=).*(?:\n[> \t]*[^\s>].*)*$"
)
"""Matches the head of a letter that is quoted or came back, from the first line that only programs read."""
_FIRST_LINE = re.compile(
    r"From \S+ .*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|(?:Received|Return-Path|Delivered-To|From|Date|MIME-Version): "
)
_FORM = re.compile(r"(?i)^(?:.+\n)*?Content-(?:Type: *multipart/|Transfer-Encoding: *(?:base64|quoted))")
"""Matches the head of a letter whose text no reader can read as it stands."""
_PART = re.compile(r"(?mi)^--(?=-*[^\s-]).*\n(?:Content-|\r?\n)")
"""Matches where a part begins. Without any, a letter of several parts lost their bounds: what is left is plain text."""
_OWN_HEAD = re.compile(r"(?:From \S+ .*\n)?(?:[A-Za-z][\w-]*:.*\n(?:[ \t]+\S.*\n)*)+(?=\n|\Z)")
_OF_PROGRAMS = re.compile(
    r"(?mi)^(?:(?:Message-ID|In-Reply-To|Return-Path|Delivered-To):(?:\n[ \t]+)?.*[<@]"
    r"|Received:[ \t]*(?:from|by)\b|MIME-Version:[ \t]*\d)"
)
"""Matches a line that only letters have in their heads. Forms have "Received: 3 May" and "X-Ray: clear", too."""
_SENDER = re.compile(r"(?mi)^From[: ]")
"""Matches a line that each letter has in its head."""
_NEXT_LETTER = re.compile(r"(?m)(?<=\n\n)(?=From \S+ .*\n[A-Z][\w-]*: )")
"""Matches where the next letter of a mailbox begins."""
_MULTIPART = re.compile(r"(?i)Content-Type: *multipart/")
_FIELD = re.compile(r"(?im)^(?:Content-[\w-]+|From|To|Cc|Date|Subject):.*(?:\n[ \t]+\S.*)*")
_MOST_MULTIPARTS, _LONGEST_FIELD = 50, 20_000  # of a letter, characters: the parser's time grows with their square
_ENCODED, _PLAIN = {"base64", "quoted-printable"}, {"", "7bit", "8bit", "binary"}
_HEAD = ("From", "To", "Cc", "Date", "Subject")
_OF_READERS = re.compile(r"(?i)[> \t]*(?:From|To|Cc|Date|Subject): ")
_CONTINUED = re.compile(r"[ \t]+\S|>[> ]*(?:\t| {2})[ \t]*\S")
_DATE = re.compile(r"(?mi)^([> \t]*(?:\*\*Date\*\*|Date): *)(.*)$")
_ENCODED_LINES = re.compile(
    r"(?m)(?:^[> \t]*+(?:(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/]{56,}={0,2}|M[!-`]{60})[ \t]*\r?\n){3,}"
    r"(?:^[> \t]*+[A-Za-z0-9+/]{4,}={0,2}[ \t]*\r?$)?"
)
"""Matches lines of base64 or uuencode, which are no text."""
_ANSWERED = re.compile(r"(?i)^(?:\s*(?:re|fwd?|aw|wg|antw|sv|tr|rv)\s*:)+\s*")
"""Matches what stands in front of a subject that was answered or sent on."""
_NOTE_OF_LIST = re.compile(
    r"(?m)^[> \t\\]*\[\[(?=[^\[\]\n]*\]\])"
    r"[^\[\]\n]*\b(?:deleted|removed|scrubbed|stripped|omitted)\b[^\[\]\n]*\]\][ \t]*$"
)
"""Matches a line that a list left in place of a part of a letter."""


_BROKEN = (email.errors.MissingHeaderBodySeparatorDefect, email.errors.StartBoundaryNotFoundDefect)


def prepare_letter(letter: bytes, convert_page: Callable[[bytes], str]) -> bytes:
    """Return a letter as the converter reads it best.

    Its HTML is converted as a page is; text that says the same is left out, and so are signatures. Files of text that
    are attached become part of its text. Ends of lines, which the converter would lose, are marked.

    Args:
        letter: its bytes.
        convert_page: returns a page of HTML, in UTF-8, as Markdown; "" if it has no text.

    """
    message = email.message_from_bytes(letter)
    if any(isinstance(defect, _BROKEN) for defect in message.defects):  # written anew it would lose more
        return letter
    written: set[int] = set()
    is_changed = False
    for part in message.walk():
        payload = part.get_payload(decode=True)
        if not isinstance(payload, bytes):
            continue
        kind, name, charset = part.get_content_type(), part.get_filename(), str(part.get_content_charset("utf-8"))
        if name or charset.startswith(("utf-16", "utf-32")):
            with suppress(LookupError):  # of a charset that is none
                payload, charset = payload.decode(charset, "replace").encode("utf-8", "replace"), "utf-8"
        if kind == "text/html" and not name:
            plain = convert_page(_read_page(payload, charset)).encode()
            if not plain.strip():
                continue
            charset = "utf-8"
            written.add(id(part))
        elif kind in ("text/plain", "text/markdown"):
            plain = f"{name}:\n\n".encode("utf-8", "replace") + payload if name else _drop_signature(payload)
            plain = b"" if b"\0" in payload else plain  # a picture whose type is misspelled
        else:
            continue
        part.set_payload(_mark_lines(plain, is_markdown=kind != "text/plain"))
        del part["Content-Transfer-Encoding"], part["Content-Disposition"], part["Content-Type"]
        part["Content-Type"] = f'text/plain; charset="{charset}"'
        email.encoders.encode_base64(part)
        is_changed = True
    for part in message.walk():
        if part.get_content_type() == "multipart/alternative" and written.intersection(map(id, part.walk())):
            parts: list[Any] = [one for one in part.get_payload() if isinstance(one, Message)]
            others = [one for one in parts if id(one) in written or one.get_content_type() != "text/plain"]
            part.set_payload(others)
    return message.as_bytes() if is_changed else letter


def _read_page(payload: bytes, charset: str) -> bytes:
    try:
        text = payload.decode(charset, "replace")
    except LookupError:
        text = payload.decode("latin-1")
    return _UNSEEN.sub("", hide(text, (*HIDDEN, ("<title", "</title>")), "")).encode("utf-8", "replace")


def _mark_lines(text: bytes, *, is_markdown: bool) -> bytes:
    """Put a mark in place of each end of a line. In plain text a rule or "#" makes no heading."""
    lines = text.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")  # any bytes, whatever their characters
    if not is_markdown:
        lines = _NO_HEADING.sub(lambda match: f"{_ESCAPE if match[0][0] == '#' else chr(10)}{match[0]}", lines)
    return lines.replace("\n", f" {_END_OF_MARKDOWN if is_markdown else _END_OF_LINE} ").encode("latin-1")


def _restore_lines(text: str) -> str:
    """Put the ends of lines back, and take off what the converter put in front of the marks of quotations."""
    paragraphs = text.split("\n\n")
    for place, paragraph in enumerate(paragraphs):
        if _END_OF_MARKDOWN in paragraph:
            paragraph = re.sub(r"\\([\\<>~`])", r"\1", paragraph)
        paragraphs[place] = _ENDED.sub("\n", paragraph)
    text = "\n\n".join(paragraphs).replace(_ESCAPE, "\\")
    text = re.sub(r"(?m)^(?:\\>[ ]?)+", lambda match: match[0].replace("\\", ""), text)
    return re.sub(r"\n{3,}", "\n\n", text)


def _drop_signature(payload: bytes) -> bytes:
    """Return a letter's text without its signature. A letter that is sent on below such a line stays."""
    text = _QUOTED_FOOTER.sub("", payload.decode("latin-1"))  # any bytes, whatever their characters
    lines = text.split("\n")
    for place in range(max(1, len(lines) - _MOST_OF_FOOTER), len(lines)):
        if _DELIMITER.fullmatch(lines[place]) and not any(map(_HEADER.match, lines[place + 1 :])):
            above = "\n".join(lines[:place])
            return (above if above.strip() else text).encode("latin-1")
    return text.encode("latin-1")


def drop_heads(text: str) -> str:
    """Return a text with only those lines of quoted letters' heads that say who writes to whom, when and of what."""
    return _TRACE.sub(lambda head: "\n".join(_keep_of_readers(head[0])), text)


def _keep_of_readers(head: str) -> Iterator[str]:
    """Yield the lines of a letter's head that are for readers; its date is a number, which no name is."""
    is_kept = False
    for line in head.split("\n"):
        is_kept = bool(_OF_READERS.match(line) or (is_kept and _CONTINUED.match(line)))
        if is_kept:
            yield _DATE.sub(_write_date, line)


def strip_answered(subject: str) -> str:
    """Return a subject without what was put in front when it was answered or sent on ("Re: Fwd: ")."""
    return _ANSWERED.sub("", subject)


class PlainText(NamedTuple):
    """The text of a plain file, or of the letters in it.

    Attributes:
        text: the text; of letters: who writes to whom, when and of what, and what they say.
        subject: what a letter is of; "" of several, and of other texts.
        is_whole: False if part of a letter is encoded, or is HTML, and stays as it is.

    """

    text: str
    subject: str = ""
    is_whole: bool = True


def read_plain_letter(text: str) -> PlainText:
    """Read the text of a file of plain text, which may be a letter or a mailbox.

    Of a mailbox every letter is read. One whose text is HTML alone, or that can't be read whole, has only the lines
    left out that programs read.
    """
    head = _OWN_HEAD.match(text)
    is_head = head is not None and _is_of_letter(head[0])
    if not is_head and not _FIRST_LINE.match(text):
        return PlainText(text)
    *letters, last = _NEXT_LETTER.split(text) if text.startswith("From ") else [text]
    *read, end = [_read_letter(letter) for letter in (*letters, last)]
    is_whole = all(is_whole for _, is_whole in (*read, end))
    said = "\n\n".join([*(said.rstrip("\n") for said, _ in read), end[0]])
    return PlainText(said, _find_subject(head[0]) if head and is_head and not read else "", is_whole)


def _is_of_letter(head: str) -> bool:
    """Return True if lines of names and values are a letter's head, and no glossary."""
    return "@" in head and _OF_PROGRAMS.search(head) is not None and _SENDER.search(head) is not None


def _find_subject(head: str) -> str:
    found = re.search(r"(?mi)^Subject:(.*(?:\n[ \t].*)*)", head)
    try:
        return strip_answered(_decode(found[1])).strip() if found else ""
    except (UnicodeError, LookupError, ValueError):  # of a charset that is none
        return ""


def _read_letter(text: str) -> tuple[str, bool]:
    """Return a letter's text, and False if part of it is not read."""
    form = _FORM.match(text)
    is_encoded = form is not None and not (form[0].endswith("/") and not _PART.search(text))
    if is_encoded and _is_simple(text):
        with suppress(Exception):  # the parser raises errors of many kinds
            said = "\n\n".join(_list_texts(email.message_from_string(text)))
            if said.strip() and "\0" not in said:
                return said.rstrip("\n") + "\n", True
    head = _OWN_HEAD.match(text)
    if head and _is_of_letter(head[0]):
        text = "\n".join([*_keep_of_readers(head[0].removesuffix("\n")), text[head.end() :]])
    return _ENCODED_LINES.sub("", drop_heads(text)), not is_encoded


def _is_simple(text: str) -> bool:
    """Return True if the parser reads a letter in a time that is proportional to its length."""
    longest = max((field.end() - field.start() for field in _FIELD.finditer(text)), default=0)
    return longest <= _LONGEST_FIELD and len(_MULTIPART.findall(text)) <= _MOST_MULTIPARTS


def _list_texts(message: Message) -> Iterator[str]:
    """Yield the head of a letter, then its texts, and those that are attached, under their names.

    Raises:
        ValueError: some text of it can't be read.

    """
    heads = [(name, value) for name in _HEAD for value in message.get_all(name, ())]
    if heads:
        yield "\n".join(_DATE.sub(_write_date, f"{name}: {_decode(value)}") for name, value in heads)
    parts: Any = message.get_payload()
    if message.defects or (isinstance(parts, list) and (message.epilogue or "").strip()):
        raise ValueError("a broken letter")
    if message.get_content_type() == "multipart/alternative":
        parts = [part for part in parts if part.get_content_type() == "text/plain" and part.get_payload().strip()][:1]
        if not parts:
            raise ValueError("no plain text")
    if isinstance(parts, list):
        for part in parts:
            yield from _list_texts(part)
    elif message.get_content_maintype() == "text":
        name = message.get_filename()
        yield f"{name}:\n\n{_read_part(message)}" if name else _read_part(message)


def _decode(value: str) -> str:
    """Return a field of a letter's head, decoded, in one line."""
    return " ".join(str(make_header(decode_header(value))).split())


def _read_part(part: Message) -> str:
    """Return a part's text. Only what is encoded has a character set: the file's characters are read already."""
    text: Any = part.get_payload()
    encoding = str(part.get("Content-Transfer-Encoding", "8bit")).strip().lower()
    is_readable = encoding in _PLAIN or (encoding in _ENCODED and text.isascii())
    if part.get_content_type() == "text/html" or not is_readable:
        raise ValueError("no plain text")
    if encoding in _ENCODED:
        payload: Any = part.get_payload(decode=True)
        text = payload.decode(str(part.get_content_charset("utf-8")))
    if part.defects:  # of its encoding
        raise ValueError("a broken letter")
    return str(text)


def clean_letter(text: str) -> str:
    """Return a letter without what only programs read; its date is a number, and double brackets are no wikilink."""
    text = drop_heads(_restore_lines(text))
    text = re.sub(r"(?m)^\*\*(?:Message-ID|In-Reply-To|References|List-[\w-]+)\*\*:.*\n+", "", text)
    text = _NOTE_OF_LIST.sub("", text)
    text = re.sub(
        r"(?m)^ unnamed \(\d+B\)\n*|^ (\S.*) \(\d+B\)$", lambda match: f"- `{match[1]}`" if match[1] else "", text
    )
    text = re.sub(r"Attachments:\s*\Z", "", text)
    text = _DATE.sub(_write_date, _ENCODED_LINES.sub("", text))
    return re.sub(r"\[\[([^\[\]\n]*)\]\]", r"[\1]", text)


def _write_date(match: re.Match[str]) -> str:
    try:
        return f"{match[1]}{parsedate_to_datetime(match[2]):%Y-%m-%d %H:%M}"
    except (TypeError, ValueError, OverflowError):
        return match[0]
