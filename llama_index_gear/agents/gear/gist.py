"""The base of the agents with a gist memory: their state, and the final ranking of passages (GeAR §5, Eq. 8 to 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_gear.agents.loop import describe_failure
from llama_index_gear.agents.memory import GistMemory, PassagePool
from llama_index_gear.errors import GeARError
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.flow import EmbedQuery, Flow, Request, ask_all, interleave, relay
from llama_index_gear.llm.prompting import Prompts
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.trace.evidence import PassageLink, Step
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import StoredTriple, Triple, serialize_triples


@dataclass
class SearchState:
    """The state of a policy that searches step by step.

    Attributes:
        trace: of the question.
        bundle: the next step's query.
        gist: the facts noted so far.
        pool: the passages retrieved so far.
        queries: of the steps so far, in order.

    """

    trace: Trace
    bundle: QueryBundle
    gist: GistMemory
    pool: PassagePool
    queries: list[str] = field(default_factory=list)


@dataclass
class GistState(SearchState):
    """The state of a policy whose gist is linked to passages.

    Attributes:
        embedding: of the question.

    """

    embedding: Sequence[float] = ()


@dataclass(kw_only=True)
class GistPolicy:
    """The base class of the policies that note facts, and link them to passages at the end.

    Args:
        expansion: the settings with which facts are linked.
        max_steps: maximum number of steps.
        top_k: passages to return.
        prompts: by name.
        passage_link_top_k: number of passages, and of triples, that each fact of the gist is linked to. Default 3.

    """

    expansion: GraphExpansion
    max_steps: int
    top_k: int
    prompts: Prompts
    passage_link_top_k: int = 3

    def begin(self, query: QueryBundle, trace: Trace) -> GistState:
        """Return the state before the first step: nothing is known but the question."""
        return GistState(trace, query, GistMemory(), PassagePool(trace))

    def remember(self, state: GistState, record: Step, triples: Sequence[Triple]) -> None:
        """Note facts in the gist, and those that are new in the record."""
        added, left_out = state.gist.add(triples)
        state.trace.note(record, gist=serialize_triples(added), left_out=left_out)

    def finish_flow(self, state: GistState) -> Flow[list[NodeWithScore]]:
        """Link the gist to passages (GeAR Eq. 8), and fuse these lists with those of all steps (GeAR Eq. 9)."""
        facts = state.gist.triples
        linked: list[list[str]] = []
        failures: list[Exception] = []

        def answer_batch_flow(batch: Sequence[Request[Any]]) -> Flow[Sequence[Any]]:
            try:
                return (yield batch)
            except Exception as error:
                failures.append(error)
                raise

        try:
            linked = (yield from relay(self._link_flow(state, facts), answer_batch_flow)) if facts else []
        except Exception as error:  # a request's failure, as in a step; an error of our own is raised
            is_bug = not isinstance(error, GeARError) and not any(error is failure for failure in failures)
            if is_bug or not any(state.pool.lists):
                raise
            state.trace.note(stopped=describe_failure(error))  # the steps' passages are ranked without the gist's
        if linked:
            state.trace.note(
                links=[
                    PassageLink(triple=slots, passages=ids)
                    for slots, ids in zip(serialize_triples(facts), linked, strict=True)
                ]
            )
        return state.pool.final_ranking(linked, self.top_k)

    def _link_flow(self, state: GistState, facts: Sequence[Triple]) -> Flow[list[list[str]]]:
        """Return, for each fact, passageLink(t, k) = RRF(h(t, C), passages of h(t, T)) (GeAR Eq. 10), as passage ids.

        h over passages is the base retriever; over stored triples it is dense search, whatever the base retriever, or
        BM25 where they have no vectors; over a graph that exists it is the graph's own. Passages that don't exist any
        more, or that the filters exclude, are left out.
        """
        texts = [fact.text for fact in facts]
        bundles, backends = [QueryBundle(text) for text in texts], self.expansion.backends
        top_k = self.passage_link_top_k
        if backends.base_retriever is None:
            embeddings = yield from ask_all([EmbedQuery(text) for text in texts])
            bundles = [QueryBundle(text, embedding=vector) for text, vector in zip(texts, embeddings, strict=True)]
        names = [f"{fact.subject} {fact.object}" for fact in facts]
        linking = backends.link_notes_flow(texts, top_k, state.embedding, names)
        searches = interleave([backends.base_search_flow(bundle) for bundle in bundles])
        both: list[Flow[list[list[Any]]]] = [linking, searches]
        linked_triples, results = yield from interleave(both)
        triple_lists = yield from self._locate_flow(state, facts, linked_triples)
        admitted = yield from self.expansion.filter_base_flow(list(chain.from_iterable(results)))
        search_lists = [[n.node.node_id for n in result if n.node.node_id in admitted][:top_k] for result in results]
        state.pool.add({node_id: admitted[node_id] for node_ids in search_lists for node_id in node_ids})
        stored_triples = list(chain.from_iterable(triple_lists))
        missing = [stored.passage_id for stored in stored_triples if stored.passage_id not in state.pool.nodes]
        if missing:
            fetched = yield from backends.reads.get_flow(list(dict.fromkeys(missing)), vectors=False)
            state.pool.add({node.node_id: node for node in fetched})
        for stored in stored_triples:
            state.pool.chains.setdefault(stored.passage_id, serialize_triples([stored.triple]))
        linked = []
        for triples, by_search in zip(triple_lists, search_lists, strict=True):
            by_triple = [stored.passage_id for stored in triples if stored.passage_id in state.pool.nodes]
            fused = reciprocal_rank_fusion([by_search, by_triple])
            linked.append([passage_id for passage_id, _ in fused])
        return linked

    def _locate_flow(
        self, state: GistState, facts: Sequence[Triple], linked: Sequence[Sequence[StoredTriple]]
    ) -> Flow[list[list[StoredTriple]]]:
        """Return, for each fact, its linked triples that are about the same and have a passage, with that passage."""
        aligned = [
            [stored for stored in triples if self.expansion.is_aligned(fact, stored.triple)]
            for fact, triples in zip(facts, linked, strict=True)
        ]
        located, nodes = yield from self.expansion.locate_flow(chain.from_iterable(aligned))
        state.pool.add(nodes)
        return [[located[stored.id] for stored in triples if located[stored.id].passage_id] for triples in aligned]
