"""Files of other programs as Markdown, by xberg: in the process that reads files, since it may end a process.

What it would lose of a markup language is written in another way before, and what it leaves is taken off behind.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import mailbox
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

from llama_index_gear.errors import repair_surrogates
from llama_index_gear.extraction.link_targets import fold
from llama_index_gear.ingestion.emails import clean_letter, prepare_letter, strip_answered
from llama_index_gear.ingestion.printed_pages import (
    continue_tables,
    drop_running_lines,
    is_named,
    list_cells,
    print_title,
    read_page,
)
from llama_index_gear.ingestion.regular_files import NoText, UnreadableFile, read_file
from llama_index_gear.ingestion.tables import write_rows
from llama_index_gear.ingestion.tex import clean_tex, prepare_tex

EXTRA = "needs: pip install 'llama-index-gear[files]'"
"""The command that brings the converter."""
HTML = {".htm", ".html", ".xht", ".xhtml"}
_MARKUP = {
    ".adoc": "text/asciidoc",
    ".asciidoc": "text/asciidoc",
    ".bbl": "application/x-latex",
    ".latex": "application/x-latex",
    ".org": "text/org",
    ".rest": "text/prs.fallenstein.rst",
    ".rst": "text/prs.fallenstein.rst",
    ".tex": "application/x-latex",
}
_TEXTS = {*HTML, *_MARKUP}
_MAILBOX = ".mbox"
_OTHERS = set(
    ".doc .docm .docx .dotm .dotx .odt .pages .rtf .wpd .hwp .hwpx .odp .key .pot .potx .pps .ppsx .ppt .pptm .pptx"
    " .numbers .ods .xls .xlsb .xlsm .xlsx .xltx .epub .fb2 .pdf .eml .msg".split()
)
CONVERTED = frozenset({_MAILBOX, *_TEXTS, *_OTHERS})
"""Endings of the files that the converter reads."""
_BY_PAGE = {".pdf"}
_MAIL = {".eml", ".msg", _MAILBOX}
_FURNITURE = ["footer", "[role=navigation]", "[role=contentinfo]", "[role=search]", ".headerlink", ".noprint"]
"""Selectors of the parts of a page that a browser shows beside its text."""
_PAGE = re.compile(rb"(?i)<(?:!doctype\s+html|html|body)\b")
"""Matches what tells a page of HTML: a part of one may be read as XML, whose elements become headings."""
_HTML_TITLE = re.compile(r"(?is)\A(?:(?!<body\b|<svg\b).)*?<title\b[^>]*>(.*?)</title>")
_LOCAL_LINK = re.compile(
    r"\[\\?\[\w{1,4}\\?\]\]\(#[^()\s]*\)|\[([^\[\]\n]*)\]\((?!\w+:|//|<)[^()\s]*(?:[ ]\"[^\"\n]*\")?\)"
)
"""Matches a link from one page of a site to another: its text names the page, and its file is no name."""
_TERM = re.compile(rb"(?i)<d[td]\b[^<>]*>([^<]*+(?:<(?!/?d[tdl]\b)[^<]*+)*+)</d[td]\s*>")
"""Matches a term or its description: each is a block, and would be a line of one paragraph."""
_DEEP = 10**6
"""HTML that nests deeper ends the process, and so is named; by default text below 63 elements would be lost."""
_TYPES = {**_MARKUP, ".epub": "application/epub+zip"}
"""Types of files whose text does not tell them."""
_SLIDES = set(".odp .pot .potx .pps .ppsx .ppt .pptm .pptx".split())
_OFFICE = set(".epub .doc .docm .docx .dotm .dotx .odt .rtf".split()) | _SLIDES
"""Endings of documents with pictures and raised figures."""
_PICTURE = re.compile(r"\\?!\[[^\[\]\n]*\]\([^()\n]*\)|\\?</?u\\?>")
"""Matches the place of a picture, and where what is underlined begins and ends."""
_PLACEHOLDER = re.compile(
    r"Click to (?:edit|add) (?:Master )?(?:title|subtitle|text|notes)(?: styles?)?"
    r"|(?:Master)?(?:[Tt]itel|[Tt]ext|[Uu]ntertitel)(?:master)?formate? (?:des Masters |durch Klicken )*bearbeiten"
    r"|Modifiez les? styles? d[ue] (?:sous-)?(?:titre|texte)(?: du masque)?"
    r"|Haga clic para (?:modificar|agregar) el (?:estilo de )?(?:título|subtítulo|texto)(?: del patrón)?"
)
_LEVELS = re.compile(
    r"(?m)^(?:(?:Second|Third|Fourth|Fifth) level|(?:Zweite|Dritte|Vierte|Fünfte) Ebene"
    r"|(?:Deuxième|Troisième|Quatrième|Cinquième) niveau|(?:Segundo|Tercer|Cuarto|Quinto) nivel)$"
)
"""Match what a presentation's master says in place of its slides' titles and texts."""
_RAISED = re.compile(r"(?<=[^\W\d_]{3})\^\d{1,2}(?:,\d{1,2})*\^?(?!\w)|(?<=\d)\^(st|nd|rd|th)\^")
"""Matches raised digits behind a word ("Owen Arnold^1,2"), and raised letters behind a number ("13^th^")."""
_LONG_TABLE = 800
"""Characters of a table that is written as rows: its passages behind the first would have no head."""
_TABLE = re.compile(r"(?m)^\|.*\|[ \t]*\n\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*\n(?:\|.*(?:\n|\Z))*")
_CODE_OPTIONS = re.compile(
    r"(?m)^([ \t]*\.\.[ \t]+(?:code|code-block|sourcecode|literalinclude|doctest)::.*\n)(?:[ \t]+:[\w-]+:.*\n)+"
)
_INCLUDE = re.compile(r"(?m)^\.\.[ \t]+include::[ \t]+(\S{1,300})[ \t]*(?:\n|\Z)(?![ \t]+:(?:start|end|literal|code))")
"""Matches an include of reStructuredText that takes a whole file."""
_ROLE_IN_FRONT = re.compile(r"(?m)^([ \t]*):([a-z][\w:+.-]{0,40}):`([!.~]{0,2}\w[^`<>\n]{0,200}?)(?:\s*<[^<>`\n]*>)?`")
_RST_LABEL = re.compile(r"(?m)^\.\. _([\w.:/ -]{1,100}):[ \t]*(?=\n)")
_ASCIIDOC_LABEL = re.compile(r"(?m)^\[(?:\[([\w.:-]{1,100})(?:,[^\[\]\n]*)?\]|#([\w.:-]{1,100}))\][ \t]*(?=\n)")
"""Match the names of what follows, which would be lost: they are written as MyST's, "(name)="."""
_RST_TARGET = re.compile(r"(?m)^\.\. _`?([^`:\n]{1,100})`?:[ \t]+(\S{1,500})[ \t]*$")
_RST_NAMED = re.compile(r"<([^<>`\n]{1,100})_>(?=`_)")
"""Match the target of a link, where it stands elsewhere, and a link by its name, which is no target itself."""
_TITLE = re.compile(r"\*\*title\*\*: (.+)(?=\n)")
"""Matches the title that the converter writes in front of TeX."""
_JUMP = re.compile(r"<<([\w#./:-]{1,200})(?:,\s*([^<>]{1,300}))?>>")
"""Matches a cross reference of AsciiDoc."""
_FENCE = re.compile(r"(?m)^[ \t]*(?:(`{3,})(?=[^`\n]*$)|(~{3,}))(.*)$")
"""Matches a line that begins or ends code."""
_ORG_FURNITURE = re.compile(
    r"^[ \t]*#\+begin_(\w+)\b(?:(?!^[ \t]*#\+(?:begin|end)_\1\b).)*+^[ \t]*#\+end_\1"
    r"|^#\+(?!title|author|date|subtitle|begin|end|caption)\w+:[^\n]*\n|^[ \t]*#[ \t][^\n]*(?:\n|\Z)"
    r"|^[ \t]*:[\w-]+:[ \t]*\n(?:(?!^\*).){0,4000}?^[ \t]*:END:[ \t]*(?:\n|\Z)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
"""Matches settings, comments and drawers; blocks, whose first group is their kind, so that nothing in them is."""
_PLANNED = re.compile(r"\b(SCHEDULED|DEADLINE|CLOSED):[ \t]*[<\[]([^<>\[\]\n]*)[>\]]")
_ORG_LINK = re.compile(r"\[\[[^\[\]\n]*\]\[([^\[\]\n]*)\]\]|\[\[([^\[\]\n]*)\]\]")


class Converted(NamedTuple):
    """A file as Markdown.

    Attributes:
        title: what it states of itself; "" if it states none.
        texts: its text, or that of each page or letter.
        titles: of each letter of a mailbox; empty for other files.

    """

    title: str
    texts: list[str]
    titles: list[str]


def is_installed() -> bool:
    """Return True if the converter is installed."""
    return importlib.util.find_spec("xberg") is not None


def convert(path: Path, most: int, ending: str = "") -> Converted:
    """Convert a file.

    Args:
        path: of the file.
        most: highest number of bytes.
        ending: that its form has, in small letters. Default: that of its name.

    Raises:
        NoText: it holds no text.
        UnreadableFile: it can't be read.

    """
    ending = ending or path.suffix.lower()
    if ending == _MAILBOX:
        letters = [
            _convert(prepare_letter(letter, _convert_page), "letter.eml", ".eml")
            for letter in _read_letters(path, most)
        ]
        titles = [title for title, _ in letters]
        texts = ["\n\n".join(texts) for _, texts in letters]
        return Converted("", texts, titles if all(titles) else [])
    data = read_file(path, most)
    if ending == ".eml":
        data = prepare_letter(data, _convert_page)
    if ending in _TEXTS:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if ending not in HTML:
                raise NoText("no UTF-8 text; if it is text, save it as UTF-8") from None
            return _as_html(data, path.name, ending)
        data = _PREPARE.get(_MARKUP.get(ending, ""), str)(text).encode()
        if ending in HTML:
            return _as_html(data, path.name, ending)
    name = path.name if path.name.lower().endswith(ending) else f"letter{ending}"  # it tells the format by the name
    found = Converted(*_convert(data, name, ending), [])
    if ending == ".bbl" and (document := path.with_suffix(".tex")).is_file():
        return found._replace(title=convert(document, most).title)
    return found


def _as_html(data: bytes, name: str, ending: str) -> Converted:
    _, texts = _convert(data, name, ending)
    found = _HTML_TITLE.match(data.decode("utf-8", "replace"))
    return Converted(" ".join(unescape(found[1]).split()) if found else "", texts, [])


def _convert_page(data: bytes) -> str:
    """Return a page of HTML as Markdown; "" if it has no text."""
    try:
        _, texts = _convert(data, "part.html", ".html")
    except UnreadableFile:
        return ""
    return "\n\n".join(texts)


def _convert(data: bytes, name: str, ending: str) -> tuple[str, list[str]]:
    """Return the title that a file states of itself, and its text or that of each page, without what is no text."""
    xberg = importlib.import_module("xberg")
    if ending in HTML and b"\0" not in data and not _PAGE.search(data):
        data = b"<html><body>%b</body></html>" % data
    if ending in HTML:
        data = _TERM.sub(rb"<div>\1</div>", data)
    source = xberg.ExtractInput(kind="bytes", bytes=data, filename=name, mime_type=_TYPES.get(ending))
    try:
        found = asyncio.run(xberg.extract(source, _make_settings(ending in _BY_PAGE)))
    except RuntimeError as error:
        raise UnreadableFile(_explain(str(error))) from error
    if not found.results:
        raise UnreadableFile(_explain("; ".join(str(getattr(error, "message", error)) for error in found.errors)))
    document = found.results[0]
    stated = document.metadata.title
    if ending in _MAIL:
        stated = strip_answered(document.metadata.subject or "")
    texts = [document.content]
    if ending in _BY_PAGE and document.pages:
        blocks = [page.hierarchy.blocks if page.hierarchy else () for page in document.pages]
        texts = [read_page(page.content, its) for page, its in zip(document.pages, blocks, strict=True)]
        others = texts[1:]
        texts = continue_tables(drop_running_lines(texts))
        printed = print_title(texts[0], blocks[0], others)
        if printed != texts[0] and not is_named(stated or "", printed):
            stated = ""
        texts[0] = printed
    texts = [repair_surrogates(_CLEAN.get(_MARKUP.get(ending, ending), str)(text)) for text in texts]
    if written := _TITLE.match(texts[0]):
        stated = stated or written[1]
        texts[0] = texts[0][written.end() :].lstrip("\n")
    return repair_surrogates(stated or ""), [_write_tables(text) for text in texts]


@cache
def _make_settings(by_page: bool) -> Any:
    """Make the converter's settings: nothing is recognized in pictures, kept on disk or asked of a network."""
    xberg: Any = importlib.import_module("xberg")
    return xberg.ExtractionConfig(
        output_format="markdown",
        use_cache=False,
        disable_ocr=True,
        escape_markdown=False,
        max_archive_depth=0,
        concurrency=xberg.ConcurrencyConfig(max_threads=1),
        pages=xberg.PageConfig(extract_pages=True) if by_page else None,
        html_options=xberg.ConversionOptions(
            extract_metadata=False,
            skip_images=True,
            max_depth=_DEEP,
            exclude_selectors=_FURNITURE,
            preprocessing=xberg.PreprocessingOptions(preset="aggressive"),
        ),
    )


def _explain(error: str) -> str:
    """Return the converter's message in a line, and what to do."""
    reason = " ".join(error.split()).removeprefix("Parsing error: ")
    if "password" in reason.casefold():
        return "it is encrypted: save it without a password"
    return f"{reason[:200]}: save it as another format"


def _read_letters(path: Path, most: int) -> Iterator[bytes]:
    read_file(path, most)  # within its bounds
    box = mailbox.mbox(path, create=False)
    try:
        for key in box.keys():
            yield box.get_bytes(key)
    finally:
        box.close()


def _write_tables(text: str) -> str:
    """Return a text whose long tables are rows that each name their columns."""

    def write(match: re.Match[str]) -> str:
        if len(match[0]) < _LONG_TABLE:
            return match[0]
        head, _, *rows = ([cell.replace("\\|", "|") for cell in list_cells(line)] for line in match[0].splitlines())
        return f"{write_rows(head, rows)}\n"

    return sub_prose(_TABLE, write, text)


def _prepare_asciidoc(text: str) -> str:
    """Return AsciiDoc whose headings are marked in front: those above a line of dashes would be read as a paragraph.

    Cross references in angle brackets, which would stay as they are, are written as macros.
    """
    marks = "=-~^+"
    text = _ASCIIDOC_LABEL.sub(lambda match: f"\n({match[1] or match[2]})=\n", text)

    def mark(match: re.Match[str]) -> str:
        title, rule = match[1], match[2]
        if abs(len(title) - len(rule)) > 2 or title[0] in ".[" or not any(map(str.isalpha, title)):
            return match[0]
        return f"{'=' * (marks.index(rule[0]) + 1)} {title}\n"

    text = _JUMP.sub(lambda jump: f"xref:{jump[1]}[{' '.join(jump[2].split())}]" if jump[2] else "", text)
    return re.sub(r"(?m)(?<![^\n]\n)^(\S[^\n]{0,200})\n((?:=|-|~|\^|\+){2,})[ \t]*(?:\n|\Z)", mark, text)


def _prepare_rst(text: str) -> str:
    """Return reStructuredText without what the converter misreads.

    Last columns are wide: cells that stand out would be cut off. A line that begins with a role, which would be a
    field, begins with its text; and code has no options. An include is written as AsciiDoc's, which stays as it is.
    """
    text = _CODE_OPTIONS.sub(r"\1", text)
    text = _RST_LABEL.sub(r"\n(\1)=\n", text)
    targets = {fold(name): target for name, target in _RST_TARGET.findall(text)}
    text = _RST_NAMED.sub(lambda match: f"<{targets.get(fold(match[1]), match[1] + '_')}>", text)
    text = re.sub(r"(?m)^([ \t]*):(doc|ref):(?=`)", r"\1{\2}", text)
    text = _ROLE_IN_FRONT.sub(_write_role, text)
    text = _INCLUDE.sub(r"include::\1[]\n", text)
    return re.sub(r"(?m)^([ \t]*=+(?:[ \t]+=+)+)[ \t]*$", lambda match: match[1] + "=" * 200, text)


def _write_role(match: re.Match[str]) -> str:
    if match[2] in ("pep", "rfc"):
        return f"{match[1]}{match[2].upper()} {match[3]}"
    name = match[3].lstrip("!.~")
    return f"{match[1]}``{name.rpartition('.')[2] if '~' in match[3][:2] else name}``"


def _prepare_org(text: str) -> str:
    """Return Org without settings, drawers, comments, priorities, and links in headings, which the converter leaves.

    What is planned, and when, is a sentence.
    """
    text = _ORG_FURNITURE.sub(lambda match: match[0] if match[1] else "", text)
    text = re.sub(r"(?m)^(\*+ (?:[A-Z]+ )?)\[#\w\] ", r"\1", text)
    text = re.sub(r"(?m)^\*+ .*$", lambda match: _ORG_LINK.sub(lambda link: link[1] or link[2], match[0]), text)
    return _PLANNED.sub(lambda match: f"{match[1].lower()}: {match[2]}.", text)


def _clean_slides(text: str) -> str:
    """Return a presentation without its master's texts. A manual may say "Click to edit text" itself."""
    if _PLACEHOLDER.search(text):
        text = _LEVELS.sub("", _PLACEHOLDER.sub("\n", text))
    return _clean_office(text)


def _clean_office(text: str) -> str:
    """Return a document without pictures' places; raised figures are taken off."""
    return _RAISED.sub(lambda match: match[1] or "", _PICTURE.sub("", text))


def clean_links(text: str) -> str:
    """Return a text with the words alone of links from one page of a site to another."""
    return sub_prose(_LOCAL_LINK, lambda match: match[1] or "", text)


def sub_prose(pattern: re.Pattern[str], write: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace what a pattern matches outside of fenced code."""
    code = _list_code(text)

    def write_outside(match: re.Match[str]) -> str:
        before = bisect(code, (match.start(), len(text))) - 1
        return match[0] if before >= 0 and match.start() < code[before][1] else write(match)

    return pattern.sub(write_outside, text)


def _list_code(text: str) -> list[tuple[int, int]]:
    """Return where fenced code begins and ends, in the text's order. Without an end it goes to that of the text."""
    code, mark, start = list[tuple[int, int]](), "", 0
    for match in _FENCE.finditer(text):
        own = match[1] or match[2]
        if not mark:
            mark, start = own, match.start()
        elif own.startswith(mark) and not match[3].strip():
            code.append((start, match.end()))
            mark = ""
    return [*code, (start, len(text))] if mark else code


_PREPARE: dict[str, Callable[[str], str]] = {
    "text/asciidoc": _prepare_asciidoc,
    "text/prs.fallenstein.rst": _prepare_rst,
    "text/org": _prepare_org,
    "application/x-latex": prepare_tex,
}
_CLEAN: dict[str, Callable[[str], str]] = {
    **dict.fromkeys((".eml", ".msg"), clean_letter),
    **dict.fromkeys(HTML, clean_links),
    **dict.fromkeys(_OFFICE, _clean_office),
    **dict.fromkeys(_SLIDES, _clean_slides),
    "application/x-latex": clean_tex,
}
