"""Reading passages: by id, by base search, by a triple of another graph, as flows of Qdrant calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.vector_stores.types import (
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from qdrant_client.http import models

from llama_index_gear.errors import (
    ArgumentError,
    check_counts,
    check_kinds,
    check_numbers,
    check_question,
    check_vector,
    shown,
)
from llama_index_gear.flow import Flow, ask
from llama_index_gear.fusion import reciprocal_rank_fusion
from llama_index_gear.requests import AlignPassages, EmbedQuery, ExtractionCallIds, FetchPassages
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import conditions
from llama_index_gear.store.schema import (
    DENSE,
    DOC_ID,
    EXTRACTED_NODE,
    SPARSE,
    any_of,
    nearest,
    point_id_of,
    shared_call,
    to_node,
)
from llama_index_gear.store.triples import TripleReads

ONE_ID = "write [id] for one"
"""What to write instead of `get_nodes(node_id)`."""


class _Asked(NamedTuple):
    """How many of which list a query wants, and how much the dense one weighs."""

    dense_top_k: int
    sparse_top_k: int
    hybrid_top_k: int
    alpha: float


@dataclass(frozen=True)
class StoreReads:
    """The reading side of a store: passages, and what filters bind."""

    collections: Collections
    triples: TripleReads

    def get_flow(
        self, node_ids: list[str] | None, filters: MetadataFilters | None, limit: int | None, vectors: bool = True
    ) -> Flow[list[BaseNode]]:
        """Passages by id and filter, in the order asked, with or without their embeddings."""
        check_kinds(str, hint=ONE_ID, optional=True, node_ids=node_ids)
        if limit is not None:
            check_counts(limit=limit)
        if node_ids == [] or not (yield from self.collections.exists_flow()):
            return []
        musts = conditions(filters)
        if node_ids is not None:
            musts.append(models.HasIdCondition(has_id=[point_id_of(node_id) for node_id in node_ids]))
        points = yield from self.collections.scroll_flow(
            self.collections.passages,
            models.Filter(must=musts),
            payload=True,
            vectors=[DENSE] if vectors else False,
            limit=limit if node_ids is None else None,
        )
        nodes = [to_node(point) for point in points]
        if node_ids is not None:
            known = {node.node_id: node for node in nodes}
            nodes = [known[node_id] for node_id in dict.fromkeys(node_ids) if node_id in known]
        return nodes[:limit]

    def fetch_flow(self, request: FetchPassages, filters: MetadataFilters | None) -> Flow[list[BaseNode]]:
        """Answers `FetchPassages`."""
        return self.get_flow(list(request.ids), filters, None, vectors=False)

    def call_ids_flow(self, request: ExtractionCallIds, filters: MetadataFilters | None) -> Flow[list[tuple[str, str]]]:
        """Answers `ExtractionCallIds`; a page of passages at a time is in memory."""
        found: list[tuple[str, str]] = []
        offset, more = None, (yield from self.collections.exists_flow())
        while more:
            points, offset = yield from self.collections.page_flow(
                self.collections.passages,
                models.Filter(must=conditions(filters)),
                payload=EXTRACTED_NODE,
                vectors=False,
                offset=offset,
            )
            found += [(to_node(point).node_id, shared_call(point)) for point in points]
            more = offset is not None
        return found

    def query_flow(self, query: VectorStoreQuery, native: models.Filter | None) -> Flow[VectorStoreQueryResult]:
        """The flow of `query`."""
        asked = _checked(query)
        if not (yield from self.collections.exists_flow()):
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        musts = [*conditions(query.filters), *([native] if native else [])]
        if query.doc_ids:
            musts.append(any_of(DOC_ID, query.doc_ids))
        if query.node_ids:
            musts.append(models.HasIdCondition(has_id=[point_id_of(node_id) for node_id in query.node_ids]))
        match_ = models.Filter(must=musts) if musts else None
        requests, weights = [], []
        if query.mode != VectorStoreQueryMode.SPARSE:
            dense = yield from self._dense_query_flow(query)
            requests.append(nearest(dense, asked.dense_top_k, match_, payload=True))
            weights.append(asked.alpha)
        if query.mode != VectorStoreQueryMode.DEFAULT:
            if query.query_str is None:
                raise ArgumentError(
                    f"a query in {VectorStoreQueryMode(query.mode).value} mode needs query_str: BM25 reads words"
                )
            sparse = self.collections.bm25.embed_query(query.query_str)
            requests.append(nearest(sparse, asked.sparse_top_k, match_, payload=True, using=SPARSE))
            weights.append(1 - asked.alpha)
        answers = yield from self.collections.batch_flow(self.collections.passages, requests)
        points = {str(point.id): point for answer in answers for point in answer}
        if len(answers) == 1:
            ranked = [(point_id, float(point.score)) for point_id, point in points.items()]
        else:
            rankings = [[str(point.id) for point in answer] for answer in answers]
            ranked = reciprocal_rank_fusion(rankings, weights=weights)[: asked.hybrid_top_k]
        nodes = [to_node(points[point_id]) for point_id, _ in ranked]
        return VectorStoreQueryResult(
            nodes=nodes, similarities=[score for _, score in ranked], ids=[node.node_id for node in nodes]
        )

    def _dense_query_flow(self, query: VectorStoreQuery) -> Flow[list[float]]:
        if query.query_embedding is not None:
            embedding = query.query_embedding
        elif query.query_str is not None:
            embedding = yield from ask(EmbedQuery(query.query_str))
        else:
            raise ArgumentError("a dense query needs query_embedding or query_str")
        self.collections.check_dimension(embedding, "the query's embedding")
        return embedding

    def align_flow(self, request: AlignPassages, filters: MetadataFilters | None) -> Flow[list[list[NodeWithScore]]]:
        """Answers `AlignPassages`."""
        check_counts(top_k=request.top_k)
        if not request.texts or not (yield from self.collections.exists_flow()):
            return [[] for _ in request.texts]
        musts = conditions(filters)
        match_ = models.Filter(must=musts) if musts else None
        vectors = [self.collections.bm25.embed_query(text) for text in request.texts]
        requests = [nearest(vector, request.top_k, match_, payload=True, using=SPARSE) for vector in vectors]
        answers = yield from self.collections.batch_flow(self.collections.passages, requests)
        return [
            [NodeWithScore(node=to_node(point), score=float(point.score)) for point in answer] for answer in answers
        ]


def _checked(query: VectorStoreQuery) -> _Asked:
    """The numbers of a query, its defaults filled in, nothing in it outside its range."""
    modes = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID)
    if query.mode not in modes:
        known = ", ".join(mode.value for mode in modes)
        raise ArgumentError(f"query mode {shown(getattr(query.mode, 'value', query.mode))}; this store knows {known}")
    check_kinds(str, hint=ONE_ID, optional=True, doc_ids=query.doc_ids, node_ids=query.node_ids)
    top_k = query.similarity_top_k
    sparse_top_k = top_k if query.sparse_top_k is None else query.sparse_top_k
    hybrid_top_k = top_k if query.hybrid_top_k is None else query.hybrid_top_k
    alpha = 0.5 if query.alpha is None else query.alpha
    check_counts(similarity_top_k=top_k, sparse_top_k=sparse_top_k, hybrid_top_k=hybrid_top_k)
    check_numbers("from 0 to 1", lambda number: 0 <= number <= 1, alpha=alpha)
    if query.query_str is not None:
        check_question(query.query_str)
    if query.query_embedding is not None:
        check_vector("the query's embedding", query.query_embedding)
    return _Asked(top_k, sparse_top_k, hybrid_top_k, alpha)


def native_filter(options: Mapping[str, Any]) -> models.Filter | None:
    """The Qdrant filter among the keywords of a query; what else is there would be ignored, and is refused."""
    if unknown := set(options) - {"qdrant_filters"}:
        raise ArgumentError(f"query has no keyword {', '.join(sorted(unknown))}; it takes qdrant_filters")
    native = options.get("qdrant_filters")
    if native is not None and not isinstance(native, models.Filter):
        raise ArgumentError(f"qdrant_filters must be a qdrant_client Filter, got {type(native).__name__}")
    return native
