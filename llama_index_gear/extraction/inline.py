"""The plain words of a paragraph: its markup is taken off, and every letter stays at its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from markdown_it import MarkdownIt, rules_inline
from markdown_it.rules_inline import StateInline

GAP = "\0"
"""Stands in plain text for a character of markup inside a word: `un**believ**able`."""
_MAX_MARKS = 2_000
"""Characters of a paragraph that may be markup, at most; one with more is no prose, and is left as it is."""
_MARK = re.compile(r"[\\`*_\[\]<]|~~|&[A-Za-z#]\w{0,31};")
_CODE = re.compile(r"(?<![\\`])(`{1,3})(?!`)[^`\n]+\1(?!`)")
"""Matches inline code without other backticks: no mark in it counts."""
TASKS = "TODO|DOING|DONE|LATER|NOW|WAITING|CANCELL?ED"
"""States of a task, as notes write them in front of it."""
_TASK = rf"\A\s*(?:{TASKS})(?=\s+\S)"
_FOREIGN_MARK = re.compile(rf"[`\[{{\\<^%\x1b]|\(\(|{_TASK}")
_TAGS_OF_WORDS = frozenset(
    "a abbr b big bdi code del em font i ins kbd mark q s small span strong sub sup tt u".split()
)
_TAGS = _TAGS_OF_WORDS | frozenset(
    "article aside audio blockquote body br button caption center cite col colgroup dd details dfn div dl dt embed"
    " figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hr html iframe img input label li link main meta nav"
    " object ol option p param path picture pre rp rt ruby samp section select source strike style summary svg table"
    " tbody td template textarea tfoot th thead time title tr track ul var video wbr".split()
)
_TAG = re.compile(r"</?([A-Za-z][\w.:-]*)")
_COMPONENT = re.compile(r"<[A-Z][a-z0-9]+[A-Z]\w*>")
_FOREIGN = re.compile(
    r"(?P<rst>(?<![`\w])`(?P<rst_text>[^`<>\n]{1,200}?)(?:\s*<(?P<rst_target>[^<>`\s]{1,500})>)?`__?(?![\w`]))"
    r"|(?P<role>(?:\{[\w:+.-]{1,40}\}|(?<![\w`]):[a-zA-Z][\w:+.-]{0,40}:)"
    r"`[~!.]{0,2}(?P<role_text>[^`<>\n]{1,200}?)(?:\s*<(?P<role_target>[^<>`\n]{1,300})>)?`)"
    r"|(?P<computed>`(?:r|\{(?:r|python|julia)\}) [^`\n]{1,160}`)"
    r"|(?P<code>(?P<ticks>`{1,3})(?!`)(?:(?!''|`)[^\n]){1,160}(?P=ticks)(?!`))"
    r"|(?P<picture>!\[\[[^\[\]|#\n]{1,200}\.(?i:avif|bmp|gif|jpe?g|mp[34]|png|svg|web[mp])(?:[|#][^\[\]\n]{0,200})?\]\])"
    r"|(?P<wiki>!?\[\[(?P<wiki_target>[^\[\]|\n]{1,200}?)(?:\\?\|(?P<wiki_text>[^\[\]\n]{0,200}))?\]\])"
    rf"|(?P<note>{_TASK}|\(\((?=[\w-]*\d)[\w-]{{6,60}}\)\)|\{{/\*(?:(?!\*/\}})[^\n]){{0,600}}\*/\}}|\x1b\[[\d;]*[A-Za-z]"
    r"|(?<![^\n])[ \t]*(?:id|collapsed)::[^\n]{0,200}"
    r"|(?<=[^\W\d_]{3})<sup>\[?\d{1,3}\]?</sup>|(?<=\w)\[\d{1,3}\]\(#[^()\s]{0,100}\)"
    r"|%%[^%\n]{1,600}%%|(?<!\S)\^(?!\d+\b)[A-Za-z\d-]{2,60}(?=[ \t]*(?:\n|\Z))"
    r"|\[\^[^\]\s]{1,40}\]:?|\[![A-Za-z][\w-]{0,30}\][+-]?|\[-?@[\w:.-][^\]\n]{0,200}\]"
    r"|\[[^@\[\]\n]{1,60}(?<=\s)-?@[A-Za-z][\w:.-]{0,60}\d[^\[\]\n]{0,200}\](?!\()"
    r"|(?<![\w/])-?@(?:fig|tbl|sec|eq|lst|thm|lem|cor|prp|def|exm|nte|tip|wrn|imp)-\w[\w-]{0,80})"
    r"|(?P<asciidoc>(?:(?:link|xref|mailto|image|icon|footnote|kbd|btn|menu):{1,2}(?P<asciidoc_target>[^\s\[\]]{0,300})"
    r"|(?P<asciidoc_address>https?://[^\s\[\]()]{1,500}(?<![=&?])(?=\[[^\[\]\n]{0,200}\](?![=&/?%]))))"
    r"\[(?P<asciidoc_text>[^\[\]\n]{0,200})\](?![(\[]))"
    r"|(?P<jump><<[\w#./:-]{1,100}(?:,\s*(?P<jump_text>[^<>\n]{1,200}))?>>)"
    r"|(?P<tag></?[A-Za-z][\w-]{0,40}:[\w.-]{1,60}(?:\s+[\w:.-]{1,60}=(?:\"[^\"<>]{0,300}\"|'[^'<>]{0,300}'))*\s*/?>)"
    r"|(?P<shortcode>\{\{[<%](?s:.){1,600}?[%>]\}\})"
    r"|(?P<attributes>\{[#.:%{][^{}\n]{0,300}\}{1,2}|\{:?(?:\s*[#.][\w-]+|\s*[\w-]+=\"[^\"\n]{0,200}\")+\s*\})"
    r"|(?P<tex>\\(?:cite[a-z]*|ref|eqref|autoref|label|begin|end|usepackage|includegraphics|input|bibliography[a-z]*)\*?"
    r"(?:\[[^\]\n]{0,100}\])?\{[^{}\n]{0,200}\})"
    r"|(?P<command>\\[A-Za-z]{2,30}\*?(?:\[[^\]\n]{0,100}\])?\{(?P<command_text>[^{}\\\n]{0,200})\})"
)
"""Matches markup that is not Markdown's, or only of some dialects: wikilinks, roles of reStructuredText and MyST, links
of AsciiDoc, attributes, templates, commands of TeX, footnotes, comments, ids of blocks and marks of tasks in notes,
colors of a terminal, tags of XML's namespaces. Inline code is matched so that nothing in it is."""

