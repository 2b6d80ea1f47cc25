"""The documents that a link can lead to: their paths, addresses, names, sections and labels, and how a link finds one.

All is read from the passages themselves, so that it depends on nothing but them.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.characters import unify_spelling
from llama_index_gear.extraction.headings import Sections
from llama_index_gear.extraction.inline import Link, read_inline, tidy
from llama_index_gear.extraction.lines import FRONT_MATTER
from llama_index_gear.extraction.sentences import Form, Sentence
from llama_index_gear.triple import drop_parenthesis, entity_key

MAX_TARGET = 2_000
"""Characters of a link's target, at most; what is longer leads nowhere."""
_PATH_KEYS = ("file", "file_path", "path", "file_name", "filename")
_ADDRESS_KEYS = ("url", "source", "source_url", "message_id")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OF_FOLDER = frozenset({"_index", "default", "home", "index", "readme"})
"""Stems of the file that speaks for its folder."""
_LABEL_ALONE = re.compile(r"[\w-]+")
"""Matches the target of a link of MyST that may be a label, and that of a wiki that is a page's name."""
_OF_SPHINX = frozenset({"genindex", "modindex", "py-modindex", "search"})
_PLACE = re.compile(
    r"(?m)^ {0,3}(?P<marks>#{1,6})[ \t]{1,20}(?P<heading>\S[^\n]{0,300})$"
    r"|^[ \t]{0,20}\((?P<label>[\w.:/ -]{1,100})\)=[ \t]{0,20}\r?$"
)
"""Matches a heading of Markdown, and MyST's label of what follows."""
_MARKED = re.compile(r"[\\`*_\[\]<{&~:]")
"""Matches a character that may be markup in a heading."""
_PUNCTUATION = re.compile(r"[^\w\s-]")
_END_OF_HEADING = re.compile(r"(?:[ \t#]*\{#([\w.:-]{1,100})\})?[ \t\r#]*\Z")
_DEFINITION = re.compile(r"(?m)^ {0,3}\[(?!\^)([^\[\]\n]{1,200})\]:[ \t]*<?([^\s<>]{1,2000})")
"""Matches where a document says what a link leads to; a footnote, "[^1]: …", says something else."""
_STATED_NAMES = re.compile(
    r"(?mi)^[\"']?(?:alias(?:es)?|name)[\"']?[ \t]*[:=][ \t]*(?:\[([^\]\n]*)\]|((?!\[)\S[^\n]*))?[ \t]*\r?$"
    r"((?:\n[ \t]*-[ \t]+\S[^\n]*)*)"
)
"""Matches the names in front matter: in a line, or each in a line of its own."""
_MAX_WORDS = 12  # of a heading in a triple
_QUOTES = str.maketrans("“”", '""')
_MOST_NAMES = 50  # stated by a document
_LEAST_SIZE = 3  # letters of a name that is looked for in texts
_RARE = 5
_COMMON_SHARE = 0.02
"""A name of one word that more of all passages hold, in other documents, is a common word; not below `_RARE` of them.
One of two words may be in twice as many."""


@dataclass(eq=False)
class Page:
    """A document.

    Attributes:
        id: its id.
        path: of its file, with "/"; "" if it has none.
        title: what it is about, as its facts name it.
        aliases: the other names that it states of itself, in its front matter.
        sections: entity key of a heading → the section.

    """

    id: str
    path: str
    title: str
    aliases: list[str] = field(default_factory=list)
    sections: dict[str, Target] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The name of its file without ending; of one that speaks for its folder the folder's, if it has a name."""
        path = PurePosixPath(self.path)
        return (path.parent.name if path.stem.lower() in _OF_FOLDER else "") or path.stem


class Target(NamedTuple):
    """A document that a link leads to, and the part of it that the link means.

    Attributes:
        page: the document.
        subject: what the part's facts are about: its heading, if that names something, else the document's title.
        heading: the part's heading; "" if the whole document is meant.

    """

    page: Page
    subject: str
    heading: str = ""


