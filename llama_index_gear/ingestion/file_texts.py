"""The text of one file, by its format, or why it has none for readers. Nothing here takes seconds to import."""

from __future__ import annotations

import re
from pathlib import Path

from llama_index_gear.errors import repair_surrogates
from llama_index_gear.extraction.lines import hide
from llama_index_gear.ingestion.converter import CONVERTED, convert
from llama_index_gear.ingestion.emails import PlainText, read_plain_letter
from llama_index_gear.ingestion.gherkin import GHERKIN, read_gherkin
from llama_index_gear.ingestion.notebooks import NOTEBOOK, read_notebook
from llama_index_gear.ingestion.records_of_json import JSON, read_json
from llama_index_gear.ingestion.regular_files import NoText, UnreadableFile, read_file
from llama_index_gear.ingestion.tables import TABLES, read_table, write_rows
from llama_index_gear.ingestion.tex import read_bibliography
from llama_index_gear.ingestion.typst import TYPST, Typst, read_typst

WIKI = {".mediawiki", ".wiki"}
"""Endings of files of MediaWiki's markup."""
_UNSEEN = re.compile(r"<ref\b[^<>]*/>|\b__[A-Z]+__|</?gallery[^<>]*>", re.IGNORECASE)
_HIDDEN = (("<!--", "-->"), ("<ref>", "</ref>"), ("<ref ", "</ref>"))
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_FIELD = re.compile(r"\|[ \t]*([^|=\s\[\]](?:[^|=\n\[\]]*[^|=\s\[\]])?)[ \t]*=[ \t]*((?:\[\[[^\[\]]*\]\]|[^|\[\]])*)")
_TABLE = re.compile(r"^[ \t-]*\{\|[^\n]*\n((?:(?![ \t-]*\{\||[ \t]*\|\}).*\n)*+)[ \t]*\|\}", re.MULTILINE)
_CAPTION = re.compile(r"^[ \t]*\|\+(.*)$", re.MULTILINE)
_CELL = re.compile(r"^[ \t]*[|!](?!-)|\|\||!!", re.MULTILINE)
_STYLE = re.compile(r"\s*[\w-]+[ \t]*=[^|\[\]]*\|(?!\|)")
_OF_SPACE = re.compile(r"\[\[:?[A-Za-z][\w ]*:(?=\S)[^\[\]]*(?:\[\[[^\[\]]*\]\][^\[\]]*)*\]\]")
"""Matches a picture, a category, or the page in another language."""
_MARKS = [
    (re.compile(r"\A\s*#\w+[ \t]*:?[ \t]*(?=\[\[)"), ""),
    (re.compile(r"^[ \t]*(?:File|Image|Datei|Fichier|Archivo):[^|\n]*(?:\||$)", re.MULTILINE), "* "),
    (re.compile(r"^[*#:;]+[ \t]*", re.MULTILINE), "- "),
    (re.compile(r"'''"), "**"),
    (re.compile(r"''"), "*"),
    (re.compile(r"\[(https?://[^\s\[\]]+)[ \t]+([^\[\]\n]+)\]"), r"[\2](\1)"),
]
_HEADING = re.compile(r"^(={1,6})[ \t]*([^=\s](?:.*[^=\n])?)[ \t]*\1[ \t]*$", re.MULTILINE)


def read_wikitext(text: str) -> str:
    """Return a page of MediaWiki as Markdown. Links of one page to another stay, since Markdown's dialects have them.

    Args:
        text: the page.

    """
    text = _OF_SPACE.sub("", hide(_UNSEEN.sub("", text), _HIDDEN, ""))
    count = 1
    while count:
        text, count = _TEMPLATE.subn(_write_template, text)
    for pattern, mark in _MARKS:
        text = pattern.sub(mark, text)
    text = _TABLE.sub(_write_table, text)
    return _HEADING.sub(lambda match: f"{'#' * len(match[1])} {match[2].rstrip()}", text)