_CUT_LINK = re.compile(r"\]\([^\s()`]*\)?")
"""Matches the end of a link whose beginning is in another passage."""

_PICTURE_FILE = re.compile(r"[^\n]{1,200}\.(?:avif|bmp|gif|jpe?g|png|svg|tiff?|webp)", re.IGNORECASE)
"""Matches a picture's text that is the name of its file."""
_REFERENCE = re.compile(r"\[([^\[\]]{1,200})\]\[([^\[\]]{0,100})\]")
"""Matches a link whose target stands in another passage."""
_SEEN = re.compile(r"[^\n]")


class Link(NamedTuple):
    """A link.

    Attributes:
        text: its words.
        target: an address, a path, or the name of a page.
        start: place of its text.
        end: place behind its text.
        is_page: True if the target is a page's name, as in a wikilink.
        address: what its document is looked up by, if the target doesn't say it: "wiki:people/nora-blum#Life", a role's
            "doc:guide/start" and "ref:label", "xref:page.adoc", "def:label" of a target that stands in another passage.

    """

    text: str
    target: str
    start: int
    end: int
    is_page: bool = False
    address: str = ""


class Inline(NamedTuple):
    """A paragraph's plain text, as long as its source, and its links by their places there."""

    plain: str
    links: list[Link]


