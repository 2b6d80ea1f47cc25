"""`LinkTripleExtractor`: triples from the links that people made between documents, and from the documents' names."""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent

from llama_index_gear.extraction.blocks import tell_markdown
from llama_index_gear.extraction.headings import Sections
from llama_index_gear.extraction.inline import Link
from llama_index_gear.extraction.link_targets import MAX_TARGET, Page, Pages, Target, find_path, fold
from llama_index_gear.extraction.sentences import Form, Sentence, split_sentences
from llama_index_gear.flow import Flow, RunFunction, arun, ask, run
from llama_index_gear.nodes import LINKS, MENTIONS, STATES, attach_triples, read_triples, without_links
from llama_index_gear.triple import Triple, entity_key

_MAY_LINK = re.compile(r"\]\(|\]\[|\[\[|\}`|:`|xref:|link:|<a\s", re.IGNORECASE)
"""Matches what a text with a link has."""
_ANCHOR = re.compile(r"(?<!\\)<a\s([^<>]{1,4000})>", re.IGNORECASE)
_SHORTCUT = re.compile(r"(?<![\]\[!\\])\[([^\[\]]{1,200})\](?![\[(:])")
"""Matches words that may be a link, if the document defines where they lead."""
_HREF = re.compile(r"\bhref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
_ADDRESS = re.compile(rf"https?://[^\s<>()\[\]\"'`]{{1,{MAX_TARGET}}}")
MAX_TRIPLES = 64
"""Triples of links in a passage, by default."""
_MAX_WORDS = 40  # of a sentence in one triple
_MOST = 200  # of a passage
_LEAST_LINKING = 5
"""Documents that link to one, at least, and more than half of all, if the link is part of a menu and no fact."""


_BATCH = 256  # passages that are written at once


class PassageStore(Protocol):
    """A store whose links are updated: a `GeARVectorStore`."""

    def get_nodes(self, node_ids: list[str] | None = None, *, with_embeddings: bool = True) -> list[BaseNode]:
        """Return passages."""

    async def aget_nodes(self, node_ids: list[str] | None = None, *, with_embeddings: bool = True) -> list[BaseNode]:
        """`get_nodes`, without blocking the event loop."""

    def add(self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode]) -> list[str]:
        """Store passages, unless others changed them since."""

    async def async_add(self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode]) -> list[str]:
        """`add`, without blocking the event loop."""


class DeadLink(NamedTuple):
    """A link that leads nowhere: the passage that has it, the place in its text, its document, and its target.

    `is_name` says that any document of that name is meant, wherever it stands.
    """

    node_id: str
    place: int
    path: str
    target: str
    is_name: bool


class LinkReport(NamedTuple):
    """The links between the documents of a store, as their passages say now.

    Attributes:
        number: number of links that lead to another document, those in several passages counted once.
        dead: the links that lead to no document. One to a picture, or to a file that was not read, is among them.

    """

    number: int
    dead: list[DeadLink]


class _Found(NamedTuple):
    """A link or a name in a passage: what is said, of what, and where it leads."""

    node_id: str
    subject: str
    sentence: str
    verb: str
    target: Target


