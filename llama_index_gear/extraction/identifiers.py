"""Names of machines, files, tickets and code, which no rule of grammar may take apart."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from llama_index_gear.extraction.words import (
    ABBREVIATIONS,
    COMMON_WORDS,
    CONNECTORS,
    FUNCTION_WORDS,
    HYPHENATED,
    OPENERS,
)

MAX_WORD_LETTERS = 200
"""Letters of a word. A longer one is cut, and is no identifier."""
_MAX_COMMAND_WORDS = 6  # words of inline code that is one name

_OPENING = "([{<\"'“‘«*|"
_CLOSING = ".,;:!?…>]}\"'”’»*_~|"
_HINT = re.compile(r"[_@/\\:]|\w[.-]\w|\w[=~><]=\w")
_SPAN = re.compile(r"(`{1,3})(?!`)(.+?)(?<!`)\1(?!`)")
_REQUIREMENT = re.compile(r"([a-z][\w.-]*)(?:\[[\w,-]+\])?(?:[=~><]=)[\w.*]+")
"""Matches a package with its version ("certifi==2023.7.22"): the package is the name."""
_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9]*_[A-Z0-9_]*)=")
"""Matches a variable of the environment that is set ("APP_HOME=/opt/app"): the variable is the name."""
_EXTENSION = (
    "md|rst|txt|py|ipynb|js|jsx|ts|tsx|json|jsonl|yaml|yml|toml|ini|cfg|conf|log|csv|tsv|sql|sh|ps1|go|rs|java|kt|cpp|hpp"
    "|cs|rb|php|html|css|xml|pdf|docx|xlsx|pptx|png|jpg|jpeg|svg|zip|gz|tgz|tar|jar|whl|lock|pem|crt"
)
_DUNDER = re.compile(r"(?<![^\W_])__\w+(?<!_)__$")
"""Matches the end of a name of Python that ends with underscores ("pump.__main__"), which are no marks of emphasis."""
_PART = r"[\w.@+-]+"
_IDENTIFIER = re.compile(
    r"(?P<address>[A-Za-z][A-Za-z0-9+.-]*://\S+|www\.\S+\.\S+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+(?::[\w.~-]+/[\w./~-]+)?"  # of mail, and of a repository
    r"|(?P<machine>\d{1,3}(?:\.\d{1,3}){3})(?:[:/]\d{1,5})?)"
    r"|(?P<ticket>[A-Z]{2}[A-Z0-9]{0,8}-\d{3,7})"
    r"|(?P<version>v\d+(?:\.\d+)+(?:-[\w.]+)?)"
    rf"|(?P<file>[\w.@+~-][\w.@+/~-]*\.(?:{_EXTENSION}))"
    rf"|(?P<path>(?:~|\.{{1,2}})?/(?![A-Z]){_PART}(?:/{_PART})+/?|(?:~|\.{{1,2}})/{_PART}/?|[A-Za-z]:\\\S+)"
    r"|(?P<underscore>(?=\S*(?:\w\w_\w|\w_\w\w))[^\W\d_]\w*(?:[.:-]\w+)*(?:\(\))?)"
    r"|(?P<dotted>(?P<host>[a-z][a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.(?P<last>[a-z]{2,}))(?::\d{2,5}|/\S*)?)"
    r"|(?P<port>[a-z][a-z0-9-]+:\d{2,5})"
    r"|(?P<numbered>[a-z][a-z0-9]*(?:-[a-z0-9]+)*-(?:v\d+|[a-z]*0\d+)|[a-z][a-z0-9]*(?:-[a-z0-9]+)+-\d+)"
    r"|(?P<handle>@(?!(?:param|returns?|throws|since|see|author|deprecated|echo)\b)[^\W\d_][\w-]{1,38})"
    rf"|(?P<relative>{_PART}(?:/{_PART})+)"
)
_TAGGED = re.compile(
    r"</|/>|=[\"']|&[lg]t;|^\W*[a-z]:[A-Z]|^(?i:bcc|cc|date|from|sent|subject|to):\S|\w\^|\$[^$]+\$"
    r"|[=:/]\$|\$\w+[/:]|\$\{"
)
"""Matches a word with a tag in it, of a markup that is read as text, with a key in front ("subject:This"), of a formula
("$C^*$-algebra"), or with a variable in it ("$HOME/bin")."""
_DATA = re.compile(r"(?=[\w+/=.-]*\d)[\w+/=.-]{40}", re.ASCII)
"""Is found in a word that is data: a key, a hash, a picture."""
_OPTION = re.compile("-[A-Za-z]")
"""Matches an option of a command."""
_OF_LETTERS = frozenset("bcc cc date from sent subject".split())
"""Names of the fields of a letter's head."""
_HYPHENATED = FUNCTION_WORDS | HYPHENATED
_ENGLISH_PARTS = _HYPHENATED | OPENERS | COMMON_WORDS
_HYPHENS = re.compile(r"[a-z][a-z0-9]+(?:-[a-z0-9]{2,})+")
_ORDINARY_ENDING = re.compile("(?:ed|ing|ly|style|based|like|free|wise|day|hood|ship|ness)$")


