"""The blocks of a passage: headings, paragraphs, items of lists, rows of tables, code; each with its links.

A Markdown parser finds them. What is not known to be Markdown is read as such with care: a comment is no heading, nor
is the line above a rule.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from llama_index_gear.extraction.inline import Link, read_inline, tidy
from llama_index_gear.extraction.lines import DIRECTIVE, prepare_lines

MARKDOWN = {".md", ".markdown", ".mdx", ".mdown", ".mkd", ".qmd", ".rmd", ".wiki", ".mediawiki", ".feature"}
"""Endings of files of Markdown, and of those that are read as such."""
_CODE = set(
    ".bash .bat .c .cc .cfg .clj .conf .cpp .cs .css .env .ex .go .gradle .h .hpp .hs .ini .java .js .json .jsonl .jsx"
    " .kt .less .lua .mk .php .pl .properties .ps1 .py .r .rb .rs .scala .scss .sh .sql .swift .tf .toml .ts .tsx .vue"
    " .xml .yaml .yml .zsh .awk .cmake .cnf .desktop .fish .hcl .jl .mak .nix .service .tfvars .bazel .bzl .coffee"
    " .dart .dockerfile .editorconfig .exs .gitignore .graphql .m .mjs .nim .pm .pp .psm1 .pyi .rake .sls"
    " .tcl .zig".split()
)
_CODE_NAME = re.compile(
    r"\.[\w.-]+|(?:make|[A-Z]\w*)file(?:\.\w+)?|CODEOWNERS|CMakeLists\.txt|(?:requirements|constraints)[\w.-]*\.(?:in|txt)"
    r"|robots\.txt|BUILD|PKGBUILD|SConstruct|SConscript|WORKSPACE|crontab|fstab|hosts|\w+_config"
    r"|[\w.-]+\.(?:dist|example|sample|template)"
)
"""Matches the names of files in which a "#" begins a comment, by more than their ending."""
_FILE_KEYS = ("file_name", "file_path", "file", "filename", "source", "path")
_PARSED = re.compile(r"[\n#<>*+•|`~_\[\\&:{-]|^\s")
"""Matches what a text has that isn't a single paragraph of plain words."""
_LINE = re.compile(r"[^\W\d][^\n]*\n?")
"""Matches a text of one line that has no mark of a block in front."""
_CELL = re.compile(r"(?<!\\)\|")
_HTML_HEADING = re.compile(r"\s*<h([1-6])\b[^\n<>]{0,300}>(.*)</h\1>\s*", re.IGNORECASE | re.DOTALL)
_BOLD_LINE = re.compile(r"\s*(\*\*|__)(?!\s)[^*\n]{1,100}[^*\n\s.!?]\1:?\s*")
"""Matches a line in bold that stands alone, as a heading below all others."""
_DECORATED = re.compile(r"^[ \t]*(?:@?echo\b[. \t]*|@(?=\w))")  # "@property" is no person
_TASK = re.compile(r"\[[ xX]\][ \t]")
_RULE = re.compile(r"[\s|=:+-]*")
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_QUERIES = frozenset(("dataview", "dataviewjs", "tasks", "query", "base"))
"""Languages of blocks of code in whose place Obsidian shows what it finds."""


class Kind(Enum):
    """The kind of a block."""

    PARAGRAPH = "paragraph"
    HEADING = "heading"
    ITEM = "item"
    HEAD = "head"
    """The first row of a table, which names its columns."""
    ROW = "row"
    CODE = "code"


class Block(NamedTuple):
    """A block of a passage.

    Attributes:
        kind: its kind.
        start: the place in the passage where it starts.
        end: the place behind it.
        plain: the passage from `start` to `end`, without markup: a space, or NUL inside a word, stands for each of its
            characters.
        level: the level of a heading, from 1; 0 of a line in bold, and of all else.
        path: the headings that it stands under, outermost first.
        head: the names of the columns, of a row.
        links: its links, by their places in the passage.

    """

    kind: Kind
    start: int
    end: int
    plain: str
    level: int = 0
    path: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def text(self) -> str:
        """Its plain words."""
        return tidy(self.plain)


def tell_markdown(metadata: Mapping[str, Any]) -> bool | None:
    """Return True if a passage's metadata say that it is Markdown, False if code, None if they don't tell."""
    if metadata.get("file_type") in ("text/markdown", "text/x-markdown"):
        return True
    for key in _FILE_KEYS:
        if isinstance(name := metadata.get(key), str):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.suffix.lower() in MARKDOWN:
                return True
            if path.suffix.lower() in _CODE or _CODE_NAME.fullmatch(path.name):
                return False
    return None


