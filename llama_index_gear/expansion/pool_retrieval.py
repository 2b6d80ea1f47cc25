"""Retrieval by a pool: wide lists, PageRank from the first passages, then one ranking that looks at passages together.

The pool is as wide whatever number of passages is asked for, so that fewer passages are the first of more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha1
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index_gear.errors import check_counts, check_kind
from llama_index_gear.expansion.backends import Backends, copy_query, embed_query_flow
from llama_index_gear.expansion.pagerank import LocalPageRank, local_pagerank_flow
from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.llm.spans import show_ids, show_nodes, span_flow
from llama_index_gear.ranking.pool import Content, Pool, PoolPassage, read_content
from llama_index_gear.ranking.ranker import rank_ids
from llama_index_gear.ranking.reasons import rank_nodes, to_pool_passage
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.store.access import encoder_of
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.embedded.payloads import StoredPayload
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.store.schema import NODE_FIELDS, to_node
from llama_index_gear.triple import StoredTriple, Triple

POOL_TOP_K = 40
"""Passages that each list gives to the pool."""
_START_PASSAGES = 10
_START_TRIPLES = 20
POOL_PAGERANK = LocalPageRank(epsilon=5e-4)
"""PageRank of a pool, by default. Half the usual `epsilon`: it reaches a third more passages (28 instead of 21)."""
_KEPT = 1 << 26  # bytes of the JSON: 130 MB in all, 16,000 passages of 100 words with their triples
_LONGEST_KEPT = 1 << 14  # characters of a passage's JSON
_LIST_NAMES = {VectorStoreQueryMode.DEFAULT: "dense", VectorStoreQueryMode.SPARSE: "bm25"}


class PoolRetrieval:
    """Retrieves a pool of passages and ranks it, for one store and one set of settings. No LLM.

    The store's dense and BM25 lists, or the list of a base retriever, are the first part of the pool. They are ranked,
    and PageRank starts from the first ten passages and from the twenty facts of these that have most words of the
    question; the passages that it ranks first are the second part.

    Args:
        backends: the store, and what else the flow reads. Of a base retriever's nodes, those that the store doesn't
            know stay in the pool, with the triples that they carry; with filters they can't be checked and are left
            out.
        weights: weights of the ranking; None: those that come with the package.
        pagerank: settings of PageRank; None: `POOL_PAGERANK`.
        similarity_top_k: passages to return.

    Raises:
        ArgumentError: an argument of the wrong kind, or a number outside its range.

    """

    def __init__(
        self,
        backends: Backends,
        weights: RankingWeights | None = None,
        pagerank: LocalPageRank | None = None,
        *,
        similarity_top_k: int = 10,
    ) -> None:
        check_kind(RankingWeights, hint="write weights=RankingWeights.load(path)", optional=True, weights=weights)
        check_kind(LocalPageRank, hint="write pagerank=LocalPageRank()", optional=True, pagerank=pagerank)
        check_counts(similarity_top_k=similarity_top_k)
        self.backends = backends
        self.similarity_top_k = similarity_top_k
        self.weights = RankingWeights.default() if weights is None else weights
        self.pagerank = POOL_PAGERANK if pagerank is None else pagerank

    def retrieve_flow(self, bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        """Gather the pool, rank it, and return the first passages with what placed them."""
        pool, nodes = yield from self.pool_flow(bundle)
        return (yield from self.rank_flow(pool, nodes, self.similarity_top_k))

    def rank_flow(self, pool: Pool, nodes: Mapping[str, BaseNode], top_k: int) -> Flow[list[NodeWithScore]]:
        """Rank a pool, and return the first passages with what placed them."""
        ranking = ask(RunFunction(partial(rank_nodes, pool, nodes, self.weights, top_k)))
        return (yield from span_flow("ranking", ranking, show_nodes, passages=len(pool.places)))

    def pool_flow(self, bundle: QueryBundle) -> Flow[tuple[Pool, Mapping[str, BaseNode]]]:
        """Gather the pool of a question; return it, and the nodes to return by id."""
        embedded = yield from self.embed_flow(bundle)
        pool, nodes = yield from self.base_pool_flow(bundle, embedded)
        return (yield from self.widen_flow(pool, nodes))

    def embed_flow(self, bundle: QueryBundle) -> Flow[QueryBundle]:
        """Embed a question with the store's model: a foreign retriever's query may come from another one."""
        return embed_query_flow(bundle if self.backends.base_retriever is None else QueryBundle(bundle.query_str))

    def fuse(self, pool: Pool) -> list[str]:
        """Return the ids of the passages in the pool's lists, fused, best first."""
        fused = reciprocal_rank_fusion(list(pool.lists.values()))
        return [passage_id for passage_id, _ in fused if passage_id in pool.places]

    def choose_start(self, pool: Pool) -> list[str]:
        """Return the ids of the passages that PageRank starts from: the first ten of a pool's ranking."""
        return rank_ids(pool, self.weights)[:_START_PASSAGES]

    def widen_flow(
        self, pool: Pool, nodes: Mapping[str, BaseNode], linked: Sequence[StoredTriple] = ()
    ) -> Flow[tuple[Pool, Mapping[str, BaseNode]]]:
        """Add the passages that PageRank ranks first to a pool of base passages.

        Args:
            pool: of the base passages.
            nodes: of its passages, by id.
            linked: further triples that PageRank starts from, with weight 1.

        Returns:
            The wider pool, and its nodes by id.

        """
        widening = self._widen_flow(pool, nodes, linked)
        return span_flow("pagerank", widening, _show_pagerank, passages=len(nodes), linked=len(linked))

    def _widen_flow(
        self, pool: Pool, nodes: Mapping[str, BaseNode], linked: Sequence[StoredTriple]
    ) -> Flow[tuple[Pool, Mapping[str, BaseNode]]]:
        start = yield from ask(RunFunction(partial(self.choose_start, pool)))
        weights = yield from ask(RunFunction(partial(_choose_triples, pool, start)))
        weights |= {(triple.passage_id, triple.triple): 1.0 for triple in linked}
        triples = [(triple, weight) for (_, triple), weight in weights.items()]
        ranked = yield from local_pagerank_flow(self.backends.reads, triples, start, self.pagerank)
        reached = [passage_id for passage_id, _ in ranked.passages[:POOL_TOP_K]]
        found: list[StoredPassage] = []
        if missing := [passage_id for passage_id in reached if passage_id not in nodes]:
            points = yield from self.backends.reads.points_flow(missing, vectors=False)
            found = yield from _read_flow(pool.encoder, points)
        pool.known.update(_list_contents(found))
        pool = pool.extend([stored.passage for stored in found], {"pagerank": reached}, ranked.aliases)
        return pool, _StoredNodes(found, nodes)

    def base_pool_flow(self, bundle: QueryBundle, embedded: QueryBundle) -> Flow[tuple[Pool, Mapping[str, BaseNode]]]:
        """Search the store, or the base retriever; return the pool of what is found, and its nodes by id."""
        search = self._base_pool_flow(bundle, embedded)
        return span_flow("base_search", search, lambda found: show_ids(found[1]), query=embedded.query_str)

    def _base_pool_flow(self, bundle: QueryBundle, embedded: QueryBundle) -> Flow[tuple[Pool, Mapping[str, BaseNode]]]:
        question, encoder = embedded.query_str, encoder_of(self.backends.vector_store)
        if self.backends.base_retriever is None:
            modes = list(_LIST_NAMES) if self.backends.mode == VectorStoreQueryMode.HYBRID else [self.backends.mode]
            answers = yield from self.backends.reads.lists_flow(question, embedded.embedding or [], modes, POOL_TOP_K)
            points = {point.id: point for answer in answers for point in answer}
            found = dict(zip(points, (yield from _read_flow(encoder, [*points.values()])), strict=True))
            ids = [[found[point.id].passage.id for point in answer] for answer in answers]
            lists = {_LIST_NAMES[mode]: of_mode for mode, of_mode in zip(modes, ids, strict=True)}
            passages, contents = [read.passage for read in found.values()], _list_contents(found.values())
            return Pool(question, passages, lists, encoder, known=contents), _StoredNodes(found.values(), {})
        base = yield from self.backends.base_search_flow(copy_query(bundle, question))
        nodes = {result.node.node_id: result.node for result in base}
        stored = yield from self.backends.reads.get_flow(list(nodes), vectors=False)
        known = {node.node_id: node for node in stored}  # with the triples that are stored now
        if self.backends.filters is not None:
            nodes = {passage_id: node for passage_id, node in nodes.items() if passage_id in known}
        passages = [to_pool_passage(known.get(passage_id, node)) for passage_id, node in nodes.items()]
        return Pool(question, passages, {"base": list(nodes)}, encoder), nodes


