"""Personalised PageRank over triples and passages, computed only where it matters.

HippoRAG ranks passages by a PageRank over the whole graph. What starts at a few seeds stays near them: pushing it along
edges until what is left is too little to matter (Andersen, Chung and Lang 2006) gives the same ranking at a cost that
doesn't depend on the size of the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index_gear.errors import check_numbers
from llama_index_gear.flow import Flow, ask
from llama_index_gear.requests import Incidence, IncidentTriples
from llama_index_gear.triple import StoredTriple

_MENTIONS = 100
"""Triples of a seed that are read to count its passages."""


class Node(NamedTuple):
    """A node of the graph: a passage (by its id) or an entity (by its key)."""

    name: str
    is_passage: bool = False


@dataclass(frozen=True)
class LocalPageRank:
    """The settings of a personalised PageRank over the passages' own triples.

    Entities and passages are nodes. Every triple is an edge between its two entities, and every passage has an edge to
    each entity of its triples, as in HippoRAG 2. Random walks start at the entities of the triples that the beam search
    starts from, and at the base passages. A triple counts 1 if a reader noted its like, else its cosine with the
    question over that of the best; an entity's share is the mean over its triples, divided by the number of its
    passages (as many as its first 100 triples have): what everybody mentions says little. A base passage's share is
    `passage_weight` / √rank.

    Args:
        restart: probability that a walk ends at the node where it is. Default 0.5 (HippoRAG's damping).
        epsilon: what is left at a node moves on while it is at least `epsilon` times the node's degree. Smaller is more
            exact and slower: at most 1 / (`restart` · `epsilon`) edges are followed. Default 1e-3.
        passage_weight: of the first base passage; an entity's share is at most 1. Default 0.01.

    Raises:
        ArgumentError: a number outside its range.

    """

    restart: float = 0.5
    epsilon: float = 1e-3
    passage_weight: float = 0.01

    def __post_init__(self) -> None:
        check_numbers("above 0 and at most 1", lambda number: 0 < number <= 1, restart=self.restart)
        check_numbers("1e-9 or more, and below 1", lambda number: 1e-9 <= number < 1, epsilon=self.epsilon)
        check_numbers("0 or more", lambda number: number >= 0, passage_weight=self.passage_weight)


@dataclass
class _Graph:
    """As much of the graph as has been read."""

    edges: dict[Node, dict[Node, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    degrees: dict[Node, float] = field(default_factory=lambda: defaultdict(float))
    complete: set[Node] = field(default_factory=set)  # all of their triples are read
    asked: dict[Node, int] = field(default_factory=dict)  # of those with more triples: how many were read
    seen: set[str] = field(default_factory=set)

    def add(self, triples: Iterable[Incidence]) -> None:
        """A triple is an edge between its entities; one that says two things of one entity, a loop, is none."""
        for triple in triples:
            if triple.id in self.seen:
                continue
            self.seen.add(triple.id)
            entities = [Node(entity) for entity in triple.entities]
            if len(entities) == 2:
                self._join(entities[0], entities[1])
            passage = Node(triple.passage_id, is_passage=True)
            for entity in entities:
                if entity not in self.edges[passage]:
                    self._join(passage, entity)

    def degree(self, node: Node) -> float:
        """The node's degree if it is complete, else what it is at least."""
        return self.degrees.get(node, 0.0 if node in self.complete else 1.0)

    def passages(self, entity: Node) -> int:
        """How many passages mention the entity, of those that were read."""
        return sum(node.is_passage for node in self.edges.get(entity, ()))

    def _join(self, one: Node, other: Node) -> None:
        self.edges[one][other] += 1.0
        self.edges[other][one] += 1.0
        self.degrees[one] += 1.0
        self.degrees[other] += 1.0


def local_pagerank_flow(
    start: Sequence[tuple[StoredTriple, float]], passage_ids: Sequence[str], settings: LocalPageRank
) -> Flow[list[tuple[str, float]]]:
    """Passages by personalised PageRank from some triples and passages.

    Args:
        start: triples, and how much each counts, from 0 to 1.
        passage_ids: base passages, best first.
        settings: restart probability, exactness, weight of the base passages.

    Returns:
        (passage id, share of the walks that end there) of the passages that were reached, best first; ties by id. A
        share is too small by at most `epsilon` times the node's degree.

    """
    graph = _Graph()
    seeds = yield from _seeds_flow(graph, start, passage_ids, settings)
    total = sum(seeds.values())
    if not total:
        return []
    left = {node: share / total for node, share in seeds.items()}
    ranked: dict[Node, float] = {}
    while active := [n for n, share in left.items() if share and share >= settings.epsilon * graph.degree(n)]:
        wanted = {
            node: max(int(left[node] / settings.epsilon) + 1, 2 * graph.asked.get(node, 0))
            for node in active
            if node not in graph.complete
        }
        if wanted:
            yield from _read_flow(graph, wanted)
        _push(graph, active, left, ranked, settings)
    for node, share in left.items():  # the least that it adds
        ranked[node] = ranked.get(node, 0.0) + settings.restart * share
    found = [(node.name, share) for node, share in ranked.items() if node.is_passage]
    return sorted(found, key=lambda item: (-round(item[1], 12), item[0]))


def _seeds_flow(
    graph: _Graph, start: Sequence[tuple[StoredTriple, float]], passage_ids: Sequence[str], settings: LocalPageRank
) -> Flow[dict[Node, float]]:
    shares: dict[Node, list[float]] = {}
    for triple, counts in start:
        for entity in triple.entities:
            shares.setdefault(Node(entity), []).append(counts)
    if shares:
        yield from _read_flow(graph, dict.fromkeys(shares, _MENTIONS))
    seeds = {entity: sum(several) / len(several) / max(1, graph.passages(entity)) for entity, several in shares.items()}
    for rank, passage_id in enumerate(passage_ids, start=1):
        seeds[Node(passage_id, is_passage=True)] = settings.passage_weight / rank**0.5
    return seeds


def _read_flow(graph: _Graph, wanted: Mapping[Node, int]) -> Flow[None]:
    """Read the triples of each node, at most as many as are given beside it: if there are fewer, it is complete."""
    groups = [([], [node.name]) if node.is_passage else ([node.name], []) for node in wanted]
    answers = yield from ask(IncidentTriples(groups, list(wanted.values())))
    for (node, most), answer in zip(wanted.items(), answers, strict=True):
        graph.add(answer)
        if len(answer) < most:
            graph.complete.add(node)
        else:
            graph.asked[node] = most


def _push(
    graph: _Graph, active: Sequence[Node], left: dict[Node, float], ranked: dict[Node, float], settings: LocalPageRank
) -> None:
    """Move on what is left at these nodes, where enough of them is known and enough is left."""
    for node in active:
        share, degree = left[node], graph.degree(node)
        if node not in graph.complete or share < settings.epsilon * degree:
            continue
        near = graph.edges.get(node, {})
        left[node] = 0.0
        ranked[node] = ranked.get(node, 0.0) + (settings.restart if near else 1.0) * share
        for neighbor, weight in near.items():
            passing = (1 - settings.restart) * share * weight / degree
            left[neighbor] = left.get(neighbor, 0.0) + passing
