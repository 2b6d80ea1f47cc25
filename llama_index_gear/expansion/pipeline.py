"""The flow of a graph expansion, which the retrievers, the postprocessor and the agents share."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle

from llama_index_gear.errors import check_counts
from llama_index_gear.expansion.backends import Backends, copy_query, embed_query_flow
from llama_index_gear.expansion.beam_search import Beam, BeamSearch, diverse_triple_beam_search_flow, flatten
from llama_index_gear.expansion.pagerank import LocalPageRank, local_pagerank_flow, weigh_triples
from llama_index_gear.expansion.reader import READ_PROMPT, Reading, read_facts_flow
from llama_index_gear.flow import Flow
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.llm.spans import show_ids, span_flow
from llama_index_gear.nodes import llm_texts, with_explanation
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.triple import StoredTriple, Triple, serialize_triples

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExpansionSeeds:
    """The triples that a beam search starts from, and how they were found.

    Attributes:
        reading: the reader's result; empty without a reader.
        triples: the triples that the search starts from.
        fallback: the reason why these are not the triples that the reader's facts were linked to; else empty.
        misaligned: (fact, linked triple, `shared_name` of both) of the links that the alignment check dropped.

    """

    reading: Reading
    triples: list[StoredTriple]
    fallback: str = ""
    misaligned: Sequence[tuple[Triple, StoredTriple, float]] = ()


@dataclass(frozen=True)
class ExpansionResult:
    """The result of a graph expansion.

    Attributes:
        nodes: passage id → node, of base and expanded passages.
        base: ids of the base passages, best first.
        seeds: the seeds of the beam search.
        beams: the beams of the beam search, best first.
        chains: id of an expanded passage → the chain that leads to it, best first.
        pagerank: ids of the passages that PageRank ranks first; empty without PageRank.
        fused: (passage id, score) of the fusion of all three lists, best first.

    """

    nodes: dict[str, BaseNode]
    base: list[str]
    seeds: ExpansionSeeds
    beams: list[Beam]
    chains: dict[str, tuple[StoredTriple, ...]]
    pagerank: list[str]
    fused: list[tuple[str, float]]

    def chain(self, passage_id: str) -> list[list[str]]:
        """Return the triples that lead to a passage, as plain JSON; empty if only base retrieval found it."""
        return serialize_triples(triple.triple for triple in self.chains.get(passage_id, ()))

    def ranks(self, passage_id: str) -> dict[str, int]:
        """Return the passage's rank, from 1, in each list that has it."""
        lists = {"base": self.base, "graph": list(self.chains), "pagerank": self.pagerank}
        return {name: ids.index(passage_id) + 1 for name, ids in lists.items() if passage_id in ids}


