"""The lines of a passage, made ready for the Markdown parser: what is code, front matter or furniture is told apart.

A line for the parser is the end of the passage's own line, so that its letters keep their places.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

FRONT_MATTER = re.compile(
    r"\s*---[ \t]*\r?\n(?:(?:[\"']?[^\W\d][\w .-]*[\"']?:|[ \t]|#|-[ \t]|[\]}])[^\n]*\n|\r?\n)*"
    r"(?:---|\.\.\.)[ \t]*\r?(?:\n|$)"
    r"|\s*\+\+\+[ \t]*\r?\n(?=\s*(?:[\w\"'.-]+[ \t]*=|\[|#))(?:(?!\+\+\+)[^\n]*\n)*\+\+\+[ \t]*\r?(?:\n|$)"
    r"|\s*(;;;\s*)?\{[ \t]*\r?\n(?=\s*\")(?:[ \t][^\n]*\n|\r?\n)*\}[ \t]*\r?\n(?(1);;;)[ \t]*\r?(?:\n|$)"
)
"""Matches the YAML, TOML or JSON before a Markdown text."""
HIDDEN = (("<!--", "-->"), ("<script", "</script>"), ("<style", "</style>"))
"""Where what a reader does not see begins and ends."""
_FORMULA = re.compile(
    r"^[ \t]*\$\$(?:(?!\$\$|\n[ \t]*\n).)+\$\$[ \t]*(?:\{[^{}\n]*\})?[ \t\r]*$", re.DOTALL | re.MULTILINE
)
_COMMENT = re.compile(r"^%%[ \t]*\n(?:(?!%%)[^\n]*\n)*[^%\n]*%%[ \t]*$", re.MULTILINE)
"""Matches a comment of Obsidian that takes several lines."""
_CODE_FENCE = "~~~~~~"
_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)*(`{3,}|~{3,})([^`]*)$")
_PROSE_DIRECTIVE = re.compile(
    r"\{(?:note|tip|hint|important|warning|caution|attention|danger|error|seealso|admonition|topic|sidebar|margin"
    r"|epigraph|dropdown|card|versionadded|versionchanged|deprecated)\}[ \t]*(.*)"
)
_PROSE_OF_RST = re.compile(
    r"[ \t]*\.\. (?:note|tip|hint|important|warning|caution|attention|danger|error|seealso|admonition|topic|sidebar)::"
    r"[ \t]+(?=\S)"
)
"""Matches a directive of reStructuredText in front of its text."""
_OPTION = re.compile(r"[ \t]*:[\w-]+:(?:[ \t].*)?")
_TARGET = re.compile(r"\([\w.:-]+\)=[ \t]*")
_ORG = re.compile(r"[ \t]*#\+(?:begin|end)_(?:src|example)\b", re.IGNORECASE)
_DELIMITER = re.compile(r"-{4,}|\.{4,}|--|\+{4,}")
"""Matches the lines around a block of code in AsciiDoc."""
_FURNITURE = re.compile(
    r"\[(?:[a-z]+(?:[,%.#=][^\[\]]*)?|(?:NOTE|TIP|WARNING|CAUTION|IMPORTANT)|[.#%][^\[\]]*|[a-z]+=[^\[\]]*|\[[\w:.-]+\])\]"
    r"|:!?[\w-]+!?:(?: [\w./-]*)?|:(?:[a-z]+(?:-\w+)+|rev(?:date|number|remark)|keywords): .*"
    r"|(?:include|image|video|audio|toc|ifn?def|ifeval|endif)::\S*\[.*\]"  # AsciiDoc: attributes, macros
    r"|\.\. _.*:|\.\. [\w:-]+::.*"  # reStructuredText: a target, a directive
    r"|(?:[-*+] )?#\+\w+(?:[: ].*)?"  # Org
    r"|Classifier: .* :: .*"  # metadata of a Python package
    r"|={3}[!+]? \".*\"|(?:Page|Seite) \d{1,4}(?: (?:of|von) \d{1,4})?"  # tabs of MkDocs, printed numbers
    r"|(?:\[!\[[^\[\]]*\]\((?=[^()\s]*(?:badge|shields|\.svg))[^()\s]*+\)\](?:\([^()\s]*\))?\s*)+"
    r"|:{3,}.*|!{3}[ ].*|\?{3}\+?[ ].*"  # containers
    r"|</?[A-Z]\w*(?:\s[^<>]*)?/?>"  # JSX
    r"|(?:import|export)\s.{1,300}(?:from\s+['\"].*|=>.*|\{|;)"
    r"|\[\^?[\w.-]+\]\s*:\s*#?"
    r"|(?:\{[%:#{][^{}]*\}{1,2}[ \t]*)+"
    r"|(?:\S(?:.{0,60}[^ \t])?[ \t]{3,}+){1,2}[A-Z][\w.-]*\(\d\w{0,4}\)"  # the head and the foot of a manual's page
)
"""Matches a line that says nothing to a reader."""
DIRECTIVE = re.compile(r"\s*\.\. (?:_.*:|[\w:-]+::.*)|[ \t]*(?:#|//|%%|--)\| ?[\w-]+:.*")
"""Matches a directive of reStructuredText and an option of Quarto: none of the text, in a block of code too."""
_NOTE = re.compile(r"[ \t]*\[\^[^\]\s]{1,40}\]:[ \t]*")
_BULLET = re.compile(r"([ \t]*)[•‣◦▪●–](?=[ \t])")
_NEUTRAL = re.compile(r"[#>|;%]|//|--|[*+] |- (?![\"']?[a-z_][\w.-]*[\"']?:)|\d+[.)] ")
"""Matches the start of a line that code and prose may have alike: a comment or heading, an item, a quotation, a row."""
_WHOLE = re.compile(r"`[^`\n]*`|\{[.#:%{][^{}\n]*\}{1,2}|\]\([^()\s]*\)|[a-z]+://\S+|\S+@\S+")
"""Matches what prose has from code: code in backticks, addresses, attributes."""
_KEY = re.compile(r"(?:- +)?[\"']?[a-z_][\w.-]*[\"']?[ \t]*[:=](?:[ \t]|$)")
_MAX_VALUE_WORDS = 6
_SYMBOL = re.compile(r"[{}\\=$|]|;$|\w\([^()\s]*\)|^\W+$|->|::|(?<=\s)--?[A-Za-z]")
_STATEMENT = re.compile(
    r"(?:async|class|def|function|if|elif|else|for|while|return|import|from|export|var|let|const|public|private|echo|cd"
    r"|sudo|apt|pip|npm|git|docker|curl|make|try|except|with|use|package|end|then|fi|done)\b"
)
_PLAIN_WORD = re.compile(r"\W*[^\W\d_]+(?:['’-][^\W\d_]+)*[.,:!?)\]\"'”’]*")
_PLAIN_SHARE = 0.7
"""Share of a line's words that have letters alone, if it is prose."""
_OF_COMMAND = re.compile("--?[^\\W\\d_]")
"""Matches an option of a command."""
_NO_OPTION = re.compile("-[^\\W\\d_]{2}")
"""Matches what is rather an item of a list, or what a person says, in front of a line: "-Nora left"."""
_OF_CODE = re.compile(r"[=<>{}\[\]_\"'$@|\\]|\w\(|[^\W\d_]\.[a-z]|[+:-]{2}")
"""Is found in a statement that ends with a semicolon, but in no entry of a list that does ("Art. 6 Abs. 1 DSGVO;")."""
_LEAST_CODE = 3
_CODE_SHARE = 0.7
"""Lines of a passage without fences, at least, and the share of them that must be statements, if all of it is code."""
_INDENT = re.compile(r"(?: {4}|\t)")
_ITEM = re.compile(r"([ \t]*)((?:[-*+]|\d{1,3}[.)])[ \t]{1,4})(?=\S)")
_TAB = 4
"""Columns of a tab. An item that is set in by as many more than the text of the one above would be part of it."""