def _write_template(match: re.Match[str]) -> str:
    fields = _FIELD.findall(match[1]) if re.match(r"\s*infobox", match[1], re.IGNORECASE) else []
    return write_rows([name for name, _ in fields], [[" ".join(value.split()) for _, value in fields]])


def _write_table(match: re.Match[str]) -> str:
    head: list[str] = []
    rows = []
    caption = _CAPTION.search(match[1])
    for row in re.split(r"^[ \t]*\|-[^\n]*$", _CAPTION.sub("", match[1]), flags=re.MULTILINE):
        cells = [" ".join(_STYLE.sub("", cell, count=1).split()) for cell in _CELL.split(row)[1:]]
        if row.lstrip().startswith("!") and not head:
            head = cells
        elif any(cells):
            rows.append(cells)
    return f"{f'**{caption[1].strip()}**' if caption else ''}\n\n{write_rows(head, rows)}\n"


SUBTITLES = {".ass", ".lrc", ".sbv", ".srt", ".ssa", ".vtt"}
"""Endings of files of subtitles."""
_TIME = re.compile(r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}(?:[ \t]*-->|,\d).*")
_DIALOGUE = re.compile(r"^Dialogue:(?:[^,\n]*,){4}([^,\n]*),(?:[^,\n]*,){4}(.*)$", re.MULTILINE)
"""Matches a line of Advanced SubStation Alpha: who says it, and what."""
_LYRICS = re.compile(r"^(?:\[\w+:[^\[\]\n]*\][ \t]*)+|<\d+:[\d.:]+>[ \t]*", re.MULTILINE)
_VOICE = re.compile(r"<v(?:\.[\w.-]+)?[ \t]+([^<>\n]+)>")
_TAG = re.compile(r"</?[a-z][^<>\n]*>|</?\d[\d:.]*>|\{\\?[a-z][^{}\n]*\}", re.IGNORECASE)
_BEGINS = re.compile(r"-[ \t]|[^\W\d_][\w .'-]{0,40}:[ \t]")
"""Matches the start of a line that somebody else says."""
_ENDS = (".", "!", "?", "…", '"', "”", "♪")


def read_subtitles(text: str) -> str:
    """Return what is said, a paragraph for each sentence or speaker.

    A voice is written in front: "Nora Blum: The crane is here." What stands above the first time, in notes and in
    styles is left out.

    Args:
        text: the file, of SubRip, WebVTT, SubStation Alpha, YouTube (SBV) or lyrics (LRC), whose lines stay.

    """
    if re.match(r"\s*\[\w+:", text):
        return _LYRICS.sub("", text).strip()
    if dialogue := _DIALOGUE.findall(text):
        cues = (f"<v {name.strip()}>{words}" if name.strip() else words for name, words in dialogue)
        text = "\n\n".join(f"0:00.0 -->\n{cue}".replace("\\N", " ") for cue in cues)
    said: list[str] = []
    voice = ""
    for cue in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")):
        lines = cue.strip().split("\n")
        start = next((place for place, line in enumerate(lines[:2]) if _TIME.match(line.strip())), None)
        for line in [] if start is None else lines[start + 1 :]:
            spoken = _VOICE.search(line)
            if spoken and spoken[1].strip() != voice:
                voice = spoken[1].strip()
                line = f"{voice}: {line}"
                said.append("")
            line = " ".join(_TAG.sub("", line).split())
            if line and said and not said[-1].endswith(_ENDS) and not (_BEGINS.match(line) and said[-1]):
                said[-1] = f"{said[-1]} {line}".strip()
            elif line:
                said.append(line.removeprefix("- "))
    return "\n\n".join(filter(None, said))


MOST = 100 * 10**6
"""Bytes that a file may have, and characters of its text."""
_DATA = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,80}(?:;[\w=-]{1,40})?;base64,[A-Za-z0-9+/]{100,}={0,2}")
"""Matches a picture, or another file, that is embedded into a text."""