class GraphExpansion:
    """Base retrieval, reading, linking, beam search and fusion (GeAR §4), for one store and one set of settings.

    `retrieve_flow` finds base passages, and expands them; `expand_flow` expands those that are given.

    Args:
        backends: the store, and what else the flow reads. Without a base retriever the store itself is searched.
            Without an LLM the beam search starts from the base passages' triples (NaiveGE). With filters, a foreign
            base passage that the store doesn't know can't be checked and is left out.
        beam_search: settings of the beam search; None: the defaults.
        similarity_top_k: passages to return.
        link_top_k: stored triples that a proximal triple is linked to.
        pagerank: settings of PageRank; None: passages are ranked without it.
        prompts: hold the reader's prompt, "read"; None: the default.

    Raises:
        ArgumentError: a number is outside its range.

    """

    check_alignment: bool | None = None  # stored triples are not checked

    def __init__(
        self,
        backends: Backends,
        beam_search: BeamSearch | None = None,
        *,
        similarity_top_k: int = 10,
        link_top_k: int = 1,
        pagerank: LocalPageRank | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        check_counts(similarity_top_k=similarity_top_k, link_top_k=link_top_k)
        self.backends = backends
        self.beam_search = BeamSearch() if beam_search is None else beam_search
        self.similarity_top_k = similarity_top_k
        self.link_top_k = link_top_k
        self.pagerank = pagerank
        self.prompts = Prompts({"read": READ_PROMPT}) if prompts is None else prompts

    def with_prompts(self, prompts: Prompts) -> Self:
        """Return this expansion with other prompts."""
        changed = copy(self)
        changed.prompts = prompts
        return changed

    def retrieve_flow(self, bundle: QueryBundle) -> Flow[list[NodeWithScore]]:
        """Retrieve base passages, then expand them."""
        embedded = yield from embed_query_flow(bundle)
        passages = yield from self.base_search_flow(bundle, embedded)
        return (yield from self._rank_flow(embedded, passages))

    def expand_flow(self, bundle: QueryBundle, base: Sequence[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        """Expand base passages through the graph and fuse both lists, cut at `similarity_top_k` (GeAR §4.2, Eq. 3)."""
        embedded = yield from embed_query_flow(bundle)
        passages = yield from self.apply_filters_flow(base)
        return (yield from self._rank_flow(embedded, passages))

    def _rank_flow(self, embedded: QueryBundle, passages: Mapping[str, BaseNode]) -> Flow[list[NodeWithScore]]:
        """Walk from base passages, and return the first of the fused list, each with its explanation."""
        expansion = yield from self.walk_graph_flow(embedded, passages)
        if problem := expansion.seeds.reading.problem:
            logger.warning("no fact could be read in the reader's replies: the passages were found without them")
            logger.debug("no fact could be read: %s", problem)
        results = []
        for passage_id, score in expansion.fused[: self.similarity_top_k]:
            chain, ranks = expansion.chain(passage_id), expansion.ranks(passage_id)
            node = with_explanation(expansion.nodes[passage_id], chain, ranks)
            results.append(NodeWithScore(node=node, score=score))
        return results

    def base_search_flow(self, bundle: QueryBundle, embedded: QueryBundle) -> Flow[dict[str, BaseNode]]:
        """Retrieve base passages: from the store by `embedded`, from a foreign retriever by the caller's `bundle`.

        They are returned by id, in rank order, without those that the filters exclude.
        """
        return span_flow("base_search", self._base_search_flow(bundle, embedded), show_ids, query=embedded.query_str)

    def _base_search_flow(self, bundle: QueryBundle, embedded: QueryBundle) -> Flow[dict[str, BaseNode]]:
        query = embedded if self.backends.base_retriever is None else copy_query(bundle, embedded.query_str)
        base = yield from self.backends.base_search_flow(query)
        return (yield from self.filter_base_flow(base))

    def filter_base_flow(self, base: Sequence[NodeWithScore]) -> Flow[dict[str, BaseNode]]:
        """`apply_filters_flow`, for what the base search found: the store's own search has applied the filters."""
        if self.backends.base_retriever is None:
            return {result.node.node_id: result.node for result in base}
        return (yield from self.apply_filters_flow(base))

    def apply_filters_flow(self, base: Sequence[NodeWithScore]) -> Flow[dict[str, BaseNode]]:
        """Return the base passages by id, in rank order, without those that the filters exclude."""
        passages = {result.node.node_id: result.node for result in base}
        if self.backends.filters is not None and passages:
            allowed = yield from self.backends.reads.get_flow(list(passages), vectors=False)
            passages = {node.node_id: passages[node.node_id] for node in allowed}
        return passages

    def walk_graph_flow(self, embedded: QueryBundle, passages: Mapping[str, BaseNode]) -> Flow[ExpansionResult]:
        """Walk from base passages through the graph to further ones: reading, linking, beam search, fusion.

        Raises:
            ArgumentError: the store's triples are walked, and some have no vector.

        """
        yield from self.backends.require_vectors_flow()
        question, query = embedded.query_str, embedded.embedding or []
        seeds = yield from self._seeds_flow(question, query, passages)
        beams = yield from diverse_triple_beam_search_flow(
            self.backends.walked, question, query, seeds.triples, self.beam_search
        )
        located, reached = yield from self.locate_flow(triple for beam in beams for triple in beam.chain)
        beams = [replace(beam, chain=tuple(located[triple.id] for triple in beam.chain)) for beam in beams]
        chains = flatten(beams)
        nodes = {**reached, **passages}
        pagerank = yield from self._pagerank_flow(seeds, list(passages))
        missing = [
            passage_id for passage_id in dict.fromkeys([*chains, *pagerank]) if passage_id and passage_id not in nodes
        ]
        if missing:
            fetched = yield from self.backends.reads.get_flow(missing, vectors=False)
            nodes.update({node.node_id: node for node in fetched})
        chains = {passage_id: chain for passage_id, chain in chains.items() if passage_id in nodes}
        pagerank = [passage_id for passage_id in pagerank if passage_id in nodes]
        fused = reciprocal_rank_fusion([list(chains), list(passages), pagerank])
        return ExpansionResult(nodes, list(passages), seeds, beams, chains, pagerank, fused)

    def _pagerank_flow(self, seeds: ExpansionSeeds, passage_ids: list[str]) -> Flow[list[str]]:
        """Rank passages by PageRank from the beam search's seeds and the base passages; return the first ids."""
        if self.pagerank is None:
            return []
        if seeds.reading.triples and not seeds.fallback:
            triples = [(triple, 1.0) for triple in seeds.triples]
        else:
            triples = weigh_triples(seeds.triples[: self.beam_search.beam_size])
        ranking = local_pagerank_flow(self.backends.reads, triples, passage_ids, self.pagerank)
        size = {"triples": len(triples), "passages": len(passage_ids)}
        ranked = yield from span_flow("pagerank", ranking, lambda found: show_ids(dict(found.passages)), **size)
        return [passage_id for passage_id, _ in ranked.passages[: self.similarity_top_k]]

    def _seeds_flow(
        self, question: str, query: Sequence[float], passages: Mapping[str, BaseNode]
    ) -> Flow[ExpansionSeeds]:
        """Read and link (GeAR §4.1, Eq. 1 and 2), or take the base passages' own triples (NaiveGE)."""
        reading, linked, fallback = Reading(()), [], ""
        if self.backends.llm is not None and passages:
            reading = yield from read_facts_flow(question, llm_texts(passages.values()), self.prompts["read"])
            if reading.triples:
                texts = [triple.text for triple in reading.triples]
                answers = yield from self.backends.link_flow(texts, self.link_top_k, query)
                linked = [triple for answer in answers for triple in answer]
            if not linked:
                fallback = reading.problem or (
                    "no triple to link to" if reading.triples else "the reader noted no fact"
                )
        if not linked:
            limit = None if self.beam_search.reads_text else self.beam_search.beam_size
            linked = yield from self.backends.reads.passage_triples_flow(list(passages), query, limit)
        return ExpansionSeeds(reading, linked, fallback)

    def locate_flow(self, triples: Iterable[StoredTriple]) -> Flow[tuple[dict[str, StoredTriple], dict[str, BaseNode]]]:
        """Return the triples by id, each with its passage, and the fetched passages. Stored triples name theirs."""
        yield from ()
        return {triple.id: triple for triple in triples}, {}

    def is_aligned(self, fact: Triple, linked: Triple) -> bool:
        """Return True if a triple is about the same as the fact linked to it. Stored triples are not checked."""
        return True