def read_inline(source: str, references: Mapping[str, Any], *, is_markdown: bool) -> Inline:
    """Take the markup off a paragraph. A space, or `GAP` inside a word, stands for each of its characters.

    Args:
        source: the paragraph.
        references: the addresses of links that stand elsewhere in the text, as the parser keeps them.
        is_markdown: True if marks of Markdown count; those of other languages always do.

    """
    links: list[Link] = []
    if len(_MARK.findall(source)) > _MAX_MARKS:
        return Inline(source, links)
    plain = list(source)
    if _FOREIGN_MARK.search(source) or "::" in source or "@" in source:
        for match in _FOREIGN.finditer(source):
            _take_off(plain, match, links)
    rest = "".join(plain)
    if is_markdown and _MARK.search(_CODE.sub("", rest)):
        env: dict[str, Any] = {"references": references, _MARKS: _Marks(plain, links)}
        _PARSER.inline.parse(rest, _PARSER, env, [])
        env[_MARKS].finish(rest)
        rest = "".join(plain)
    if "](" in rest:
        rest = _CUT_LINK.sub(lambda match: GAP * len(match[0]), rest)
    if "][" in rest:
        links += [
            Link("", "", *match.span(1), address=f"def:{match[2] or match[1]}") for match in _REFERENCE.finditer(rest)
        ]
        rest = _REFERENCE.sub(lambda match: f"{GAP}{match[1]}{_SEEN.sub(GAP, match[0][len(match[1]) + 1 :])}", rest)
    return Inline(rest, [link._replace(text=tidy(rest[link.start : link.end])) for link in links])


def tidy(plain: str) -> str:
    """Return the words of a piece of plain text."""
    return " ".join(plain.replace(GAP, "").split())


def name_page(target: str, text: str) -> str:
    """Return the name of the page that a wikilink leads to.

    "people/nora-blum|Nora Blum" leads to "Nora Blum", "Osthafen#History" to "Osthafen".
    """
    page = target.split("#")[0].rstrip("/\\ ").rsplit("/", 1)[-1].removesuffix(".md").strip()
    spelled = re.sub(r"[-_\s]+", " ", page).strip()
    if ":" in page and not page.endswith(":"):  # the space of names in some wikis
        spelled = spelled.rpartition(":")[2]
    if text and spelled.casefold() == re.sub(r"[-_\s]+", " ", text).strip().casefold():
        return text.strip()
    return page


def _take_off(plain: list[str], match: re.Match[str], links: list[Link]) -> None:
    kind = str(match.lastgroup)  # the outermost group is the last that ends
    if kind == "code":
        return
    start, end = match.span(_TEXTS.get(kind, kind))
    if kind == "asciidoc" and start == end:  # the address is its own text
        start, end = match.span("asciidoc_address" if match["asciidoc_address"] else "asciidoc_target")
    if kind == "wiki":
        if not match["wiki_text"]:
            start, end = match.span("wiki_target")
        if page := name_page(match["wiki_target"], match["wiki_text"] or ""):
            links.append(Link("", page, start, end, is_page=True, address=f"wiki:{match['wiki_target']}"))
    else:
        target = next((match[name] for name in _TARGETS.get(kind, ()) if match[name]), "")
        address = _read_address(kind, match, target)
        if target or address:
            links.append(Link("", target, start, end, address=address))
    if kind == "role" and not match["role_target"]:  # it names code: it stays marked as such
        start, end = start - 1, end + 1
        if plain[start] != "`":
            plain[start] = "`"
            _blank(plain, match.start(), start)
            return
    if kind in _TEXTS and start >= 0:
        _blank(plain, match.start(), start)
        _blank(plain, end, match.end())
    else:
        _blank(plain, *match.span(), by=" ")


def _read_address(kind: str, match: re.Match[str], target: str) -> str:
    """Return the address of a role that names a page or a label, or has a target, and of AsciiDoc's `xref`; else ""."""
    if kind == "role":
        role = match[0].partition("`")[0].strip("{}:").rpartition(":")[2]
        return f"{role}:{target or match['role_text']}" if target or role in _ROLES_OF_PAGES else ""
    return f"xref:{target}" if kind == "asciidoc" and match[0].startswith("xref:") else ""


_ROLES_OF_PAGES = frozenset({"any", "doc", "numref", "ref", "term"})
_TEXTS = {
    "rst": "rst_text",
    "role": "role_text",
    "wiki": "wiki_text",
    "asciidoc": "asciidoc_text",
    "jump": "jump_text",
    "command": "command_text",
}
"""The part of each kind of markup that is text."""
_TARGETS = {
    "rst": ("rst_target",),
    "role": ("role_target",),
    "asciidoc": ("asciidoc_target", "asciidoc_address"),
}