_DRAWING = re.compile(
    r"^#{1,3} Text Elements[ \t]*\n"
    r"|^(?:%%[ \t]*\n)?#{1,3} Drawing[ \t]*\n```(?:compressed-)?json\n(?:(?!^```).*(?:\n|\Z))*"
    r"(?:```[ \t]*(?:\n|\Z)(?:%%[ \t]*)?)?",
    re.MULTILINE,
)
"""Matches the heading above the words of a drawing of Excalidraw, and what it keeps behind them for itself."""
_BIBLIOGRAPHY = ".bib"
PARSED = frozenset({*CONVERTED, *JSON, *TABLES, NOTEBOOK, TYPST, _BIBLIOGRAPHY})
"""Endings of the files that are no plain text."""


def read_plain_text(path: Path) -> PlainText:
    """Read a file that is text, without the pictures that it embeds.

    Raises:
        NoText: it is no UTF-8, or a program wrote it for programs.
        UnreadableFile: it is no regular file, or too large.

    """
    source = _read_source(path)
    plain = read_plain_letter(_DRAWING.sub("", source) if "\nexcalidraw-plugin:" in source else source)
    text = plain.text
    if path.suffix.lower() in SUBTITLES:
        text = read_subtitles(text)
    elif path.suffix.lower() in WIKI:
        text = read_wikitext(text)
    elif path.suffix.lower() == GHERKIN:
        text = read_gherkin(text)
    if plain.is_whole and (reason := explain_no_sentences(text)):
        raise NoText(reason)
    return plain._replace(text=text)


def parse_file(path: Path) -> tuple[str, list[str], list[str]]:
    """Read a file that is no plain text: the title that it states of itself ("" without one), and its pages' texts.

    The records of JSON, the entries of a bibliography and the letters of a mailbox are such pages; if all have titles,
    these stand in a third list. A file of another ending is a letter or a mailbox.

    Raises:
        NoText: it is no text.
        UnreadableFile: it can't be read.

    """
    ending = path.suffix.lower()
    if ending not in PARSED:
        ending = ".mbox" if read_file(path, MOST).startswith(b"From ") else ".eml"
    if ending in CONVERTED:
        found = convert(path, MOST, ending)
        title, texts, titles = found.title, found.texts, found.titles
    else:
        title = ""
        if ending == TYPST:
            title, text = _read_typst(path)
            texts, titles = [text], []
        else:
            texts, titles = ([_read_table(path, ending)], []) if ending in TABLES else _read_records(path, ending)
    if sum(map(len, texts)) > MOST:
        raise UnreadableFile(f"has more than {MOST // 10**6} million characters of text: split it")
    if ending not in CONVERTED and (reason := explain_no_sentences("\n\n".join(texts))):
        raise NoText(reason)
    return title, texts, titles


def _read_source(path: Path) -> str:
    """Read a file of characters, without the pictures in it, unless its name or form says that no reader is meant."""
    try:
        text = read_file(path, MOST).decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise NoText("no UTF-8 text; if it is text, save it as UTF-8")
    if reason := explain_no_prose(path.name, text):
        raise NoText(reason)
    return _DATA.sub("data:", text)


def _read_table(path: Path, ending: str) -> str:
    try:
        return read_table(_read_source(path), ending)
    except ValueError as error:
        raise UnreadableFile(str(error)) from error


def _read_typst(path: Path) -> Typst:
    try:
        return read_typst(_read_source(path))
    except ValueError as error:
        raise UnreadableFile(str(error)) from error


def _read_records(path: Path, ending: str) -> tuple[list[str], list[str]]:
    if ending == _BIBLIOGRAPHY:
        source = _read_source(path)
        entries = list(read_bibliography(source))
        return [said for _, said in entries] or [source], [title for title, _ in entries]
    try:
        if ending == NOTEBOOK:
            return [read_notebook(_read_source(path))], []
        records = read_json(_read_source(path), ending)
    except ValueError as error:
        raise UnreadableFile(str(error)) from error
    titles = [repair_surrogates(record.title) for record in records if record.title]
    return [repair_surrogates(record.text) for record in records], titles if len(titles) == len(records) else []


