"""The tools that `mcp` serves: search, ask, explain, add and delete over a store, with results of bounded length.

An embedded store serves one process at a time. It is shared by turns with `index`, `ask`, other servers and programs:
once one of them waits, tools that work end, and the next ones wait for their own turn, half a minute at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import BaseNode, Document, NodeWithScore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_gear import (
    GeARQueryEngine,
    GeARVectorStore,
    GraphRetriever,
    LinkTripleExtractor,
    MentionTripleExtractor,
)
from llama_index_gear.characters import escape_line, unify_spelling
from llama_index_gear.cli.indexing import make_splitter
from llama_index_gear.cli.mcp_results import MAX_PASSAGES, Answer, Citation, Explanation, Passage, Passages, Written
from llama_index_gear.cli.mcp_store import SharedStore
from llama_index_gear.cli.models import load_embedding
from llama_index_gear.cli.store_folder import require_store
from llama_index_gear.cli.store_note import check_probe, choose_embedding, holds_collections, read_note
from llama_index_gear.errors import ArgumentError, TenantError, check_counts, is_whole
from llama_index_gear.ingestion.origins import OF_FILE, find_origin, read_file
from llama_index_gear.llm.escaping import escape_name
from llama_index_gear.nodes import (
    CHAIN_KEY,
    RANKS_KEY,
    REASONS_KEY,
    name_passage,
    read_title,
    shorten,
    shorten_predicate,
)
from llama_index_gear.retrievers.base import new_trace
from llama_index_gear.store.embedded.folder_lock import make_locked_error
from llama_index_gear.trace.trace import TraceEvent, stream_trace

_POOL = 1_000  # more than the pool of a question ever has
_PASSAGE = 1_500  # characters shown of a passage
_WHOLE_PASSAGE = 8_000  # characters shown of a passage that is explained
_ANSWER = 8_000  # characters shown of an answer
_SLOT = 200  # characters shown of a title, or of a slot of a triple
_FACTS = 20  # facts shown of an answer
_ADDED = 1_000_000  # characters of a document that is added
_NAME = 1_000  # characters of its title, and of its id
_RELINKED = 20_000  # passages of a store whose links are made anew after each write, in some ten seconds
_WAIT = 30.0  # seconds for which a tool waits for its turn; clients often wait a minute

Report = Callable[[int, str], Awaitable[None]]
"""Is told the number of an agent's step, and what it searches."""