class LinkedPassages:
    """The links between the documents of some passages.

    Args:
        nodes: all passages of the documents.
        title_key: metadata key of a passage's title.
        link_keys: metadata keys of lists of links.

    Attributes:
        number: number of links that lead to another document, those in several passages counted once.
        dead: the links that lead nowhere.

    """

    def __init__(
        self, nodes: Sequence[BaseNode], title_key: str = "title", link_keys: Sequence[str] = ("links", "wikilinks")
    ) -> None:
        self.dead: list[DeadLink] = []
        self._pages = Pages(nodes, title_key)
        stated = self._place_stated(nodes, link_keys)
        found = [link for node in nodes for link in self._read(node, stated.get(node.node_id, ()))]
        linking: defaultdict[Page, set[Page]] = defaultdict(set)
        origins = {node.node_id: self._pages.get(node) for node in nodes}
        links = [link for link in found if link.verb == LINKS]
        self.number = len({(origins[link.node_id], link.sentence, link.target) for link in links})
        for link in links:
            linking[link.target.page].add(origins[link.node_id])
        most = max(_LEAST_LINKING - 1, (len(set(origins.values())) - 1) / 2)
        self._triples: defaultdict[str, dict[Triple, None]] = defaultdict(dict)
        kept = [link for link in links if len(linking[link.target.page]) <= most]
        linked = {(link.node_id, link.target.page) for link in kept}
        mentions = [name for name in found if name.verb != LINKS and (name.node_id, name.target.page) not in linked]
        for link in (*kept, *mentions):
            self._triples[link.node_id] |= dict.fromkeys(_write(link))
        for page, node_id in self._pages.list_first():
            for alias in page.aliases:
                says = f"“{page.title}, also known as {alias}” {STATES}"
                self._triples[node_id][Triple(page.title, says, alias)] = None

    def attach(self, node: BaseNode, most: int = MAX_TRIPLES) -> BaseNode:
        """Return a copy of a passage with the triples of its links behind its others; itself, if it has them.

        Args:
            node: one of the passages.
            most: highest number of these triples. Default 64.

        """
        stored = read_triples(node)
        others = without_links(stored)
        named = {key for triple in others for key in triple.entities}
        wanted = [
            triple
            for triple in self._triples.get(node.node_id, ())
            if not (triple.predicate.endswith(MENTIONS) and entity_key(triple.object) in named)
        ]
        triples = list(dict.fromkeys([*others, *wanted[:most]]))
        return node if triples == stored else attach_triples(node, triples)

    # -- finding -------------------------------------------------------------------------------------------------

    def _place_stated(self, nodes: Sequence[BaseNode], keys: Sequence[str]) -> dict[str, list[Link]]:
        """Return node id → links of the documents' metadata: where their words stand, else in the first passage."""
        of_pages: defaultdict[Page, list[BaseNode]] = defaultdict(list)
        for node in nodes:
            if any(node.metadata.get(key) for key in keys):
                of_pages[self._pages.get(node)].append(node)
        placed: defaultdict[str, list[Link]] = defaultdict(list)
        first = dict(self._pages.list_first())
        for page, of_page in of_pages.items():
            texts = [f" {fold(node.get_content(MetadataMode.NONE))} " for node in of_page]
            stated = [link for node in of_page for key in keys for link in _read_stated(node.metadata.get(key))]
            for link in dict.fromkeys(stated):
                words = f" {fold(link.text)} "
                holders = [node.node_id for node, text in zip(of_page, texts, strict=True) if words in text]
                for node_id in (holders if link.text else []) or [first[page]]:
                    placed[node_id].append(link)
        return placed

    def _read(self, node: BaseNode, stated: Sequence[Link]) -> Iterator[_Found]:
        """Find the links of a passage, and the names that it mentions. What stands in code is neither."""
        is_markdown = tell_markdown(node.metadata)
        if is_markdown is False:  # code
            return
        text = node.get_content(MetadataMode.NONE)
        known = dict(self._pages.find_known(node))
        page = self._pages.get(node)
        shortcuts = self._find_shortcuts(text, page)
        may_link = shortcuts or _MAY_LINK.search(text) or (self._pages.has_addresses and "://" in text)
        if not (known or may_link or stated):
            return
        sections = Sections(page.title, [])
        sentences: list[tuple[Sentence, str]] = []
        for sentence in split_sentences(text, is_markdown=is_markdown):
            sections.close(sentence.level)
            sentences.append((sentence, sections.subject))
            sections.open(sentence, is_named=False)
        starts = [sentence.start for sentence, _ in sentences]
        for link in self._find_links(text, sentences, [*shortcuts, *stated]) if sentences else ():
            sentence, subject = sentences[max(bisect_right(starts, link.start) - 1, 0)]
            target = None if sentence.form is Form.CODE else self._resolve(link, page, node.node_id)
            if target is not None and target.page is not page:
                yield _Found(node.node_id, subject, _cut(sentence, link), LINKS, target)
        for sentence, subject in sentences if known else ():
            words = f" {fold(' '.join(sentence.words))} " if sentence.form is not Form.CODE else ""
            for other in dict.fromkeys(page for key, page in known.items() if f" {key} " in words):
                said = _cut(sentence, Link("", "", sentence.start, sentence.start))
                yield _Found(node.node_id, subject, said, MENTIONS, Target(other, other.title))

    def _resolve(self, link: Link, page: Page, node_id: str) -> Target | None:
        """Return the target of a link; note it if it has none."""
        target = self._pages.resolve(link, page)
        if target is None and (path := find_path(link)):
            is_name = link.address.startswith("wiki:") or "/" not in path
            self.dead.append(DeadLink(node_id, link.start, page.path, path, is_name))
        return target

    def _find_links(
        self, text: str, sentences: Sequence[tuple[Sentence, str]], stated: Sequence[Link]
    ) -> Iterable[Link]:
        links = {link: None for sentence, _ in sentences for link in sentence.links}
        return islice(chain(links, _find_anchors(text), self._find_addresses(text), _find_words(text, stated)), _MOST)

    def _find_shortcuts(self, text: str, page: Page) -> list[Link]:
        """Find links of which the document says elsewhere where they lead: [words], of Markdown."""
        defined = self._pages.get_definitions(page)
        found = _SHORTCUT.finditer(text) if defined else ()
        return [Link("", "", *match.span(1), address=f"def:{match[1]}") for match in found if fold(match[1]) in defined]

    def _find_addresses(self, text: str) -> Iterator[Link]:
        if self._pages.has_addresses and "://" in text:
            for match in _ADDRESS.finditer(text):
                target = match[0].rstrip(".,;:!?")
                if self._pages.has_address(target):
                    yield Link(target, target, *match.span())


