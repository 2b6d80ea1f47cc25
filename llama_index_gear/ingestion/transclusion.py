"""Blocks of other files that a text shows where it stands: `![[page#section]]`, and includes of AsciiDoc and rst."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import PurePosixPath

from llama_index_gear.characters import unify_spelling
from llama_index_gear.extraction.blocks import MARKDOWN
from llama_index_gear.extraction.lines import FRONT_MATTER
from llama_index_gear.extraction.link_targets import count_steps
from llama_index_gear.ingestion.converter import sub_prose
from llama_index_gear.ingestion.regular_files import UnreadableFile
from llama_index_gear.triple import entity_key

HOSTS = MARKDOWN | {".adoc", ".asciidoc", ".rst", ".rest"}
"""Endings of the files whose text may show blocks of others."""
_SHOWN = HOSTS | {".txt"}
MAX_CHARACTERS = 50_000
"""Characters of other files that a document shows, at most. A block that is longer than what is left is left out."""
_MAX_BLOCKS = 200  # of a document
_MAX_DEPTH = 4  # blocks within blocks
_BLOCK = re.compile(
    r"(?m)^[ \t]*(?:!\[\[(?P<page>[^\[\]|\n]{1,300})(?:\|[^\[\]\n]{0,200})?\]\]"
    r"|include::(?P<file>[^\s\[\]]{1,300})\[(?P<options>[^\[\]\n]{0,200})\])[ \t]*$"
)
_PART = re.compile(r"\b(?:tags?|lines)\s*=")
"""Matches options of an include that takes a part of the file."""
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_HEADING = re.compile(r"(?m)^(#{1,6})[ \t]+(\S(?:[^\n]*\S)?)[ \t]*$")
_LABEL = re.compile(r"(?m)^\([^()\s]{1,100}\)=[ \t]*\n")
_TARGET = re.compile(r"(?m)(\]\(|^\[[^\[\]\n]{1,200}\]:[ \t]*)(?![a-z][\w+.-]*:|/|<)([^\s()]{1,500})", re.IGNORECASE)
"""Matches a link to a place beside the file, or within it."""


@dataclass
class _Room:
    """The room that a document has left to show blocks of others."""

    characters: int = MAX_CHARACTERS
    blocks: int = _MAX_BLOCKS


class Transclusion:
    """The files of a folder, to be shown within one another.

    A block is a file, a section of it or a paragraph with an id. A page that is shown by `![[…]]` stands behind that
    line, which links to it; its headings become bold lines, so that they do not part the text around it. An include is
    replaced; Markdown has none. Links in a block lead where they lead from its own file. A file is not shown within
    itself.

    Args:
        names: paths of the files below the folder.
        read: returns the text of a file, by such a path.

    """

    def __init__(self, names: Collection[str], read: Callable[[str], str]) -> None:
        self._names = {name for name in names if PurePosixPath(name).suffix.lower() in _SHOWN}
        self._by_stem: defaultdict[str, list[str]] = defaultdict(list)
        for name in sorted(self._names):
            self._by_stem[PurePosixPath(name).stem.casefold()].append(name)
        self._read = read
        self._load = lru_cache(maxsize=8)(self._try_to_read)

    def fill(self, text: str, name: str) -> str:
        """Return the text of a file with the blocks that it shows."""
        plain = text.replace("\r\n", "\n")
        filled = self._fill(plain, (name,), _Room())
        return text if filled == plain else filled

    def _fill(self, text: str, chain: tuple[str, ...], room: _Room) -> str:
        is_markdown = PurePosixPath(chain[-1]).suffix.lower() in MARKDOWN

        def write(match: re.Match[str]) -> str:
            if match["file"]:
                return match[0] if is_markdown else self._find_block(match, chain, room)
            block = self._find_block(match, chain, room)
            return f"{match[0]}\n\n{block}\n" if block else match[0]

        return sub_prose(_BLOCK, write, text)

    def _find_block(self, match: re.Match[str], chain: tuple[str, ...], room: _Room) -> str:
        """Return what is shown, as its host is to have it; "" if there is no such block, or no room for it."""
        target, _, fragment = (match["page"] or match["file"]).partition("#")
        source = self._find(unify_spelling(target.strip()), chain[-1], by_name=not match["file"])
        room.blocks -= source is not None
        is_part = _PART.search(match["options"] or "")
        if source is None or source in chain or len(chain) > _MAX_DEPTH or room.blocks < 0 or is_part:
            return ""
        text = self._load(source).replace("\r\n", "\n")
        matter = FRONT_MATTER.match(text)
        block = _LABEL.sub("", _cut(text[matter.end() :] if matter else text, fragment))
        if len(block) > room.characters:
            return ""
        room.characters -= len(block)
        block = _move_links(self._fill(block, (*chain, source), room), source, chain[-1])
        return (block if match["file"] else sub_prose(_HEADING, _write_bold, block)).strip()

    def _try_to_read(self, name: str) -> str:
        """Return the text of a file; one that can't be read is tried once."""
        try:
            return self._read(name)
        except (OSError, UnreadableFile):
            self._names.discard(name)
            return ""

    def _find(self, target: str, host: str, *, by_name: bool) -> str | None:
        """Return the file that a host means: by its path beside the host or below the folder, or by its name."""
        for folder in (posixpath.dirname(host), ""):
            whole = posixpath.normpath(posixpath.join(folder, target.lstrip("/")))
            if found := next((name for name in (whole, f"{whole}.md") if target and name in self._names), None):
                return found
        end = f"/{target.removesuffix('.md').lstrip('/')}".casefold()
        stems = self._names.intersection(self._by_stem.get(end.rpartition("/")[2], ()) if by_name else ())
        named = [name for name in stems if f"/{PurePosixPath(name).with_suffix('')}".casefold().endswith(end)]
        named.sort(key=lambda name: count_steps(name, host))
        is_sole = len(named) == 1 or (named and count_steps(named[0], host) < count_steps(named[1], host))
        return named[0] if is_sole else None


