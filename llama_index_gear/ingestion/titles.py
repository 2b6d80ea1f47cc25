"""The title of a file: what its facts are about. A file's name is taken if it is a name, else what the text says."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Container, Iterable
from html import unescape
from itertools import pairwise
from pathlib import PurePosixPath

from llama_index_gear.extraction.blocks import MARKDOWN
from llama_index_gear.extraction.lines import FRONT_MATTER
from llama_index_gear.ingestion.converter import HTML
from llama_index_gear.ingestion.notebooks import MADE_MARKDOWN

_PROSE = {"", ".text", ".txt", *(f".{number}" for number in range(1, 10))}  # texts, and pages of manuals
"""Endings, beside those of what is or becomes Markdown, of files with a title. Code keeps its file's name."""
_MAX_WORDS, _MAX_FIRST_LINE, _MAX_CHARACTERS = 20, 10, 150
_MAX_LINE = 500  # characters of a title before its marks of Markdown are taken off
_READ = 20_000  # characters of a text in which the words of its file's name are looked for
_GENERIC = frozenset(
    "abstract about contents content chapter copy cover default doc docs document draft dsc export file final foreword"
    " home image img index intro introduction main metadata new note notes output overview page part preface readme"
    " scan section seite summary table text title toc untitled unnamed version welcome of".split()
)
"""Words that name no file: a name of these and numbers alone is none."""
_SMALL = frozenset("a an and as at but by for from in of on or the to und der die das des vs with".split())
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#[ \t]+(.+?)[ \t]*#*[ \t]*")
_BOLD = re.compile(r"\s*(\*\*|__)(?![\s*_])([^\n]{1,200}?)\1[ \t]*(?:\n|\Z)")
_STATED = re.compile(
    r"\A(?:(?://|:|\.\.|\[)[^\n]*\n|\s)*(?:"
    r"= (?P<asciidoc>\S[^\n]*)"
    r"|(?P<over>[=\-~*#^\"'+])(?P=over){2,}[ \t]*\n[ \t]*(?P<rst>\S[^\n]{0,300}?)[ \t]*\n(?P=over){3,}[ \t]*(?:\n|\Z)"
    r"|(?P<line>\S[^\n]{0,300}?)[ \t]*\n(?P<under>[=\-~*#^\"'+])(?P=under){2,}[ \t]*(?:\n|\Z)"
    r"|(?P<man>[\w.:+-]+)\((?P<part>\d\w*)\)[ \t].*?(?P=man)\((?P=part)\)[ \t]*(?:\n|\Z))"
    r"|^\.T[Hh][ \t]+\"?(?P<roff>[\w.:+-]+)"
    r"|\AMetadata-Version:[^\n]*\n(?:[^\n]+\n)*?Name:[ \t]*(?P<package>\S[^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
"""Matches a title as a text writes it: in AsciiDoc, reStructuredText, a manual's page, roff, a package."""
_EXPORTED = re.compile(r"(\S.*?)[ \t]+[0-9a-f]{32}")
"""Matches the name of a file that Notion exports."""
_PANDOC = re.compile(r"%(?!%) ?(\S[^\n]*)")
"""Matches the title that Pandoc reads at the start of a text."""
_PROPERTY = re.compile(r"\s*(?:-[ \t]+)?(?:[\w-]+::[^\n]*\n\s*)*?title::[ \t]*(\S[^\n]*)")
"""Matches the title among the properties at the start of a page of Logseq."""
_HTML_HEADING = re.compile(r"<h1\b[^<>]*>(.{1,500}?)</h1>", re.DOTALL | re.IGNORECASE)
_UNDERLINE = re.compile(r"([=\-~*^\"])\1{2,}\s*")
_DATE = re.compile(r"(?<!\d)(\d{4})[-_](\d{2})[-_](\d{2})(?!\d)")
_SITE = re.compile(r"\s+[|–—·•»-]\s+|\s+::\s+")
_MARKUP = [
    (re.compile(r"\\[a-z]+\*?\{([^{}]*)\}"), r"\1"),
    (re.compile(r"(?<![\w:.\\])\\[a-z]{3,}\b\s*|\\(?=\s)"), ""),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)|<[^<>]*>|\{#[^}]*\}"), ""),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"(?:\{[\w:+.-]{1,40}\}|:[\w:+.-]{1,40}:)`~?([^`]*)`"), r"\1"),
    (re.compile(r"(?<!\w)([*_]{1,3}|`+)(\S(?:.*?\S)?)\1(?!\w)"), r"\2"),
]
_UNRESOLVED = re.compile(r"(?<![\\$])\{\{?[ ]?[a-z][\w.-]*[ ]?\}")
"""Matches the place of a word that a program puts in ("What's New in {version}")."""
_NO_PROSE = re.compile(r"[:;=<>{}|·@#\\\[\]]|\s/\s|://|^\W*[-*+>]\s")
_OF_A_PROGRAM = re.compile(
    r"^Microsoft (?:Office )?(?:Word|PowerPoint|Excel) [-–] "
    r"|\.(?:docx?|docm|pptx?|ppsx?|xlsx?|dvi|tex|indd|qxd|pdf|ps|eps|od[pst]|rtf|wpd|txt|html?)\s*$",
    re.IGNORECASE,
)
"""Titles that a program gave to a PDF: "Microsoft Word - draft.docx"."""
_OF_A_FILE = re.compile(r"\S*_\S*|\d+\.\w{2,4}")
"""Matches titles of a PDF that are a file's name: "905_Precinct", "10811.exe"."""
_UNNAMED = re.compile(
    r"\(?(?:anonymous|unspecified|none|null)\)?"
    r"|(?:PowerPoint Presentation|PowerPoint-Präsentation|Présentation PowerPoint|Presentación de PowerPoint"
    r"|(?:Layout|Slide|Folie|Diapositiv[ae]|Sheet|Tabelle|Blatt"
    r"|Dokument|Documento|Präsentation|Présentation|Presentation|Presentación|Presentazione"
    r"|Workbook|Book|Arbeitsmappe|Mappe|Classeur|Libro"
    r"|(?:Untitled|Unbenannt(?:es|e)?|Ohne Titel|Sans titre|Sin título|Senza titolo|Sem título|Naamloos)(?: \w+)?)"
    r"[ -]?\d*)",
    re.IGNORECASE,
)
"""Titles that a program gives to what nobody named: "Layout 1", "Unbenanntes Dokument"."""
_STAMPS = frozenset(
    "classified confidential draft entwurf for hallo hello hi intern internal memo memorandum only personal private"
    " restricted secret streng strictly top urgent use vertraulich".split()
)
_SALUTATION = re.compile(
    r"(?:dear|hello|hi|to whom|sehr geehrte[rs]?|liebe[rs]?|hallo|guten tag|ch[eè]re?s?|estimad[oa]s?)\s+\S",
    re.IGNORECASE,
)
"""The first words of a letter."""
_OF_FOLDER = frozenset({"index", "readme", "default", "home"})
"""Names of the file that speaks for its folder."""
_STATED_IN_FRONT = re.compile(
    r"^(?:[ \t]*\")?title\"?[ \t]*[:=][ \t]*(?:[>|][+-]?\d?[ \t]+)?(?:(?:\"\")?\"((?:[^\"\\\n]|\\.)*)\"(?:\"\")?"
    r"|(?:'')?'((?:[^'\n]|'')*)'(?:'')?|((?!#)\S.*?))?[ \t]*,?[ \t]*(?:(?<=\s)#.*)?$",
    re.MULTILINE,
)
"""Matches the title in YAML, TOML or JSON before a Markdown text."""


def find_title(file: str, text: str, stated: str = "", shared: Container[str] = ()) -> str:
    """Return the title of a file.

    It is the file's name without ending, if that looks like a name ("Max Born", but not "page_017" or "max-born").
    Otherwise it is the first that there is of: the title that the file states; the first heading of what is or becomes
    Markdown; of other prose, a first line that is short and stands alone; the words of the file's name, written as the
    text writes them, after those of the folder, if the file's name alone says nothing: "book 1" of "book/1.txt".

    Args:
        file: path of the file below the folder.
        text: its text, or that of its first page.
        stated: the title in the file's own metadata; "" if there is none.
        shared: beginnings of titles that other HTML pages have too (`find_shared`).

    """
    path = PurePosixPath(file)
    ending, stem = path.suffix.lower(), path.stem.strip()
    if exported := _EXPORTED.fullmatch(stem):
        path, stem = path.with_stem(exported[1]), exported[1]
    if stem and (_is_name(stem) or (not stated and ending not in MARKDOWN | MADE_MARKDOWN | _PROSE)):
        return stem
    stated = "".join(mark for mark in stated if mark.isspace() or unicodedata.category(mark) != "Cc")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    heading = ""
    if ending in MARKDOWN:
        front, text = _read_front_matter(text)
        stated, heading = stated or front, _find_heading(text)
    elif ending in HTML:
        stated = _choose_of_page(stated, _find_heading(text), shared)
    elif ending in MADE_MARKDOWN:
        is_of_file = ending == ".pdf" and _OF_A_FILE.fullmatch(stated.strip())
        stated, heading = "" if is_of_file or _OF_A_PROGRAM.search(stated) else stated, _find_heading(text)
    else:
        stated = stated or _find_stated(text)
    for candidate in (stated, heading, "" if ending in MARKDOWN | HTML else _find_first_line(text)):
        if title := _clean(candidate):
            return title
    return _name_by_path(path, text)


def _find_stated(text: str) -> str:
    """Return the title that a text states in the form of its format; "" without one."""
    match = _STATED.search(text[:_READ])
    if match is None:
        return ""
    kind = str(match.lastgroup)
    if kind in ("man", "part"):
        return match["man"].lower()
    if kind == "under":
        line = match["line"]
        return (
            line if len(line) <= len(match[0].rstrip().rsplit("\n", 1)[-1].rstrip()) and line[-1] not in ".,;]" else ""
        )
    return match["roff"].lower() if kind == "roff" else match[kind].strip()


def find_shared(titles: Iterable[str]) -> frozenset[str]:
    """Return the beginnings that different titles of HTML pages have in common: "Acme" of "Acme | Team"."""
    by_beginning: defaultdict[str, set[str]] = defaultdict(set)
    for title in titles:
        by_beginning[_SITE.split(title)[0]].add(title)
    return frozenset(beginning for beginning, found in by_beginning.items() if len(found) > 1)


def _is_name(stem: str) -> bool:
    """Return True for what looks like a name: it begins with a capital letter, and has spaces between its words."""
    is_joined = "_" in stem or ("-" in stem and " " not in stem)
    return stem[:1].isalpha() and not stem[0].islower() and not is_joined and not _is_generic(stem)


def _is_generic(text: str) -> bool:
    """Return True if a text says nothing of what a file is about: "README", "page 17", "IMG_2034"; "C" is a name."""
    if re.fullmatch(r"[^\W\d_][+#*]*", text):
        return False
    without_marks = "".join(mark for mark in text.casefold() if unicodedata.category(mark)[0] != "M")
    words = re.findall(r"[^\W\d_]+", without_marks)
    return all(word in _GENERIC or len(word) == 1 for word in words)


def _clean(candidate: str) -> str:
    """Return a title without marks of Markdown; "" if it is too long for one, or says nothing."""
    if len(candidate) > _MAX_LINE:
        return ""
    for pattern, text in _MARKUP:
        candidate = pattern.sub(text, candidate)
    if _UNRESOLVED.search(candidate):
        return ""
    title = " ".join(unescape(candidate).split()).rstrip(":*†‡∗ ")
    is_short = len(title) <= _MAX_CHARACTERS and len(title.split()) <= _MAX_WORDS
    is_named = not _is_generic(title) and not _UNNAMED.fullmatch(unicodedata.normalize("NFC", title))
    return title if is_short and is_named else ""


def _read_front_matter(text: str) -> tuple[str, str]:
    """Return the title in the YAML, TOML, JSON or properties before a Markdown text, and the text after it."""
    if named := _PROPERTY.match(text):
        return named[1].strip(), text
    if named := _PANDOC.match(text):
        return named[1].strip(), text[named.end() :]
    matter = FRONT_MATTER.match(text)
    if matter is None:
        return "", text
    is_yaml = matter[0].lstrip().startswith("-")
    unfolded = re.sub(r"\n[ \t]+(?=\S)", " ", matter[0]) if is_yaml else matter[0]
    stated = _STATED_IN_FRONT.search("\n".join(line for line in unfolded.split("\n") if len(line) <= _MAX_LINE))
    double, single, plain = stated.groups(default="") if stated else ("", "", "")
    return re.sub(r"\\(.)", r"\1", double) or single.replace("''", "'") or plain, text[matter.end() :]


def _find_heading(text: str) -> str:
    """Return the first heading of the first level; code in fences has none.

    If there are more of them, they are sections, and a line in bold above all is the title.
    """
    fence, headings = "", list[str]()
    lines = _HTML_HEADING.sub(lambda match: f"\n# {' '.join(match[1].split())}\n", text).splitlines()
    for line, following in pairwise([*lines, ""]):
        if opened := _FENCE.match(line):
            fence = "" if fence and opened[1].startswith(fence) else fence or opened[1]
        elif not fence and len(line) <= _MAX_LINE and (heading := _HEADING.fullmatch(line)):
            headings.append(heading[1])
        elif not fence and line.strip() and re.fullmatch(r" {0,3}={3,}\s*", following):
            headings.append(line.strip())
        if len(headings) > 1:
            break
    bold = _BOLD.match(text) if len(headings) > 1 else None
    return bold[2] if bold else headings[0] if headings else ""


def _choose_of_page(title: str, heading: str, shared: Container[str]) -> str:
    """Return the name of an HTML page: its heading, unless that is the site's name, which its title ends in.

    Without such a heading it is what the title begins with; all of the title, if other pages begin so too.
    """
    name, *rest = _SITE.split(title)
    site = name if name in shared else rest[-1] if rest else ""
    is_site = bool(rest) and heading.casefold() == site.casefold()
    if _clean(heading) and not is_site:
        return heading
    return title if name in shared else name


def _find_first_line(text: str) -> str:
    """Return the first line, if it is short, stands alone like a title, and is no sentence and no field of a form."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if len(lines) < 2:
        return ""
    line, following = lines[0], lines[1]
    is_alone = not following or _UNDERLINE.fullmatch(following)
    is_title = line[:1].isalnum() and not line[0].islower() and line[-1] not in ".,!?"
    is_short = len(line) > 1 and len(line.split()) <= _MAX_FIRST_LINE
    is_of_letter = _SALUTATION.match(line) or _STAMPS.issuperset(re.findall(r"\w+", line.casefold()))
    is_prose = is_of_letter or _NO_PROSE.search(line)
    return line if is_alone and is_title and is_short and not is_prose and any(lines[2:]) else ""


def _name_by_path(path: PurePosixPath, text: str) -> str:
    """Return the words of a file's name, after those of the folders up to the first whose name says something."""
    names = [name for name in path.parent.parts if _split(name)] + [path.stem]
    start = len(names) - 1
    while start and _is_generic(names[start].strip()):
        start -= 1
    first, *rest = names[start:]
    if rest and rest[-1].casefold() in _OF_FOLDER:
        rest.pop()
    first = first.strip()
    title = first if _is_name(first) else _spell(first, text)
    return " ".join([title, *(word for name in rest for word in _split(name))]) or repr(path.name)


def _spell(stem: str, text: str) -> str:
    """Return the words of a file's name as the text writes them, or with spaces and capital letters.

    Words in front that the text doesn't have with the others are left out, if two or more are left:
    "people-mikael-ekstrom" is "Mikael Ekström". A single word stays as it is.
    """
    words = [word for word in re.split(r"[\s_-]+", stem) if _fold(word)[0]]
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
    first, *others = _split(stem)
    return " ".join([first[:1].upper() + first[1:], *map(_capitalize, others)])


def _split(stem: str) -> list[str]:
    """Return the words of a file's name; a date is one."""
    spaced = _DATE.sub(r"\1\0\2\0\3", stem)
    return [word.replace("\0", "-") for word in re.split(r"[\s_-]+", spaced) if word]


def _capitalize(word: str) -> str:
    return word if word in _SMALL else word[:1].upper() + word[1:]


def _fold(text: str) -> tuple[str, list[int]]:
    """Return a text in small letters without accents, and the place in the text of each of its characters."""
    if text.isascii():
        return text.casefold(), list(range(len(text) + 1))
    folded: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        for part in unicodedata.normalize("NFKD", character).casefold():
            if not unicodedata.combining(part):
                folded.append(part)
                places.append(place)
    return "".join(folded), [*places, len(text)]
