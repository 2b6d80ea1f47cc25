"""Names in scripts without capital letters: Chinese, Japanese, Arabic, Hebrew, Hindi, …."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice

_MAX_QUOTATIONS = 200  # quotations of a passage that are looked for once more

_CASELESS = "\u0590-\u109f\u10d0-\u10ff\u1100-\u139f\u1700-\u18af\u3040-\ua4cf\uac00-\ud7ff\uf900-\ufdff\ufe70-\ufeff"
_WIDE = f"{_CASELESS}\u3000-\u303f\uff00-\uff0f\uff1a-\uff20"  # with the punctuation that stands without a space

_CASELESS_LETTER = re.compile(f"[{_CASELESS}\U00020000-\U0003ffff]")
BORDER = re.compile(f"(?<=[{_WIDE}])(?=[A-Za-z0-9À-ɏ])|(?<=[A-Za-z0-9À-ɏ])(?=[{_WIDE}])")
"""Matches the border between Latin letters and others: Chinese and Japanese write none."""
_INNER = "[^《》〈〉『』「」“”«»。！？!?，,、：:；;؟،]"
_TITLE = re.compile(f"《({_INNER}{{1,40}})》|〈({_INNER}{{1,40}})〉|『({_INNER}{{1,40}})』")
_QUOTED = re.compile(f"「({_INNER}{{1,20}})」|“({_INNER}{{1,20}})”|«({_INNER}{{1,20}})»")
_KATAKANA = re.compile("[ァ-ヺー]{1,30}(?:[・＝][ァ-ヺー]{1,30}){1,7}")


def is_caseless(text: str) -> bool:
    """Return True if a third or more of a text's letters are of scripts without capital letters."""
    if text.isascii():
        return False
    found = len(_CASELESS_LETTER.findall(text))
    return found > 0 and 3 * found >= sum(map(str.isalpha, text))


def find_recurring_quotations(text: str) -> set[str]:
    """Return what a passage quotes in 「…」, “…” or «…», and has once more: a quotation alone may be speech."""
    quoted = dict.fromkeys(match[match.lastindex or 0].strip() for match in _QUOTED.finditer(text))
    return {name for name in islice(quoted, _MAX_QUOTATIONS) if name and text.count(name) > 1}


def find_marked_names(sentence: str, recurring: Collection[str]) -> Iterator[tuple[int, str]]:
    """Find names that punctuation marks in a sentence without capital letters.

    They are titles of works (《…》, 〈…〉, 『…』), quotations that recur, and foreign names in Katakana with a
    dot between their parts.

    Args:
        sentence: the sentence.
        recurring: quotations that the passage has more than once.

    Yields:
        Where the name starts in the sentence, and the name.

    """
    for pattern in (_TITLE, _QUOTED, _KATAKANA):
        for match in pattern.finditer(sentence):
            name = match[match.lastindex or 0].strip()
            if name and (pattern is not _QUOTED or name in recurring):
                yield match.start(), name
