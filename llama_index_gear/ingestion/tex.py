"""TeX and its bibliographies: what the converter would lose is written in another way, what it leaves is taken off."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

_ACCENTS = dict(
    zip("`'^\"~=.uvHck", "\u0300\u0301\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328", strict=True)
)
_LETTER = r"\\([`'^\"~=.])\s*(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))|\\([uvHck])\{([A-Za-z])\}"
_SPECIAL = {"ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "oe": "œ", "aa": "å", "AA": "Å"}
_DROPPED = re.compile(
    r"\\(?:label|thanks|orcid\w*|inst|bibitem|(?:auto|c|C|eq|name|page)?ref|cite[a-z]*)\*?"
    r"(?:\[(?:[^\[\]{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\])*\{[^{}]*\}|\\newblock\b|\\(?:begin|end)\{thebibliography\}(?:\{[^{}]*\})?"
    r"|\\(?:centering|raggedright|raggedleft|noindent|null|hfil+|[vh]skip|bigskip|medskip|smallskip)(?![A-Za-z])[ \t]*"
)
_DEFINITION = re.compile(
    r"\\(?:(?:re)?new|provide)command\*?\s*\{?\\([A-Za-z]+)\}?\s*((?:\[[^\[\]]*\]\s*)*)(?=\{)"
    r"|\\def\s*\\([A-Za-z]+)\s*((?:#\d\s*)*)(?=\{)"
)
"""Matches how the definition of a command begins: its name, and its arguments, if it has some."""
_MOST_OF_BODY = 2_000  # characters of what a command stands for
_LONGEST_NAME = 200  # characters of these words that may be said again and again; longer ones are said once
_COMMAND = re.compile(r"\\([A-Za-z]+)(?:\{\}|(?![A-Za-z]))")
_AS_IT_IS = r"\\begin\{(verbatim|lstlisting|minted|Verbatim)\*?\}.*?(?:\\end\{\1\*?\}|\Z)|\\verb\*?([^\w\s*])[^\n]*?\2"
_KEPT = re.compile(rf"{_AS_IT_IS}|^[ \t]*%.*?(?:\n|\Z)|(?<!\\)%[^\n]*", re.DOTALL | re.MULTILINE)
"""Matches code that is kept as it is, and a comment."""
_PLACE = re.compile("\ue000(\\d+)\ue001")
_BOUND = re.compile(
    r"\\(?:end\s*\{(?P<end>[^{}]*)\}|begin\s*\{(?P<begin>[^{}]*)\}"
    r"(?:\[[^\[\]]*\]|\{(?:[^{}]|\{[^{}]*\})*\})*)[ \t]*\n?"
)
_OF_FORMULA = re.compile(r"\w*(?:matrix|cases|array|aligned|gathered|split)\*?")
"""Matches what begins inside of a formula, and would take the line of text with it that the formula stands in."""
_TABLE = re.compile(r"\\begin\{(tabular\w?|longtable)\*?\}.*?\\end\{\1\*?\}", re.DOTALL)
_TEXT = re.compile(r"\\(?:text[a-z]{2}|emph|underline|mbox|makecell)\{([^{}]*)\}")
_STYLED = re.compile(
    r"\{[ \t]*\\(?:em|it|bf|sc|tt|sl|rm|sf|(?:it|sl|sc|up)shape|(?:bf|md)series|(?:rm|sf|tt)family|tiny"
    r"|\w*size|small|[lL]arge|LARGE|[hH]uge|centering)\b[ \t]*([^{}]*)\}"
)
_BRACES = re.compile(r"(\\[A-Za-z]+\*?(?:[ \t]*(?:\[[^\[\]]*\]|\{[^{}]*\}))+)|(?<![_^\\])\{([^{}\\$]{1,80})\}")
"""Matches a command with its arguments, and words in braces that only keep them as they are ("{B}orel")."""
_SECTION = re.compile(
    r"(\\(?:part|chapter|(?:sub){0,2}section|(?:sub)?paragraph)\*?\{[^{}]*\})[ \t]*(?=\S)", re.MULTILINE
)
_IMAGE = re.compile(r"\[image: [^\[\]\n]*\]\n*")
_AUTHOR = re.compile(r"(?m)^\*\*author\*\*: .*$")
_ENTRY = re.compile(r"@(\w+)\s*\{([^,{}]*),")
_FIELD = re.compile(
    r"(?<![\w-])([\w-]++)\s*=\s*(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|\"(?:[^\"{}]|\{[^{}]*\})*\"|[\w.-]+)"
)
_OF_READERS = ("author", "editor", "journal", "booktitle", "publisher", "school", "year", "abstract", "note", "url")


def prepare_tex(text: str) -> str:
    """Return TeX without comments, references, and braces and accents by command. Commands for words are those words.

    Sections' titles and what begins and ends stand on lines of their own: what follows would be lost. So would all
    of a file that is part of a document, and has none of its own, or of a list that does not end. Code stays as it is.
    """
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        if not (match[1] or match[2]):
            return ""
        kept.append(match[0])
        return f"\ue000{len(kept) - 1}\ue001"

    text = _KEPT.sub(keep, text.replace("\ue000", ""))
    text = re.sub(r"\\(?:begin|end)\{thebibliography\}(?:\{[^{}]*\})?|\\bibitem\b", r"\n\n\g<0>", text)
    text = _DROPPED.sub("", _expand(_write_letters(text)))
    text = re.sub(r"\\multi(?:column|row)\*?\{[^{}]*\}\{[^{}]*\}(?=\s*\{)", "", text)
    text = re.sub(r"(?<!\s)\s*\\and\b", ",", text).replace("~", " ")
    text = re.sub(r"\\(?= )|\\@", "", text)
    text = _STYLED.sub(r"\1", _strip_braces(text))
    text = _SECTION.sub(r"\1\n\n", _strip_braces(text))
    is_whole = re.search(r"\\begin\s*\{document\}|\\document(?:class|style)\b", text)
    text = _close(text if is_whole else f"\\begin{{document}}\n{text}\n\\end{{document}}\n")
    text = _TABLE.sub(lambda table: _TEXT.sub(r"\1", table[0]), text)
    return _PLACE.sub(lambda place: kept[int(place[1])], text)


def _close(text: str) -> str:
    """End what begins and does not end, and drop ends of what did not begin; each stands on a line of its own."""
    parts, place, open_, counts = [], 0, list[str](), Counter[str]()
    for match in _BOUND.finditer(text):
        parts.append(text[place : match.start()])
        place = match.end()
        name = match["begin"] or match["end"] or ""
        counts[name] += 1 if match["begin"] else -1
        if match["begin"]:
            open_.append(name)
        elif counts[name] < 0:
            counts[name] = 0
            continue
        else:
            while (last := open_.pop()) != name:
                counts[last] -= 1
                parts.append(f"\n\\end{{{last}}}")
        parts.append("" if _OF_FORMULA.fullmatch(name) else f"{_start_line(parts[-1])}{match[0].rstrip()}\n")
    return "".join([*parts, text[place:], *(f"\n\\end{{{name}}}" for name in reversed(open_))])


def _start_line(before: str) -> str:
    return "" if before.rstrip(" \t")[-1:] in ("", "\n") else "\n"


def _strip_braces(text: str) -> str:
    return _BRACES.sub(lambda match: match[1] or match[2], text)


def _write_letters(text: str) -> str:
    def write(match: re.Match[str]) -> str:
        mark, letter = match[1] or match[4], match[2] or match[3] or match[5]
        return unicodedata.normalize("NFC", letter + _ACCENTS[mark])

    text = re.sub(r"\{\\([uvHck]) ([A-Za-z])\}", r"\\\1{\2}", text)
    text = re.sub(rf"\{{({_LETTER})\}}", lambda match: re.sub(_LETTER, write, match[1]), text)
    text = re.sub(_LETTER, write, text)
    return re.sub(
        r"\{\\(ss|[oO]|[lL]|ae|AE|oe|aa|AA)\}|\\(ss|[oO]|[lL]|ae|AE|oe|aa|AA)(?:\{\}|(?![A-Za-z])[ ]?)",
        lambda match: _SPECIAL[match[1] or match[2]],
        text,
    )


def _expand(text: str) -> str:
    """Drop definitions of commands, and put what they stand for in place of those that take no arguments."""
    words: dict[str, str] = {}
    parts, place = [], 0

    def write(match: re.Match[str]) -> str:
        said = words.get(match[1], match[0])
        if match[1] in words and len(said) > _LONGEST_NAME:
            words[match[1]] = ""
        return said

    for match in _DEFINITION.finditer(text):
        end = _find_end(text, match.end())
        if match.start() < place or end < 0:
            continue
        parts.append(text[place : match.start()])
        place = end
        body = _TEXT.sub(r"\1", re.sub(r"\\xspace\b", "", text[match.end() + 1 : end - 1])).strip()
        if not (match[2] or match[4]) and len(body := _COMMAND.sub(write, body)) <= _MOST_OF_BODY:
            words[match[1] or match[3]] = body
    text = "".join([*parts, text[place:]])
    return _COMMAND.sub(write, text) if words else text


def _find_end(text: str, start: int) -> int:
    """Return the place behind the brace that closes the one at a place; -1 if it is too far away."""
    depth = 0
    for match in re.finditer(r"\\.|[{}]", text[start : start + _MOST_OF_BODY], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return start + match.end()
    return -1


def clean_tex(text: str) -> str:
    """Return what TeX became without pictures' places, and without commands among the authors."""
    text = _AUTHOR.sub(lambda match: re.sub(r"(?<!\\)\\+[A-Za-z]+\*?|[{}\\]", "", match[0]), text)
    return _IMAGE.sub("", text)