@dataclass
class StoreTools:
    """The tools over the store in a folder. All of them are coroutines, and several may run at once.

    Attributes:
        folder: of the store.
        embed_name: name of the embedding model, if the command line gives one.
        llm: the agent's language model; None: `ask` is not served.
        tenant: field and name of the tenant that all tools are bound to; None: there are no tenants.

    """

    folder: Path
    embed_name: str | None = None
    llm: LLM | None = None
    tenant: tuple[str, str] | None = None
    _model: tuple[str, BaseEmbedding] | None = None  # the embedding model, with its name
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _shared: SharedStore = field(init=False)
    _writes: asyncio.Lock = field(default_factory=asyncio.Lock)  # held from what a tool reads to what it writes
    _waiting: int = 0  # writes that wait for another one's end
    _begun: set[asyncio.Task[Written]] = field(default_factory=set)  # writes that have not ended

    def __post_init__(self) -> None:
        self._shared = SharedStore(self.folder, self._open_store)

    async def search(self, question: str, top_k: int = 5) -> Passages:
        """Return the passages that answer a question, best first, each with the facts that lead to it."""
        check_counts(most=MAX_PASSAGES, top_k=top_k)
        async with self._open() as store:
            found = await GraphRetriever(store, similarity_top_k=top_k).aretrieve(question)
        return Passages(passages=[_describe(result.node) for result in found])

    async def ask(self, question: str, report: Report) -> Answer:
        """Have an agent search and answer; `report` is told of each of its steps."""
        trace = new_trace(question)
        async with self._open(is_short=False) as store:
            engine = GeARQueryEngine.from_vector_store(store, llm=self.llm)
            work = stream_trace(trace, lambda: engine.aquery(question))
            async with aclosing(work) as events:  # type: ignore[type-var]  # it is a generator
                async for event in events:
                    if not isinstance(event, TraceEvent):
                        response = event
                    elif event.kind == "query":
                        await report(event.step, f"searches: {escape_name(shorten(str(event.value), _SLOT))}")
        titles = {result.node.node_id: shorten(name_passage(result.node), _SLOT) for result in response.source_nodes}
        citations = [
            Citation(number=int(number), id=node_id, title=titles.get(node_id) or node_id)
            for number, node_id in trace.citations.items()
        ]
        return Answer(
            answer=_shorten(trace.response, _ANSWER),
            citations=citations,
            facts=[_shorten_slots(slots) for slots in trace.gist[:_FACTS]],
            stopped=trace.stopped,
            model_calls=trace.llm_calls,
        )

    async def explain(self, question: str, id: str) -> Explanation:
        """Say where a passage stands among those found for a question, and what placed it there."""
        async with self._open() as store:
            stored = await _find_passage(store, id)
            if not stored:
                raise ArgumentError(f"there is no passage {id!r}: take an id that search returned")
            id = stored[0].node_id
            found: Sequence[NodeWithScore] = await GraphRetriever(store, similarity_top_k=_POOL).aretrieve(question)
        for rank, result in enumerate(found, start=1):
            if result.node.node_id == id:
                reasons = [str(reason["reason"]) for reason in result.metadata.get(REASONS_KEY) or []]
                return Explanation(
                    rank=rank,
                    passage=_describe(result.node, _WHOLE_PASSAGE),
                    lists=result.metadata.get(RANKS_KEY) or {},
                    reasons=reasons,
                )
        return Explanation(rank=None, passage=_describe(stored[0], _WHOLE_PASSAGE), lists={}, reasons=[])

    async def add(self, text: str, title: str, id: str) -> Written:
        """Store a document, in place of an earlier one with this id; its triples are made by rule.

        Links and names in other documents that lead to it are found, as `index` finds them; `delete` takes them down.
        """
        for name, value in (("text", text), ("title", title), ("id", id)):
            most = _ADDED if name == "text" else _NAME
            if not value.strip():
                raise ArgumentError(f"{name} must not be empty")
            if not is_whole(value):
                raise ArgumentError(f"{name} holds half a character: leave it out")
            if len(value) > most:
                raise ArgumentError(f"{name} has {len(value):,} characters, more than {most:,}: shorten or divide it")
        if escape_line(id) != id:
            raise ArgumentError(f"id holds characters that can't be seen ({escape_line(id)}): leave them out")
        id = unify_spelling(id)
        return await self._complete(self._add(Document(text=text, id_=id, metadata={"title": title})))

    async def _add(self, document: Document) -> Written:
        id = document.id_
        async with self._write() as store:
            earlier = await _find_document(store, id)
            origin = find_origin(earlier) or (OF_FILE if await _has_file(store, id) else None)
            if origin is not None:
                raise ArgumentError(f"{id!r} is {origin.to_change}, or take another id")
            nodes = await asyncio.to_thread(
                lambda: store.embed_model(
                    MentionTripleExtractor()(make_splitter().get_nodes_from_documents([document]))
                )
            )
            taken = await store.aget_nodes([id, *(node.node_id for node in nodes)], with_embeddings=False)
            for node in taken:
                if node.ref_doc_id != id:
                    raise ArgumentError(
                        f"the passage {node.node_id!r} is of another document: take another id than {id!r}"
                    )
            try:
                written = await store.async_add(nodes)
            except TenantError:  # it names another tenant's passage, which is not this one's to know
                raise ArgumentError(f"the id {id!r} cannot be taken: choose another") from None
            gone = [node.node_id for node in earlier if node.node_id not in written]
            if gone:
                await store.adelete_nodes(gone)
        return Written(document=id, added=len(written), deleted=len(gone))

    async def delete(self, id: str) -> Written:
        """Delete a document, or a single passage."""
        return await self._complete(self._delete(id))

    async def _delete(self, id: str) -> Written:
        async with self._write() as store:
            passage = await _find_passage(store, id)
            document = await _find_document(store, id)
            if passage and document and passage[0].ref_doc_id != document[0].ref_doc_id:
                raise ArgumentError(
                    f"{id!r} is a document, and a passage of another one: delete the document's passages, each by its "
                    f"own id ({document[0].node_id!r}{', …' if len(document) > 1 else ''}); then {id!r} means the "
                    "passage alone"
                )
            gone = passage or document
            if not gone:
                raise ArgumentError(f"there is no document and no passage {id!r}: take an id that search returned")
            await store.adelete_nodes([node.node_id for node in gone])
        origin = find_origin(gone)
        return Written(document=id, deleted=len(gone), note=origin.comes_back if origin else "")

    async def _complete(self, work: Coroutine[Any, Any, Written]) -> Written:
        """Return the result of a write. If the client cancels it, it is done to its end all the same."""
        task = asyncio.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._end)
        return await asyncio.shield(task)

    def _end(self, task: asyncio.Task[Written]) -> None:
        """Forget a write. What is wrong with one that its client cancelled, nobody asks."""
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()

    async def finish(self) -> None:
        """Wait for the end of writes that clients cancelled, and close the store."""
        while self._begun:
            await asyncio.wait(self._begun)
        await self._shared.close()

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[GeARVectorStore]:
        """Open the store to one writer at a time, after what an earlier one left is finished or undone.

        The links of all passages follow at the end: of several writers that wait for each other, at the last one's.
        They follow also if the writer fails: an earlier one may have left them to it, or was killed before it came to
        them.
        """
        await self._load_model()
        end = monotonic() + _WAIT
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT):
                await self._writes.acquire()
        except TimeoutError:
            raise make_locked_error(self.folder, "an earlier call of this server writes", _WAIT) from None
        finally:
            self._waiting -= 1
        try:
            async with self._shared.use(max(0, end - monotonic()), writes=True) as store:
                await store.afinish_writes()
                try:
                    yield store
                except Exception:
                    await self._relink(store)
                    raise
                await self._relink(store)
        finally:
            self._writes.release()

    async def _relink(self, store: GeARVectorStore) -> None:
        """Bring the links of all passages to what these say now, unless a write that waits will.

        A collection's passages have none: `extract` makes none either. Those of a large store wait for `index`.
        """
        note = await asyncio.to_thread(read_note, self.folder)
        passages = (await asyncio.to_thread(store.client.count, store.collection_name)).count
        if not self._waiting and passages <= _RELINKED and not (note is not None and note.collection):
            await LinkTripleExtractor().aupdate(store)

    @asynccontextmanager
    async def _open(self, *, is_short: bool = True) -> AsyncIterator[GeARVectorStore]:
        """Open the store, or share it with other tools; see `SharedStore.use`."""
        await self._load_model()
        async with self._shared.use(_WAIT, is_short=is_short) as store:
            yield store

    async def _load_model(self) -> None:
        """Load the embedding model while nobody has to wait for the folder; what was loaded is checked there."""
        async with self._loading:
            if not self._shared.is_open and holds_collections(self.folder):
                name = choose_embedding(self.folder, self.embed_name)
                if self._model is None or self._model[0] != name:
                    self._model = name, await asyncio.to_thread(load_embedding, name)

    def _open_store(self) -> GeARVectorStore:
        folder, known = self.folder, self._model
        require_store(folder)
        name = choose_embedding(folder, self.embed_name)
        model = known[1] if known is not None and known[0] == name else load_embedding(name)
        self._model = None  # if it is refused, the next call loads what has the name then
        check_probe(folder, model)
        self._model = name, model
        if self.tenant is None:
            return GeARVectorStore.from_path(folder, embed_model=model)
        field_name, name = self.tenant
        whole = GeARVectorStore.from_path(folder, embed_model=model, tenant_field=field_name)
        return whole.for_tenant(name)