def read_blocks(text: str, *, is_markdown: bool | None = None) -> list[Block]:
    """Read a passage's blocks, in its order.

    Args:
        text: the passage.
        is_markdown: True if it is known to be Markdown; False if it is known to be code, in which nothing is a heading;
            None if its own lines have to tell.

    """
    if not _PARSED.search(text):
        return [Block(Kind.PARAGRAPH, 0, len(text), text)] if text.strip() else []
    reader = _Reader(text, is_markdown)
    return list(reader.read_line() if _LINE.fullmatch(text) else reader.read())


class _Reader:
    """The state of a passage while its blocks are read."""

    def __init__(self, text: str, known: bool | None) -> None:
        self.known = known
        own = text.split("\n")
        bare = [_DECORATED.sub("", line) for line in own]
        self.parsed, self.before = (bare, 0) if known is False else prepare_lines(text, is_known=known is True)
        self.lines = [*[""] * self.before, *own]
        self.starts = [0] * self.before
        place = 0
        for line in own:
            self.starts.append(place)
            place += len(line) + 1
        self.plain = list(re.sub(r"[^\n]+", lambda match: " " * len(match[0]), text))
        self.links: list[Link] = []
        self.references: dict[str, Any] = {}
        self.open: list[tuple[int, str]] = []

    def read_line(self) -> Iterator[Block]:
        """Read a line that can be nothing but a paragraph."""
        return self._read_prose(Kind.PARAGRAPH, 0, self.parsed)

    def read(self) -> Iterator[Block]:
        """Read the blocks."""
        if self.known is False:
            return self._read_paragraph(0, len(self.parsed))
        env: dict[str, Any] = {}
        parser = _MARKDOWN_PARSER if self.known else _CAREFUL_PARSER
        tokens: list[Token] = []
        parser.block.parse("\n".join(self.parsed), parser, env, tokens)
        self.references = env.get("references", {})
        return self._walk(tokens)

    def _walk(self, tokens: Sequence[Token]) -> Iterator[Block]:
        items, is_head = 0, False
        head: tuple[str, ...] = ()
        for place, token in enumerate(tokens):
            kind, lines = token.type, token.map
            if kind in ("list_item_open", "list_item_close"):
                items += token.nesting
            elif kind == "table_open":
                head = ()
            elif kind in ("thead_open", "thead_close"):
                is_head = token.nesting == 1
            elif lines is None:
                continue
            elif kind in ("fence", "code_block"):
                yield from self._read_code(token, *lines)
            elif kind == "tr_open":
                block = self._read_row(lines[0], Kind.HEAD if is_head else Kind.ROW, head)
                head = tuple(map(str.strip, tidy(block.plain).split("|"))) if is_head else head
                yield block
            elif kind == "heading_open":
                yield from self._read_heading(token, tokens[place + 1].content, lines)
            elif kind == "paragraph_open":
                yield from self._read_paragraph(lines[0], lines[1], tokens[place + 1].content, is_item=items > 0)

    def _read_code(self, token: Token, first: int, last: int) -> Iterator[Block]:
        is_fenced = token.type == "fence"
        if token.info.strip() in _QUERIES:
            return
        if is_fenced:
            first, last = first + 1, last - 1
        if is_fenced and last < len(self.lines) and not re.match(r"[ \t>]*(?:[`~]{3}|[-.+]{2}|#\+)", self.lines[last]):
            last += 1  # the passage ends inside
        for number in range(max(first, self.before), last):
            if not DIRECTIVE.fullmatch(self.lines[number]):
                self.plain[self._start(number) : self._end(number)] = self.lines[number]
        yield from self._make(Kind.CODE, max(first, self.before), last)

    def _read_heading(self, token: Token, content: str, lines: Sequence[int]) -> Iterator[Block]:
        level, is_underlined = int(token.tag[1]), token.markup[0] in "=-"
        if is_underlined and not self.known and not self._is_underlined(content, self.lines[lines[1] - 1].strip()):
            yield from self._read_paragraph(lines[0], lines[1] - 1, content=content)
            return
        last = lines[1] - 1 if is_underlined else lines[1]
        self._write(lines[0], last, content)
        for block in self._make(Kind.HEADING, lines[0], last, level):
            self._open(level, block.text)
            yield block

    @staticmethod
    def _is_underlined(content: str, rule: str) -> bool:
        """Return True for a title above its rule: of one line, no longer than that, and no sentence or field."""
        is_line = "\n" not in content and content[-1:] not in ".,;]" and not re.match(r"[^:]{1,30}: ", content)
        return is_line and len(content) <= len(rule) and content[:1] not in "[.<"

    def _open(self, level: int, heading: str) -> None:
        while self.open and self.open[-1][0] >= level:
            self.open.pop()
        self.open.append((level, heading))

    def _read_paragraph(
        self, first: int, last: int, content: str | None = None, *, is_item: bool = False
    ) -> Iterator[Block]:
        """Read lines of prose. Rules, and rows of tables whose head is missing, divide them."""
        own = self.parsed[first:last] if content is None else content.split("\n")
        kind = Kind.ITEM if is_item else Kind.PARAGRAPH
        start = 0
        for place in range(len(own) + 1):
            line = own[place].strip() if place < len(own) else ""
            is_row = line.startswith("|") and not _RULE.fullmatch(line)
            if line and not is_row and not _RULE.fullmatch(line):
                continue
            if start < place:
                yield from self._read_prose(kind, first + start, own[start:place])
            if is_row:
                yield self._read_row(first + place, Kind.ROW, ())
            start = place + 1

    def _read_prose(self, kind: Kind, first: int, own: Sequence[str]) -> Iterator[Block]:
        content = "\n".join(own)
        heading = _HTML_HEADING.fullmatch(content)
        if kind is Kind.ITEM and (task := _TASK.match(content)):
            content = content[task.end() :]
        self._write(first, first + len(own), content)
        if heading is None:
            is_bold = kind is Kind.PARAGRAPH and _BOLD_LINE.fullmatch(content) is not None
            yield from self._make(Kind.HEADING if is_bold else kind, first, first + len(own))
            return
        for block in self._make(Kind.HEADING, first, first + len(own), int(heading[1])):
            self._open(int(heading[1]), block.text)
            yield block

    def _read_row(self, number: int, kind: Kind, head: tuple[str, ...]) -> Block:
        row = self.parsed[number].strip().removeprefix("|")
        if not row.endswith("\\|"):
            row = row.removesuffix("|")
        start = place = self._start(number) + self._shift(number) + self.parsed[number].rindex(row)
        for cell in _CELL.split(row):
            inline = read_inline(cell, self.references, is_markdown=self.known is not False)
            self.plain[place : place + len(cell)] = inline.plain
            self.links += [link._replace(start=place + link.start, end=place + link.end) for link in inline.links]
            place += len(cell)
            if place < start + len(row):
                self.plain[place] = "|"
            place += 1
        (block,) = self._make(kind, number, number + 1, head=head) or (Block(kind, start, start, ""),)
        return block

    def _write(self, first: int, last: int, content: str) -> None:
        """Write the plain words of lines to their places. A line of the content is the end of its source's line."""
        content = _INDENT.sub("", content)  # of a tab, the parser may write a part as spaces
        targets: list[int] = []
        for number, line in enumerate(content.split("\n"), start=first):
            source = self.parsed[number].rstrip() if number < last else ""
            kept = line.rstrip()
            offset = len(source) - len(kept)
            if offset < 0 or source[offset:] != kept:
                offset = max(source.find(kept.strip()), 0)
            number = min(number, len(self.lines) - 1)
            targets.append(self._start(number) + self._shift(number) + offset)
        inline = read_inline(content, self.references, is_markdown=self.known is not False)
        begins = [0]
        for target, line in zip(targets, inline.plain.split("\n"), strict=True):
            room = len(self.plain[target : target + len(line)])
            self.plain[target : target + room] = line[:room]
            begins.append(begins[-1] + len(line) + 1)

        def find(position: int) -> int:
            line = bisect_right(begins, position, hi=len(targets)) - 1
            return targets[line] + position - begins[line]

        self.links += [link._replace(start=find(link.start), end=find(link.end)) for link in inline.links]

    def _make(self, kind: Kind, first: int, last: int, level: int = 0, head: tuple[str, ...] = ()) -> list[Block]:
        if first >= last:
            return []
        start, end = self._start(first), self._end(last - 1)
        plain = "".join(self.plain[start:end])
        path = tuple(text for depth, text in self.open if not level or depth < level)
        links, self.links = tuple(self.links), []
        return [Block(kind, start, end, plain, level, path, head, links)] if plain.strip(" \n\0\t\r|") else []

    def _shift(self, number: int) -> int:
        """Return how many characters of a line stand in front of the parser's."""
        return len(self.lines[number].rstrip("\r")) - len(self.parsed[number].rstrip("\r"))

    def _start(self, number: int) -> int:
        return self.starts[number]

    def _end(self, number: int) -> int:
        return self.starts[number] + len(self.lines[number])


def _make_parser(*off: str) -> MarkdownIt:
    """Make a parser of blocks. HTML is read as words with tags, not as a block that hides Markdown."""
    return MarkdownIt("commonmark").enable("table").disable(["html_block", *off])


_MARKDOWN_PARSER = _make_parser()
_CAREFUL_PARSER = _make_parser("reference")