def read_bibliography(text: str) -> Iterator[tuple[str, str]]:
    """Yield the title of each entry of a BibTeX file, or its key if it has none, and what it says of it."""
    starts = [match for match in _ENTRY.finditer(text) if match[1].lower() not in ("string", "preamble", "comment")]
    ends = [match.start() for match in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends, strict=False):
        fields = {name.lower(): _read_value(value) for name, value in _FIELD.findall(text, start.end(), end)}
        for name in ("author", "editor"):
            if name in fields:
                fields[name] = ", ".join(map(_turn, re.split(r"\s+and\s+", fields[name])))
        said = [f"{name}: {fields[name]}" for name in _OF_READERS if fields.get(name)]
        if title := fields.get("title") or (said and start[2].strip()):
            yield title, "\n\n".join(said) or title


def _read_value(value: str) -> str:
    value = _write_letters(value[1:-1] if value[0] in '{"' else value)
    value = re.sub(r"\$([^$]*)\$", lambda formula: re.sub(r"\\([A-Za-z]+)", r"\1 ", formula[1]), value)
    return " ".join(re.sub(r"\\[A-Za-z]+\s*|(?<!\\)[{}]|\\(?=[&%#_ ])", "", value).replace("~", " ").split())


def _turn(name: str) -> str:
    """Return "Blum, Nora" as people say it."""
    last, _, first = name.partition(", ")
    return f"{first} {last}".strip()
