"""The title of a file: what its facts are about. A file's name is taken if it is a name, else what the text says."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from pathlib import PurePosixPath

_MARKDOWN = {".md", ".markdown", ".mdx"}
_HTML = {".htm", ".html", ".xhtml"}
_PROSE = {"", ".adoc", ".asciidoc", ".docx", ".epub", ".hwp", ".org", ".pdf", ".rst", ".text", ".txt"}
"""Endings, beside those of Markdown and HTML, of files whose first line may be a title. Code keeps its file's name."""
_MAX_WORDS, _MAX_FIRST_LINE, _MAX_CHARACTERS = 14, 10, 120
_MAX_LINE = 500  # characters of a title before its marks of Markdown are taken off
_READ = 20_000  # characters of a text in which the words of its file's name are looked for
_GENERIC = frozenset(
    "abstract about contents content chapter copy cover default doc docs document draft dsc export file final foreword"
    " home image img index intro introduction main new note notes output overview page part preface readme scan section"
    " seite summary table text title toc untitled unnamed version welcome of".split()
)
"""Words that name no file: a name of these and numbers alone is none."""
_SMALL = frozenset("a an and as at but by for from in of on or the to und der die das des vs with".split())
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#[ \t]+(.+?)[ \t]*#*[ \t]*")
_UNDERLINE = re.compile(r"([=\-~*^\"])\1{2,}\s*")
_DATE = re.compile(r"(?<!\d)(\d{4})[-_](\d{2})[-_](\d{2})(?!\d)")
_SITE = re.compile(r"\s+[|–—·•»-]\s+|\s+::\s+")
_MARKUP = [
    (re.compile(r"!\[[^\]]*\]\([^)]*\)|<[^<>]*>|\{#[^}]*\}"), ""),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"(?<!\w)([*_]{1,3}|`+)(\S(?:.*?\S)?)\1(?!\w)"), r"\2"),
]
_NO_PROSE = re.compile(r"[:;=<>{}|·@#\\\[\]]|\s/\s|://|^\W*[-*+>]\s")
_OF_A_PROGRAM = re.compile(r"^(?:Microsoft|PowerPoint|Slide \d)|\.\w{2,4}$", re.IGNORECASE)
"""Titles that a word processor gave: "Microsoft Word - draft.docx"."""


def find_title(file: str, text: str, stated: str = "") -> str:
    """Return the title of a file.

    It is the file's name without ending, if that looks like a name ("Max Born", but not "page_017" or "max-born").
    Otherwise it is the first that there is of: the title that the file states; the first heading of Markdown and HTML,
    or, of other prose, a first line that is short and stands alone; the words of the file's name, written as the text
    writes them; the same of the folder, if the file's name says nothing ("index").

    Args:
        file: path of the file below the folder.
        text: its text, or that of its first page.
        stated: the title in the file's own metadata; "" if there is none.

    """
    path = PurePosixPath(file)
    ending = path.suffix.lower()
    is_marked = ending in _MARKDOWN | _HTML
    if _is_name(path.stem) or not (is_marked or ending in _PROSE):
        return path.stem
    heading = _find_heading(text) if is_marked else ""
    if ending in _MARKDOWN:
        stated = stated or _read_front_matter(text)
    elif ending in _HTML:
        stated, heading = _choose_of_page(stated, heading), ""
    elif _OF_A_PROGRAM.search(stated):
        stated = ""
    for candidate in (stated, heading, "" if is_marked else _find_first_line(text)):
        if title := _clean(candidate):
            return title
    if _is_generic(path.stem) and path.parent.name:
        return path.parent.name if _is_name(path.parent.name) else _spell(path.parent.name, text)
    return _spell(path.stem, text)


def _is_name(stem: str) -> bool:
    """Return True for what looks like a name: it begins with a capital letter, and has spaces between its words."""
    is_joined = "_" in stem or ("-" in stem and " " not in stem)
    return stem[:1].isalpha() and not stem[0].islower() and not is_joined and not _is_generic(stem)