async def _has_file(store: GeARVectorStore, name: str) -> bool:
    """Return True if a file has this path: one with pages has them as its documents."""
    of_file = MetadataFilters(filters=[MetadataFilter(key="file", value=name)])
    return any(map(read_file, await store.aget_nodes(filters=of_file, with_embeddings=False)))


async def _find_passage(store: GeARVectorStore, id: str) -> list[BaseNode]:
    """Return the passage of an id, or of its one spelling; [] if there is none."""
    stored = await store.aget_nodes([id, unify_spelling(id)], with_embeddings=False)
    return stored[:1]


async def _find_document(store: GeARVectorStore, document_id: str) -> list[BaseNode]:
    """Return the passages of a document, by its id or the one spelling of it."""
    found: list[BaseNode] = []
    for spelling in dict.fromkeys([document_id, unify_spelling(document_id)]):
        of_document = MetadataFilters(filters=[MetadataFilter(key="doc_id", value=spelling)])
        found = found or await store.aget_nodes(filters=of_document, with_embeddings=False)
    return found


def _describe(node: BaseNode, length: int = _PASSAGE) -> Passage:
    return Passage(
        id=node.node_id,
        document=node.ref_doc_id or node.node_id,
        title=_read_title(node),
        text=_shorten(node.get_content(), length),
        chain=[_shorten_slots(slots) for slots in node.metadata.get(CHAIN_KEY) or []],
    )


def _read_title(node: BaseNode) -> str:
    return shorten(read_title(node), _SLOT)


def _shorten_slots(slots: Sequence[str]) -> list[str]:
    return [shorten(slots[0], _SLOT), shorten_predicate(slots, _SLOT), shorten(slots[2], _SLOT)]


def _shorten(text: str, length: int) -> str:
    """Cut a text behind a word; its lines stay."""
    if len(text) <= length:
        return text
    cut = text[:length]
    return f"{cut[: max(cut.rfind(' '), length // 2)].rstrip()} …"
