"""Where passages and their triples live: two Qdrant collections that change together."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, ValidationError
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.settings import Settings
from llama_index.core.utils import get_tqdm_iterable
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.qdrant import QdrantVectorStore
from llama_index.vector_stores.qdrant.base import (
    DEFAULT_DENSE_VECTOR_NAME,
    DEFAULT_SPARSE_VECTOR_NAME,
    DOCUMENT_ID_KEY,
)
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models
from qdrant_client.local.qdrant_local import QdrantLocal
from qdrant_edge import Bm25, Bm25Config

from llama_index_gear.edge import EdgeClient
from llama_index_gear.errors import ArgumentError, EmbeddingError, StoreError, UnsupportedFilter
from llama_index_gear.fusion import reciprocal_rank_fusion
from llama_index_gear.nodes import EXTRACTION_KEY, TRIPLES_KEY, attach_triples, read_triples
from llama_index_gear.steps import (
    Call,
    EmbedQuery,
    EmbedTexts,
    Flow,
    Link,
    Neighbours,
    Passages,
    Similarities,
    TriplesOf,
    arun,
    run,
)
from llama_index_gear.triple import NAMESPACE, StoredTriple, Triple

_PAGE = 1000  # points a round trip, when all that match are wanted
_FACT = ["passage_id", "subject", "predicate", "object"]


class GeARVectorStore(BasePydanticVectorStore):
    """Passages and triples in Qdrant, as one LlamaIndex vector store (design: GeAR §3's two aligned indexes).

    Use it wherever LlamaIndex takes a vector store: `IngestionPipeline(vector_store=…)`, `VectorStoreIndex`,
    `StorageContext`. A node that carries triples (see `GeARTripleExtractor`) brings them along; a node that is
    replaced or deleted takes them away.

    - Collection `<collection_name>`: passages, in the layout of LlamaIndex's `QdrantVectorStore`, which can open it.
    - Collection `<collection_name>_triples`: one point a triple, with `passage_id`, `doc_id`, `subject`, `predicate`,
      `object`, `entities` (the two entity keys) and, under `metadata`, the passage's metadata, so that a filter binds
      triples as it binds passages.

    Both hold a dense vector and a BM25 sparse vector a point. `add` removes outdated triples, writes the new ones and
    then the passages: a passage that is there has all its triples, and a call that was killed is mended by repeating
    it. Nothing is opened or created before the first call.

    Args:
        client: a `QdrantClient` (a server, a cluster, `":memory:"`); for an embedded store use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        collection_name: name of the passages' collection. Default "gear".
        embed_model: embeds triples, and queries that come as text. Must be the one that embeds the passages.
            Default: LlamaIndex's `Settings.embed_model`, looked up when first needed.
        batch_size: passages a write. Default 64.
        language: of the BM25 stemmer and stop words, as Qdrant names it. Default "english".
        payload_indexes: metadata fields to index, as LlamaIndex's Qdrant store takes them:
            `[{"field_name": "year", "field_schema": PayloadSchemaType.INTEGER}]`. Filters work without, slower.
        show_progress: a progress bar while adding. Default False.

    Raises:
        StoreLockedError: (from any call) another process has the embedded store open.
        EmbeddingError: (from `add` and queries) an embedding is missing or has another dimension than the collection.
        UnsupportedFilter: (from any call with filters) an operator that Qdrant's filters cannot express.

    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stores_text: bool = True
    is_embedding_query: bool = True
    flat_metadata: bool = False
    collection_name: str
    batch_size: int = Field(gt=0)
    language: str
    show_progress: bool = False

    _client: Any = PrivateAttr(default=None)
    _aclient: AsyncQdrantClient | None = PrivateAttr(default=None)
    _embed_model: BaseEmbedding | None = PrivateAttr(default=None)
    _payload_indexes: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _dimension: int | None = PrivateAttr(default=None)
    _bm25: Bm25 = PrivateAttr()
    _turn: AbstractContextManager[Any] = PrivateAttr()

    def __init__(
        self,
        client: QdrantClient | EdgeClient | None = None,
        aclient: AsyncQdrantClient | None = None,
        *,
        collection_name: str = "gear",
        embed_model: BaseEmbedding | None = None,
        batch_size: int = 64,
        language: str = "english",
        payload_indexes: Sequence[dict[str, Any]] = (),
        show_progress: bool = False,
    ) -> None:
        super().__init__(
            collection_name=collection_name,
            batch_size=batch_size,
            language=language,
            show_progress=show_progress,
        )
        if client is None and aclient is None:
            raise ArgumentError(
                "pass a Qdrant client, or make an embedded store with GeARVectorStore.from_path(folder)"
            )
        try:
            self._bm25 = Bm25(Bm25Config(language=language))
        except ValueError as error:
            raise ArgumentError(f"BM25 does not know the language {language!r}: {error}") from error
        self._client = client
        self._aclient = aclient
        self._embed_model = embed_model
        self._payload_indexes = list(payload_indexes)
        embedded = isinstance(client, EdgeClient) or isinstance(getattr(client, "_client", None), QdrantLocal)
        self._turn = threading.RLock() if embedded else nullcontext()

    @classmethod
    def from_path(cls, path: str | Path, **arguments: Any) -> GeARVectorStore:
        """An embedded store in the folder `path`: Qdrant Edge in this process, one process at a time.

        Args:
            path: the folder; made when the first node is added.
            **arguments: those of the constructor, without the clients.

        """
        return cls(client=EdgeClient(path), **arguments)

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex serialises the store."""
        return "GeARVectorStore"

    @property
    def client(self) -> Any:
        """The Qdrant client, for what this class doesn't offer."""
        return self._client if self._client is not None else self._aclient

    @property
    def triple_collection_name(self) -> str:
        """Name of the triples' collection."""
        return f"{self.collection_name}_triples"

    @property
    def embed_model(self) -> BaseEmbedding:
        """The model that embeds triples and queries."""
        return Settings.embed_model if self._embed_model is None else self._embed_model

    def close(self) -> None:
        """Write out and release an embedded store; a server's client is closed."""
        if self._client is not None:
            self._client.close()

    # -- LlamaIndex's vector store interface ---------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Store passages with their triples; those whose id is known are replaced, triples included.

        Args:
            nodes: passages with embeddings (the ingestion pipeline sees to that).
            **kwargs: ignored, as LlamaIndex passes some.

        Returns:
            The nodes' ids.

        Raises:
            EmbeddingError: before anything is written, if an embedding is missing or of another dimension.

        """
        return run(self._adding(nodes), self._answer)

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """`add`, without blocking the event loop."""
        return await arun(self._adding(nodes), self._aanswer)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all passages of a document, and their triples."""
        run(self._deleting_document(ref_doc_id), self._answer)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """`delete`, without blocking the event loop."""
        await arun(self._deleting_document(ref_doc_id), self._aanswer)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the passages that have one of these ids and match the filters, and their triples.

        Raises:
            ArgumentError: neither ids nor filters are given (that would be everything: call `clear`).

        """
        run(self._deleting_nodes(node_ids, filters), self._answer)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """`delete_nodes`, without blocking the event loop."""
        await arun(self._deleting_nodes(node_ids, filters), self._aanswer)

    def clear(self) -> None:
        """Delete both collections."""
        run(self._clearing(), self._answer)

    async def aclear(self) -> None:
        """`clear`, without blocking the event loop."""
        await arun(self._clearing(), self._aanswer)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """The passages that have one of these ids (default: any) and match the filters, with their embeddings.

        Args:
            node_ids: the result is in this order; unknown ids are left out.
            filters: all of LlamaIndex's operators that its Qdrant store knows.
            limit: at most so many. Default: all.

        """
        return run(self._getting(node_ids, filters, limit), self._answer)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, limit: int | None = None
    ) -> list[BaseNode]:
        """`get_nodes`, without blocking the event loop."""
        return await arun(self._getting(node_ids, filters, limit), self._aanswer)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Dense (DEFAULT), BM25 (SPARSE) or both fused (HYBRID, reciprocal rank fusion) search over passages.

        Similarities are cosines, BM25 scores, or fused scores. `alpha` (HYBRID) weighs dense against sparse, from 0
        to 1, default equal; `sparse_top_k` and `hybrid_top_k` default to `similarity_top_k`.

        Raises:
            ArgumentError: another mode, or a top-k below 1.

        """
        return run(self._querying(query), self._answer)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query`, without blocking the event loop."""
        return await arun(self._querying(query), self._aanswer)

    # -- the graph side: requests of `steps.py` ------------------------------------------------------------------

    def answer(self, request: Any, filters: MetadataFilters | None = None) -> Any:
        """Answer a `Link`, `TriplesOf`, `Neighbours`, `Similarities`, `Passages`, `EmbedQuery` or `EmbedTexts`.

        Args:
            request: one of these requests; its docstring says what the answer is.
            filters: bind what is returned, triples by the metadata of their passage.

        """
        return run(self._answering(request, filters), self._answer)

    async def aanswer(self, request: Any, filters: MetadataFilters | None = None) -> Any:
        """`answer`, without blocking the event loop."""
        return await arun(self._answering(request, filters), self._aanswer)

    def _answering(self, request: Any, filters: MetadataFilters | None) -> Flow[Any]:
        match request:
            case EmbedQuery() | EmbedTexts():
                (answer,) = yield [request]
            case Link():
                answer = yield from self._linking(request, filters)
            case TriplesOf():
                answer = yield from self._triples_of(request, filters)
            case Neighbours():
                answer = yield from self._neighbours(request, filters)
            case Similarities():
                answer = yield from self._similarities(request)
            case Passages():
                answer = yield from self._getting(list(request.ids), filters, None, vectors=False)
            case _:
                raise StoreError(f"the store has no answer to {type(request).__name__}")
        return answer

    # -- how each is done: generators of client calls, driven by `run` or `arun` -----------------------------------

    def _answer(self, request: Any) -> Any:
        match request:
            case EmbedQuery():
                return self.embed_model.get_query_embedding(request.text)
            case EmbedTexts():
                return self.embed_model.get_text_embedding_batch(list(request.texts))
            case _:
                return self._call(request)

    async def _aanswer(self, request: Any) -> Any:
        match request:
            case EmbedQuery():
                return await self.embed_model.aget_query_embedding(request.text)
            case EmbedTexts():
                return await self.embed_model.aget_text_embedding_batch(list(request.texts))
        if self._aclient is not None:
            return await getattr(self._aclient, request.method)(**request.arguments)
        return await asyncio.to_thread(self._call, request)

    def _call(self, call: Call) -> Any:
        if self._client is None:
            raise StoreError("this store has only an async client: use its async methods, or pass `client` too")
        with self._turn:
            return getattr(self._client, call.method)(**call.arguments)

    def _exists(self) -> Flow[bool]:
        """Whether there is something to search; learns the dimension."""
        if self._dimension is None:
            name = {"collection_name": self.collection_name}
            (exists,) = yield [Call("collection_exists", name)]
            if exists:
                (info,) = yield [Call("get_collection", name)]
                vectors = info.config.params.vectors
                if not isinstance(vectors, dict) or DEFAULT_DENSE_VECTOR_NAME not in vectors:
                    raise StoreError(
                        f"collection {self.collection_name!r} has no vector named {DEFAULT_DENSE_VECTOR_NAME!r}: it was "
                        "made by another program; choose another collection_name and ingest into it"
                    )
                self._dimension = vectors[DEFAULT_DENSE_VECTOR_NAME].size
        return self._dimension is not None

    def _check_dimension(self, embedding: Sequence[float], what: str) -> None:
        if self._dimension is not None and len(embedding) != self._dimension:
            raise EmbeddingError(
                f"{what} has {len(embedding)} dimensions, collection {self.collection_name!r} has {self._dimension}: "
                "use the embedding model it was filled with, or another collection_name"
            )

    def _preparing(self, dimension: int) -> Flow[None]:
        """Create what is missing of both collections and their indexes; safe to repeat."""
        fields = {self.collection_name: [(DOCUMENT_ID_KEY, models.PayloadSchemaType.KEYWORD)]}
        keywords = ("entities", "passage_id", DOCUMENT_ID_KEY)
        fields[self.triple_collection_name] = [(key, models.PayloadSchemaType.KEYWORD) for key in keywords]
        for index in self._payload_indexes:
            fields[self.collection_name].append((index["field_name"], index["field_schema"]))
            fields[self.triple_collection_name].append((f"metadata.{index['field_name']}", index["field_schema"]))
        for name in (self.triple_collection_name, self.collection_name):
            (exists,) = yield [Call("collection_exists", {"collection_name": name})]
            if not exists:
                try:
                    yield [Call("create_collection", {"collection_name": name, **_vectors(dimension)})]
                except Exception:
                    (exists,) = yield [Call("collection_exists", {"collection_name": name})]
                    if not exists:  # not just another writer that was faster
                        raise
            (info,) = yield [Call("get_collection", {"collection_name": name})]
            for field, schema in fields[name]:
                if field not in (info.payload_schema or {}):
                    yield [
                        Call(
                            "create_payload_index",
                            {"collection_name": name, "field_name": field, "field_schema": schema},
                        )
                    ]

    def _adding(self, nodes: Sequence[BaseNode]) -> Flow[list[str]]:
        passages = list({node.node_id: node for node in nodes}.values())
        if not passages:
            return []
        carried = {node.node_id: read_triples(node) for node in passages}
        for node in passages:
            if node.embedding is None:
                raise EmbeddingError(
                    f"node {node.node_id!r} has no embedding: put the embedding model last in the pipeline's "
                    "transformations, or add nodes through VectorStoreIndex"
                )
        if not (yield from self._exists()):
            self._dimension = len(passages[0].get_embedding())
        for node in passages:
            self._check_dimension(node.get_embedding(), f"the embedding of node {node.node_id!r}")
        yield from self._preparing(len(passages[0].get_embedding()))
        starts = range(0, len(passages), self.batch_size)
        for start in get_tqdm_iterable(starts, self.show_progress, "Storing passages and triples"):
            batch = passages[start : start + self.batch_size]
            yield from self._replacing_triples(batch, carried)
            points = [self._passage_point(node, carried[node.node_id]) for node in batch]
            yield [Call("upsert", {"collection_name": self.collection_name, "points": points, "wait": True})]
        return [node.node_id for node in nodes]

    def _replacing_triples(self, passages: Sequence[BaseNode], carried: dict[str, list[Triple]]) -> Flow[None]:
        wanted = {t.id(node.node_id): (t, node) for node in passages for t in carried[node.node_id]}
        mine = _any_of("passage_id", [node.node_id for node in passages])
        stored = yield from self._scrolling(
            self.triple_collection_name, models.Filter(must=[mine]), payload=False, vectors=[DEFAULT_DENSE_VECTOR_NAME]
        )
        vectors = {str(point.id): point.vector[DEFAULT_DENSE_VECTOR_NAME] for point in stored}
        outdated = [point_id for point_id in vectors if point_id not in wanted]
        if outdated:
            arguments = {"collection_name": self.triple_collection_name, "wait": True}
            yield [Call("delete", {**arguments, "points_selector": models.PointIdsList(points=outdated)})]
        new = sorted({t.text for point_id, (t, _) in wanted.items() if point_id not in vectors}, key=len)
        embedded = dict(zip(new, (yield [EmbedTexts(new)])[0], strict=True)) if new else {}
        payloads = {node.node_id: _triple_payload(node) for node in passages}
        points = []
        for point_id, (triple, node) in wanted.items():
            vector = embedded[triple.text] if triple.text in embedded else vectors[point_id]
            self._check_dimension(vector, f"the embedding of the triple {triple.text!r} (embed_model of the store)")
            payload = {
                **payloads[node.node_id],
                "subject": triple.subject,
                "predicate": triple.predicate,
                "object": triple.object,
                "entities": list(triple.entities),
            }
            points.append(self._point(point_id, vector, triple.text, payload))
        for start in range(0, len(points), _PAGE):
            page = points[start : start + _PAGE]
            yield [Call("upsert", {"collection_name": self.triple_collection_name, "points": page, "wait": True})]

    def _passage_point(self, node: BaseNode, triples: Sequence[Triple]) -> models.PointStruct:
        payload = node_to_metadata_dict(attach_triples(node, triples) if triples else node, flat_metadata=False)
        payload.pop(TRIPLES_KEY, None)  # they stay in the node's own JSON
        text = node.get_content(metadata_mode=MetadataMode.EMBED)
        return self._point(_point_id(node.node_id), node.get_embedding(), text, payload)

    def _point(self, point_id: str, vector: Sequence[float], text: str, payload: dict[str, Any]) -> models.PointStruct:
        vectors: dict[str, Any] = {
            DEFAULT_DENSE_VECTOR_NAME: vector,
            DEFAULT_SPARSE_VECTOR_NAME: _sparse(self._bm25.embed_document(text)),
        }
        # Not validated again: the fields are of the right kind, and a dense vector is long.
        return models.PointStruct.model_construct(id=point_id, vector=vectors, payload=payload)

    def _deleting_document(self, ref_doc_id: str) -> Flow[None]:
        match_ = models.Filter(must=[_any_of(DOCUMENT_ID_KEY, [ref_doc_id])])
        yield from self._deleting({self.collection_name: match_, self.triple_collection_name: match_})

    def _deleting_nodes(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> Flow[None]:
        if node_ids is None and filters is None:
            raise ArgumentError("delete_nodes without ids and filters would delete everything: call clear()")
        if filters is not None:
            node_ids = [node.node_id for node in (yield from self._getting(node_ids, filters, None, vectors=False))]
        if node_ids:
            yield from self._deleting(
                {
                    self.collection_name: models.Filter(
                        must=[models.HasIdCondition(has_id=[_point_id(node_id) for node_id in node_ids])]
                    ),
                    self.triple_collection_name: models.Filter(must=[_any_of("passage_id", node_ids)]),
                }
            )

    def _deleting(self, matches: dict[str, models.Filter]) -> Flow[None]:
        for name, match_ in matches.items():  # passages first: one that is there has its triples
            (exists,) = yield [Call("collection_exists", {"collection_name": name})]
            if exists:
                yield [Call("delete", {"collection_name": name, "points_selector": match_, "wait": True})]

    def _clearing(self) -> Flow[None]:
        self._dimension = None
        for name in (self.collection_name, self.triple_collection_name):
            (exists,) = yield [Call("collection_exists", {"collection_name": name})]
            if exists:
                yield [Call("delete_collection", {"collection_name": name})]

    def _getting(
        self, node_ids: list[str] | None, filters: MetadataFilters | None, limit: int | None, vectors: bool = True
    ) -> Flow[list[BaseNode]]:
        if node_ids == [] or not (yield from self._exists()):
            return []
        conditions = _conditions(filters)
        if node_ids is not None:
            conditions.append(models.HasIdCondition(has_id=[_point_id(node_id) for node_id in node_ids]))
        points = yield from self._scrolling(
            self.collection_name,
            models.Filter(must=conditions),
            payload=True,
            vectors=[DEFAULT_DENSE_VECTOR_NAME] if vectors else False,
            limit=limit if node_ids is None else None,
        )
        nodes = [_node(point) for point in points]
        if node_ids is not None:
            known = {node.node_id: node for node in nodes}
            nodes = [known[node_id] for node_id in dict.fromkeys(node_ids) if node_id in known]
        return nodes[:limit]

    def _scrolling(
        self, name: str, match_: models.Filter, *, payload: bool, vectors: Any, limit: int | None = None
    ) -> Flow[list[Any]]:
        found: list[Any] = []
        offset = None
        while limit is None or len(found) < limit:
            (page,) = yield [
                Call(
                    "scroll",
                    {
                        "collection_name": name,
                        "scroll_filter": match_,
                        "limit": _PAGE if limit is None else min(_PAGE, limit - len(found)),
                        "offset": offset,
                        "with_payload": payload,
                        "with_vectors": vectors,
                    },
                )
            ]
            found.extend(page[0])
            offset = page[1]
            if offset is None:
                break
        return found

    def _querying(self, query: VectorStoreQuery) -> Flow[VectorStoreQueryResult]:
        modes = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID)
        if query.mode not in modes:
            raise ArgumentError(
                f"query mode {query.mode.value!r}; this store knows {', '.join(m.value for m in modes)}"
            )
        sparse_top_k = query.sparse_top_k or query.similarity_top_k
        top_k = {
            VectorStoreQueryMode.DEFAULT: query.similarity_top_k,
            VectorStoreQueryMode.SPARSE: sparse_top_k,
            VectorStoreQueryMode.HYBRID: query.hybrid_top_k or query.similarity_top_k,
        }[query.mode]
        if min(query.similarity_top_k, sparse_top_k, top_k) < 1:
            raise ArgumentError(f"top-k must be 1 or more, got {query.similarity_top_k}")
        if not (yield from self._exists()):
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        conditions = _conditions(query.filters)
        if query.doc_ids:
            conditions.append(_any_of(DOCUMENT_ID_KEY, query.doc_ids))
        if query.node_ids:
            conditions.append(models.HasIdCondition(has_id=[_point_id(node_id) for node_id in query.node_ids]))
        match_ = models.Filter(must=conditions) if conditions else None
        requests, weights = [], []
        alpha = 0.5 if query.alpha is None else query.alpha
        if query.mode != VectorStoreQueryMode.SPARSE:
            dense = yield from self._dense_query(query)
            requests.append(_request(dense, query.similarity_top_k, match_, payload=True))
            weights.append(alpha)
        if query.mode != VectorStoreQueryMode.DEFAULT:
            if query.query_str is None:
                raise ArgumentError(f"a query in {query.mode.value} mode needs query_str: BM25 reads words")
            sparse = _sparse(self._bm25.embed_query(query.query_str))
            requests.append(_request(sparse, sparse_top_k, match_, payload=True, using=DEFAULT_SPARSE_VECTOR_NAME))
            weights.append(1 - alpha)
        answers = yield from self._batch(self.collection_name, requests)
        points = {str(point.id): point for answer in answers for point in answer}
        if len(answers) == 1:
            ranked = [(point_id, float(point.score)) for point_id, point in points.items()]
        else:
            rankings = [[str(point.id) for point in answer] for answer in answers]
            ranked = reciprocal_rank_fusion(rankings, weights=weights)[:top_k]
        nodes = [_node(points[point_id]) for point_id, _ in ranked]
        return VectorStoreQueryResult(
            nodes=nodes, similarities=[score for _, score in ranked], ids=[node.node_id for node in nodes]
        )

    def _dense_query(self, query: VectorStoreQuery) -> Flow[list[float]]:
        if query.query_embedding is not None:
            embedding = query.query_embedding
        elif query.query_str is not None:
            (embedding,) = yield [EmbedQuery(query.query_str)]
        else:
            raise ArgumentError("a dense query needs query_embedding or query_str")
        self._check_dimension(embedding, "the query's embedding")
        return embedding

    def _batch(self, name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
        """Answers to several queries in one round trip, each best first, ties by id in every engine."""
        if not requests:
            return []
        (responses,) = yield [Call("query_batch_points", {"collection_name": name, "requests": requests})]
        return [sorted(response.points, key=lambda point: (-point.score, str(point.id))) for response in responses]

    def _linking(self, link: Link, filters: MetadataFilters | None) -> Flow[list[list[StoredTriple]]]:
        if not link.texts or not (yield from self._exists()):
            return [[] for _ in link.texts]
        match_ = _triple_filter(filters)
        (vectors,) = yield [EmbedTexts(link.texts)]
        for vector in vectors:
            self._check_dimension(vector, "the embedding of a proximal triple")
        self._check_dimension(link.query, "the query's embedding")
        requests = [_request(vector, link.top_k, match_, payload=False) for vector in vectors]
        answers = yield from self._batch(self.triple_collection_name, requests)
        linked = list(dict.fromkeys(str(point.id) for answer in answers for point in answer))
        if not linked:
            return [[] for _ in answers]
        these = models.Filter(must=[models.HasIdCondition(has_id=linked)])
        (scored,) = yield from self._batch(
            self.triple_collection_name, [_request(link.query, len(linked), these, payload=_FACT)]
        )
        triples = {str(point.id): _stored_triple(point) for point in scored}
        return [[triples[str(point.id)] for point in answer] for answer in answers]

    def _triples_of(self, request: TriplesOf, filters: MetadataFilters | None) -> Flow[list[StoredTriple]]:
        if not request.passage_ids or not (yield from self._exists()):
            return []
        self._check_dimension(request.query, "the query's embedding")
        match_ = _triple_filter(filters, must=[_any_of("passage_id", request.passage_ids)])
        limit = request.limit
        if limit is None:
            (counted,) = yield [
                Call("count", {"collection_name": self.triple_collection_name, "count_filter": match_, "exact": True})
            ]
            limit = max(1, counted.count)
        (answer,) = yield from self._batch(
            self.triple_collection_name, [_request(request.query, limit, match_, payload=_FACT)]
        )
        return [_stored_triple(point) for point in answer]

    def _neighbours(self, request: Neighbours, filters: MetadataFilters | None) -> Flow[list[list[StoredTriple]]]:
        if not request.triple_entities or not (yield from self._exists()):
            return [[] for _ in request.triple_entities]
        self._check_dimension(request.query, "the query's embedding")
        requests = []
        for entities in request.triple_entities:
            match_ = _triple_filter(filters, must=[_any_of("entities", entities)], exclude=request.exclude)
            requests.append(_request(request.query, request.limit, match_, payload=_FACT))
        answers = yield from self._batch(self.triple_collection_name, requests)
        return [[_stored_triple(point) for point in answer] for answer in answers]

    def _similarities(self, request: Similarities) -> Flow[list[list[float]]]:
        """Two round trips: the chains' vectors, then one query a pair. No candidate's vector leaves the engine."""
        members = list(dict.fromkeys(member for chain, _ in request.pairs for member in chain))
        if not members:
            return []
        (records,) = yield [
            Call(
                "retrieve",
                {
                    "collection_name": self.triple_collection_name,
                    "ids": members,
                    "with_payload": False,
                    "with_vectors": [DEFAULT_DENSE_VECTOR_NAME],
                },
            )
        ]
        vectors = {str(record.id): record.vector[DEFAULT_DENSE_VECTOR_NAME] for record in records}
        asked = [(number, pair) for number, pair in enumerate(request.pairs) if pair[1]]
        requests, lengths = [], []
        for _, (chain, candidates) in asked:
            summed = [sum(column) for column in zip(*(vectors[member] for member in chain), strict=True)]
            lengths.append(sum(value * value for value in summed) ** 0.5)
            match_ = models.Filter(must=[models.HasIdCondition(has_id=list(candidates))])
            requests.append(_request(summed, len(candidates), match_, payload=False))
        answers = yield from self._batch(self.triple_collection_name, requests)
        products: list[list[float]] = [[] for _ in request.pairs]
        for (number, (_, candidates)), length, answer in zip(asked, lengths, answers, strict=True):
            cosines = {str(point.id): point.score for point in answer}
            products[number] = [length * cosines[candidate] for candidate in candidates]
        return products


def _vectors(dimension: int) -> dict[str, Any]:
    return {
        "vectors_config": {
            DEFAULT_DENSE_VECTOR_NAME: models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        },
        "sparse_vectors_config": {DEFAULT_SPARSE_VECTOR_NAME: models.SparseVectorParams(modifier=models.Modifier.IDF)},
    }


def _request(
    vector: Any,
    limit: int,
    match_: models.Filter | None,
    *,
    payload: bool | list[str],
    using: str = DEFAULT_DENSE_VECTOR_NAME,
) -> models.QueryRequest:
    return models.QueryRequest.model_construct(
        query=vector, using=using, limit=limit, filter=match_, with_payload=payload, with_vector=False
    )


def _sparse(vector: Any) -> models.SparseVector:
    return models.SparseVector.model_construct(indices=vector.indices, values=vector.values)


def _point_id(node_id: str) -> str:
    """The node's id if Qdrant takes it (a UUID), else a UUID made of it."""
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(NAMESPACE, node_id))


def _node(point: Any) -> BaseNode:
    node = metadata_dict_to_node(point.payload)
    if isinstance(point.vector, dict):
        node.embedding = point.vector.get(DEFAULT_DENSE_VECTOR_NAME)
    return node


def _stored_triple(point: Any) -> StoredTriple:
    fact = point.payload
    triple = Triple(fact["subject"], fact["predicate"], fact["object"])
    return StoredTriple(id=str(point.id), triple=triple, passage_id=fact["passage_id"], score=float(point.score))


def _triple_payload(node: BaseNode) -> dict[str, Any]:
    metadata = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    for key in ("_node_content", "_node_type", TRIPLES_KEY, EXTRACTION_KEY):
        metadata.pop(key, None)
    return {"passage_id": node.node_id, DOCUMENT_ID_KEY: metadata[DOCUMENT_ID_KEY], "metadata": metadata}


def _any_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def _triple_filter(
    filters: MetadataFilters | None, must: Sequence[Any] = (), exclude: Sequence[str] = ()
) -> models.Filter | None:
    conditions = [*must, *_conditions(None if filters is None else _under("metadata.", filters))]
    if not conditions and not exclude:
        return None
    hidden = [models.HasIdCondition(has_id=list(exclude))] if exclude else None
    return models.Filter(must=conditions, must_not=hidden)


def _under(prefix: str, filters: MetadataFilters) -> MetadataFilters:
    return MetadataFilters(
        filters=[
            _under(prefix, each)
            if isinstance(each, MetadataFilters)
            else MetadataFilter(key=prefix + each.key, value=each.value, operator=each.operator)
            for each in filters.filters
        ],
        condition=filters.condition,
    )


def _conditions(filters: MetadataFilters | None) -> list[Any]:
    """LlamaIndex's own translation of its filters, so that they mean here what they mean in its Qdrant store."""
    try:
        query = VectorStoreQuery(filters=filters)
        translated = QdrantVectorStore.model_construct()._build_query_filter(query)
    except (NotImplementedError, ValidationError) as error:
        raise UnsupportedFilter(f"Qdrant's filters cannot express {filters!r}: {error}") from error
    return [] if translated is None else list(translated.must)
