"""Gherkin, in which tests are told as steps, as Markdown; in any of its languages, by the form of its lines."""

from __future__ import annotations

import re

GHERKIN = ".feature"
"""Ending of its files."""
_TITLED = re.compile(r"((?:[^\W\d_]|['’ -]){2,30}):(?:\s+(.*))?")
"""Matches a keyword with a colon, and the title behind it."""
_MOST_WORDS = 3


def read_gherkin(text: str) -> str:
    """Return features and scenarios as headings, steps as items in small letters, and tables with their heads.

    Comments, tags and a keyword without a title are left out.

    Args:
        text: the file.

    """
    lines = [line.strip() for line in text.split("\n")]
    begins = {line.split()[0] for line in lines if line and not _TITLED.fullmatch(line)}
    written: list[str] = []
    code = ""
    headings = 0
    for number, line in enumerate(lines):
        keyword = _TITLED.fullmatch(line)
        if line[:3] in ('"""', "```"):
            code = "" if code else "```"
            written.append("```")
        elif code:
            written.append(line)
        elif keyword and line.split()[0] not in begins and keyword[1].count(" ") < (_MOST_WORDS if keyword[2] else 1):
            written.append(f"\n{'##'[: headings + 1]} {keyword[2]}\n" if keyword[2] else "")
            headings += 1
        elif line[:1] == "|":
            if not number or lines[number - 1][:1] != "|":
                line = f"\n{line}\n{'|---' * (line.count('|') - 1)}|"
            written.append(line)
        elif line[:1] not in ("#", "@"):
            step = line.removeprefix("* ")
            written.append(f"- {step[0].lower()}{step[1:]}" if headings > 1 and step else line)
    return "\n".join(written)