def reads_as_code(lines: Iterable[str]) -> bool:
    """Return True if most of these lines are code, commands or settings. What both may have doesn't count."""
    balance = 0
    for line in lines:
        content = line.strip()
        if content and not _NEUTRAL.match(content):
            balance += 1 if _is_code(content) else -1
    return balance > 0


def _is_code(line: str) -> bool:
    content = _WHOLE.sub("x", line)
    words = content.split()
    if _KEY.match(content) and (len(words) <= _MAX_VALUE_WORDS or content[-1] not in ".!?"):
        return True
    if _SYMBOL.search(content):
        return True
    if (
        _STATEMENT.match(content)
        and (content[-1] == ":" or len(words) <= _MAX_VALUE_WORDS)
        and content[-1] not in ".!?"
    ):
        return True
    return sum(map(_is_plain, words)) < _PLAIN_SHARE * len(words)


def prepare_lines(text: str, *, is_known: bool) -> tuple[list[str], int]:
    """Return a passage's lines for the Markdown parser, and how many of them stand in front of its own.

    Front matter, formulas, comments and furniture are blank. A fence is put in front if the passage begins inside of
    code. Indented prose is prose.

    Args:
        text: the passage.
        is_known: True if it is known to be Markdown. If not, a `#` may begin a comment.

    """
    matter = FRONT_MATTER.match(text)
    if matter and (is_known or matter[0].lstrip()[0] in "-+"):  # JSON may be a text's own
        text = _blank(matter) + text[matter.end() :]
    if "$$" in text:
        text = _FORMULA.sub(_blank, text)
    if "%%" in text and is_known:
        text = _COMMENT.sub(_blank, text)
    if "<" in text:
        text = hide(text)
    lines = [_CODE_FENCE if _ORG.match(line) else line.rstrip("\r") for line in text.split("\n")]
    _open_directives(lines)
    before = _open_code(lines)
    lines = [*before, *lines]
    fenced = _mark_fenced(lines)
    if not is_known:
        _fence_asciidoc(lines, fenced)
        fenced = _mark_fenced(lines)
    for place, line in enumerate(lines):
        if not fenced[place]:
            lines[place] = _prepare(line)
    _take_indents(lines, fenced)
    _nest_items(lines, fenced)
    if not is_known and any(line.lstrip().startswith("#") for line in lines):
        _take_comments(lines, fenced)
    return lines, len(before)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def hide(text: str, hidden: Iterable[tuple[str, str]] = HIDDEN, by: str = " ") -> str:
    """Return a text without what stands between marks, and the marks; without its end, an opening mark stays.

    Args:
        text: the text.
        hidden: pairs of an opening and a closing mark, in small letters. Default: comments, scripts and styles of HTML.
        by: what is put in place of each character, but for ends of lines. Default: a space.

    """
    small = text.lower()
    if len(small) != len(text):  # letters whose small form is longer
        small = text
    for opening, closing in hidden:
        parts, kept, last = [], [], 0
        start = small.find(opening)
        while start >= 0 and (end := small.find(closing, start)) >= 0:
            end += len(closing)
            space = re.sub(r"[^\n]", by, text[start:end])
            parts += [text[last:start], space]
            kept += [small[last:start], space]
            last = end
            start = small.find(opening, last)
        text, small = "".join([*parts, text[last:]]), "".join([*kept, small[last:]])
    return text


