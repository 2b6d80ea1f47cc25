"""The title of a document as it is printed: what stands in the largest letters of its first page."""

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


def print_title(text: str, blocks: Sequence[Any]) -> str:
    """Return a page's Markdown with its printed title, whole, as its one heading of the first level.

    Args:
        text: the page.
        blocks: its pieces as the converter found them, with `text`, `font_size` and `bbox` (or None), in points from
            the foot of the page.

    """
    lines = _find_title(blocks)
    if not lines:
        return text
    own = Counter(map(_fold, lines))
    paragraphs = [f"# {' '.join(lines)}"]
    for paragraph in text.split("\n\n"):
        if own[_fold(paragraph)]:
            own[_fold(paragraph)] -= 1
        else:
            paragraphs.append(re.sub(r"^# ", "## ", paragraph))
    return "\n\n".join(paragraphs)


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
        )
        end = next(
            (n for n in range(1, len(lines)) if lines[n][0] - lines[n - 1][0] > _MOST_LEADING * size), len(lines)
        )
        title = [line for _, _, line in lines[:end]]
        if sum(map(str.isalpha, "".join(title))) >= _LEAST_LETTERS:
            return title
    return []


def _fold(text: str) -> str:
    return _MARKS.sub("", text).casefold()