def _blank(plain: list[str], start: int, end: int, by: str = GAP) -> None:
    plain[start:end] = [mark if mark == "\n" else by for mark in plain[start:end]]


class _Marks:
    """The plain text of a paragraph while the parser's rules find its marks."""

    def __init__(self, plain: list[str], links: list[Link]) -> None:
        self._plain, self._links = plain, links
        self._delimiters: list[tuple[int, Any]] = []
        self._tags: list[tuple[int, int]] = []

    def note(self, rule: str, state: StateInline, start: int, before: int) -> None:
        """Take off what a rule of the parser matched, from `start` to the state's place."""
        end = state.pos
        if rule == "escape" and not state.src[start + 1].isalnum():
            _blank(self._plain, start, start + 1)
        elif rule in ("emphasis", "strikethrough"):
            width = 2 if rule == "strikethrough" else 1
            tokens = [token for token in state.tokens[before:] if token.content and token.content in "*_~~"]
            self._delimiters += [(start + number * width, token) for number, token in enumerate(tokens)]
        elif rule in ("link", "image"):
            opening = start + (2 if rule == "image" else 1)
            closing = state.md.helpers.parseLinkLabel(state, opening - 1, rule == "link")
            _blank(self._plain, start, opening)
            _blank(self._plain, closing, end)
            if rule == "image" and _PICTURE_FILE.fullmatch(state.src, opening, closing):
                _blank(self._plain, opening, closing)
            if rule == "link":
                target = next(token.attrGet("href") for token in state.tokens[before:] if token.type == "link_open")
                self._links.append(Link("", str(target or ""), opening, closing))
        elif rule == "html_inline":
            self._tags.append((start, end))
        elif rule == "entity":
            self._plain[start:end] = [state.tokens[-1].content[:1], *(GAP * (end - start - 1))]

    def finish(self, source: str) -> None:
        """Take off the marks of emphasis that found their partner, and the tags."""
        for place, token in self._delimiters:
            is_inside = source[place - 1 : place].isalnum() and source[place + 1 : place + 2].isalnum()
            if (token.type != "text" or not token.content) and not is_inside:  # "M*A*S*H" has its own
                width = 2 if source.startswith("~~", place) else 1
                _blank(self._plain, place, place + width)
        for start, end in self._tags:
            if by := _read_tag(source[start:end], source):
                _blank(self._plain, start, end, by)


def _read_tag(tag: str, source: str) -> str:
    """Return the character that stands for a tag; "" for what is none: a speaker ("<nora> hello"), a type ("<T>")."""
    found = _TAG.match(tag)
    if found is None:
        return " "  # a comment
    name = found[1].lower()
    is_component = tag.endswith("/>") or " " in tag or f"</{found[1]}" in source or _COMPONENT.match(tag)
    if name in _TAGS:
        return GAP if name in _TAGS_OF_WORDS else " "
    return " " if is_component else ""


_MARKS = "marks"
_Rule = Callable[[StateInline, bool], bool]


def _follow(name: str, rule: _Rule) -> _Rule:
    """Let a rule of the parser note where it matched."""

    def followed(state: StateInline, silent: bool) -> bool:
        start, before = state.pos, len(state.tokens)
        if not rule(state, silent):
            return False
        if not silent:
            state.env[_MARKS].note(name, state, start, before)
        return True

    return followed


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("strikethrough")
    rules: dict[str, _Rule] = {
        "escape": rules_inline.escape,
        "strikethrough": rules_inline.strikethrough.tokenize,
        "emphasis": rules_inline.emphasis.tokenize,
        "link": rules_inline.link,
        "image": rules_inline.image,
        "html_inline": rules_inline.html_inline,
        "entity": rules_inline.entity,
    }
    for name, rule in rules.items():
        parser.inline.ruler.at(name, _follow(name, rule))
    parser.normalizeLink = parser.normalizeLinkText = str  # type: ignore[method-assign,assignment]
    parser.inline.ruler2.disable("fragments_join")  # a delimiter keeps its own token
    return parser


_PARSER = _make_parser()
