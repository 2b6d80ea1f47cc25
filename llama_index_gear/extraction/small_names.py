"""Names in small letters that the text around them tells: packages, and who speaks in a chat."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_INSTALLING = frozenset(("install", "add", "upgrade", "uninstall", "remove"))
_INSTALLED = re.compile(
    r"\b(?:pip3?|npm|yarn|pnpm|brew|apt|apt-get|dnf|conda|cargo|poetry|uv|gem)[ \t]+"
    rf"(?:{'|'.join(sorted(_INSTALLING))})[ \t]+(?:-\S+[ \t]+){{0,5}}([a-z][\w.-]*\w)"
)
_IMPORTED = re.compile(
    r"^[ \t]*(?:>>>[ \t]*)?(?:from[ \t]+([a-z]\w+)[\w.]*[ \t]+import|import[ \t]+([a-z]\w+))\b", re.M
)
_SPEAKER = re.compile(
    r"^\[?(?:[\w./-]{6,11},?[ T])?\d{1,2}:\d\d(?::\d\d)?(?: ?[AP]M)?\]?[ \t]+(?:- )?"
    r"(?:\*[ \t]|(?=<?[\w-]+[>:]))<?([^\W\d_][\w-]{0,30})[>:]?(?=\s)",
    re.MULTILINE,
)
"""Matches who says a line of a chat, or does something in it ("[09:02] keeva: …", "[09:03] * keeva waves")."""
_PACKAGE_MANAGER = re.compile(r"\b(?:pip|PyPI|npm|conda|crates\.io|RubyGems|Maven)\b")
_PACKAGE = re.compile(
    r"\b(?:package|library)[ \t]+`?([a-z][\w-]{1,60})|\b([a-z][\w-]{1,60})`?[ \t]+(?:package|library)\b"
)


def find_speakers(text: str) -> Iterator[str]:
    """Find who says a line of a chat."""
    return (match[1] for match in _SPEAKER.finditer(text) if match[1].islower())


def find_packages(text: str, small_words: Collection[str], *, has_code: bool) -> list[tuple[str, bool]]:
    """Find packages, and if they are sure: those that a passage installs or imports, but not those that it calls so.

    Args:
        text: the passage.
        small_words: its words without capital letters.
        has_code: True if it has a block of code.

    """
    found: list[tuple[str, bool]] = []
    if not _INSTALLING.isdisjoint(small_words):
        found += [(match[1], True) for match in _INSTALLED.finditer(text)]
    if "import" in text and has_code:
        found += [(match[match.lastindex or 0], True) for match in _IMPORTED.finditer(text)]
    if ("package" in text or "library" in text) and _PACKAGE_MANAGER.search(text):
        found += [(match[match.lastindex or 0], False) for match in _PACKAGE.finditer(text)]
    return found