class StoredPassage(NamedTuple):
    """A stored passage as a pool reads it: its point, and what the ranking sees of it."""

    point: Any
    passage: PoolPassage
    content: Content


class _StoredNodes(Mapping[str, BaseNode]):
    """The nodes of other passages, and those of stored ones, each made when it is asked for: few are returned."""

    def __init__(self, stored: Iterable[StoredPassage], others: Mapping[str, BaseNode]) -> None:
        self._points = {read.passage.id: read.point for read in stored}
        self._others = others

    def __getitem__(self, passage_id: str) -> BaseNode:
        point = self._points.get(passage_id)
        return self._others[passage_id] if point is None else to_node(point)

    def __contains__(self, passage_id: object) -> bool:
        return passage_id in self._points or passage_id in self._others  # no node is made

    def __iter__(self) -> Iterator[str]:
        yield from self._others
        yield from self._points

    def __len__(self) -> int:
        return len(self._others) + len(self._points)


def _list_contents(stored: Iterable[StoredPassage]) -> dict[str, Content]:
    return {read.passage.id: read.content for read in stored}


def _read_flow(encoder: WordEncoder, points: Sequence[Any]) -> Flow[list[StoredPassage]]:
    """Read passages from their points.

    Raises:
        StoreError: a point holds no passage.

    """
    return ask(RunFunction(lambda: [_read(encoder, point) for point in points]))