class Pages:
    """The documents of some passages, by all that a link can call them.

    Args:
        nodes: the passages.
        title_key: metadata key of a passage's title.

    Attributes:
        has_addresses: True if a document has an address of the web.

    """

    def __init__(self, nodes: Iterable[BaseNode], title_key: str = "title") -> None:
        passages: defaultdict[str, list[BaseNode]] = defaultdict(list)
        for node in nodes:
            passages[_get_document(node)].append(node)
        for of_page in passages.values():
            of_page.sort(key=_read_place)
        paths = {id_: _read_path(of_page[0].metadata) for id_, of_page in passages.items()}
        root = _find_root(paths.values())
        self._title_key = title_key
        self._pages: dict[str, Page] = {}
        self._first: list[tuple[Page, str]] = []
        self._by_path: defaultdict[str, list[Page]] = defaultdict(list)
        self._by_address: dict[str, Page] = {}
        self._by_stem: defaultdict[str, list[Page]] = defaultdict(list)
        self._by_name: defaultdict[str, list[Page]] = defaultdict(list)
        self._labels: defaultdict[str, list[Target]] = defaultdict(list)
        self._definitions: dict[str, dict[str, str]] = {}
        for id_ in sorted(passages, key=lambda id_: (paths[id_], len(id_), id_)):
            self._add(id_, paths[id_].removeprefix(root), passages[id_])
        self.has_addresses = any(address.startswith(("http://", "https://")) for address in self._by_address)
        self._phrases = self._list_phrases()
        self._lengths: defaultdict[str, set[int]] = defaultdict(set)  # first word → numbers of words
        for words in map(str.split, self._phrases):
            self._lengths[words[0]].add(len(words))
        self._found = {
            node.node_id: self._find_phrases(node.get_content(MetadataMode.NONE))
            for node in chain.from_iterable(passages.values())
        }
        self._common = self._count_common(passages)

    # -- reading -------------------------------------------------------------------------------------------------

    def _add(self, id_: str, path: str, nodes: Sequence[BaseNode]) -> None:
        metadata = nodes[0].metadata
        texts = [node.get_content(MetadataMode.NONE) for node in nodes]
        title = drop_parenthesis(str(metadata.get(self._title_key) or "").strip())
        headings = (match["heading"] for match in _PLACE.finditer(texts[0]) if match["heading"])
        heading, _ = _split_heading(next(headings, "") if "#" in texts[0] else "")
        page = Page(id_, path, title or heading or Page(id_, path, "").stem or id_)
        self._pages[id_] = page
        self._first.append((page, nodes[0].node_id))
        stated = [str(metadata[key]) for key in ("name", "note_name") if isinstance(metadata.get(key), str)]
        page.aliases = [
            name
            for name in dict.fromkeys([*_read_names(texts[0]), *stated])
            if entity_key(name) != entity_key(page.title)
        ]
        if path:
            for key in {_fold_path(path), _fold_path(_without_ending(path))}:
                self._by_path[key].append(page)
            if PurePosixPath(path).stem.lower() in _OF_FOLDER:
                self._by_path[_fold_path(posixpath.dirname(path))].append(page)
            self._by_stem[entity_key(page.stem)].append(page)
        for key in _ADDRESS_KEYS:
            if isinstance(address := metadata.get(key), str):
                self._by_address.setdefault(_normalize_address(address), page)
        for key in {entity_key(name) for name in (page.title, heading, *page.aliases) if name}:
            self._by_name[key].append(page)
        for text in texts:
            self._read_sections(page, text)
            if "]:" in text:
                definitions = {entity_key(match[1]): match[2] for match in _DEFINITION.finditer(text)}
                self._definitions[id_] = {**definitions, **self._definitions.get(id_, {})}

    def _read_sections(self, page: Page, text: str) -> None:
        """Note the sections and the labels of a text. A label is that of the heading right behind it."""
        if "#" not in text and ")=" not in text:
            return
        section = Target(page, page.title)
        waiting: list[str] = []
        end = 0
        for match in _PLACE.finditer(text):
            if text[end : match.start()].strip():
                self._label(waiting, section)
            end = match.end()
            if match["label"]:
                waiting.append(match["label"])
                continue
            heading, anchor = _split_heading(match["heading"])
            plain = _take_off_marks(heading)
            sections = Sections(page.title, [])
            sections.open(Sentence(heading.split(), Form.HEADING, len(match["marks"])), is_named=False)
            is_title = entity_key(plain) == entity_key(page.title)
            section = Target(page, sections.subject, "" if is_title else _shorten_heading(plain))
            for written in (plain, _PUNCTUATION.sub("", plain)):  # "What's new?" is "what-s-new" or "whats-new"
                page.sections.setdefault(entity_key(written), section)
            waiting += [anchor] if anchor else []
            self._label(waiting, section)
        self._label(waiting, section)

    def _label(self, labels: list[str], target: Target) -> None:
        for label in labels:
            self._labels[entity_key(label)].append(target)
        labels.clear()

    # -- looking up ----------------------------------------------------------------------------------------------

    def list_first(self) -> list[tuple[Page, str]]:
        """Return each document and the id of its first passage."""
        return self._first

    def has_address(self, address: str) -> bool:
        """Return True if a document has this address, but for what stands behind "#"."""
        return not self._by_address.keys().isdisjoint(map(_normalize_address, (address, address.partition("#")[0])))

    def get(self, node: BaseNode) -> Page:
        """Return the document of one of the passages."""
        return self._pages[_get_document(node)]

    def get_definitions(self, page: Page) -> Mapping[str, str]:
        """Return key of the words → target of the links that a document defines apart from where they stand."""
        return self._definitions.get(page.id, {})

    def resolve(self, link: Link, origin: Page) -> Target | None:
        """Return the document that a link leads to; None if there is none, or if several are as near.

        Args:
            link: the link.
            origin: the document that has it.

        """
        kind, _, rest = link.address.partition(":")
        target = (rest or link.target).strip()
        if not target or len(target) > MAX_TARGET:
            return None
        if kind == "def":
            target = self.get_definitions(origin).get(entity_key(target), "")
            return self.resolve(Link(link.text, target, link.start, link.end), origin) if target else None
        if kind == "wiki":
            page, _, fragment = target.partition("#")
            found = self._find_named(page.split("^")[0].strip().removesuffix(".md"), origin)
            return self._enter(found, fragment) if found else None
        if kind in ("ref", "numref", "any", "term"):
            return self._find_labelled(target, origin)
        if kind == "doc":
            found = self._find_path(target, origin)
            return Target(found, found.title) if found else None
        is_known = target[0] != "#" and entity_key(target) in self._labels
        is_label = is_known or kind == "xref" or _LABEL_ALONE.fullmatch(target)
        return self._find_target(target, origin) or (self._find_labelled(target, origin) if is_label else None)

    def _find_target(self, target: str, origin: Page) -> Target | None:
        """Find a path below the root, or beside the origin, or an address; what stands behind "#" is a section."""
        if page := self._by_address.get(_normalize_address(target)):
            return Target(page, page.title)
        target = target.removeprefix("file:")
        path, _, fragment = target.partition("#")
        page = self._by_address.get(_normalize_address(path)) if _SCHEME.match(path) else None
        if page is None and not _SCHEME.match(path) and not path.startswith("//"):
            page = self._find_path(unquote(path.partition("?")[0]), origin)
        return self._enter(page, unquote(fragment)) if page else None

    def _find_path(self, path: str, origin: Page) -> Page | None:
        """Find a path beside the origin; else, as a site's address of it ends in "/", below it."""
        path = path.replace("\\", "/")
        folders = [""] if path.startswith("/") else [posixpath.dirname(origin.path), _without_ending(origin.path)]
        for folder in folders if path else ():
            whole = posixpath.normpath(posixpath.join(folder, path.lstrip("/")))
            whole = "" if whole == "." else whole
            key = _fold_path(whole)
            if found := self._by_path.get(key) or self._by_path.get(_without_ending(key)):
                exact = (page for page in found if whole in (page.path, _without_ending(page.path)))
                return next(exact, found[0])
        return None

    def _find_named(self, name: str, origin: Page) -> Page | None:
        """Find a wikilink's page: by its path or the end of it, by its stem, or by a name that it states."""
        if not name:
            return None
        if "/" in name:
            if page := self._find_path(name if name[0] in "./" else f"/{name}", origin):
                return page
            end = f"/{_fold_path(name)}"
            stems = self._by_stem.get(entity_key(name.rpartition("/")[2]), [])
            return _find_nearest(
                [page for page in stems if f"/{_fold_path(_without_ending(page.path))}".endswith(end)], origin
            )
        key = entity_key(name)
        return _find_nearest(self._by_stem.get(key, ()) or self._by_name.get(key, ()), origin)

    def _find_labelled(self, label: str, origin: Page) -> Target | None:
        """Find a label; the nearest of several. A label that nothing has may be the name of a page."""
        labelled = self._labels.get(entity_key(label.rpartition("#")[2]), ())
        page = _find_nearest([target.page for target in labelled], origin)
        if page is not None:
            return next(target for target in labelled if target.page is page)
        found = None if labelled else self._find_named(label, origin)
        return Target(found, found.title) if found else None

    def _enter(self, page: Page, fragment: str) -> Target:
        key = entity_key(fragment.rpartition("#")[2]) if fragment else ""
        labelled = (target for target in self._labels.get(key, ()) if target.page is page)
        return next(labelled, None) or page.sections.get(key, Target(page, page.title))

    # -- names in any letter case --------------------------------------------------------------------------------

    def find_known(self, node: BaseNode) -> Iterator[tuple[str, Page]]:
        """Yield the keys of other documents' names that a passage holds, each with its document.

        A name that many passages elsewhere hold is a common word. One of several documents is nobody's.
        """
        own = self.get(node)
        for key in self._found[node.node_id]:
            page = self._phrases[key]
            if page is not own and key not in self._common and entity_key(page.title) != entity_key(own.title):
                yield key, page

    def _list_phrases(self) -> dict[str, Page]:
        owners: defaultdict[str, dict[str, Page]] = defaultdict(dict)
        for names in (self._by_stem, self._by_name):
            for key, pages in names.items():
                for page in pages:
                    owners[key].setdefault(entity_key(page.title), page)
        return {
            key: next(iter(pages.values()))
            for key, pages in owners.items()
            if len(pages) == 1 and len(key) >= _LEAST_SIZE and not key.replace(" ", "").isdecimal()
        }

    def _find_phrases(self, text: str) -> list[str]:
        """Find the known names in a text, in any letter case, as whole words."""
        words = fold(text).split()
        found = (
            " ".join(words[place : place + length])
            for place, word in enumerate(words)
            if word in self._lengths
            for length in self._lengths[word]
        )
        return [key for key in dict.fromkeys(found) if key in self._phrases]

    def _count_common(self, passages: Mapping[str, Sequence[BaseNode]]) -> set[str]:
        """Return the names that too many passages of other documents hold."""
        counts: Counter[str] = Counter()
        for id_, nodes in passages.items():
            for node in nodes:
                counts.update(key for key in self._found[node.node_id] if self._phrases[key].id != id_)
        share = _COMMON_SHARE * len(self._found)
        return {key for key, number in counts.items() if number > max(_RARE, share * len(key.split()))}


