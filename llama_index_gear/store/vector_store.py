"""Passages and triples in two Qdrant collections that change together, as one LlamaIndex vector store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
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
from llama_index_gear.flow import Flow, RunFunction, arun, ask, run
from llama_index_gear.resources import BoundToProcess, ClosedByWith
from llama_index_gear.store.aliases import AliasPair, StoreAliases
from llama_index_gear.store.average_length import AverageLength
from llama_index_gear.store.bm25 import LEAST_AVG_LEN, TRIPLE_AVG_LEN, make_encoder
from llama_index_gear.store.collections import Collections, NamedCollection
from llama_index_gear.store.connection import NAME_FIRST, Connection, Consistency, make_embedded_client
from llama_index_gear.store.copy import check_apart_flow, check_compatible, copy_flow, copy_links_flow
from llama_index_gear.store.deletes import StoreDeletes
from llama_index_gear.store.embedded.client import EdgeClient, compact
from llama_index_gear.store.locks import PassageLocks
from llama_index_gear.store.maintenance import SAMPLE, StoreChecks, StoreReport
from llama_index_gear.store.neighborhood import MAX_TRIPLES, GraphPages
from llama_index_gear.store.passages import StoreReads, read_native_filter
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.side_by_side import SERVER_LIMIT
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.text_indexes import TextIndexes
from llama_index_gear.store.triple_vectors import TripleVectors
from llama_index_gear.store.unfinished import UnfinishedWrites
from llama_index_gear.store.vector_checks import TruncationCheck
from llama_index_gear.store.writes import StoreWrites


class GeARVectorStore(ClosedByWith, BoundToProcess, BasePydanticVectorStore):
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
            need it; `GraphRetriever` and `GeARRetriever` do not. It can be done later: `embed_stored_triples`. Where a
            store's triples have vectors, new ones get some whatever this says. Default False.
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
    def from_path(cls, path: str | Path, **arguments: Any) -> GeARVectorStore:
        """Make an embedded store in the folder `path`: Qdrant Edge in this process, one process at a time.

        Close it after use, or write `with GeARVectorStore.from_path(…) as store:`. It also closes when the last
        reference to it goes. The folder must be writable, even for reading. Its disk needs 128 MiB of free space,
        besides what is written. Files that the engine did not make are never removed.

        Args:
            path: the folder; made when the first node is added.
            **arguments: the constructor's arguments, without the clients.

        Raises:
            StoreError: (from any call) the folder holds something else in a collection's place, or a damaged
                collection; it was moved or deleted while the store was open; it is read-only; or its disk has too
                little space.
            StoreLockedError: (from any call) another process has the store open, or had it open when it forked this
                process.

        """
        return cls(client=make_embedded_client(path, arguments), **arguments)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the store."""
        return "GeARVectorStore"

    @property
    def client(self) -> Any:
        """The Qdrant client, for calls that this class does not offer."""
        return self._connection.client

    @property
    def triple_collection_name(self) -> str:
        """The name of the triples' collection."""
        return self._collections.triples

    @property
    def embed_model(self) -> BaseEmbedding:
        """The model that embeds triples and queries."""
        return self._connection.embed_model

    def close(self) -> None:
        """Write out and release an embedded store; close a server's client, or both clients if the store made them."""
        self._connection.close()
        self._locks.epoch += 1

    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""
        await self._connection.aclose()
        self._locks.epoch += 1

    # -- LlamaIndex's vector store interface ---------------------------------------------------------------------

    def add(
        self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode] = (), **kwargs: Any
    ) -> list[str]:
        """Store passages with their triples. A passage whose id is already stored is replaced, with its triples.

        If a model could not extract it (see `GeARTripleExtractor`), it keeps the triples that the store has of its
        text: they were paid for.

        It warns, once a store, if passages are longer than what a local model reads, `LightEmbedding`, say. On a server
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
        return run(self._writes.add_flow(nodes, if_unchanged_since), self._connection.answer)

    async def async_add(
        self, nodes: Sequence[BaseNode], *, if_unchanged_since: Sequence[BaseNode] = (), **kwargs: Any
    ) -> list[str]:
        """`add`, without blocking the event loop."""
        return await arun(self._writes.add_flow(nodes, if_unchanged_since), self._connection.aanswer)

    def embed_stored_triples(self) -> int:
        """Embed the triples that were stored without vectors; from then on new ones get vectors too.

        Other calls may read and write meanwhile. After a kill, repeat it: it goes on with those that lack a vector.
        `show_progress` of the store shows a bar.

        Returns:
            The number of triples that were embedded.

        """
        self._tenancy.require_unscoped("embed_stored_triples")
        return run(self._vectors.embed_flow(), self._connection.answer)

    async def aembed_stored_triples(self) -> int:
        """`embed_stored_triples`, without blocking the event loop."""
        self._tenancy.require_unscoped("embed_stored_triples")
        return await arun(self._vectors.embed_flow(), self._connection.aanswer)

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
            ArgumentError: neither ids nor filters are given (that would delete everything: call `clear`).

        """
        run(self._delete_nodes_flow(node_ids, filters), self._connection.answer)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """`delete_nodes`, without blocking the event loop."""
        await arun(self._delete_nodes_flow(node_ids, filters), self._connection.aanswer)

    def _delete_nodes_flow(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> Flow[None]:
        yield from self._text_indexes.check_flow(filters)
        yield from self._deletes.delete_nodes_flow(node_ids, filters)

    def clear(self) -> None:
        """Delete both collections, with all tenants' passages; a tenant's store deletes only that tenant's."""
        run(self._deletes.clear_flow(), self._connection.answer)

    async def aclear(self) -> None:
        """`clear`, without blocking the event loop."""
        await arun(self._deletes.clear_flow(), self._connection.aanswer)

    def get_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        limit: int | None = None,
        *,
        with_embeddings: bool = True,
    ) -> list[BaseNode]:
        """Return the passages that have one of these ids (default: any) and match the filters.

        Args:
            node_ids: ids of passages; the result has their order. Unknown ids are left out.
            filters: LlamaIndex's filters, with all operators. A key stands both for the field of that exact name and
                for the nested path.
            limit: maximum number of passages. Default: all.
            with_embeddings: read their embeddings too, most of a passage's memory. Default True.

        """
        flow = self._get_nodes_flow(node_ids, filters, limit, with_embeddings)
        return run(flow, self._connection.answer)

    async def aget_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        limit: int | None = None,
        *,
        with_embeddings: bool = True,
    ) -> list[BaseNode]:
        """`get_nodes`, without blocking the event loop."""
        flow = self._get_nodes_flow(node_ids, filters, limit, with_embeddings)
        return await arun(flow, self._connection.aanswer)

    def _get_nodes_flow(
        self, node_ids: list[str] | None, filters: MetadataFilters | None, limit: int | None, with_embeddings: bool
    ) -> Flow[list[BaseNode]]:
        return self._reads(filters).get_flow(node_ids, limit, with_embeddings)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
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
        return run(self._query_flow(query, kwargs), self._connection.answer)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query`, without blocking the event loop."""
        return await arun(self._query_flow(query, kwargs), self._connection.aanswer)

    def _query_flow(self, query: VectorStoreQuery, options: dict[str, Any]) -> Flow[VectorStoreQueryResult]:
        hint = "write VectorStoreQuery(query_str=…), or ask an index's retriever"
        check_kind(VectorStoreQuery, hint=hint, query=query)
        return self._reads(query.filters).query_flow(query, read_native_filter(options))

    # -- names that mean the same --------------------------------------------------------------------------------

    def find_aliases(self) -> list[AliasPair]:
        """Find names that may mean the same: "U.S." and "United States". Nothing is changed.

        Names are compared by form: spelling, initials, titles, legal forms, first and middle names. A form that can be
        wrong is sure only with evidence: facts that both names share, or embeddings that are near. An alias that could
        mean two names is not sure. A fact "X is also known as Y" is believed.

        The call reads every triple, and holds every name in memory. A store with a `tenant_field` is asked through
        `for_tenant(…)`.

        Returns:
            The pairs that are not linked yet, sure ones first, each with its `reason`.

        """
        return run(self._aliases.find_flow(), self._connection.answer)

    async def afind_aliases(self) -> list[AliasPair]:
        """`find_aliases`, without blocking the event loop."""
        return await arun(self._aliases.find_flow(), self._connection.aanswer)

    def link_aliases(self, pairs: Sequence[AliasPair | tuple[str, str]] | None = None) -> list[AliasPair]:
        """Link names that mean the same, so that walks go from the triples of one to those of the other.

        Triples stay as they were extracted: links stand beside them. Triples that are added later get the links of
        their names. Links are not transitive. Filters and tenants bind them as they bind triples. A link ends when all
        triples of one of its names are deleted; `repair` removes what is left of it.

        Args:
            pairs: pairs of names, of your own or from `find_aliases`. Default: those that are sure.

        Returns:
            The pairs that were linked. Those that were before, those one of whose names is in no triple, and those
            whose names stand together in each of their triples, are left out.

        Raises:
            ArgumentError: before anything is written, if a pair is none, if its names are one entity already, or if one
                holds half a character.

        """
        return run(self._aliases.link_flow(pairs), self._connection.answer)

    async def alink_aliases(self, pairs: Sequence[AliasPair | tuple[str, str]] | None = None) -> list[AliasPair]:
        """`link_aliases`, without blocking the event loop."""
        return await arun(self._aliases.link_flow(pairs), self._connection.aanswer)

    def list_aliases(self) -> list[AliasPair]:
        """List the pairs of names that are linked."""
        return run(self._aliases.list_flow(), self._connection.answer)

    async def alist_aliases(self) -> list[AliasPair]:
        """`list_aliases`, without blocking the event loop."""
        return await arun(self._aliases.list_flow(), self._connection.aanswer)

    def unlink_aliases(self, pairs: Sequence[AliasPair | tuple[str, str]] | None = None) -> list[AliasPair]:
        """Undo links. Payloads that have no link left are as they were before.

        Args:
            pairs: the pairs to unlink. Default: all that are linked.

        Returns:
            The pairs that were unlinked.

        Raises:
            ArgumentError: before anything is written, if a pair is none; see `link_aliases`.

        """
        return run(self._aliases.unlink_flow(pairs), self._connection.answer)

    async def aunlink_aliases(self, pairs: Sequence[AliasPair | tuple[str, str]] | None = None) -> list[AliasPair]:
        """`unlink_aliases`, without blocking the event loop."""
        return await arun(self._aliases.unlink_flow(pairs), self._connection.aanswer)

    def to_html(
        self, path: str | Path, entity: str, *, filters: MetadataFilters | None = None, max_triples: int = MAX_TRIPLES
    ) -> Path:
        """Write a page of the graph around an entity, which needs no network: walk it by clicks, search it by name.

        Args:
            path: the file; an existing one is replaced.
            entity: its name. Case and punctuation don't matter.
            filters: conditions on the passages whose triples are shown. Default: none.
            max_triples: highest number of triples on the page; with them come their passages. They are read ring by
                ring around the entity. Where a ring's triples have no room, each of its names gets the same share, and
                what a name leaves of it goes to farther rings. Default 300.

        Returns:
            The file.

        Raises:
            ArgumentError: no triple names the entity. The message suggests names like it.

        """
        flow = GraphPages(self._reads(filters)).write_flow(path, entity, max_triples)
        return run(flow, self._connection.answer)

    async def ato_html(
        self, path: str | Path, entity: str, *, filters: MetadataFilters | None = None, max_triples: int = MAX_TRIPLES
    ) -> Path:
        """`to_html`, without blocking the event loop."""
        flow = GraphPages(self._reads(filters)).write_flow(path, entity, max_triples)
        return await arun(flow, self._connection.aanswer)

    # -- looking after it ----------------------------------------------------------------------------------------

    def check(self, sample_size: int = SAMPLE) -> StoreReport:
        """Look for what killed calls, other programs or another embedding model left behind. Nothing is changed.

        The call reads every passage and every triple once, and looks at all that searches rely on: fields, links,
        indexes, and that no vector is missing: of a triple its BM25 weights, and where triples are embedded, its
        embedding too. What is in the vectors is compared for a sample. Nothing else should write meanwhile.

        Args:
            sample_size: number of passages, and of triples, that are embedded again, to compare their stored vectors
                with those of `embed_model`; where texts are short, up to 16 times as many. BM25 weights are compared
                too. Default 16; with 0 nothing is compared.

        Returns:
            The counts and the faults. `report.ok` is True if there are none; `print(report)` lists them.

        """
        self._tenancy.require_unscoped("check")
        return run(self._checks.check_flow(sample_size), self._connection.answer)

    async def acheck(self, sample_size: int = SAMPLE) -> StoreReport:
        """`check`, without blocking the event loop."""
        self._tenancy.require_unscoped("check")
        return await arun(self._checks.check_flow(sample_size), self._connection.aanswer)

    def finish_writes(self) -> None:
        """Finish or undo what calls that ended early left in the store.

        Afterwards each triple is one that its passage states. On a store that is in order it costs one query.
        """
        run(self._unfinished.finish_flow(), self._connection.answer)

    async def afinish_writes(self) -> None:
        """`finish_writes`, without blocking the event loop."""
        await arun(self._unfinished.finish_flow(), self._connection.aanswer)

    def repair(self, *, reembed: bool = False) -> StoreReport:
        """Repair what `check` finds: add missing triples; delete outdated ones, and those of deleted passages.

        Fields follow the passage's own text and metadata. Embeddings and BM25 weights that are missing are made, and
        those of another text or average length are made anew. What the report still names can't be mended.

        An embedded store is written anew if more than half of its folder is of what was replaced or deleted: only so
        does the folder shrink. That takes about as long as loading it did, and room for a second copy on the disk.

        Repeating it after a kill is safe. Nothing else should write meanwhile.

        Args:
            reembed: make all embeddings again, with the store's `embed_model`. Default False: only missing triples
                are embedded, where the store's triples are.

        Returns:
            The report of a `check` afterwards.

        Raises:
            EmbeddingError: before anything is written, if another model made the stored vectors and `reembed` is False;
                or if `embed_model` has another dimension than the collections.

        """
        self._tenancy.require_unscoped("repair")
        return run(self._repair_flow(reembed), self._connection.answer)

    async def arepair(self, *, reembed: bool = False) -> StoreReport:
        """`repair`, without blocking the event loop."""
        self._tenancy.require_unscoped("repair")
        return await arun(self._repair_flow(reembed), self._connection.aanswer)

    def _repair_flow(self, reembed: bool) -> Flow[StoreReport]:
        report = yield from self._checks.repair_flow(reembed)
        if isinstance(self.client, EdgeClient):
            for name in (self.collection_name, self.triple_collection_name):
                yield from ask(RunFunction(partial(compact, self.client, name)))
        return report

    @contextmanager
    def bulk_load(self) -> Iterator[None]:
        """Let a server build no vector index within the block; it is built once, afterwards, in the background.

        For the first load of very many passages: `with store.bulk_load(): pipeline.run(…)`. Queries within the block
        are exact and slow. The embedded engine builds no vector index in any case. If the process dies within the
        block, enter and leave it once more.
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

    def _needs_loading_flow(self) -> Flow[bool]:
        if isinstance(self.client, EdgeClient):
            return False
        return (yield from self._collections.needs_loading_flow())

    def copy_to(self, target: GeARVectorStore, *, filters: MetadataFilters | None = None) -> int:
        """Copy passages and triples into another store as they are, with vectors: nothing is embedded or extracted.

        Use it, for example, to move from an embedded store to a server: `store.copy_to(GeARVectorStore(url=…))`. A
        passage that both stores have is replaced in the target, with its triples. The target keeps everything else.
        Links of aliases are copied too; of two names that this store has and does not link, a link ends in the target.
        Repeating it after a kill is safe. `show_progress` of this store shows a bar. A server's collections that the
        copy makes get their vector index at its end, as after `bulk_load`. Where this store's triples have no vectors,
        those of the copies are for the target's `embed_stored_triples` to make.

        Args:
            target: a store with the same `language`. Its missing collections are created. Words of the copied passages
                are weighed with its average length (`bm25_avg_len`), if it has one; otherwise it takes this store's.
            filters: copy only the passages that match, with their triples. Default: all passages; of a tenant's store,
                that tenant's.

        Returns:
            The number of passages that were copied.

        Raises:
            ArgumentError: the target has another `language` or `tenant_field`, or is this store, by whatever name.
            TenantError: another tenant of the target has a passage with the same id, or the target is bound to a
                tenant.
            EmbeddingError: the target has vectors of another dimension.

        """
        self._check_copy(target)
        run(self._check_apart_flow(target), self._connection.answer)
        with target.bulk_load() if run(target._needs_loading_flow(), target._connection.answer) else nullcontext():
            return run(self._copy_flow(target, filters), self._connection.answer)

    async def acopy_to(self, target: GeARVectorStore, *, filters: MetadataFilters | None = None) -> int:
        """`copy_to`, without blocking the event loop."""
        self._check_copy(target)
        await arun(self._check_apart_flow(target), self._connection.aanswer)
        needs_loading = await arun(target._needs_loading_flow(), target._connection.aanswer)
        async with target.abulk_load() if needs_loading else nullcontext():
            return await arun(self._copy_flow(target, filters), self._connection.aanswer)

    def _check_copy(self, target: GeARVectorStore) -> None:
        check_compatible(self, target)
        target._tenancy.require_unscoped("copy_to")

    def _check_apart_flow(self, target: GeARVectorStore) -> Flow[None]:
        own, other = self._connection, target._connection
        if own.engine == other.engine or own.place == other.place != "memory":
            yield from check_apart_flow(self._collections, target._collections, other)

    def _copy_flow(self, target: GeARVectorStore, filters: MetadataFilters | None) -> Flow[int]:
        if self._tenancy.tenant is not None:  # the whole store copies all tenants
            filters = self._tenancy.scope_filters(filters)
        at_target = target._connection
        yield from self._text_indexes.check_flow(filters)
        yield from at_target.route_flow(target._unfinished.finish_flow())
        copied = yield from copy_flow(self._writes, target._writes, at_target, filters, self.show_progress)
        yield from copy_links_flow(self._aliases, target._aliases, at_target)
        return copied

    # -- the flows that other rooms go on into: see `access` --------------------------------------------------------

    def _reads(self, filters: MetadataFilters | None = None, *, all_tenants: bool = False) -> StoreReads:
        scope = self._tenancy.own_filters if all_tenants else self._tenancy.scope_filters(filters)
        # What was found under the filters matches them; a tenant's triples are compared once more.
        return StoreReads(self._collections, scope, self._text_indexes, are_known=not self._tenancy.field)