class _KeptPassages(dict[tuple[Any, ...], tuple[PoolPassage, Content]]):
    """Passages that were read, by a digest of their points: none is older than its point.

    It is emptied before the JSON of all has more bytes than `_KEPT`.
    """

    size = 0  # of these

    def keep(self, key: tuple[Any, ...], read: tuple[PoolPassage, Content], size: int) -> None:
        """Keep a passage; `size` is the number of bytes of its JSON."""
        self.size = self.size + size if self else size
        if self.size > _KEPT:
            self.clear()
            self.size = size
        self[key] = read


_kept = _KeptPassages()


def _read(encoder: WordEncoder, point: Any) -> StoredPassage:
    payload = point.payload or {}
    key = payload.key if isinstance(payload, StoredPayload) else None
    if key is not None and key[0] is encoder and (read := _kept.get(key)) is not None:
        return StoredPassage(point, *read)
    content, kind = map(payload.get, NODE_FIELDS)
    if not type(content) is type(kind) is str or len(content) > _LONGEST_KEPT:
        passage = to_pool_passage(to_node(point))
        return StoredPassage(point, passage, read_content(passage, encoder))
    key = (encoder, kind, sha1(content.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest())
    if (read := _kept.get(key)) is None:
        passage = to_pool_passage(to_node(point))
        read = (passage, read_content(passage, encoder))
        _kept.keep(key, read, sys.getsizeof(content))
    if isinstance(payload, StoredPayload):
        payload.key = key
    return StoredPassage(point, *read)


def _show_pagerank(widened: tuple[Pool, Mapping[str, BaseNode]]) -> dict[str, Any]:
    return show_ids(widened[0].lists["pagerank"])


def _choose_triples(pool: Pool, start: Sequence[str]) -> dict[tuple[str, Triple], float]:
    """Choose the facts that PageRank starts from: the twenty of the first passages with most words of the question.

    A fact weighs the share of the question that its words make up (`Pool.coverage`), over that of the best.

    Returns:
        (passage id, fact) → its weight, above 0 and at most 1.

    """
    facts = [(passage_id, triple) for passage_id in start for triple in pool.passages[pool.places[passage_id]].triples]
    coverages = [pool.fact_coverage(triple) for _, triple in facts]
    chosen = sorted(range(len(facts)), key=lambda number: -coverages[number])[:_START_TRIPLES]
    return {facts[number]: coverages[number] / coverages[chosen[0]] for number in chosen if coverages[number]}