def _prepare(line: str) -> str:
    content = line.strip()
    if content.startswith(".. ") and (directive := _PROSE_OF_RST.match(line)):
        return line[directive.end() :]
    if not content or _FURNITURE.fullmatch(content):
        return ""
    if content[0] in "[•‣◦▪●–":
        if note := _NOTE.match(line):
            return line[note.end() :]
        return _BULLET.sub(r"\1-", line, count=1)
    return line


def _open_code(lines: Sequence[str]) -> list[str]:
    """Return the fence that is missing in front of a passage that begins inside of code."""
    fences = [(place, match) for place, line in enumerate(lines) if (match := _FENCE.match(line))]
    if not fences:
        return [_CODE_FENCE] if _is_inside_code(lines) else []
    if fences[0][1][2].strip() or fences[0][0] == 0:
        return []
    first = fences[0][0]
    second = fences[1][0] if len(fences) > 1 else len(lines)
    begins_inside = reads_as_code(lines[:first]) and not reads_as_code(lines[first + 1 : second])
    return [fences[0][1][1]] if begins_inside else []


def _is_inside_code(lines: Iterable[str]) -> bool:
    """Return True for lines of commands or statements alone, as from the middle of a long block of code."""
    own = [line.strip() for line in lines if line.strip() and not _NEUTRAL.match(line.strip())]
    return len(own) >= _LEAST_CODE and sum(map(_is_statement, own)) > _CODE_SHARE * len(own)