def _write(link: _Found) -> Iterator[Triple]:
    """Write the triples of a link: to what its target is about, and to what the section is about that it means."""
    title, heading = link.target.page.title, link.target.heading
    for name in dict.fromkeys([title, link.target.subject]):
        if entity_key(name) != entity_key(link.subject):
            into = f" “{heading}” in" if heading and name == title else ""
            yield Triple(link.subject, f"“{link.sentence}” {link.verb}{into}", name)


def _cut(sentence: Sentence, link: Link) -> str:
    starts = [start for start, _ in sentence.places]
    first = max(bisect_right(starts, link.start) - 1, 0)
    return sentence.window(first, max(bisect_left(starts, link.end), first + 1), _MAX_WORDS)


def _find_anchors(text: str) -> Iterator[Link]:
    """Find the links of HTML."""
    for match in _ANCHOR.finditer(text):
        if href := _HREF.search(match[1]):
            end = text.find("</a", match.end(), match.end() + MAX_TARGET)
            yield Link("", href[1] or href[2] or href[3] or "", match.end(), max(end, match.end()))


def _find_words(text: str, links: Sequence[Link]) -> Iterator[Link]:
    """Give links that stand in the metadata the place of their words in the text."""
    for link in links:
        words = r"\s+".join(map(re.escape, link.text.split()))
        match = re.search(words, text, re.IGNORECASE) if words else None
        yield link._replace(start=match.start(), end=match.end()) if match else link