_LOCK = re.compile(r".*\.lock|.*[-.]lock\.(?:json|yaml|yml|hcl)|go\.sum|npm-shrinkwrap\.json", re.IGNORECASE)
_MINIFIED = re.compile(r".*[-.]min\.(?:js|css|mjs)", re.IGNORECASE)
_MAP = re.compile(r'\s*\{[^{}]{0,2000}"mappings"\s*:')
_ROFF = re.compile(r"(?:[.'](?:\\\"|\\}|ie|if|el|de|ds|nr|so|hy|ad|nh)[^\n]*\n|[^\S\n]*\n)*\.(?:TH|Dd|so)\s")
_OF_TEX = re.compile(r"(?m)^[ \t]*\\(?:Provides\w+|NeedsTeXFormat|LoadClass)\b")
"""Matches a line of a class or a style of TeX."""
_UNBROKEN = re.compile(r"[!-~]{160,}")
"""Matches a run of ASCII characters that no word or address is as long as."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]{60,76}\r?")
_UUENCODED = re.compile(r"M[ -`]{60}\r?")
"""Match a line of a file that is encoded. Words in lines of base64 would be longer than any that people write."""
_ENCODED_LENGTHS = range(60, 79)
_LEAST_ENCODED = 3  # lines
_MOST_ENCODED = 0.7
"""Share of a text in such lines, at most: a note may have a certificate that is longer than what it says."""
_MOST_UNBROKEN = 0.3
"""Share of a text in such runs, or in lines like those of minified code, at most."""
_LONG_LINE = 400  # characters
_LEAST_SPACES = 0.06  # share of a line's characters


def explain_no_prose(file: str, text: str) -> str:
    """Return why a file has no text for readers, by its name and how it begins; "" if it may have."""
    if text.startswith("{\\rtf"):
        return "rich text (RTF): name it .rtf"
    if file.lower().endswith(".svg") or re.match(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE svg[^>]*>\s*)?<svg\b", text):
        return "a drawing (SVG)"
    if _ROFF.match(text):
        return "the source of a manual's page (roff): save what `man` shows of it as .txt"
    name = file.rsplit("/", 1)[-1]
    if _LOCK.fullmatch(name):
        return "a lock file, which a program wrote"
    if _MINIFIED.fullmatch(name):
        return "minified code"
    if _MAP.match(text):
        return "a source map"
    if text.startswith("%!PS"):
        return "a drawing or a print (PostScript): save it as PDF"
    if name.lower().endswith(".edn"):
        return "data of Clojure (EDN), which a program wrote"
    if name.lower().endswith((".sty", ".bst")) or (name.lower().endswith(".cls") and _OF_TEX.search(text)):
        return "a style of TeX, which is for programs"
    return ""


def explain_no_sentences(text: str) -> str:
    """Return why a text, without its markup, is none for readers; "" if it is."""
    lines = text.split("\n")
    unbroken = sum(len(run) for run in _UNBROKEN.findall(text))
    crowded = sum(len(line) for line in lines if _is_crowded(line))
    encoded = [len(line) for line in lines if len(line) in _ENCODED_LENGTHS and _is_encoded(line)]
    is_encoded = len(encoded) >= _LEAST_ENCODED and sum(encoded) > _MOST_ENCODED * len(text)
    if is_encoded or max(unbroken, crowded) > _MOST_UNBROKEN * len(text):
        return "no running text: minified code, base64 or the like"
    return ""


def _is_encoded(line: str) -> bool:
    return (" " not in line and _BASE64.fullmatch(line) is not None) or _UUENCODED.fullmatch(line) is not None


def _is_crowded(line: str) -> bool:
    return len(line) > _LONG_LINE and line.isascii() and line.count(" ") < _LEAST_SPACES * len(line)