def _is_statement(line: str) -> bool:
    """Return True for a line of a shell or a program: it has options, or ends as code does."""
    content = _WHOLE.sub("x", line)
    words = [word for word in content.split() if not _OF_COMMAND.match(word)]
    has_option = len(words) < len(content.split()) - (_NO_OPTION.match(content) is not None)
    is_marked = has_option or content[-1] in "{}" or (content[-1] == ";" and _OF_CODE.search(content))
    return (
        bool(is_marked) and not _KEY.match(content) and sum(map(_is_plain, words)) < _PLAIN_SHARE * len(content.split())
    )


def _is_plain(word: str) -> bool:
    return _PLAIN_WORD.fullmatch(word) is not None


def _open_directives(lines: list[str]) -> None:
    """Blank the fences around MyST's directives of prose, with their options, and the names of its targets."""
    fence, in_options = "", False
    for place, line in enumerate(lines):
        match = _FENCE.match(line)
        if fence and match and match[1].startswith(fence) and not match[2].strip():
            lines[place], fence, in_options = "", "", False
        elif not fence and match and (opened := _PROSE_DIRECTIVE.fullmatch(match[2].strip())):
            lines[place], fence, in_options = opened[1] or "", match[1], True
        elif (in_options and _OPTION.fullmatch(line)) or _TARGET.fullmatch(line):
            lines[place] = ""
        else:
            in_options = False


def _mark_fenced(lines: Sequence[str]) -> list[bool]:
    """Return for each line if it is a fence or inside of one."""
    marked, fence = [], ""
    for line in lines:
        match = _FENCE.match(line)
        if fence:
            marked.append(True)
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
        else:
            fence = match[1] if match else ""
            marked.append(match is not None)
    return marked


def _fence_asciidoc(lines: list[str], fenced: Sequence[bool]) -> None:
    """Put fences in place of AsciiDoc's around a block of code."""
    places = [place for place, line in enumerate(lines) if not fenced[place] and _DELIMITER.fullmatch(line.rstrip())]
    last = -1
    for start, end in pairwise(places):
        is_pair = lines[start].rstrip() == lines[end].rstrip() and start > last
        is_source = start > 0 and lines[start - 1].startswith("[")
        if is_pair and end > start + 1 and (is_source or reads_as_code(lines[start + 1 : end])):
            lines[start] = lines[end] = _CODE_FENCE
            last = end


def _take_indents(lines: list[str], fenced: Sequence[bool]) -> None:
    """Take off the indents that would make code of prose: a page set in, or the middle of a list."""
    start = 0
    while start < len(lines):
        if fenced[start] or not _INDENT.match(lines[start]) or (start and lines[start - 1].strip()):
            start += 1
            continue
        end = start
        while end < len(lines) and not fenced[end] and (not lines[end].strip() or _INDENT.match(lines[end])):
            end += 1
        block = lines[start:end]
        if not reads_as_code(block) and any(line.strip() and line.strip()[0] not in "#$>" for line in block):
            lines[start:end] = [line.lstrip() for line in block]
        start = end


def _nest_items(lines: list[str], fenced: Sequence[bool]) -> None:
    """Take off what items of a list are set in too far: of a passage that begins inside of a list, the parents fail."""
    parents: list[tuple[int, int]] = []  # where an item was set in, and where its text begins now
    for place, line in enumerate(lines):
        match = None if fenced[place] else _ITEM.match(line)
        if match is None:
            if line.strip() and not _INDENT.match(line) and not (parents and line[0] == " "):
                parents = []
            continue
        indent = match[1]
        width = len(indent.expandtabs(_TAB))
        while parents and parents[-1][0] >= width:
            parents.pop()
        most = (parents[-1][1] if parents else 0) + _TAB
        if parents and lines[place - 1].strip():
            cuts = range(len(indent))
            indent = indent[bisect_left(cuts, True, key=lambda cut: len(indent[cut:].expandtabs(_TAB)) < most) :]
        lines[place] = indent + line[match.end(1) :]
        parents.append((width, len((indent + match[2]).expandtabs(_TAB))))


def _take_comments(lines: list[str], fenced: Sequence[bool]) -> None:
    """Take the "#" off the comments of code, which would make headings of them."""
    own = [line for line, is_fenced in zip(lines, fenced, strict=True) if not is_fenced and not _INDENT.match(line)]
    if own and (own[0].startswith("#!") or reads_as_code(own)):
        for place, line in enumerate(lines):
            if not fenced[place]:
                lines[place] = re.sub(r"^([ \t]*)#+!?[ \t]*", r"\1", line) if line.lstrip().startswith("#") else line
