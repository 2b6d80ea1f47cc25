"""`ExistingCollection`: a graph for the passages of a Qdrant collection that another program made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent
from llama_index.core.vector_stores.types import MetadataFilters
from tqdm.auto import tqdm

from llama_index_gear.characters import count
from llama_index_gear.errors import EmbeddingError, check_kind
from llama_index_gear.extraction.accounting import ExtractionEstimate, ExtractionLedger
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, Request, RunFunction, ask, blocking, unblocked
from llama_index_gear.ingestion.updates import Target, describe_extractor, keep_triples, scope_filters, select_flow
from llama_index_gear.nodes import SOURCE_KEY, record_of
from llama_index_gear.resources import ClosedByWith
from llama_index_gear.store.access import connection_of, reads_of, tenancy_of
from llama_index_gear.store.source_collection import SourceCollection, make_local_client
from llama_index_gear.store.tenancy import check_filters
from llama_index_gear.store.vector_store import GeARVectorStore

_PAGE = 64  # passages that a kill can cost
_PROBES = 3  # passages that are embedded to see whether the store's model made the vectors
_MIN_COSINE = 0.5  # of two vectors of one text; of two models they have some 0


@dataclass(frozen=True)
class CollectionReport:
    """The result of `ExistingCollection.extract_to`: counts of passages.

    Attributes:
        passages: passages that the collection has.
        written: passages that were new or changed, or whose extraction had failed. One that could not be extracted
            keeps the triples that it has, and does not count.
        deleted: passages of the store that the collection has no more.
        skipped: why a point gives no passage → number of such points.
        ledger: the account of the extraction of those written; empty if the extractor keeps none.

    """

    passages: int = 0
    written: int = 0
    deleted: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    ledger: ExtractionLedger = field(default_factory=ExtractionLedger)

    def __str__(self) -> str:
        skipped = "".join(f", {count(points, 'point')} skipped ({why})" for why, points in self.skipped.items())
        return f"{count(self.passages, 'passage')}: {self.written} new or changed, {self.deleted} deleted{skipped}"


class ExistingCollection(ClosedByWith):
    """A Qdrant collection that LlamaIndex's own store or another program made, to be given a graph.

    `extract_to` extracts triples from its passages, and fills a `GeARVectorStore` with passages and triples. The
    passages keep their ids, metadata and vectors: none is embedded again. The collection itself is only read.

        theirs = ExistingCollection("docs", url="http://localhost:6333")
        store = GeARVectorStore("docs_gear", url="http://localhost:6333", embed_model=embed_model)
        print(theirs.extract_to(store))

    A point that holds a LlamaIndex node gives that node. Of any other point, one payload field is the text; the others,
    and the members of an object `metadata`, are metadata.

    Args:
        collection_name: name of the collection.
        client: a `QdrantClient`; for a folder of its local mode use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address, in place of clients.
        api_key: the server's API key, for use with `url`. Default: none.
        vector_name: name of the dense vectors. Default: LlamaIndex's name, or the only ones that there are.
        text_key: payload field of the text. Default "text"; LangChain writes "page_content".
        title_key: metadata field of the title, which rules and ranking use. Default "title". Of "file_name" and
            "file_path" the title is the file's name without its ending.
        place: the collection's former address, if it has moved since it filled a store; the error names it. Default:
            the current one.

    Raises:
        ArgumentError: neither a client nor a url is given, or both are, or an argument has the wrong type.

    """

    def __init__(
        self,
        collection_name: str,
        client: Any = None,
        aclient: Any = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        vector_name: str | None = None,
        text_key: str = "text",
        title_key: str = "title",
        place: str | None = None,
    ) -> None:
        self._source = SourceCollection(
            collection_name, client, aclient, url, api_key, vector_name, text_key, title_key, place
        )

    @classmethod
    def from_path(cls, path: str | Path, collection_name: str, **arguments: Any) -> Self:
        """Open a collection in a folder of Qdrant's client, `QdrantClient(path=…)`. Close it after use.

        Args:
            path: the folder.
            collection_name: name of the collection.
            **arguments: the constructor's arguments, without the clients.

        Raises:
            StoreError: the folder holds no collections, or another client has it open.

        """
        client = make_local_client(path)
        try:
            return cls(collection_name, client, **arguments)
        except BaseException:
            client.close()
            raise

    @blocking
    def extract_to(
        self,
        store: GeARVectorStore,
        extractor: TransformComponent | None = None,
        *,
        filters: MetadataFilters | None = None,
        show_progress: bool = False,
    ) -> Flow[CollectionReport]:
        """Bring a store to what the collection holds now: passages, with triples.

        A second call writes what is new or changed, deletes what is gone, and extracts again what had failed, or was
        over `max_cost`. It does the same after a call that was killed. A passage that can't be extracted keeps the
        triples that the store has of the same text. With another extractor, or another setting of
        it, all is extracted anew. Passages of other ids that came otherwise into the store stay as they are, also those
        of another collection of the same name on another server or in another folder.

        Args:
            store: the store. With a `tenant_field`, passages belong to the tenants that their metadata names; a
                tenant's store, `for_tenant(…)`, takes that tenant's alone.
            extractor: extracts the triples. Default: `MentionTripleExtractor()`, by rule.
            filters: take only passages that match, by top-level payload fields. Passages of an earlier call that don't
                match are deleted from the store. Default: all.
            show_progress: show a progress bar. Default False.

        Returns:
            The counts, and the ledger of a `GeARTripleExtractor`.

        Raises:
            StoreError: there is no such collection.
            ArgumentError: it has several dense vectors, and none is named; or no point has text; or the store is the
                collection itself, or has a passage of the same id from elsewhere.
            EmbeddingError: before anything is extracted, if the store's `embed_model` did not make the vectors.
            TenantError: before a page's passages are extracted, if the store has tenants, and one has none.

        """
        return self._extract_flow(store, extractor or MentionTripleExtractor(), filters, show_progress)

    aextract_to = unblocked(extract_to)

    @blocking
    def estimate(
        self,
        store: GeARVectorStore,
        extractor: GeARTripleExtractor,
        *,
        filters: MetadataFilters | None = None,
    ) -> Flow[ExtractionEstimate]:
        """Estimate what `extract_to` would cost with these arguments, without an LLM call.

        The collection is read page by page; nothing is written. Passages cost nothing that the store has as this
        extractor extracted them.

        Args:
            store: the store. Its embedding model is not asked.
            extractor: extracts the triples.
            filters: as in `extract_to`. Default: all.

        Raises:
            StoreError: there is no such collection.
            ArgumentError: as in `extract_to`; or the extractor asks no model.
            TenantError: the store has tenants, and a passage has none.

        """
        check_kind(GeARTripleExtractor, hint="one by rule costs nothing", extractor=extractor)
        check_filters(filters)
        self._check_other(store)
        source, filters = self._source, scope_filters(tenancy_of(store), filters)
        vector = yield from source.open_flow()
        yield from Target(store, source).open_flow()
        settings, offset = describe_extractor(extractor), None
        skipped: dict[Any, str] = {}
        fields: set[str] = set()
        estimate = yield from _estimate_flow(extractor, [])
        while True:
            page = yield from source.page_flow(vector, filters, _PAGE, offset, settings)
            skipped |= page.skipped
            fields |= page.fields
            wanted = (yield from select_flow(store, page)).wanted
            known = len(page.passages) - len(wanted)
            estimate += ExtractionEstimate(known, known) + (yield from _estimate_flow(extractor, wanted))
            offset = page.offset
            if offset is None:
                break
        if skipped and not estimate.passages:
            raise source.explain_no_passage(skipped, fields)
        return estimate

    aestimate = unblocked(estimate)

    @property
    def place(self) -> str:
        """Where the collection is, or was: a server's host and port, or a folder; else "memory"."""
        return self._source.place

    def close(self) -> None:
        """Close the clients: the sync one, and both if they were made here."""
        self._source.connection.close()

    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""
        await self._source.connection.aclose()

    def _answer(self, request: Request[Any]) -> Any:
        """Answer a request of the collection's flows; those of the store's are routed to its connection."""
        self._check(request)
        return self._source.connection.answer(request)

    async def _aanswer(self, request: Request[Any]) -> Any:
        """`_answer`, without blocking the event loop."""
        self._check(request)
        return await self._source.connection.aanswer(request)

    def _check(self, request: Request[Any]) -> None:
        if isinstance(request, QdrantCall):
            self._source.check_call(request)

    def _extract_flow(
        self,
        store: GeARVectorStore,
        extractor: TransformComponent,
        filters: MetadataFilters | None,
        show_progress: bool,
    ) -> Flow[CollectionReport]:
        check_filters(filters)
        self._check_other(store)
        source, filters = self._source, scope_filters(tenancy_of(store), filters)
        vector = yield from source.open_flow()
        points = yield from source.count_flow(filters)
        settings = describe_extractor(extractor)
        target = Target(store, source)
        yield from target.finish_flow()
        passages, written, ledger, offset, is_probed = 0, 0, ExtractionLedger(), None, False
        skipped: dict[Any, str] = {}
        current: dict[Any, str] = {}  # point → passage
        fields: set[str] = set()
        with tqdm(total=points, desc="Extracting triples", unit="passage", disable=not show_progress) as bar:
            while True:
                page = yield from source.page_flow(vector, filters, _PAGE, offset, settings)
                passages += len(page.passages)
                skipped |= page.skipped
                fields |= page.fields
                current |= {node.metadata[SOURCE_KEY]["point"]: node.node_id for node in page.passages}
                wanted, left, stored = yield from select_flow(store, page)
                if wanted and not is_probed:
                    yield from self._probe_flow(store, wanted)
                    is_probed = True
                if wanted:
                    extract: Any = extractor  # of its call's result LlamaIndex knows less than ours
                    extracted = yield from ask(RunFunction(partial(extract, wanted), partial(extract.acall, wanted)))
                    if isinstance(extractor, GeARTripleExtractor):  # it takes long, and others may write meanwhile
                        _, left, stored = yield from select_flow(store, page)
                    embeddings = {node.node_id: node.embedding for node in page.passages}
                    nodes = [node.model_copy(update={"embedding": embeddings[node.node_id]}) for node in extracted]
                    kept = {node.node_id: old for node in nodes if (old := keep_triples(node, stored)) is not None}
                    yield from target.delete_flow(left)
                    yield from target.add_flow([kept.get(node.node_id, node) for node in nodes])
                    written += len(nodes) - len(kept)
                    ledger += ExtractionLedger.of([node for node in nodes if record_of(node) is not None])
                bar.update(len(page.passages) + len(page.skipped))
                offset = page.offset
                if offset is None:
                    break
        if skipped and not passages:
            raise source.explain_no_passage(skipped, fields)
        deleted = yield from self._delete_gone_flow(target, filters, set(skipped), current)
        return CollectionReport(passages, written, deleted, dict(Counter(skipped.values())), ledger)

    def _check_other(self, store: GeARVectorStore) -> None:
        """Refuse a store that would write into the collection.

        Raises:
            ArgumentError: one of the store's collections is the one that is read.

        """
        Target(store, self._source).check_names()

    def _probe_flow(self, store: GeARVectorStore, nodes: Sequence[BaseNode]) -> Flow[None]:
        """Embed a few passages, and compare: triples must be embedded by the model that made the vectors.

        Raises:
            EmbeddingError: another model made them.

        """
        probes = nodes[:_PROBES]
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in probes]
        made = yield from connection_of(store).route_flow(ask(EmbedTexts(texts)))
        given = [node.get_embedding() for node in probes]
        dimensions = len(made[0]), len(given[0])
        cosines = [] if dimensions[0] != dimensions[1] else list(map(_cosine, made, given))
        if not cosines or max(cosines) < _MIN_COSINE:
            found = (
                f"cosine {max(cosines):.2f} for the same text"
                if cosines
                else f"{dimensions[0]} dimensions in place of {dimensions[1]}"
            )
            raise EmbeddingError(
                f"the store's embed_model did not make the vectors of collection {self._source.name!r} ({found}): give "
                "the store the model that did"
            )

    def _delete_gone_flow(
        self,
        target: Target,
        filters: MetadataFilters | None,
        skipped: set[Any],
        current: dict[Any, str],
    ) -> Flow[int]:
        """Delete the passages whose point is gone, or gives none any more, or another; return their number."""
        deleted, offset, source = 0, None, self._source
        reads, connection = reads_of(target.store, all_tenants=True), connection_of(target.store).for_writes
        while True:
            nodes, offset = yield from connection.route_flow(reads.imported_flow(source.name, source.place, offset))
            points = [node.metadata[SOURCE_KEY]["point"] for node in nodes]
            if points:
                without = skipped | (yield from source.find_gone_flow(list(dict.fromkeys(points)), filters))
                pairs = zip(points, nodes, strict=True)
                gone = [
                    node
                    for point, node in pairs
                    if point in without or current.get(point, node.node_id) != node.node_id
                ]
                yield from target.delete_flow(gone)
                deleted += len(gone)
            if offset is None:
                return deleted


def _estimate_flow(extractor: GeARTripleExtractor, nodes: list[BaseNode]) -> Flow[ExtractionEstimate]:
    return ask(RunFunction(partial(extractor.estimate, nodes), partial(extractor.aestimate, nodes)))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(np.dot(one, other)) / lengths if lengths else 0.0
