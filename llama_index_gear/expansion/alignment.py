"""Graph expansion over an external graph, with online alignment of triples and passages (Millions of GeAR-s §4.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pipeline import ExpansionSeeds, GraphExpansion
from llama_index_gear.expansion.reader import Reading, read_facts_flow
from llama_index_gear.flow import Flow
from llama_index_gear.nodes import llm_texts
from llama_index_gear.triple import StoredTriple, Triple, entity_key

_EMPTY_WORDS = frozenset("a an the of in and".split())


class ExternalGraphExpansion(GraphExpansion):
    """Graph expansion over a graph whose triples belong to no passage.

    A fact that the reader noted is linked to the graph's triple that is most similar to it (Eq. 3). Each triple of the
    beams leads to the passage that BM25 ranks first for it (Eq. 4). Without a reader, the search starts from the
    triples that are most similar to the question itself.

    Args:
        *arguments: see `GraphExpansion`; the backends must have a graph.
        check_alignment: drop links whose triple is about something else than the fact; see `shared_name`.
        **settings: see `GraphExpansion`.

    """

    def __init__(self, *arguments: Any, check_alignment: bool = True, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.check_alignment = check_alignment

    def read_flow(self, question: str, passages: Mapping[str, BaseNode]) -> Flow[Reading]:
        """Return the facts that the reader notes in the passages.

        Raises:
            StoreError: there is no graph. That is found out before the reader is asked.

        """
        if not passages:
            return Reading(())
        yield from self.backends.walked.fetch_triples_flow([])
        return (yield from read_facts_flow(question, llm_texts(passages.values()), self.prompts["read"]))

    def _seeds_flow(
        self, question: str, query: Sequence[float], passages: Mapping[str, BaseNode]
    ) -> Flow[ExpansionSeeds]:
        """Read, link, and drop the misaligned links."""
        if self.backends.llm is None:
            (nearest,) = yield from self.backends.link_flow([question], self.beam_search.beam_size, query)
            return ExpansionSeeds(Reading(()), nearest)
        reading = yield from self.read_flow(question, passages)
        if not reading.triples:
            return ExpansionSeeds(reading, [], f"{reading.problem or 'the reader noted no fact'}: no expansion")
        texts = [triple.text for triple in reading.triples]
        names = [f"{triple.subject} {triple.object}" for triple in reading.triples]
        answers = yield from self.backends.link_flow(texts, self.link_top_k, query, names)
        links = [(fact, triple) for fact, linked in zip(reading.triples, answers, strict=True) for triple in linked]
        aligned = [triple for fact, triple in links if self.is_aligned(fact, triple.triple)]
        misaligned = [
            (fact, triple, shared_name(fact, triple.triple))
            for fact, triple in links
            if not self.is_aligned(fact, triple.triple)
        ]
        why = "no linked triple is about the same" if links else "no triple to link to"
        return ExpansionSeeds(reading, aligned, "" if aligned else f"{why}: no expansion", misaligned)

    def locate_flow(self, triples: Iterable[StoredTriple]) -> Flow[tuple[dict[str, StoredTriple], dict[str, BaseNode]]]:
        """Return the triples by id, each with the passage that BM25 ranks first for it (Eq. 4), and these passages."""
        located = {triple.id: triple for triple in triples}
        if not located:
            return {}, {}
        answers = yield from self.backends.reads.align_flow([triple.triple.text for triple in located.values()], 1)
        nodes: dict[str, BaseNode] = {}
        for triple_id, results in zip(list(located), answers, strict=True):
            for result in results:
                located[triple_id] = replace(located[triple_id], passage_id=result.node.node_id)
                nodes[result.node.node_id] = result.node
        return located, nodes

    def is_aligned(self, fact: Triple, linked: Triple) -> bool:
        """Return True if both triples share more than half of a name; see `shared_name`."""
        return not self.check_alignment or shared_name(fact, linked) > 0.5


def build_expansion(
    backends: Backends, beam_search: BeamSearch | None, *, check_alignment: bool | None = None, **settings: Any
) -> GraphExpansion:
    """Build the expansion that fits the backends: over their graph, if they have one.

    Args:
        backends: see `GraphExpansion`.
        beam_search: see `GraphExpansion`.
        check_alignment: see `ExternalGraphExpansion`; None: its default.
        **settings: see `GraphExpansion`.

    Raises:
        ArgumentError: `check_alignment` without a graph, or `pagerank` with one.

    """
    if backends.graph is None:
        if check_alignment is not None:
            raise ArgumentError("check_alignment is about links to a graph: leave it out, or give a graph")
        return GraphExpansion(backends, beam_search, **settings)
    if settings.get("pagerank") is not None:
        raise ArgumentError("pagerank walks the passages' own triples: leave it out, or leave out graph")
    is_checked = True if check_alignment is None else check_alignment
    return ExternalGraphExpansion(backends, beam_search, check_alignment=is_checked, **settings)


def shared_name(fact: Triple, linked: Triple) -> float:
    """Return how much of a name two triples share, from 0 to 1: the best over the pairs of their ends.

    The value of a pair is the cosine of both sets of words: the number of common words over the geometric mean of both
    numbers of words. A link is good if its triple is about one of the things that the fact is about. "Pacific geoduck"
    and "Pacific oyster" share 0.5; "broadcast spawning" and the long title of a paper share too little (Millions of
    GeAR-s, Table 2).
    """
    pairs = [(_words(end), _words(linked_end)) for end in _ends(fact) for linked_end in _ends(linked)]
    return max(len(words & others) / math.sqrt(len(words) * len(others)) for words, others in pairs)


def _ends(triple: Triple) -> tuple[str, str]:
    return triple.subject, triple.object


def _words(name: str) -> set[str]:
    words = set(entity_key(name).split())
    return words - _EMPTY_WORDS or words