def find_path(link: Link) -> str:
    """Return the path, page or label that a link means; "" of a place on the web, in its own page, or not said."""
    kind, _, rest = link.address.partition(":")
    target = rest or link.target
    is_place = kind in ("wiki", "xref") or (kind in ("doc", "ref") and ":" not in rest and rest not in _OF_SPHINX)
    if not (is_place if kind else target and not (_SCHEME.match(target) or target.startswith(("//", "#")))):
        return ""
    return target if len(target) <= MAX_TARGET else ""


def fold(text: str) -> str:
    """Return the normal form of a text that may be long: `entity_key`, which would be remembered."""
    return entity_key.__wrapped__(text)


def _split_heading(heading: str) -> tuple[str, str]:
    """Return a heading without what Markdown may write behind it, and the name that stands there."""
    end = _END_OF_HEADING.search(heading)
    return (heading[: end.start()], end[1] or "") if end else (heading, "")


def _take_off_marks(heading: str) -> str:
    """Return the words of a heading without markup."""
    return (
        tidy(read_inline(heading, {}, is_markdown=True).plain).replace("`", "") if _MARKED.search(heading) else heading
    )


def _shorten_heading(plain: str) -> str:
    """Return the words of a heading that name it in a triple."""
    return " ".join(plain.translate(_QUOTES).split()[:_MAX_WORDS])


