"""Passages and triples in two Qdrant collections that change together, as one LlamaIndex vector store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

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

from llama_index_gear.errors import ArgumentError, check_counts, check_kind
from llama_index_gear.flow import Flow, arun, blocking, unblocked
from llama_index_gear.store.aliases import StoreAliases
from llama_index_gear.store.average_length import AverageLength
from llama_index_gear.store.bm25 import LEAST_AVG_LEN, TRIPLE_AVG_LEN, make_encoder
from llama_index_gear.store.check_and_repair import StoreChecks
from llama_index_gear.store.collections import Collections, NamedCollection
from llama_index_gear.store.connection import NAME_FIRST, Connection, Consistency
from llama_index_gear.store.deletes import StoreDeletes, UnfinishedWrites
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.locks import PassageLocks
from llama_index_gear.store.passages import StoreReads, read_native_filter
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.side_by_side import SERVER_LIMIT
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.text_indexes import TextIndexes
from llama_index_gear.store.triple_vectors import TripleVectors
from llama_index_gear.store.upkeep import StoreUpkeep
from llama_index_gear.store.vector_checks import TruncationCheck
from llama_index_gear.store.writes import StoreWrites


class GeARVectorStore(StoreUpkeep, BasePydanticVectorStore):
    """Passages and triples in Qdrant, as one LlamaIndex vector store (design: GeAR §3's two aligned indexes).

    Use it wherever LlamaIndex takes a vector store: `IngestionPipeline(vector_store=…)`, `VectorStoreIndex`,
    `StorageContext`. Adding a node also adds the triples that it carries (see `GeARTripleExtractor`). Replacing or
    deleting a node removes its triples.

    - Collection `<collection_name>`: passages, in the layout of LlamaIndex's `QdrantVectorStore`, which can open it.
    - Collection `<collection_name>_triples`: one point a triple, with `passage_id`, `doc_id`, `subject`, `predicate`,
      `object`, `entities` (the two entity keys, then those of linked aliases), `aliases` (the links, if there are some)
      and, under `metadata`, the passage's metadata, so that filters apply to triples as they do to passages.

    A passage has a dense vector and a BM25 sparse vector; a triple the latter, and with `embed_triples` the former too.
    `add` writes the new triples, then the passages, then removes outdated triples. So a stored passage has all its
    triples, and repeating a call that was killed repairs what it left behind. Nothing is opened or created before the
    first call.

    Args:
        collection_name: name of the passages' collection. Default "gear".
        client: a `QdrantClient` (a server, a cluster, `":memory:"`); for an embedded store use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address, "http://localhost:6333", in place of clients: the store makes both and closes them.
        api_key: the server's API key, for use with `url`. Default: none.
        embed_model: the model that embeds queries given as text, and triples. It must be the model that embeds the
            passages. Default: LlamaIndex's `Settings.embed_model`, looked up when first needed.
        embed_triples: give each triple a vector too. It takes two to four times as long as to embed the passages, and
            `NaiveGERetriever`, `SyncGERetriever`, `PaperGeARRetriever`, `T2RAGRetriever` and `DiverseTripleBeamSearch`
            need it; `GraphRetriever` and `GeARRetriever` do not. It can be done later: `embed_stored_triples`. If
            stored triples have vectors, new ones get them too. Default False.
        batch_size: passages a write. Default 64.
        language: of the BM25 stemmer and stop words, as Qdrant names it. Default "english".
        tenant_field: metadata field that names a passage's tenant, if several tenants share the store. Then every read,
            replacement and deletion needs a tenant: use `for_tenant(…)`, or pass filters that name one. Only `check`,
            `repair`, `embed_stored_triples`, `copy_to`, `bulk_load` and `clear` concern all tenants. Default: no
            tenants.
        collection_settings: how the collections are made, searched and written, mostly on a server. Default
            `CollectionSettings()`.
        show_progress: show a progress bar while adding. Default False.

    Raises:
        ArgumentError: neither a client nor a url is given, or both are, or an argument has the wrong type.
        StoreUnavailable: (from any call) the server is away, and was waited for. The call can be repeated.
        StoreLockedError: (from any call) another process has the embedded store open, and was waited for.
        EmbeddingError: (from `add` and queries) an embedding is missing or has another dimension than the collection.
        UnsupportedFilter: (from any call with filters) a filter has no condition, or Qdrant cannot express it, or a
            server has no text index for TEXT_MATCH.
        TenantError: (from any call but those about all tenants) there is a `tenant_field`, and the call names no tenant
            or concerns another tenant's passages.

    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    collection_name: str
    batch_size: int
    language: str
    bm25_avg_len: float | None
    show_progress: bool

    _collections: Collections = PrivateAttr()
    _writes: StoreWrites = PrivateAttr()
    _deletes: StoreDeletes = PrivateAttr()
    _aliases: StoreAliases = PrivateAttr()
    _unfinished: UnfinishedWrites = PrivateAttr()
    _vectors: TripleVectors = PrivateAttr()
    _checks: StoreChecks = PrivateAttr()
    _tenancy: Tenancy = PrivateAttr()
    _connection: Connection = PrivateAttr()
    _locks: PassageLocks = PrivateAttr()
    _truncation: TruncationCheck = PrivateAttr()
    _text_indexes: TextIndexes = PrivateAttr()

    def __init__(
        self,
        collection_name: str = "gear",
        client: QdrantClient | EdgeClient | None = None,
        aclient: AsyncQdrantClient | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        embed_model: BaseEmbedding | None = None,
        embed_triples: bool = False,
        batch_size: int = 64,
        language: str = "english",
        tenant_field: str | None = None,
        collection_settings: CollectionSettings | None = None,
        show_progress: bool = False,
    ) -> None:
        check_kind(str, hint=NAME_FIRST, collection_name=collection_name)
        check_counts(batch_size=batch_size)
        check_kind(bool, embed_triples=embed_triples)
        settings = CollectionSettings() if collection_settings is None else collection_settings
        bm25 = make_encoder(language, LEAST_AVG_LEN if settings.bm25_avg_len is None else settings.bm25_avg_len)
        triple_bm25 = make_encoder(language, TRIPLE_AVG_LEN)
        super().__init__(  # type: ignore[call-arg]  # the fields below; pydantic's plugin is not at work
            collection_name=collection_name,
            batch_size=batch_size,
            language=language,
            bm25_avg_len=settings.bm25_avg_len,
            show_progress=show_progress,
        )
        if collection_name.endswith("_triples"):
            raise ArgumentError(f"collection_name {collection_name!r} could be the triples' of another store")
        self._collections = Collections(
            collection_name,
            f"{collection_name}_triples",
            bm25,
            triple_bm25,
            list(settings.payload_indexes),
            dict(settings.collection_options),
            dict(settings.vector_options),
            settings.search_params,
            place=str(client.path) if isinstance(client, EdgeClient) else "",
            wants_vectors=embed_triples,
        )
        has_replicas = not isinstance(client, EdgeClient)
        consistency = Consistency.read(settings.write_ordering, settings.read_consistency, has_replicas=has_replicas)
        self._connection = Connection(
            "GeARVectorStore", client, aclient, url, api_key, embed_model, settings.retry_seconds, consistency
        )
        self._locks = locks = PassageLocks.for_collection(
            self._connection.engine, collection_name, is_alone=not self._connection.is_server
        )
        self._collections.get_epoch = lambda: locks.epoch  # not `self`: in a cycle the store would close late
        self._truncation = TruncationCheck(self._connection.get_known_model)
        self._text_indexes = TextIndexes(self._collections, self._connection.is_server)
        self._bind_to(Tenancy(tenant_field, None))

    def _bind_to(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        average = AverageLength(self._collections, self.bm25_avg_len)
        parts = (self._collections, StoreReads(self._collections), tenancy, self._locks, average, self._truncation)
        limit = SERVER_LIMIT if self._connection.takes_several_calls else 1
        self._writes = StoreWrites(*parts, self.batch_size, limit, self.show_progress)
        self._deletes = StoreDeletes(self._collections, tenancy, self._locks)
        self._aliases = StoreAliases(self._collections, tenancy, self._locks)
        self._unfinished = UnfinishedWrites(self._collections, self._writes, self._deletes, tenancy, self._locks)
        self._vectors = TripleVectors(self._collections, self._locks, self.show_progress)
        self._checks = StoreChecks(
            self._collections,
            self._writes,
            self._deletes,
            self._aliases,
            self._unfinished,
            self.show_progress,
        )

    def for_tenant(self, tenant: str) -> GeARVectorStore:
        """Return this store, bound to one tenant: it reads and changes only that tenant's passages and triples.

        Give it to pipelines, indexes, retrievers and engines in place of the whole store. Nodes that it adds get the
        tenant in their metadata, hidden from models. It shares the clients of the whole store: close that one.

        Args:
            tenant: the tenant's name, as in the metadata.

        Raises:
            ArgumentError: the store has no `tenant_field`, or the name is empty or no text.

        """
        check_kind(str, hint="write the tenant's name", tenant=tenant)
        bound = self.model_copy()
        bound._bind_to(Tenancy(self._tenancy.field, tenant))
        return bound

    def _name_collections(self, found: Mapping[str, NamedCollection]) -> GeARVectorStore:
        names = (self.collection_name, self.triple_collection_name)
        passages, triples = (found[name].name if name in found else name for name in names)
        bound = self.model_copy(update={"collection_name": passages})
        bound._collections = replace(
            self._collections,
            passages=passages,
            triples=triples,
            requires_mark=True,
        )
        bound._bind_to(self._tenancy)
        return bound

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the store."""
        return "GeARVectorStore"

    def close(self) -> None:
        """Write out and release an embedded store; close a server's client, or both clients if the store made them."""
        super().close()
        self._locks.epoch += 1

    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""
        await super().aclose()
        self._locks.epoch += 1

    # -- LlamaIndex's vector store interface; mypy takes `self` of the async twins for LlamaIndex's class ---------

    @blocking
    def add(
        self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode] = (), **kwargs: Any
    ) -> Flow[list[str]]:
        """Store passages with their triples. A passage whose id is already stored is replaced, with its triples.

        If a model could not extract it (see `GeARTripleExtractor`), it keeps the triples that the store has of its
        text: they were paid for.

        It warns once per store if passages are longer than a local model reads (`LightEmbedding`). On a server
        up to four batches are under way at once.

        Args:
            nodes: passages with embeddings (an ingestion pipeline makes them).
            if_unchanged_since: the nodes that `get_nodes` returned, if `nodes` are made from them. A passage that was
                edited or deleted since then is left as it is now. Default: all nodes are written.
            **kwargs: ignored; LlamaIndex passes some.

        Returns:
            The ids of the nodes that were written.

        Raises:
            EmbeddingError: before anything is written, if an embedding is missing or has another dimension.
            ArgumentError: before anything is written, if an engine could not read a passage back: its metadata nests
                some 100 levels deep, or holds an integer beyond 64 bits, NaN, a key that is not text, or a lone
                surrogate.

        """
        return self._connection.write_flow(self._writes.add_flow(nodes, if_unchanged_since))

    async_add = unblocked(add)  # type: ignore[arg-type]

    @blocking
    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> Flow[None]:
        """Delete all passages of a document, and their triples."""
        return self._connection.write_flow(self._deletes.delete_document_flow(ref_doc_id))

    adelete = unblocked(delete)  # type: ignore[arg-type]

    @blocking
    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> Flow[None]:
        """Delete the passages that have one of these ids and match the filters, and their triples.

        Raises:
            ArgumentError: neither ids nor filters are given (that would delete everything: call `clear`).

        """
        yield from self._text_indexes.check_flow(filters)
        yield from self._connection.write_flow(self._deletes.delete_nodes_flow(node_ids, filters))

    adelete_nodes = unblocked(delete_nodes)  # type: ignore[arg-type]

    @blocking
    def clear(self) -> Flow[None]:
        """Delete both collections, with all tenants' passages; a tenant's store deletes only that tenant's."""
        return self._connection.write_flow(self._deletes.clear_flow())

    aclear = unblocked(clear)  # type: ignore[arg-type]

    @blocking
    def get_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        limit: int | None = None,
        *,
        with_embeddings: bool = True,
    ) -> Flow[list[BaseNode]]:
        """Return the passages that have one of these ids (default: any) and match the filters.

        Args:
            node_ids: ids of passages; the result has their order. Unknown ids are left out.
            filters: LlamaIndex's filters, with all operators. A key stands both for the field of that exact name and
                for the nested path.
            limit: maximum number of passages. Default: all.
            with_embeddings: read their embeddings too, most of a passage's memory. Default True.

        """
        return self._reads(filters).get_flow(node_ids, limit, with_embeddings)

    async def aget_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        limit: int | None = None,
        *,
        with_embeddings: bool = True,
    ) -> list[BaseNode]:
        """`get_nodes`, without blocking the event loop."""
        return await arun(self._reads(filters).get_flow(node_ids, limit, with_embeddings), self._aanswer)

    @blocking
    def query(self, query: VectorStoreQuery, **kwargs: Any) -> Flow[VectorStoreQueryResult]:
        """Search passages: dense (DEFAULT), BM25 (SPARSE), or both fused by reciprocal rank fusion (HYBRID).

        Similarities are cosines, BM25 scores or fused scores, by mode. `alpha` (HYBRID) weighs dense against sparse,
        from 0 to 1; by default both weigh the same. `sparse_top_k` and `hybrid_top_k` default to `similarity_top_k`.

        Args:
            query: LlamaIndex's query.
            **kwargs: `qdrant_filters`, a Qdrant filter that applies in addition to `query.filters`.

        Raises:
            ArgumentError: the mode is another one, a number is out of range (a top-k is 1 to 1,000,000), the question
                has more than 100,000 characters, or there is another keyword.
            EmbeddingError: `query_embedding` is not a list of finite numbers, or has another dimension.

        """
        hint = "write VectorStoreQuery(query_str=…), or ask an index's retriever"
        check_kind(VectorStoreQuery, hint=hint, query=query)
        return self._reads(query.filters).query_flow(query, read_native_filter(kwargs))

    aquery = unblocked(query)  # type: ignore[arg-type]