def _read_stated(value: Any) -> Iterator[Link]:
    """Read a list of links in metadata: pages' names, as of a wikilink, and (words, target) pairs."""
    for entry in value if isinstance(value, list | tuple) else ():
        if isinstance(entry, str):
            yield Link(entry.rpartition("/")[2], "", 0, 0, address=f"wiki:{entry}")
        elif isinstance(entry, list | tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            yield Link(entry[0], entry[1], 0, 0)


class LinkTripleExtractor(TransformComponent):
    """Adds the triples of links between documents, and of documents' names, to those that passages have. No LLM.

    Put it behind an extractor, and behind whatever splits documents into passages:

        IngestionPipeline(transformations=[splitter, MentionTripleExtractor(), LinkTripleExtractor(), embed_model])

    There is one triple per link: (what the passage is about, “the sentence around the link” links to, what the target
    is about). One to a section says so: “the sentence” links to “the heading” in; and there is a second triple, if the
    section is about something of its own. Links of Markdown, HTML and AsciiDoc count, wikilinks, `:doc:` and `:ref:` of
    Sphinx and MyST, and addresses that equal a document's `url` or `source`. So do those in metadata: `wikilinks`, as
    LlamaIndex's `ObsidianReader` writes them, and `links`, pairs of words and target.

    A document is found by its path, beside the one that links or below the common folder of all, with or without
    ending; by its file's name without ending; by title, first heading, and front matter's `aliases` and `name`; by
    labels. Of several with one name the nearest in the tree of folders is meant; none, if two are as near. A document
    that more than half of all link to, and five at least, stands in a menu: such links are left out.

    A passage that has another document's title or name as a whole word, in any letter case, mentions it: (what the
    passage is about, “the sentence” mentions, what that document is about), unless it links to it. A name of one word
    that more than five of all passages have, and more than a fiftieth of them, is a common word.

    A triple tells the name of the document that it leads to, whatever filters hide that document. `tenant_key` names a
    field of the metadata, a tenant's or a level of access: links lead only to documents with the same value. Where a
    call has documents of several tenants it is needed; `update` of a tenant's store sees that tenant's alone.

    Only the documents of one call are known. Where documents come one by one, call `update(store)` after each change.
    """

    model_config = ConfigDict(extra="forbid")

    title_key: str = Field(default="title", description="Metadata key of the passage's title.")
    tenant_key: str | None = Field(
        default=None,
        description="Metadata key of a passage's tenant; no link leads from one to another. Default: none.",
    )
    link_keys: list[str] = Field(
        default=["links", "wikilinks"],
        description="Metadata keys of lists of links: names of pages, or (words, target) pairs.",
    )
    max_triples_per_passage: int = Field(
        default=MAX_TRIPLES, ge=1, description="Triples added per passage, first ones first."
    )

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the component is serialized."""
        return "LinkTripleExtractor"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return the nodes, those with links as copies with their triples, in place of those of links they had."""
        linked = self._link(nodes)
        return [linked[self._tenant_of(node)].attach(node, self.max_triples_per_passage) for node in nodes]

    def _link(self, nodes: Sequence[BaseNode]) -> dict[str, LinkedPassages]:
        """Find the links between the documents of each tenant."""
        by_tenant: defaultdict[str, list[BaseNode]] = defaultdict(list)
        for node in nodes:
            by_tenant[self._tenant_of(node)].append(node)
        return {tenant: LinkedPassages(its, self.title_key, self.link_keys) for tenant, its in by_tenant.items()}

    def _tenant_of(self, node: BaseNode) -> str:
        """Return what names a passage's tenant, as JSON: a list of groups can be no key."""
        return json.dumps(node.metadata.get(self.tenant_key), default=str) if self.tenant_key else ""

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Find links in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.__call__, nodes, **kwargs)

    def update(self, store: PassageStore) -> int:
        """Bring the links of all stored passages to what these say now; return the number of those that changed.

        Only what changes is written. A store that is divided between tenants is updated for each,
        `update(store.for_tenant("a"))`. Write nothing else meanwhile: what another writer changes is skipped.

        Args:
            store: a `GeARVectorStore`.

        """
        return run(self._update_flow(store), RunFunction.answer)

    async def aupdate(self, store: PassageStore) -> int:
        """`update`, without blocking the event loop."""
        return await arun(self._update_flow(store), RunFunction.aanswer)

    def _update_flow(self, store: PassageStore) -> Flow[int]:
        nodes = yield from _read_flow(store, None, with_embeddings=False)
        linked = yield from ask(RunFunction(partial(self, nodes)))
        changed = [(old, new) for old, new in zip(nodes, linked, strict=True) if new is not old]
        written = 0
        for start in range(0, len(changed), _BATCH):
            written += yield from relink_flow(store, changed[start : start + _BATCH])
        return written

    def check(self, store: PassageStore) -> LinkReport:
        """Count the links between the documents of a store, and list those that lead nowhere. Nothing is changed.

        Args:
            store: a `GeARVectorStore`; one that is divided between tenants is checked for each.

        """
        return run(self._check_flow(store), RunFunction.answer)

    async def acheck(self, store: PassageStore) -> LinkReport:
        """`check`, without blocking the event loop."""
        return await arun(self._check_flow(store), RunFunction.aanswer)

    def _check_flow(self, store: PassageStore) -> Flow[LinkReport]:
        nodes = yield from _read_flow(store, None, with_embeddings=False)
        linked = (yield from ask(RunFunction(partial(self._link, nodes)))).values()
        return LinkReport(sum(its.number for its in linked), [dead for its in linked for dead in its.dead])


def relink_flow(store: PassageStore, changed: Sequence[tuple[BaseNode, BaseNode]]) -> Flow[int]:
    """Write passages whose links changed, with the embeddings that are stored; return the number of those written.

    Args:
        store: the store.
        changed: each passage as it was read, and with its links. One that others changed since is left as it is.

    """
    before = [old for old, _ in changed]
    found = yield from _read_flow(store, [old.node_id for old in before], with_embeddings=True)
    vectors = {node.node_id: node.embedding for node in found}
    nodes = [new.model_copy(update={"embedding": vectors[new.node_id]}) for _, new in changed if new.node_id in vectors]
    add = partial(store.add, nodes, if_unchanged_since=before)
    async_add = partial(store.async_add, nodes, if_unchanged_since=before)
    return len((yield from ask(RunFunction(add, async_add))))


def _read_flow(store: PassageStore, node_ids: list[str] | None, *, with_embeddings: bool) -> Flow[list[BaseNode]]:
    get = partial(store.get_nodes, node_ids, with_embeddings=with_embeddings)
    aget = partial(store.aget_nodes, node_ids, with_embeddings=with_embeddings)
    return (yield from ask(RunFunction(get, aget)))
