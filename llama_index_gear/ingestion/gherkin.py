"""Gherkin, in which tests are told as steps, as Markdown; in any of its languages, by the form of its lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

GHERKIN = ".feature"
"""Ending of its files."""
_TITLED = re.compile(r"((?:[^\W\d_]|[\u0300-\u036f\u0900-\u0eff'’ -]){2,30}):(?:\s+(.*))?")
"""Matches a keyword with a colon, and the title behind it. Indian scripts and Thai write some vowels as marks."""
_MOST_WORDS = 3
_BAR = re.compile(r"(?<!\\)\|")
_FENCES = ('"""', "```")


def read_gherkin(text: str) -> str:
    """Return features and scenarios as headings, steps as items in small letters, and tables with their heads.

    Comments, tags and a keyword without a title are left out.

    Args:
        text: the file.

    """
    lines = [line.strip() for line in text.split("\n")]
    indents = [len(line) - len(line.lstrip()) for line in text.expandtabs(4).split("\n")]
    begins = {line.split()[0] for line in lines if line and not _TITLED.fullmatch(line)}
    titled = Counter(line.split()[0] for line in lines if _TITLED.fullmatch(line))
    written: list[str] = []
    fence = ""
    headings = 0
    for number, line in enumerate(lines):
        keyword = _TITLED.fullmatch(line)
        if line.startswith(fence or _FENCES):
            fence = "" if fence else line[:3]
            written.append("```")
        elif fence:
            written.append(f"    {line}" if line[:3] in _FENCES else line)  # of Markdown in it: ends nothing
        elif (
            keyword
            and line.split()[0] not in begins
            and keyword[1].count(" ") < (_MOST_WORDS if keyword[2] else 1)
            and (
                headings < 2
                or " " not in keyword[1]
                or titled[line.split()[0]] > 1
                or _stands_apart(lines, indents, number)
            )
        ):
            written.append(f"\n{'##'[: headings + 1]} {keyword[2]}\n" if keyword[2] else "")
            headings += 1
        elif line[:1] == "|":
            if not (written and written[-1].lstrip("\n")[:1] == "|"):
                line = f"\n{line}\n{'|---' * (len(_BAR.findall(line)) - 1)}|"
            written.append(line)
        elif line[:1] not in ("#", "@"):
            step = line.removeprefix("* ")
            written.append(f"- {step[0].lower()}{step[1:]}" if headings > 1 and step else line)
    return "\n".join(written)


def _stands_apart(lines: Sequence[str], indents: Sequence[int], number: int) -> bool:
    """Return True for a line behind an empty one, a tag or a comment, or one that is less indented than that in front.

    The only step of its kind may have a colon, too ("Given a user: Nora Blum").
    """
    return lines[number - 1][:1] in ("", "@", "#") or indents[number] < indents[number - 1]
