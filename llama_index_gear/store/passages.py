"""Flows that read passages: by id, by base search, or by a triple of another graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, NodeWithScore
from llama_index.core.vector_stores.types import (
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
    format_value,
)
from llama_index_gear.flow import EmbedQuery, Flow, ask
from llama_index_gear.nodes import SOURCE_KEY
from llama_index_gear.store.collections import PAGE
from llama_index_gear.store.filters import build_conditions
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.store.schema import (
    DENSE,
    DOC_ID,
    NODE_FIELDS,
    SPARSE,
    build_query,
    match_any,
    point_id_of,
    to_node,
)
from llama_index_gear.store.triples import TripleReads

ONE_ID = "write [id] for one"
"""Hint of an error: the call that `get_nodes(node_id)` should be."""


class _QueryLimits(NamedTuple):
    """The limits of a query's dense, sparse and fused lists, and the weight of the dense list."""

    dense_top_k: int
    sparse_top_k: int
    hybrid_top_k: int
    alpha: float


@dataclass(frozen=True)
class StoreReads(TripleReads):
    """The flows that read the passages and the triples of a store that match filters."""

    def _exists_flow(self) -> Flow[bool]:
        """Return True if there is a collection of passages."""
        yield from self.check_filters_flow()
        return (yield from self.collections.exists_flow())

    def _can_find_flow(self) -> Flow[bool]:
        """Return True if there is a collection of passages; warn, once, if there is none."""
        yield from self.check_filters_flow()
        return (yield from self.collections.can_search_flow())

    def get_flow(
        self, node_ids: list[str] | None, limit: int | None = None, vectors: bool = True
    ) -> Flow[list[BaseNode]]:
        """Read passages by ids (None: all), in the order of the ids, with or without their embeddings."""
        return [to_node(point) for point in (yield from self.points_flow(node_ids, limit, vectors))]

    def points_flow(
        self, node_ids: list[str] | None, limit: int | None = None, vectors: bool = True
    ) -> Flow[list[Any]]:
        """Read the points of passages, as `get_flow` reads passages."""
        check_kinds(str, hint=ONE_ID, optional=True, node_ids=node_ids)
        if limit is not None:
            check_counts(limit=limit)
        if node_ids == [] or not (yield from self._exists_flow()):
            return []
        must = build_conditions(self.filters)
        if node_ids is not None:
            must.append(models.HasIdCondition(has_id=[point_id_of(node_id) for node_id in node_ids]))
        match_, name = models.Filter(must=must), self.collections.passages
        if node_ids is not None and not vectors and len(node_ids) <= PAGE:
            query = build_query(None, len(node_ids), match_, payload=NODE_FIELDS)
            (points,) = yield from self.collections.select_flow(name, [query])
        else:
            points = yield from self.collections.scroll_flow(
                name,
                match_,
                payload=NODE_FIELDS,
                vectors=[DENSE] if vectors else False,
                limit=limit if node_ids is None else None,
            )
        if node_ids is not None:
            by_id = {str(point.id): point for point in points}
            points = [by_id[id_] for id_ in dict.fromkeys(map(point_id_of, node_ids)) if id_ in by_id]
        return points[:limit]

    def ids_flow(self) -> Flow[list[str]]:
        """List the ids of passages; one page of passages at a time is in memory."""
        ids: list[str] = []
        if not (yield from self._exists_flow()):
            return ids
        match_ = models.Filter(must=build_conditions(self.filters))
        for page in self.collections.page_flows(self.collections.passages, match_, payload=NODE_FIELDS):
            ids += [to_node(point).node_id for point in (yield from page)]
        return ids

    def imported_flow(self, collection: str, place: str, offset: Any) -> Flow[tuple[list[BaseNode], Any]]:
        """Read the next page of passages that were taken from another collection, without embeddings.

        Args:
            collection: the collection that gave them.
            place: where it was (see `Connection.place`).
            offset: of the page; None: the first.

        Returns:
            The passages, and the offset of the next page (None: no more).

        """
        if not (yield from self._exists_flow()):
            return [], None
        taken = [
            models.FieldCondition(key=f"{SOURCE_KEY}.{key}", match=models.MatchValue(value=value))
            for key, value in (("collection", collection), ("place", place))
        ]
        points, offset = yield from self.collections.page_flow(
            self.collections.passages,
            models.Filter(must=[*build_conditions(self.filters), *taken]),
            payload=NODE_FIELDS,
            vectors=False,
            offset=offset,
        )
        return [to_node(point) for point in points], offset

    def query_flow(self, query: VectorStoreQuery, native: models.Filter | None = None) -> Flow[VectorStoreQueryResult]:
        """The flow of `query`. The filters are those of these reads, and `native`; not the query's."""
        limits = _check_query(query)
        if not (yield from self._can_find_flow()):
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        must = [*build_conditions(self.filters), *([native] if native else [])]
        if query.doc_ids:
            must.append(match_any(DOC_ID, query.doc_ids))
        if query.node_ids:
            must.append(models.HasIdCondition(has_id=[point_id_of(node_id) for node_id in query.node_ids]))
        match_ = models.Filter(must=must) if must else None
        requests, weights = [], []
        if query.mode != VectorStoreQueryMode.SPARSE:
            dense = yield from self._dense_query_flow(query)
            requests.append(build_query(dense, limits.dense_top_k, match_, payload=NODE_FIELDS))
            weights.append(limits.alpha)
        if query.mode != VectorStoreQueryMode.DEFAULT:
            if query.query_str is None:
                raise ArgumentError(
                    f"a query in {VectorStoreQueryMode(query.mode).value} mode needs query_str: BM25 reads words"
                )
            sparse = self.collections.bm25.embed_query(query.query_str)
            requests.append(build_query(sparse, limits.sparse_top_k, match_, payload=NODE_FIELDS, using=SPARSE))
            weights.append(1 - limits.alpha)
        answers = yield from self.collections.batch_flow(self.collections.passages, requests)
        points = {str(point.id): point for answer in answers for point in answer}
        if len(answers) == 1:
            ranked = [(point_id, float(point.score)) for point_id, point in points.items()]
        else:
            rankings = [[str(point.id) for point in answer] for answer in answers]
            ranked = reciprocal_rank_fusion(rankings, weights=weights)[: limits.hybrid_top_k]
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

    def lists_flow(
        self, question: str, embedding: Sequence[float], modes: Sequence[VectorStoreQueryMode], top_k: int
    ) -> Flow[list[list[Any]]]:
        """Search passages in several modes at once: dense (DEFAULT; scores are cosines) and BM25 (SPARSE).

        It takes one round trip.

        Args:
            question: its text.
            embedding: the question's; BM25 doesn't need it.
            modes: of the lists.
            top_k: passages a list.

        Returns:
            A list of points a mode, best first.

        """
        check_counts(top_k=top_k)
        if unknown := set(modes) - {VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE}:
            raise ArgumentError(f"a list's mode must be DEFAULT or SPARSE, got {format_value(min(unknown))}")
        if not (yield from self._can_find_flow()):
            return [[] for _ in modes]
        if VectorStoreQueryMode.DEFAULT in modes:
            self.collections.check_dimension(embedding, "the query's embedding")
        must = build_conditions(self.filters)
        match_ = models.Filter(must=must) if must else None
        queries = []
        for mode in modes:
            if mode == VectorStoreQueryMode.SPARSE:
                words = self.collections.bm25.embed_query(question)
                queries.append(build_query(words, top_k, match_, payload=NODE_FIELDS, using=SPARSE))
            else:
                queries.append(build_query(list(embedding), top_k, match_, payload=NODE_FIELDS))
        return (yield from self.collections.batch_flow(self.collections.passages, queries))

    def align_flow(self, texts: Sequence[str], top_k: int) -> Flow[list[list[NodeWithScore]]]:
        """Find the `top_k` passages that BM25 ranks first for each text: online alignment (Millions of GeAR-s Eq. 4).

        Each text gives a list, best first.
        """
        check_counts(top_k=top_k)
        if not texts or not (yield from self._exists_flow()):
            return [[] for _ in texts]
        must = build_conditions(self.filters)
        match_ = models.Filter(must=must) if must else None
        vectors = [self.collections.bm25.embed_query(text) for text in texts]
        requests = [build_query(vector, top_k, match_, payload=NODE_FIELDS, using=SPARSE) for vector in vectors]
        answers = yield from self.collections.batch_flow(self.collections.passages, requests)
        return [
            [NodeWithScore(node=to_node(point), score=float(point.score)) for point in answer] for answer in answers
        ]


def _check_query(query: VectorStoreQuery) -> _QueryLimits:
    """Return the limits of a query, with defaults filled in; refuse values that are out of range."""
    modes = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID)
    if query.mode not in modes:
        known = ", ".join(mode.value for mode in modes)
        raise ArgumentError(
            f"query mode {format_value(getattr(query.mode, 'value', query.mode))}; this store knows {known}"
        )
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
    return _QueryLimits(top_k, sparse_top_k, hybrid_top_k, alpha)


def read_native_filter(options: Mapping[str, Any]) -> models.Filter | None:
    """Return the Qdrant filter from the keywords of a query; refuse other keywords."""
    if unknown := set(options) - {"qdrant_filters"}:
        raise ArgumentError(f"query has no keyword {', '.join(sorted(unknown))}; it takes qdrant_filters")
    native = options.get("qdrant_filters")
    if native is not None and not isinstance(native, models.Filter):
        raise ArgumentError(f"qdrant_filters must be a qdrant_client Filter, got {type(native).__name__}")
    return native