def _is_generic(text: str) -> bool:
    """Return True if a text says nothing of what a file is about: "README", "page 17", "IMG_2034"."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    return all(word in _GENERIC or len(word) == 1 for word in words)


def _clean(candidate: str) -> str:
    """Return a title without marks of Markdown; "" if it is too long for one, or says nothing."""
    if len(candidate) > _MAX_LINE:
        return ""
    for pattern, text in _MARKUP:
        candidate = pattern.sub(text, candidate)
    title = " ".join(candidate.split()).rstrip(":")
    is_short = len(title) <= _MAX_CHARACTERS and len(title.split()) <= _MAX_WORDS
    return title if is_short and not _is_generic(title) else ""


def _read_front_matter(text: str) -> str:
    """Return the title in the YAML before a Markdown text."""
    block = re.match(r"---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*\n", text, re.DOTALL)
    line = block and re.search(r"^title:[ \t]*(.+?)[ \t]*$", block[1], re.MULTILINE)
    return re.sub(r"^([\"'])(.*)\1$", r"\2", line[1]) if line else ""


def _find_heading(text: str) -> str:
    """Return the first heading of the first level; code in fences has none."""
    fence = ""
    lines = text.splitlines()
    for line, following in pairwise([*lines, ""]):
        if opened := _FENCE.match(line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif not fence and len(line) <= _MAX_LINE and (heading := _HEADING.fullmatch(line)):
            return heading[1]
        elif not fence and line.strip() and re.fullmatch(r" {0,3}={3,}\s*", following):
            return line.strip()
    return ""


def _choose_of_page(title: str, heading: str) -> str:
    """Return the name of an HTML page: its heading, unless that is the site's name, which its title ends in."""
    name, *rest = _SITE.split(title)
    is_site = bool(rest) and heading.casefold() == rest[-1].casefold()
    return heading if _clean(heading) and not is_site else name


def _find_first_line(text: str) -> str:
    """Return the first line, if it is short, stands alone like a title, and is no sentence and no field of a form."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(lines) < 2:
        return ""
    line, following = lines[0], lines[1]
    is_alone = not following or _UNDERLINE.fullmatch(following)
    is_title = line[:1].isalnum() and not line[0].islower() and line[-1] not in ".,!?"
    is_short = len(line.split()) <= _MAX_FIRST_LINE
    return line if is_alone and is_title and is_short and not _NO_PROSE.search(line) and any(lines[2:]) else ""


def _spell(stem: str, text: str) -> str:
    """Return the words of a file's name as the text writes them, or with spaces and capital letters.

    Words in front that the text doesn't have with the others are left out, if two or more are left:
    "people-mikael-ekstrom" is "Mikael Ekström". A single word stays as it is.
    """
    words = re.split(r"[\s_-]+", stem.strip(" _-"))
    if len(words) < 2:
        return stem
    folded, places = _fold(text[:_READ])
    for start in range(len(words) - 1):
        run = r"[\s_-]+".join(re.escape(_fold(word)[0]) for word in words[start:])
        for match in re.finditer(rf"(?<!\w){run}(?!\w)", folded):
            found = text[places[match.start()] : places[match.end()]]
            if not found.islower() or "-" in found or "_" in found:
                return " ".join(found.split())
    if not stem.islower() and "_" not in stem:
        return stem
    spaced = _DATE.sub(r"\1\0\2\0\3", stem)
    parts = [part.replace("\0", "-") for part in re.split(r"[\s_-]+", spaced) if part]
    return " ".join([parts[0][:1].upper() + parts[0][1:], *map(_capitalize, parts[1:])])


def _capitalize(word: str) -> str:
    return word if word in _SMALL else word[:1].upper() + word[1:]


def _fold(text: str) -> tuple[str, list[int]]:
    """Return a text in small letters without accents, and the place in the text of each of its characters."""
    folded: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for part in unicodedata.normalize("NFKD", character).casefold():
            if not unicodedata.combining(part):
                folded.append(part)
                places.append(place)
    return "".join(folded), [*places, len(text)]
