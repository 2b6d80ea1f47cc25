"""The memory of a multi-step method: the passages of all steps, their final ranking, and the facts noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_gear.expansion.beam_search import Beam
from llama_index_gear.llm.escaping import escape_fences
from llama_index_gear.nodes import explain_selection, llm_texts, name_passage, with_explanation
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.trace.evidence import Linked, PassageLink, Slots, Source, Walked
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import StoredTriple, Triple, fact_key, serialize_triples


@dataclass
class PassagePool:
    """The passages that the steps of a question retrieved.

    Attributes:
        trace: of the question.
        nodes: passage id → node.
        chains: passage id → the stored triples that first led to it.
        lists: for each step, its passage ids, best first.
        named: ids of the passages that a reader named, most needed first. They stand first in the final ranking.

    """

    trace: Trace
    nodes: dict[str, BaseNode] = field(default_factory=dict)
    chains: dict[str, list[Slots]] = field(default_factory=dict)
    lists: list[list[str]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)

    def add(self, nodes: Mapping[str, BaseNode], chains: Mapping[str, list[Slots]] | None = None) -> None:
        """Add passages, and the chains that led to them. A passage's first node and first chain are kept."""
        for passage_id, node in nodes.items():
            if self.nodes.setdefault(passage_id, node) is node:
                self.trace.titles[passage_id] = name_passage(node)
        for passage_id, chain in (chains or {}).items():
            self.chains.setdefault(passage_id, chain)

    def fused_ids(self) -> list[str]:
        """Return the ids of all steps' passages, fused by RRF, best first."""
        return [passage_id for passage_id, _ in reciprocal_rank_fusion(self.lists)]

    def final_ranking(
        self,
        top_k: int,
        facts: Sequence[Triple] = (),
        linked: Sequence[Sequence[str]] = (),
        kept: Sequence[str] | None = None,
    ) -> list[NodeWithScore]:
        """Fuse the lists of all steps with those of all facts (GeAR Eq. 9); return the best, and add them to the trace.

        Args:
            top_k: passages to return.
            facts: of the gist. Default: none.
            linked: for each fact, ids of its passages, best first.
            kept: ids of the passages that a filter kept, best first; they alone are returned, in this order. Default
                None: no filter.

        """
        serialized = serialize_triples(facts)
        links = [PassageLink(triple=slots, passages=list(ids)) for slots, ids in zip(serialized, linked, strict=True)]
        self.trace.note(links=links)
        lists = {f"step {number}": ids for number, ids in enumerate(self.lists, start=1)}
        lists.update({f"fact {number}": link.passages for number, link in enumerate(links, start=1)})
        fused = reciprocal_rank_fusion(list(lists.values()) if kept is None else [kept])
        if kept is not None:
            lists["filter"] = list(kept)
        if self.named:
            lists["needed"] = self.named
            highest = max(score for _, score in fused)
            first = {passage_id: highest + 1 / rank for rank, passage_id in enumerate(self.named, start=1)}
            fused = [*first.items(), *(item for item in fused if item[0] not in first)]
        results, sources = [], []
        for passage_id, score in fused[:top_k]:
            ranks = {name: ids.index(passage_id) + 1 for name, ids in lists.items() if passage_id in ids}
            node, chain = self.nodes[passage_id], self.chains.get(passage_id, [])
            reasons = explain_selection(ranks["needed"], False, True) if "needed" in ranks else None
            results.append(NodeWithScore(node=with_explanation(node, chain, ranks, reasons), score=score))
            sources.append(
                Source(
                    passage_id=passage_id,
                    title=name_passage(node),
                    text=llm_texts([node])[0],
                    score=score,
                    ranks=ranks,
                    chain=chain,
                )
            )
        self.trace.note(passages=sources)
        return results


class GistMemory:
    """The gist memory: the facts noted so far, in order, without repetition (GeAR §5.1, Eq. 5).

    Two facts are the same if their three slots are, up to case, punctuation and white space.

    Args:
        size: maximum number of facts; further ones are left out. Default 100.

    """

    def __init__(self, size: int = 100) -> None:
        self.size = size
        self._facts: dict[tuple[str, ...], Triple] = {}

    @property
    def triples(self) -> list[Triple]:
        """The facts, in order."""
        return list(self._facts.values())

    @property
    def text(self) -> str:
        """The facts for a prompt, one a line; "(none)" without any."""
        return "\n".join(f"- {escape_fences(fact.text)}" for fact in self._facts.values()) or "(none)"

    def add(self, triples: Iterable[Triple]) -> tuple[list[Triple], int]:
        """Add the facts that are new.

        Returns:
            The facts that were added, and the number of new facts that were left out because the memory is full.

        """
        added: list[Triple] = []
        left_out: set[tuple[str, ...]] = set()
        for triple in triples:
            key = fact_key((triple.subject, triple.predicate, triple.object))
            if key in self._facts:
                continue
            if len(self._facts) >= self.size:
                left_out.add(key)
                continue
            self._facts[key] = triple
            added.append(triple)
        return added, len(left_out)


def trace_triples(triples: Iterable[StoredTriple]) -> list[Linked]:
    """Convert stored triples to the trace's form."""
    return [
        Linked(triple=slots, passage_id=stored.passage_id, score=round(stored.score, 4))
        for stored in triples
        for slots in serialize_triples([stored.triple])
    ]


def trace_beams(beams: Iterable[Beam]) -> list[Walked]:
    """Convert beams to the trace's form."""
    return [
        Walked(
            score=round(beam.score, 4),
            chain=serialize_triples(stored.triple for stored in beam.chain),
            passage_ids=[stored.passage_id for stored in beam.chain],
        )
        for beam in beams
    ]
