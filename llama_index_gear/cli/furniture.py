"""Menus, footers, notices: lines that most pages of a site share. They would link each page to all."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

_LEAST = 3
"""Pages that a line must stand on, at least; besides, on more than half of those of its folder or of one above."""
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_STRUCTURE = re.compile(r"#|\|[ \t|:-]*$|[^\w]*$")
"""Matches a heading, a rule, or what has no words."""


class Furniture:
    """The lines that most HTML pages of a folder share.

    Args:
        pages: path → text of each page, as Markdown.

    """

    def __init__(self, pages: Iterable[tuple[str, Sequence[str]]]) -> None:
        numbers: Counter[str] = Counter()
        counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for file, texts in pages:
            lines = {hash(line) for text in texts for _, line in _list_lines(text) if line}
            for folder in _list_folders(file):
                numbers[folder] += 1
                counts[folder].update(lines)
        self._shared = {
            folder: {line for line, number in found.items() if number >= _LEAST and number * 2 > numbers[folder]}
            for folder, found in counts.items()
        }

    def take_off(self, file: str, text: str) -> str:
        """Return a page's text without them; as it is, if nothing would be left, as of a page that was saved twice."""
        shared: set[int] = set().union(*(self._shared.get(folder, ()) for folder in _list_folders(file)))
        kept = [own for own, line in _list_lines(text) if not line or hash(line) not in shared]
        if not any(line for _, line in _list_lines("\n".join(kept))):
            return text
        return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _list_folders(file: str) -> list[str]:
    return [folder.as_posix() for folder in PurePosixPath(file).parents]


def _list_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line, and what of it is compared with other pages': "" of code, headings, and what has no words."""
    is_code = False
    for line in text.split("\n"):
        is_fence = bool(_FENCE.match(line))
        is_code ^= is_fence
        yield line, "" if is_code or is_fence or _STRUCTURE.match(line.strip()) else line.strip()