def _get_document(node: BaseNode) -> str:
    return node.ref_doc_id or node.node_id


def _read_place(node: BaseNode) -> tuple[int, int, str]:
    start = getattr(node, "start_char_idx", None)
    return (start if isinstance(start, int) else 0, len(node.node_id), node.node_id)


def _read_path(metadata: Mapping[str, Any]) -> str:
    path = next((value for key in _PATH_KEYS if isinstance(value := metadata.get(key), str) and value), "")
    return posixpath.normpath(path.replace("\\", "/")) if path else ""


def _find_root(paths: Iterable[str]) -> str:
    """Return the folder of all absolute paths, with "/" behind it."""
    folders = [posixpath.dirname(path) for path in paths if path.startswith("/")]
    return os.path.commonpath(folders).rstrip("/") + "/" if folders else ""


def _fold_path(path: str) -> str:
    """Return a path in one letter case and one spelling of its letters."""
    return unify_spelling(path).casefold()


def _without_ending(path: str) -> str:
    return path.removesuffix(PurePosixPath(path).suffix)


def _normalize_address(address: str) -> str:
    return address.strip().strip("<>").removesuffix("/")


def _read_names(text: str) -> list[str]:
    """Return the names that a document states in its front matter, at most `_MOST_NAMES`."""
    matter = FRONT_MATTER.match(text)
    names: list[str] = []
    for match in _STATED_NAMES.finditer(matter[0]) if matter else ():
        listed, single, lines = match.groups(default="")
        names += [*listed.split(","), single, *(line.strip().removeprefix("-") for line in lines.split("\n"))]
    cleaned = (" ".join(name.split()).strip("\"' ") for name in names)
    return [name for name in cleaned if name and len(name) <= 100][:_MOST_NAMES]


def _find_nearest(pages: Sequence[Page], origin: Page) -> Page | None:
    """Return the page whose folder is nearest to the origin's; None if two are as near."""
    by_distance: defaultdict[int, list[Page]] = defaultdict(list)
    for page in dict.fromkeys(pages):
        by_distance[count_steps(page.path, origin.path)].append(page)
    nearest = by_distance[min(by_distance)] if by_distance else []
    return nearest[0] if len(nearest) == 1 else None


def count_steps(path: str, other: str) -> int:
    """Return the number of steps from one file's folder to another's."""
    one, two = PurePosixPath(path).parent.parts, PurePosixPath(other).parent.parts
    shared = len(os.path.commonprefix([one, two]))
    return len(one) + len(two) - 2 * shared
