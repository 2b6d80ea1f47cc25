"""Personalized PageRank over triples and passages, computed only near its seeds.

HippoRAG ranks passages by a PageRank over the whole graph. Walks from a few seeds mostly end near them. Pushing their
probability along edges until the remainder is negligible (Andersen, Chung and Lang 2006) gives the same ranking at a
cost that doesn't depend on the size of the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, product
from typing import NamedTuple, Protocol, TypeAlias

from llama_index_gear.errors import check_numbers
from llama_index_gear.flow import Flow
from llama_index_gear.triple import Incidence, StoredTriple, Triple

_MENTIONS = 100
"""Triples of a seed entity that are read to count its passages."""
_FEW_REQUESTS = 4
"""Requests after which nodes are read ahead: later ones are small, and on a server each takes its time."""

Node: TypeAlias = int
"""A node of the graph, by its number: even ones are entities, odd ones passages. Numbers are the fastest keys."""


@dataclass(frozen=True)
class LocalPageRank:
    """The settings of a personalized PageRank over the passages' own triples.

    Entities and passages are nodes. Every triple is an edge between its two entities, and every passage has an edge to
    each entity of its triples, as in HippoRAG 2. Random walks start at the entities of some triples, and at the base
    passages. An entity's share is the mean weight of its triples, divided by the number of its passages (counted in its
    first 100 triples), since entities that many passages mention say little. A base passage's share is
    `passage_weight` / √rank.

    - SyncGE and NaiveGE start from the triples that their beam search starts from. One that was linked to a
      reader's fact has weight 1; any other has its cosine with the question, divided by the highest one.
    - `GraphRetriever` and `GeARRetriever` start from the facts of a pool's first passages that share most words with
      the question. A fact's weight is the share of the question's words that it has, divided by the highest one; no
      vector is compared. A triple that was linked to the agent's notes has weight 1.

    Args:
        restart: probability that a walk ends at its current node. Default 0.5 (HippoRAG's damping).
        epsilon: the remainder at a node is pushed on while it is at least `epsilon` times the node's degree. Smaller is
            more exact and slower: at most 1 / (`restart` · `epsilon`) edges are followed. Default 1e-3.
        passage_weight: share of the first base passage; an entity's share is at most 1. Default 0.01.

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


class PageRanking(NamedTuple):
    """The passages that PageRank reached, and the links of aliases that stand in the triples that it read.

    Attributes:
        passages: (passage id, share of the walks that end there), best first; ties by id.
        aliases: (entity, alias).

    """

    passages: list[tuple[str, float]]
    aliases: frozenset[tuple[str, str]]


@dataclass
class _Graph:
    """The part of the graph that has been read.

    Attributes:
        entities: entity key → its node; a new key gets the next.
        passages: passage id → its node; a new id gets the next.
        edges: node → its neighbors, with the number of edges to each.
        degrees: node → number of its edges.
        complete: nodes all of whose triples are read.
        asked: incomplete node → number of triples read.
        seen: ids of the triples that are read.
        aliases: (entity, alias) of the links that the triples have.
        answers: node → its first triples by id, and the limit that they were read with.
        requests: number of requests made.

    """

    entities: dict[str, Node] = field(default_factory=lambda: defaultdict(count(0, 2).__next__))
    passages: dict[str, Node] = field(default_factory=lambda: defaultdict(count(1, 2).__next__))
    edges: dict[Node, dict[Node, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    degrees: dict[Node, float] = field(default_factory=lambda: defaultdict(float))
    complete: set[Node] = field(default_factory=set)
    asked: dict[Node, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    aliases: set[tuple[str, str]] = field(default_factory=set)
    answers: dict[Node, tuple[Sequence[Incidence], int]] = field(default_factory=dict)
    requests: int = 0

    def add(self, triples: Iterable[Incidence]) -> None:
        """Add triples: each is an edge between its two entities. A triple with a single entity (a loop) is no edge.

        A linked alias stands where its entity does: an entity has the edges of all triples that name it or an alias.
        """
        edges, degrees = self.edges, self.degrees
        for triple_id, keys, passage_id, aliases in triples:
            if triple_id in self.seen:
                continue
            self.seen.add(triple_id)
            names = [self.entities[key] for key in keys]
            pairs: Iterable[tuple[Node, ...]] = [(names[0], names[1])] if len(names) == 2 else []
            if aliases:
                self.aliases.update(aliases)
                ends = [[node] for node in names]
                for key, end in zip(keys, ends, strict=True):
                    end.extend(self.entities[alias] for entity, alias in aliases if entity == key)
                pairs = product(*ends) if len(ends) == 2 else []
                names = list(chain.from_iterable(ends))
            for one, other in pairs:
                edges[one][other] += 1.0
                edges[other][one] += 1.0
                degrees[one] += 1.0
                degrees[other] += 1.0
            passage = self.passages[passage_id]
            neighbors = edges[passage]
            for entity in names:
                if entity not in neighbors:  # nearly all joins are here
                    neighbors[entity] = edges[entity][passage] = 1.0
                    degrees[passage] += 1.0
                    degrees[entity] += 1.0

    def degree(self, node: Node) -> float:
        """Return the node's degree if the node is complete, else a lower bound."""
        return self.degrees.get(node, 0.0 if node in self.complete else 1.0)

    def has_read(self, node: Node, limit: int) -> bool:
        """Return True if the node's first triples, up to the limit, are among the answers."""
        triples, last_limit = self.answers.get(node, ((), 0))
        return limit <= last_limit or len(triples) < last_limit

    def count_passages(self, entity: Node) -> int:
        """Return the number of passages that mention the entity, among those that were read."""
        return sum(node % 2 for node in self.edges.get(entity, ()))


class Incidences(Protocol):
    """The reads of PageRank: the triples of entities and passages."""

    def incident_flow(
        self, groups: Sequence[tuple[Sequence[str], Sequence[str]]], limits: Sequence[int]
    ) -> Flow[list[list[Incidence]]]:
        """See `TripleReads.incident_flow`."""


def local_pagerank_flow(
    reads: Incidences,
    start: Sequence[tuple[StoredTriple | Triple, float]],
    passage_ids: Sequence[str],
    settings: LocalPageRank,
) -> Flow[PageRanking]:
    """Rank passages by personalized PageRank from some triples and passages.

    Args:
        reads: the triples that are walked.
        start: (triple, weight from 0 to 1) of the triples to start from.
        passage_ids: ids of the base passages, best first.
        settings: restart probability, exactness, weight of the base passages.

    Returns:
        The passages that were reached. A share is too small by at most `epsilon` times the node's degree.

    """
    graph = _Graph()
    seeds = yield from _seeds_flow(reads, graph, start, passage_ids, settings)
    total = sum(seeds.values())
    if not total:
        return PageRanking([], frozenset(graph.aliases))
    left = {node: share / total for node, share in seeds.items()}
    ranked: dict[Node, float] = {}
    while active := [node for node, share in left.items() if share and share >= settings.epsilon * graph.degree(node)]:
        wanted = {
            node: max(int(left[node] / settings.epsilon) + 1, 2 * graph.asked.get(node, 0))
            for node in active
            if node not in graph.complete
        }
        if wanted:
            ahead = _choose_ahead(graph, left, settings) if graph.requests >= _FEW_REQUESTS else {}
            yield from _read_flow(reads, graph, wanted, ahead)
        _push(graph, active, left, ranked, settings)
    for node, share in left.items():  # at least this share of the remainder ends at the node itself
        ranked[node] = ranked.get(node, 0.0) + settings.restart * share
    passages = [(passage_id, ranked[node]) for passage_id, node in graph.passages.items() if node in ranked]
    passages.sort(key=lambda item: (-round(item[1], 12), item[0]))
    return PageRanking(passages, frozenset(graph.aliases))


def weigh_triples(nearest: Sequence[StoredTriple]) -> list[tuple[StoredTriple, float]]:
    """Return the triples to start from with their weights: the cosine with the question over that of the best."""
    best = max((triple.score for triple in nearest), default=0.0)
    return [(triple, triple.score / best) for triple in nearest if triple.score > 0]


def _seeds_flow(
    reads: Incidences,
    graph: _Graph,
    start: Sequence[tuple[StoredTriple | Triple, float]],
    passage_ids: Sequence[str],
    settings: LocalPageRank,
) -> Flow[dict[Node, float]]:
    weights: dict[Node, list[float]] = {}
    for triple, weight in start:
        for entity in triple.entities:
            weights.setdefault(graph.entities[entity], []).append(weight)
    if weights:
        yield from _read_flow(reads, graph, dict.fromkeys(weights, _MENTIONS), {})
    seeds = {
        entity: sum(several) / len(several) / max(1, graph.count_passages(entity))
        for entity, several in weights.items()
    }
    for rank, passage_id in enumerate(passage_ids, start=1):
        seeds[graph.passages[passage_id]] = settings.passage_weight / rank**0.5
    return seeds


def _choose_ahead(graph: _Graph, left: Mapping[Node, float], settings: LocalPageRank) -> dict[Node, int]:
    """Return the nodes that will soon be wanted, each with its limit: a remainder half as large as they need."""
    return {
        node: int(2 * share / settings.epsilon) + 1
        for node, share in left.items()
        if node not in graph.complete and share and 2 * share >= settings.epsilon * graph.degree(node)
    }


def _read_flow(reads: Incidences, graph: _Graph, wanted: Mapping[Node, int], ahead: Mapping[Node, int]) -> Flow[None]:
    """Add the triples of each node that is wanted, up to its limit; with fewer than its limit a node is complete.

    All that is unread is asked for in one request, with what is read ahead. If all that is wanted has been read, there
    is no request.
    """
    entities, passages = list(graph.entities), list(graph.passages)  # in the order of their numbers
    unread = {node: limit for node, limit in {**ahead, **wanted}.items() if not graph.has_read(node, limit)}
    if unread.keys() & wanted.keys():
        groups = [([], [passages[node // 2]]) if node % 2 else ([entities[node // 2]], []) for node in unread]
        answers = yield from reads.incident_flow(groups, list(unread.values()))
        graph.answers |= zip(unread, zip(answers, unread.values(), strict=True), strict=True)
        graph.requests += 1
    for node, limit in wanted.items():
        triples = graph.answers[node][0][:limit]
        graph.add(triples)
        if len(triples) < limit:
            graph.complete.add(node)
        else:
            graph.asked[node] = limit


def _push(
    graph: _Graph, active: Sequence[Node], left: dict[Node, float], ranked: dict[Node, float], settings: LocalPageRank
) -> None:
    """Push the remainder of each complete node to its neighbors, if the remainder is large enough."""
    for node in active:
        share, degree = left[node], graph.degree(node)
        if node not in graph.complete or share < settings.epsilon * degree:
            continue
        edges = graph.edges.get(node, {})
        left[node] = 0.0
        ranked[node] = ranked.get(node, 0.0) + (settings.restart if edges else 1.0) * share
        for neighbor, weight in edges.items():
            passing = (1 - settings.restart) * share * weight / degree
            left[neighbor] = left.get(neighbor, 0.0) + passing
