"""Printed pages: their title, their running heads and feet, and tables that go on from page to page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

_LARGER = 1.1
"""Size of a title's letters, at least, for 1 of the text's."""
_SAME = 0.5  # points
_MOST_LEADING = 2.0
"""Height from one line of a title to the next, at most, for 1 of its letters."""
_LEAST_LETTERS = 4
_STAMP = re.compile(r"arXiv:\S")
"""Matches what arXiv prints on the margin of a first page."""
_MARKS = re.compile(r"[#*_\\\s]+")
_MOST_AREA = 3.0
"""Area of a piece, at most, for 1 of what its letters take: one with more is columns' heads, or a running head."""
_AREA_OF_LETTER = 0.6
"""That of a letter, with the space around it, for 1 of its size squared."""
_DEPTH = 3  # lines at the top and at the foot of a page
_LEAST_PAGES = 3
_SHARE = 0.3
"""Share of a document's pages that a running line is on, at least: those on the right may have another than those on
the left; a heading is one only on more than half of them."""
_MOST_LETTERS = 200  # of a running line
_FOLIO = re.compile(r"[#* ]*(?:(\d{1,4}) +)?([^\d\W].*?)(?: +(\d{1,4}))?[* ]*")
"""Matches a line with a number in front or at its end, and its words."""
_NUMBER = re.compile(r"\d+")
_TABLE = re.compile(r"\|.*\|[ \t]*\n\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*(?:\n\|.*)*")
_CELL = re.compile(r"(?<!\\)\|")
_VALUE = re.compile(r"(?!(?:19|20)\d\d$)[^\w]*\d[\d.,:/% -]*[^\w]*|\d{1,2}[-./ ][A-Za-z]{3}[-./ ]\d{2,4}")
"""Matches a number or a date, which names no column; a year may."""
_NO_HEADING = re.compile(
    r"#+ (?:[^\w\s\"'“‘«(\[¿¡*_`$€£§#&+<]|[^\W\dA-Z_][^\n]*[.;,]\Z|[^\n]*\b[Pp]age \d+ of \d+\b|\[[^\]\n]*\Z)"
)
"""Matches an item of a list, a piece of a sentence, and a running head, of which letters are large."""
_AMOUNT = re.compile(r"[–—-]|(?!(?:19|20)\d\d$)[$€£]?\d[\d.,]*%?")
"""Matches an amount, or the stroke in place of one."""


def print_title(text: str, blocks: Sequence[Any], others: Sequence[str] = ()) -> str:
    """Return a page's Markdown with its printed title, whole, as its one heading of the first level.

    A title that heads another page too, in letters as large or beside its number, is a running head, and no heading.

    Args:
        text: the page.
        blocks: its pieces as the converter found them, with `text`, `font_size` and `bbox` (or None), in points from
            the foot of the page.
        others: the document's other pages. Default: none.

    """
    lines = _find_title(blocks)
    if not lines:
        return text
    own = Counter(map(_fold, lines))
    words, has_number = _list_words(" ".join(lines)), any(map(_NUMBER.search, lines))
    if any(_list_words(line) == words for page in others for line in _list_heads(page, has_number=has_number)):
        return re.sub(r"(?m)^# (.+)$", lambda head: head[1] if _list_words(head[1]) == words else head[0], text)
    paragraphs = [f"# {' '.join(lines)}"]
    for paragraph in text.split("\n\n"):
        if own[_fold(paragraph)]:
            own[_fold(paragraph)] -= 1
        else:
            paragraphs.append(re.sub(r"^# ", "## ", paragraph))
    return "\n\n".join(paragraphs)


def read_page(text: str, blocks: Sequence[Any]) -> str:
    """Return a page's Markdown without headings that are none: columns' heads, pieces apart in a line, rows of values.

    Args:
        text: the page.
        blocks: its pieces, as of `print_title`.

    """
    scattered = {_fold(block.text) for block in blocks if _is_scattered(block)}
    paragraphs = text.split("\n\n")
    for place, paragraph in enumerate(paragraphs):
        if paragraph[:1] in ("#", "*") and (_fold(paragraph) in scattered or _is_row(paragraph)):
            paragraphs[place] = re.sub(r"^#+ |^\*\*|\*\*$", "", paragraph)
    return "\n\n".join(paragraphs)


def _is_row(paragraph: str) -> bool:
    """Return True for a heading with two values or more, besides its own number, or one that `_NO_HEADING` matches."""
    if paragraph[0] != "#":
        return False
    return bool(_NO_HEADING.match(paragraph)) or sum(map(bool, map(_AMOUNT.fullmatch, paragraph.split()[2:]))) > 1


def drop_running_lines(pages: Sequence[str]) -> list[str]:
    """Return pages without the lines at their top and foot that others have too, but for numbers that differ.

    The first page that has such a line keeps it. A line with a page's own number in front, or at its end on the last
    line, is no heading.
    """
    pages = _mark_off_folios(pages)
    counts = Counter(line for page in pages for line in {line for _, line in _list_edges(page.split("\n"))})
    least = max(_LEAST_PAGES, _SHARE * len(pages))
    running = {
        line for line, number in counts.items() if number >= least and (line[0] != "#" or number * 2 > len(pages))
    }
    first: dict[str, list[str]] = {}
    texts = []
    for page in pages:
        lines, new = page.split("\n"), dict[str, list[str]]()
        found = [(place, line) for place, line in _list_edges(lines) if line in running]
        for place, line in found:
            numbers = _NUMBER.findall(lines[place])
            if line in first:
                lines[place] = " ".join(own for own, other in zip(numbers, first[line], strict=True) if own != other)
            else:
                new[line] = numbers
        first |= new
        texts.append(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) if found else page)
    return texts