def find_identifier(word: str) -> tuple[int, int] | None:
    """Find the identifier in a word with its punctuation: inline code, an address, a file, a host, a ticket, ….

    Returns:
        Where it starts and ends in the word; None if there is none.

    """
    if len(word) >= MAX_WORD_LETTERS:
        return None
    if "`" in word and (span := _SPAN.search(word)):
        requirement = _REQUIREMENT.fullmatch(word, *span.span(2))
        return requirement.span(1) if requirement else span.span(2) if _is_code_name(span[2]) else None
    if not _HINT.search(word):
        return None
    start, end = 0, len(word)
    while start < end and word[start] in _OPENING:
        start += 1
    while start < end and (word[end - 1] in _CLOSING or _is_unmatched(word, start, end)):
        if _DUNDER.search(word, start, end):
            break
        end -= 1
    start += len("mailto:") if word.startswith("mailto:", start) else 0
    if requirement := _REQUIREMENT.fullmatch(word, start, end):
        return requirement.span(1)
    if assignment := _ASSIGNMENT.match(word, start, end):
        return assignment.span(1)
    match = _IDENTIFIER.fullmatch(word, start, end)
    if match is None or not _is_meant(match):
        return None
    # A port is no part of a machine's name: other passages name the machine without it.
    machine = "host" if match["host"] and word[match.end("host") : end].startswith(":") else "machine"
    return match.span(machine) if match[machine] else (start, end)


def _is_unmatched(word: str, start: int, end: int) -> bool:
    return word[end - 1] == ")" and word.count("(", start, end) < word.count(")", start, end)


def _is_code_name(code: str) -> bool:
    return any(map(str.isalpha, code)) and 1 < len(code) and len(code.split()) <= _MAX_COMMAND_WORDS


def _is_meant(match: re.Match[str]) -> bool:
    """Refuse what is a slip ("end.the"), two words ("and/or"), or an ordinary word with a number ("mid-to-late-19")."""
    kind, text = match.lastgroup, match[0]
    if match["dotted"]:
        return match["last"] not in FUNCTION_WORDS
    if kind == "numbered":
        return not any(part in FUNCTION_WORDS for part in text.split("-"))
    if kind == "relative":
        return any(find_identifier(part) or "_" in part.strip("_") for part in text.split("/"))
    return kind != "path" or any(map(str.isalpha, text))


def is_code(word: str) -> bool:
    """Return True for inline code between backticks."""
    return "`" in word and _SPAN.search(word) is not None


def is_hyphenated_name(word: str) -> bool:
    """Return True for a small word with hyphens that may be a name: unless it is formed like "well-known"."""
    if not _HYPHENS.fullmatch(word) or _ORDINARY_ENDING.search(word):
        return False
    return not any(part in _HYPHENATED or part.isdecimal() for part in word.split("-"))


_SIGN = re.compile(r"\W*[B-HJ-Z][^\w.]*|[=<>≤≥≠≈∈⊂⊆∪∩→⇒⇔∀∃∧∨]+")
_VARIABLE = re.compile(r"[^\W\d]\w?|\d[A-Z]{2,3}|[a-z]{1,2}[A-Z]")


def is_sign(word: str) -> bool:
    """Return True for a single large letter, but no initial ("K."), and for "=" and the like: proofs have many."""
    return _SIGN.fullmatch(word) is not None


def is_variable(core: str) -> bool:
    """Return True for what a proof writes of letters: a variable with its index ("Ui"), "4ABC", "idX"."""
    return _VARIABLE.fullmatch(core) is not None


def has_common_part(word: str) -> bool:
    """Return True if part of a word with hyphens is a common English word ("singer-songwriter", "invoice-api")."""
    return any(part in _ENGLISH_PARTS for part in word.split("-"))


@lru_cache(maxsize=2**14)
def classify_word(word: str) -> tuple[str, str]:
    """Return a word's kind, as a letter of `names._NAME`, and the word without the punctuation around it."""
    if word in CONNECTORS or _OPTION.fullmatch(word) or (_TAGGED.search(word) and not is_code(word)):
        return "c" if word in CONNECTORS else "-", word
    if word.isalpha():
        return ("-" if word.islower() or word == word.lower() else "N"), word
    if (span := find_identifier(word)) or _DATA.search(word):
        return ("T", word[slice(*span)]) if span else ("-", word)
    start, end = 0, len(word)
    while start < end and not word[start].isalnum():
        start += 1
    while end > start and not word[end - 1].isalnum() and unicodedata.category(word[end - 1])[0] != "M":
        end -= 1
    core = word[start:end]
    opens, closes = start > 0, end < len(word) or word.startswith("#")  # a tag of notes stands alone
    if core.isdecimal():
        return "-" if opens else "D" if closes else "d", core
    is_command = word[start - 1 : start] == "\\"  # of TeX
    if core == core.lower() or is_command or (word[-1] == ":" and core.lower() in _OF_LETTERS):
        return ("h" if "-" in core and is_hyphenated_name(core) else "-"), core
    if core.endswith(("'s", "’s")):
        core, closes = core[:-2], True
    elif word[end : end + 1] == "." and (len(core) == 1 or "." in core or core.lower() in ABBREVIATIONS):
        core, closes = core + ".", end + 1 < len(word)
    return ("X" if closes else "B") if opens else ("E" if closes else "N"), core
