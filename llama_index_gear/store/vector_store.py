"""Where passages and triples live: two Qdrant collections that change together, as one LlamaIndex vector store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http.models import SearchParams

from llama_index_gear.errors import ArgumentError, StoreError, check_counts, check_kind, check_kinds
from llama_index_gear.flow import Answer, Flow, Request, arun, ask, run
from llama_index_gear.requests import (
    AlignPassages,
    ChainSimilarities,
    EmbedQuery,
    EmbedTexts,
    ExtractionCallIds,
    FetchPassages,
    FetchTriples,
    IncidentTriples,
    LinkTriples,
    NeighborTriples,
    PassageTriples,
    RunFunction,
    SearchTriples,
)
from llama_index_gear.store.collections import TRIPLE_WORDS, Collections, encoder
from llama_index_gear.store.connection import NAME_FIRST, BoundToProcess, Connection, embedded_client
from llama_index_gear.store.copy import check_alike, copy_flow
from llama_index_gear.store.edge.client import EdgeClient
from llama_index_gear.store.locks import PassageLocks
from llama_index_gear.store.maintenance import SAMPLE, StoreChecks, StoreReport
from llama_index_gear.store.passages import StoreReads, native_filter
from llama_index_gear.store.triples import TripleReads
from llama_index_gear.store.writes import StoreDeletes, StoreWrites
from llama_index_gear.tenancy import Tenancy


class GeARVectorStore(BoundToProcess, BasePydanticVectorStore):
    """Passages and triples in Qdrant, as one LlamaIndex vector store (design: GeAR §3's two aligned indexes).

    Use it wherever LlamaIndex takes a vector store: `IngestionPipeline(vector_store=…)`, `VectorStoreIndex`,
    `StorageContext`. A node that carries triples (see `GeARTripleExtractor`) brings them along; a node that is
    replaced or deleted takes them away.

    - Collection `<collection_name>`: passages, in the layout of LlamaIndex's `QdrantVectorStore`, which can open it.
    - Collection `<collection_name>_triples`: one point a triple, with `passage_id`, `doc_id`, `subject`, `predicate`,
      `object`, `entities` (the two entity keys) and, under `metadata`, the passage's metadata, so that a filter binds
      triples as it binds passages.

    Both hold a dense vector and a BM25 sparse vector a point. `add` writes the new triples, then the passages, and then
    removes outdated triples: a passage that is there has all its triples, and a call that was killed is mended by
    repeating it. Nothing is opened or created before the first call.

    Args:
        collection_name: name of the passages' collection. Default "gear".
        client: a `QdrantClient` (a server, a cluster, `":memory:"`); for an embedded store use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address, "http://localhost:6333", instead of clients: both are made, and closed with the store.
        api_key: the server's, beside `url`. Default: none.
        embed_model: embeds triples, and queries that come as text. Must be the one that embeds the passages.
            Default: LlamaIndex's `Settings.embed_model`, looked up when first needed.
        batch_size: passages a write. Default 64.
        language: of the BM25 stemmer and stop words, as Qdrant names it. Default "english".
        bm25_avg_len: what BM25's length normalisation takes for an average passage, stop words left out.
            Default 60, that is about 100 words of English; for larger chunks set it accordingly before ingesting.
        tenant_field: the metadata field that names the tenant of a passage, if several share the store. Then nothing is
            answered, replaced or deleted unless a tenant is named: ask `for_tenant(…)`, or pass filters that name one.
            Only `check`, `repair`, `copy_to`, `bulk_load` and `clear` are about all tenants. Default: no tenants.
        payload_indexes: metadata fields to index, as LlamaIndex's Qdrant store takes them:
            `[{"field_name": "year", "field_schema": PayloadSchemaType.INTEGER}]`. Filters work without, slower.
        collection_options: how a server makes both collections: `shard_number`, `replication_factor`,
            `write_consistency_factor`, `on_disk_payload`, `hnsw_config`, `optimizers_config`, `quantization_config`, …;
            keywords of `QdrantClient.create_collection`. The embedded engine refuses what it has no answer for.
        vector_options: how it keeps the dense vectors: `on_disk`, `datatype`, …; fields of Qdrant's `VectorParams`.
        search_params: how it searches dense vectors: `hnsw_ef`, `exact`, and with quantization
            `SearchParams(quantization=QuantizationSearchParams(rescore=True, oversampling=2.0))`.
        show_progress: a progress bar while adding. Default False.

    Raises:
        ArgumentError: there is neither a client nor a url, there are both, or an argument is of another kind.
        StoreLockedError: (from any call) another process has the embedded store open.
        EmbeddingError: (from `add` and queries) an embedding is missing or has another dimension than the collection.
        UnsupportedFilter: (from any call with filters) one that says nothing, or that Qdrant cannot express.
        TenantError: (from any call but those about all tenants) there is a `tenant_field`, and no tenant is named; or
            another's passages are meant.

    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    collection_name: str
    batch_size: int
    language: str
    bm25_avg_len: float
    show_progress: bool

    _collections: Collections = PrivateAttr()
    _reads: StoreReads = PrivateAttr()
    _writes: StoreWrites = PrivateAttr()
    _deletes: StoreDeletes = PrivateAttr()
    _checks: StoreChecks = PrivateAttr()
    _tenancy: Tenancy = PrivateAttr()
    _connection: Connection = PrivateAttr()
    _locks: PassageLocks = PrivateAttr()

    def __init__(
        self,
        collection_name: str = "gear",
        client: QdrantClient | EdgeClient | None = None,
        aclient: AsyncQdrantClient | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        embed_model: BaseEmbedding | None = None,
        batch_size: int = 64,
        language: str = "english",
        bm25_avg_len: float = 60.0,
        tenant_field: str | None = None,
        payload_indexes: Sequence[dict[str, Any]] = (),
        collection_options: Mapping[str, Any] | None = None,
        vector_options: Mapping[str, Any] | None = None,
        search_params: SearchParams | None = None,
        show_progress: bool = False,
    ) -> None:
        check_kind(str, hint=NAME_FIRST, collection_name=collection_name)
        check_counts(batch_size=batch_size)
        check_kind(SearchParams, hint="write SearchParams(…)", optional=True, search_params=search_params)
        example = "write [{'field_name': 'year', 'field_schema': 'integer'}]"
        check_kinds(dict, hint=example, payload_indexes=payload_indexes)
        options: dict[str, Any] = {"collection_options": collection_options, "vector_options": vector_options}
        check_kind(Mapping, hint="write {'on_disk': True}, say", optional=True, **options)
        bm25, triple_bm25 = encoder(language, bm25_avg_len), encoder(language, TRIPLE_WORDS)
        super().__init__(  # type: ignore[call-arg]  # the fields below; pydantic's plugin is not at work
            collection_name=collection_name,
            batch_size=batch_size,
            language=language,
            bm25_avg_len=bm25_avg_len,
            show_progress=show_progress,
        )
        if collection_name.endswith("_triples"):
            raise ArgumentError(f"collection_name {collection_name!r} could be the triples' of another store")
        self._collections = Collections(
            collection_name,
            f"{collection_name}_triples",
            bm25,
            triple_bm25,
            list(payload_indexes),
            dict(collection_options or {}),
            dict(vector_options or {}),
            search_params,
        )
        self._connection = Connection("GeARVectorStore", client, aclient, url, api_key, embed_model)
        self._locks = locks = PassageLocks.of(self._connection.engine, collection_name)
        self._collections.clear_count = lambda: locks.clear_count  # not `self`: in a cycle the store would close late
        self._belong_to(Tenancy(tenant_field, None))

    def _belong_to(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        self._reads = StoreReads(self._collections, TripleReads(self._collections))
        self._writes = StoreWrites(
            self._collections, self._reads, tenancy, self._locks, self.batch_size, self.show_progress
        )
        self._deletes = StoreDeletes(self._collections, tenancy, self._locks)
        self._checks = StoreChecks(self._collections, self._reads, self._writes, self._deletes, self.show_progress)

    def for_tenant(self, tenant: str) -> GeARVectorStore:
        """This store, bound to one tenant: whatever it is asked, by whomever, it sees and changes only that one's.

        Give it to pipelines, indexes, retrievers and engines in the store's place. Nodes that it adds get the tenant in
        their metadata, hidden from models. It shares the clients of the store: close that one.

        Args:
            tenant: its name, as in the metadata.

        Raises:
            ArgumentError: the store has no `tenant_field`, or the name is empty or no text.

        """
        check_kind(str, hint="write the tenant's name", tenant=tenant)
        bound = self.model_copy()
        bound._belong_to(Tenancy(self._tenancy.field, tenant))
        return bound

    def scope_filters(self, filters: MetadataFilters | None) -> MetadataFilters | None:
        """What filters bind, all in all: these and the tenant's; None if nothing does.

        Raises:
            TenantError: the store is divided between tenants, and neither it nor the filters name one.

        """
        return self._tenancy.scope_filters(filters)

    @classmethod
    def from_path(cls, path: str | Path, **arguments: Any) -> GeARVectorStore:
        """An embedded store in the folder `path`: Qdrant Edge in this process, one process at a time.

        Close it after use, or write `with GeARVectorStore.from_path(…) as store:`. It also closes when the last
        reference to it goes. The folder must be writable, even to be read. 128 MiB of its disk must be free, besides
        what is written. Nothing in it that the engine did not make is removed.

        Args:
            path: the folder; made when the first node is added.
            **arguments: those of the constructor, without the clients.

        Raises:
            StoreError: (from any call) the folder holds something else in a collection's place, or one that is damaged;
                it was moved or deleted while the store was open; it is read-only; or the disk has too little room.
            StoreLockedError: (from any call) another process has it open, or had when it forked this one.

        """
        return cls(client=embedded_client(path, arguments), **arguments)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the store."""
        return "GeARVectorStore"

    @property
    def client(self) -> Any:
        """The Qdrant client, for what this class doesn't offer."""
        return self._connection.client

    @property
    def triple_collection_name(self) -> str:
        """Name of the triples' collection."""
        return self._collections.triples

    @property
    def embed_model(self) -> BaseEmbedding:
        """The model that embeds triples and queries."""
        return self._connection.embed_model

    def close(self) -> None:
        """Write out and release an embedded store; a server's client is closed, and both if the store made them."""
        self._connection.close()

    async def aclose(self) -> None:
        """`close`, and the async client besides."""
        await self._connection.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    # -- LlamaIndex's vector store interface ---------------------------------------------------------------------

    def add(
        self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode] = (), **kwargs: Any
    ) -> list[str]:
        """Store passages with their triples; those whose id is known are replaced, triples included.

        Args:
            nodes: passages with embeddings (the ingestion pipeline sees to that).
            if_unchanged_since: what `get_nodes` gave, if these come of it: a passage that was edited or deleted since
                then is left as it is now. Default: all are written.
            **kwargs: ignored, as LlamaIndex passes some.

        Returns:
            The ids of the nodes that were written.

        Raises:
            EmbeddingError: before anything is written, if an embedding is missing or of another dimension.
            ArgumentError: before anything is written, if an engine could not read a passage back: metadata that nests
                some 100 levels deep, integers beyond 64 bits, NaN, keys that are no text, half characters.

        """
        return run(self._writes.add_flow(nodes, if_unchanged_since), self._connection.answer)

    async def async_add(
        self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode] = (), **kwargs: Any
    ) -> list[str]:
        """`add`, without blocking the event loop."""
        return await arun(self._writes.add_flow(nodes, if_unchanged_since), self._connection.aanswer)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all passages of a document, and their triples."""
        run(self._deletes.delete_document_flow(ref_doc_id), self._connection.answer)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """`delete`, without blocking the event loop."""
        await arun(self._deletes.delete_document_flow(ref_doc_id), self._connection.aanswer)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the passages that have one of these ids and match the filters, and their triples.

        Raises:
            ArgumentError: neither ids nor filters are given (that would be everything: call `clear`).

        """
        run(self._deletes.delete_nodes_flow(node_ids, filters), self._connection.answer)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """`delete_nodes`, without blocking the event loop."""
        await arun(self._deletes.delete_nodes_flow(node_ids, filters), self._connection.aanswer)

    def clear(self) -> None:
        """Delete both collections, all tenants' passages in them; of a tenant's store, that tenant's alone."""
        run(self._deletes.clear_flow(), self._connection.answer)

    async def aclear(self) -> None:
        """`clear`, without blocking the event loop."""
        await arun(self._deletes.clear_flow(), self._connection.aanswer)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """The passages that have one of these ids (default: any) and match the filters, with their embeddings.

        Args:
            node_ids: the result is in this order; unknown ids are left out.
            filters: LlamaIndex's, all operators. A key names the field of that very name and the nested path alike.
            limit: at most so many. Default: all.

        """
        return run(self._reads.get_flow(node_ids, self.scope_filters(filters), limit), self._connection.answer)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """`get_nodes`, without blocking the event loop."""
        return await arun(self._reads.get_flow(node_ids, self.scope_filters(filters), limit), self._connection.aanswer)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Dense (DEFAULT), BM25 (SPARSE) or both fused (HYBRID, reciprocal rank fusion) search over passages.

        Similarities are cosines, BM25 scores, or fused scores. `alpha` (HYBRID) weighs dense against sparse, from 0
        to 1, default equal; `sparse_top_k` and `hybrid_top_k` default to `similarity_top_k`.

        Args:
            query: LlamaIndex's query.
            **kwargs: `qdrant_filters`, a Qdrant filter that binds besides `query.filters`.

        Raises:
            ArgumentError: another mode, a number outside its range (a top-k is 1 to 1,000,000), a question of more than
                100,000 characters, or another keyword.
            EmbeddingError: `query_embedding` is no list of finite numbers, or of another dimension.

        """
        return run(self._query_flow(query, kwargs), self._connection.answer)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query`, without blocking the event loop."""
        return await arun(self._query_flow(query, kwargs), self._connection.aanswer)

    def _query_flow(self, query: VectorStoreQuery, options: dict[str, Any]) -> Flow[VectorStoreQueryResult]:
        hint = "write VectorStoreQuery(query_str=…), or ask an index's retriever"
        check_kind(VectorStoreQuery, hint=hint, query=query)
        return self._reads.query_flow(replace(query, filters=self.scope_filters(query.filters)), native_filter(options))

    # -- looking after it ----------------------------------------------------------------------------------------

    def check(self, sample_size: int = SAMPLE) -> StoreReport:
        """Look for what killed calls, other programs or another embedding model left behind; changes nothing.

        Reads every passage once, and every triple. Nothing else should write meanwhile.

        Args:
            sample_size: passages, and triples, that are embedded again to see whether `embed_model` made the stored
                vectors. Default 16; with 0 nothing is embedded.

        Returns:
            What is there and what is wrong; `report.ok` says whether all is well, `print(report)` the rest.

        """
        self._tenancy.require_unscoped("check")
        return run(self._checks.check_flow(sample_size), self._connection.answer)

    async def acheck(self, sample_size: int = SAMPLE) -> StoreReport:
        """`check`, without blocking the event loop."""
        self._tenancy.require_unscoped("check")
        return await arun(self._checks.check_flow(sample_size), self._connection.aanswer)

    def repair(self, *, reembed: bool = False) -> StoreReport:
        """Mend what `check` finds: missing triples come, outdated ones and those of passages that are gone go.

        Safe to repeat after a kill. Nothing else should write meanwhile.

        Args:
            reembed: make all embeddings again, by the store's `embed_model`. Default False: only missing triples are
                embedded.

        Returns:
            What `check` says afterwards.

        Raises:
            EmbeddingError: before anything is written, if another model made the stored vectors and `reembed` is False;
                or if `embed_model` has another dimension than the collections.

        """
        self._tenancy.require_unscoped("repair")
        return run(self._checks.repair_flow(reembed), self._connection.answer)

    async def arepair(self, *, reembed: bool = False) -> StoreReport:
        """`repair`, without blocking the event loop."""
        self._tenancy.require_unscoped("repair")
        return await arun(self._checks.repair_flow(reembed), self._connection.aanswer)

    @contextmanager
    def bulk_load(self) -> Iterator[None]:
        """While the block runs, a server builds no vector index; at its end it builds it once, in the background.

        For a first load of very many passages: `with store.bulk_load(): pipeline.run(…)`. Queries meanwhile are exact
        and slow. The embedded engine builds none in any case. If the process dies in the block, enter and leave it once
        more.
        """
        try:
            run(self._set_loading_flow(True), self._connection.answer)
            yield
        finally:
            run(self._set_loading_flow(False), self._connection.answer)

    @asynccontextmanager
    async def abulk_load(self) -> AsyncIterator[None]:
        """`bulk_load`, for `async with`."""
        try:
            await arun(self._set_loading_flow(True), self._connection.aanswer)
            yield
        finally:
            await arun(self._set_loading_flow(False), self._connection.aanswer)

    def _set_loading_flow(self, is_loading: bool) -> Flow[None]:
        if not isinstance(self.client, EdgeClient):
            yield from self._collections.set_loading_flow(is_loading)

    def copy_to(self, target: GeARVectorStore, *, filters: MetadataFilters | None = None) -> int:
        """Copy passages and triples into another store as they are, vectors included: nothing is embedded or extracted.

        From an embedded store to a server, for one: `store.copy_to(GeARVectorStore(url=…))`. A passage
        that both have is replaced, triples included; what else the target has stays. Safe to repeat after a kill.
        `show_progress` of this store shows a bar.

        Args:
            target: a store of the same language and average passage length; its collections are made if missing.
            filters: only the passages that match, with their triples. Default: all; of a tenant's store, that tenant's.

        Returns:
            How many passages were copied.

        Raises:
            ArgumentError: the target reads words otherwise, has another `tenant_field`, or is this store.
            TenantError: another tenant has a passage of the same id there; or the target is bound to one.
            EmbeddingError: the target has vectors of another dimension.

        """
        _check_target(target)
        answer = [side._connection.answer for side in (self, target)]
        return run(self._copy_flow(target, filters), lambda sent: answer[sent.to_target](sent.request))

    async def acopy_to(self, target: GeARVectorStore, *, filters: MetadataFilters | None = None) -> int:
        """`copy_to`, without blocking the event loop."""
        _check_target(target)
        answer = [side._connection.aanswer for side in (self, target)]
        return await arun(self._copy_flow(target, filters), lambda sent: answer[sent.to_target](sent.request))

    def _copy_flow(self, target: GeARVectorStore, filters: MetadataFilters | None) -> Flow[int]:
        check_alike(self, target)
        target._tenancy.require_unscoped("copy_to")
        if self._tenancy.tenant is not None:  # the whole store's: all tenants
            filters = self.scope_filters(filters)
        return copy_flow(self._writes, target._writes, filters, self.show_progress)

    # -- the graph side: requests of `flow` ------------------------------------------------------------------

    def answer(self, request: Request[Answer], filters: MetadataFilters | None = None) -> Answer:
        """Answer one of the `requests` for triples, passages, embeddings or computing.

        Args:
            request: `LinkTriples`, `SearchTriples`, `PassageTriples`, `NeighborTriples`, `IncidentTriples`,
                `FetchTriples`, `ChainSimilarities`, `FetchPassages`, `ExtractionCallIds`, `AlignPassages`,
                `EmbedQuery`, `EmbedTexts` or `RunFunction`; its docstring says what the answer is.
            filters: bind what is returned, triples by the metadata of their passage.

        Raises:
            StoreError: the request is none of these.

        """
        return run(self._answer_flow(request, filters), self._connection.answer)  # type: ignore[no-any-return]

    async def aanswer(self, request: Request[Answer], filters: MetadataFilters | None = None) -> Answer:
        """`answer`, without blocking the event loop."""
        return await arun(self._answer_flow(request, filters), self._connection.aanswer)

    def _answer_flow(self, request: Request[Any], filters: MetadataFilters | None) -> Flow[Any]:
        if isinstance(request, EmbedQuery | EmbedTexts | RunFunction):
            return ask(request)
        reads, triples, filters = self._reads, self._reads.triples, self.scope_filters(filters)
        if isinstance(request, FetchTriples | ChainSimilarities) and not self._tenancy.field:
            filters = None  # it let these triples through before; tenants don't rely on that
        flows: dict[type, Callable[[Any, MetadataFilters | None], Flow[Any]]] = {
            LinkTriples: triples.link_flow,
            SearchTriples: triples.search_flow,
            PassageTriples: triples.passage_triples_flow,
            NeighborTriples: triples.neighbors_flow,
            IncidentTriples: triples.incident_flow,
            FetchTriples: triples.fetch_flow,
            ChainSimilarities: triples.similarities_flow,
            FetchPassages: reads.fetch_flow,
            ExtractionCallIds: reads.call_ids_flow,
            AlignPassages: reads.align_flow,
        }
        if type(request) not in flows:
            raise StoreError(f"the store has no answer to {type(request).__name__}")
        return flows[type(request)](request, filters)


def _check_target(target: Any) -> None:
    check_kind(GeARVectorStore, hint="write GeARVectorStore(url=…), or from_path(folder)", target=target)