def _mark_off_folios(pages: Sequence[str]) -> list[str]:
    """Return pages whose first and last lines are no headings if they count as the pages do ("52 Reference Tables")."""
    found = []
    for number, page in enumerate(pages):
        lines = [line for line in page.split("\n") if line.strip()]
        for line in {*lines[:1], *lines[-1:]}:
            folio = _FOLIO.fullmatch(line) if len(line) < _MOST_LETTERS else None
            if folio and (folio[1] or (folio[3] and line == lines[-1])):
                words = folio[2].casefold()
                found.append((number, line, (words, int(folio[1] or folio[3]) - number)))
    counts = Counter(key for _, _, key in found)
    texts = list(pages)
    for number, line, key in found:
        if line[0] == "#" and counts[key] > 1:
            lines = [line.lstrip("# ") if one == line else one for one in texts[number].split("\n")]
            texts[number] = "\n".join(lines)
    return texts


def _list_edges(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Return the places of lines at the top and foot of a page, but for tables, and what of them is compared."""
    places = [place for place, line in enumerate(lines) if any(map(str.isalpha, line)) and line.strip()[0] != "|"]
    return [
        (place, f"#{line}" if line[0] == "#" else _NUMBER.sub("0", _MARKS.sub(" ", line)).casefold().strip())
        for place in sorted({*places[:_DEPTH], *places[-_DEPTH:]})
        if (line := lines[place].strip())
    ]


def continue_tables(pages: Sequence[str]) -> list[str]:
    """Return pages whose tables have heads of names.

    A table that begins a page with numbers or dates goes on from the page before, if it is as wide, and has its head;
    any other such table has none.
    """
    texts, head = [], ""
    for page in pages:
        parts, place = [], 0
        start, end = len(page) - len(page.lstrip()), len(page.rstrip())
        last = ""
        for match in _TABLE.finditer(page):
            before = head if match.start() == start else ""
            table = _name_columns(match[0].split("\n"), before)
            parts += [page[place : match.start()], "\n".join(table)]
            place = match.end()
            last = table[0] if place >= end else ""
        texts.append("".join([*parts, page[place:]]))
        head = last
    return texts


def _name_columns(rows: list[str], head: str) -> list[str]:
    """Return a table with the head of the one before in front, or none, if its own has numbers or dates."""
    cells = list_cells(rows[0])
    if not any(map(_VALUE.fullmatch, cells)):
        return rows
    first = head if head and len(list_cells(head)) == len(cells) else "|" + "  |" * len(cells)
    return [first, rows[1], rows[0], *rows[2:]]


def list_cells(row: str) -> list[str]:
    """Return the cells of a table's row, as Markdown writes them."""
    return [cell.strip() for cell in _CELL.split(row.strip()[1:-1])]


def is_named(title: str, text: str) -> bool:
    """Return True if half of a title's words, or more, stand in a text."""
    words = set(re.findall(r"\w{4,}", title.casefold()))
    return 2 * len(words.intersection(re.findall(r"\w{4,}", text.casefold()))) >= len(words) > 0


def _find_title(blocks: Sequence[Any]) -> list[str]:
    """Return the lines of the title, from top to bottom; none if no letters are larger than those of the text."""
    letters: Counter[float] = Counter()
    for block in blocks:
        letters[block.font_size] += len(block.text)
    if not letters:
        return []
    usual = letters.most_common(1)[0][0]
    for size in sorted(letters, reverse=True):
        if size < usual * _LARGER:
            break
        lines = sorted(
            (-max(block.bbox.top, block.bbox.bottom), block.bbox.left, " ".join(block.text.split()))
            for block in blocks
            if abs(block.font_size - size) < _SAME and block.bbox is not None and not _STAMP.match(block.text)
            if not _is_scattered(block)
        )
        end = next(
            (n for n in range(1, len(lines)) if lines[n][0] - lines[n - 1][0] > _MOST_LEADING * size), len(lines)
        )
        title = [line for _, _, line in lines[:end]]
        words = " ".join(title).split()
        is_axis = sum(map(str.isdecimal, words)) > 2  # "Relative Load 0 2 4 6"
        is_title = not is_axis and not _NO_HEADING.match(f"# {' '.join(words)}")
        if is_title and sum(map(str.isalpha, "".join(title))) >= _LEAST_LETTERS:
            return title
    return []


def _is_scattered(block: Any) -> bool:
    """Return True if a piece takes much more room than its letters do."""
    if block.bbox is None:
        return False
    area = abs((block.bbox.right - block.bbox.left) * (block.bbox.top - block.bbox.bottom))
    return bool(area > _MOST_AREA * _AREA_OF_LETTER * len(block.text) * block.font_size**2)


def _list_heads(page: str, *, has_number: bool) -> list[str]:
    """Return a page's headings of the first level; its first line and its last, too, to compare with a numbered one."""
    lines = [line for line in page.split("\n") if line.strip()]
    return [*(lines[:1] + lines[-1:] if has_number else []), *(line for line in lines if line.startswith("# "))]


def _list_words(line: str) -> list[str]:
    """Return the words of a line, without numbers: a running head on the left has them at its other end."""
    return sorted(re.findall(r"[^\W\d_]+", line.casefold()))


def _fold(text: str) -> str:
    return _MARKS.sub("", text).casefold()