def _write_bold(heading: re.Match[str]) -> str:
    return f"**{_title(heading).strip('*')}**"


def _title(heading: re.Match[str]) -> str:
    return heading[2].rstrip("# \t")


def _cut(text: str, fragment: str) -> str:
    """Return the part of a page that a fragment means: a section, or a paragraph with an id; "" if there is none."""
    if not fragment:
        return text
    last = fragment.rpartition("#")[2].strip()
    if last.startswith("^"):
        paragraphs = [part.strip() for part in re.split(r"\n[ \t]*\n", text)]
        named = re.compile(rf"(?m)(?:^|[ \t]){re.escape(last)}[ \t]*$")
        apart = (number for number, part in enumerate(paragraphs) if named.search(part))
        touching = (number for number, part in enumerate(paragraphs) if part.endswith(last))
        number = next(chain(apart, touching), None)
        if number is None:
            return ""
        is_alone = paragraphs[number] == last  # behind what it names: a list, a table, a quotation
        if is_alone and number:
            return paragraphs[number - 1]
        part = paragraphs[number]
        found = named.search(part)
        line = part[part.rfind("\n", 0, found.end()) + 1 : found.end()] if found else ""
        return line if _ITEM.match(line) else part
    headings: list[re.Match[str]] = []

    def note(heading: re.Match[str]) -> str:
        headings.append(heading)
        return heading[0]

    sub_prose(_HEADING, note, text)  # of code none
    for number, heading in enumerate(headings):
        if entity_key(_title(heading)) == entity_key(last):
            behind = (other.start() for other in headings[number + 1 :] if len(other[1]) <= len(heading[1]))
            return text[heading.start() : next(behind, len(text))]
    return ""


def _move_links(text: str, source: str, host: str) -> str:
    """Return a block of one file whose links lead to the same places from another."""
    folder, origin = posixpath.dirname(source), posixpath.dirname(host)

    def move(match: re.Match[str]) -> str:
        path, mark, fragment = match[2].partition("#")
        whole = posixpath.join(folder, path) if path else source
        return f"{match[1]}{posixpath.relpath(f'/{whole}', f'/{origin}')}{mark}{fragment}"

    return sub_prose(_TARGET, move, text)
