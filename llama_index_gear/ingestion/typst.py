"""Typst as Markdown: what its functions show, without their names, arguments and settings."""

from __future__ import annotations

import re
from typing import NamedTuple

from llama_index_gear.ingestion.converter import sub_prose

TYPST = ".typ"
_TITLE = re.compile(
    r"(?:#set[ \t]+document|\.with)\([^\[\]]{0,2000}?\btitle:\s*\"([^\"\n]{1,300})\""
    r"|^#let[ \t]+title[ \t]*=[ \t]*\"([^\"\n]{1,300})\"",
    re.MULTILINE,
)
"""Matches the title that a document states of itself."""
_NAME = re.compile(r"[^\W\d][\w-]*(?:\.[^\W\d][\w-]*)*")
_RAW = re.compile(r"(`{3,}+).*?\1|``|`[^`]*`", re.DOTALL)
_PLAIN = re.compile(r"[^`$/\\#\[\]]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_HIDDEN = frozenset({"let", "set", "import", "include"})
_STATEMENTS = frozenset({"show", "if", "for", "while", "context"})
_MARKS = [
    (re.compile(r"(?m)^[ \t]*(={1,6})[ \t]+(?=\S)"), lambda match: "#" * len(match[1]) + " "),
    (re.compile(r"(?m)^([ \t]*)/[ \t]+(?=\S[^\n:]*:)"), lambda match: f"{match[1]}- "),
    (re.compile(r"(?<![ \t])[ \t]*<[\w:.-]{1,100}>(?=[ \t]*$)", re.MULTILINE), lambda match: ""),
    (re.compile(r"(?<![\w.\\])@[^\W\d][\w:-]{0,100}"), lambda match: ""),
    (re.compile(r"(?<![\w*\\])\*(?=[^\s*])([^*\n]{1,300})(?<![\s])\*(?![\w*])"), lambda match: f"**{match[1]}**"),
    (re.compile(r"(?m)(?<![ \t])[ \t]*\\$"), lambda match: ""),
    (re.compile(r"\n[ \t]*\n[ \t\n]*\n"), lambda match: "\n\n"),
]
"""Marks of headings, terms, labels, references, strong text and ends of lines, and what Markdown has for each."""


class Typst(NamedTuple):
    """A document: its title, "" if it states none, and its text."""

    title: str
    text: str


def read_typst(source: str) -> Typst:
    """Return a document as Markdown.

    Args:
        source: the file.

    Raises:
        ValueError: it nests too deep.

    """
    found = _TITLE.search(source)
    try:
        text, _ = _read_markup(source.replace("\r\n", "\n"), 0, is_inside=False)
    except RecursionError:
        raise ValueError("nests too deep: save it as text") from None
    for pattern, write in _MARKS:
        text = sub_prose(pattern, write, text)
    return Typst((found[1] or found[2]) if found else "", text.strip())


def _read_markup(source: str, place: int, *, is_inside: bool) -> tuple[str, int]:
    """Return text from a place on, and where it ends: inside of a function, behind the bracket that closes it."""
    parts: list[str] = []
    depth = 0
    while place < len(source):
        if plain := _PLAIN.match(source, place):
            parts.append(plain[0])
            place = plain.end()
            continue
        mark = source[place]
        if mark in "`$" and (end := _skip(source, place)) > place:
            parts.append(source[place:end])
            place = end
        elif mark == "/" and (comment := _COMMENT.match(source, place)) and source[place - 1 : place] != ":":
            place = comment.end()
        elif mark == "\\" and place + 1 < len(source):
            parts.append(source[place + 1] if source[place + 1] in "#$[]" else source[place : place + 2])
            place += 2
        elif mark == "#":
            shown, place = _read_code(source, place)
            parts.append(shown)
        elif mark == "]" and is_inside and not depth:
            return "".join(parts), place + 1
        else:
            depth += (mark == "[") - (mark == "]" and depth > 0)
            parts.append(mark)
            place += 1
    return "".join(parts), place


def _read_code(source: str, place: int) -> tuple[str, int]:
    """Return what code behind a "#" shows, and where it ends."""
    name = _NAME.match(source, place + 1)
    if name is None:
        is_block = source[place + 1 : place + 2] in ("(", "{")
        return ("", _read_expression(source, place + 1, is_call=True)[1]) if is_block else ("#", place + 1)
    first, end = name[0].partition(".")[0], name.end()
    if first in _HIDDEN or (first == "show" and source[end : end + 1] != ":"):
        return "", _read_expression(source, end, is_call=False)[1]
    if first in _STATEMENTS:
        return _read_expression(source, end, is_call=False)
    parts = []
    while source[end : end + 1] in ("(", "["):
        if source[end] == "(":
            shown, end = _read_expression(source, end, is_call=True)
        else:
            shown, end = _read_markup(source, end + 1, is_inside=True)
        parts.append(shown)
    return "".join(parts), end + (source[end : end + 1] == ";")


def _read_expression(source: str, place: int, *, is_call: bool) -> tuple[str, int]:
    """Return the texts in an expression, and where it ends: at the end of its line, or behind its last bracket."""
    parts: list[str] = []
    depth = 0
    while place < len(source):
        mark = source[place]
        if mark in '"`$' and (end := _skip(source, place)) > place:
            place = end
            continue
        if comment := _COMMENT.match(source, place) if mark == "/" else None:
            place = comment.end()
            continue
        if mark == "[":
            shown, place = _read_markup(source, place + 1, is_inside=True)
            parts.append(f"\n\n{shown.strip()}\n\n" if "\n" in shown else f"{shown} ")
            continue
        if not depth and (mark == "\n" or mark == "]"):
            break
        depth += (mark in "({") - (mark in ")}")
        place += 1
        if depth < 0 or (not depth and is_call):
            break
    return "".join(parts), place


def _skip(source: str, place: int) -> int:
    """Return where a string, a formula or raw text ends; the same place, if it doesn't."""
    mark = source[place]
    if mark == "$":
        end = source.find("$", place + 1)
        return end + 1 if end > 0 else place
    match = (_STRING if mark == '"' else _RAW).match(source, place)
    return match.end() if match else place
