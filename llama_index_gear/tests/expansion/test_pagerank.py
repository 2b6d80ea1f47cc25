"""PageRank by local push: against the linear system that it approximates, and how little of the graph it reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import llama_index_gear.expansion.pagerank as pagerank
from llama_index_gear import LocalPageRank
from llama_index_gear.expansion.pagerank import local_pagerank_flow
from llama_index_gear.flow import Flow, run
from llama_index_gear.triple import Incidence, StoredTriple, Triple

Row = tuple[str, str, str]  # subject, object, passage


@dataclass
class Graph:
    """Triples in memory, and a record of what is read of them."""

    rows: Sequence[Row]
    read: int = 0
    limits: list[list[int]] = field(default_factory=list)
    passages: set[str] = field(default_factory=set)

    def incident_flow(
        self, groups: Sequence[tuple[Sequence[str], Sequence[str]]], limits: Sequence[int]
    ) -> Flow[list[list[Incidence]]]:
        yield from ()
        self.limits.append(list(limits))
        self.passages.update(passage for _, passages in groups for passage in passages)
        answers = []
        for (entities, passages), limit in zip(groups, limits, strict=True):
            found = [
                Incidence(f"{number:05}", tuple(dict.fromkeys((s, o))), p)
                for number, (s, o, p) in enumerate(self.rows)
                if p in passages or s in entities or o in entities
            ][:limit]
            self.read += len(found)
            answers.append(found)
        return answers


def make_triples(subject: str, object_: str, passage: str, score: float) -> StoredTriple:
    return StoredTriple(f"{subject}-{object_}", Triple(subject, "p", object_), passage, score, (subject, object_))


def _refuse(request: Any) -> Any:
    raise AssertionError(request)


def rank_nodes(
    graph: Graph,
    start: Sequence[StoredTriple],
    passages: Sequence[str],
    **settings: Any,
) -> list[tuple[str, float]]:
    counted = [(triple, triple.score) for triple in start]
    flow = local_pagerank_flow(graph, counted, passages, LocalPageRank(**settings))
    return run(flow, _refuse).passages


def solve_exactly(rows: Sequence[Row], seeds: dict[str, float], restart: float) -> dict[str, float]:
    """Return the stationary shares by solving the linear system; entities and passages have distinct names here."""
    names = sorted({name for row in rows for name in row} | set(seeds))
    number = {name: n for n, name in enumerate(names)}
    weights = np.zeros((len(names), len(names)))
    for s, o, p in rows:
        if s != o:
            weights[number[s], number[o]] += 1
            weights[number[o], number[s]] += 1
        for entity in (s, o):
            weights[number[p], number[entity]] = weights[number[entity], number[p]] = 1
    degrees = weights.sum(axis=1)
    alone = degrees == 0
    transition = np.where(alone[:, None], np.eye(len(names)), weights / np.where(alone, 1, degrees)[:, None])
    start = np.zeros(len(names))
    for name, share in seeds.items():
        start[number[name]] = share / sum(seeds.values())
    shares = np.linalg.solve(np.eye(len(names)) - (1 - restart) * transition.T, restart * start)
    return {name: float(shares[number[name]]) for name in names}


def draw_corpus(seed: int, triples: int = 60) -> list[Row]:
    chance = random.Random(seed)
    entities = [f"e{n}" for n in range(20)]
    return [
        (chance.choice(entities), entities[int(20 * chance.random() ** 3)], f"p{chance.randrange(15):02}")
        for _ in range(triples)
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("restart", [0.15, 0.5, 0.9])
def test_it_is_the_solution_of_the_linear_system(seed: int, restart: float) -> None:
    rows = draw_corpus(seed)
    start = [
        make_triples(rows[3][0], rows[3][1], rows[3][2], 0.8),
        make_triples(rows[9][0], rows[9][1], rows[9][2], 0.4),
    ]
    base = ["p03", "p01", "elsewhere"]
    found = rank_nodes(Graph(rows), start, base, restart=restart, epsilon=1e-9, passage_weight=0.1)
    mentions = {e: {p for s, o, p in rows if e in (s, o)} for row in rows for e in row[:2]}
    shares: dict[str, list[float]] = {}
    for triple in start:
        for entity in dict.fromkeys(triple.entities):
            shares.setdefault(entity, []).append(triple.score)
    seeds = {entity: float(np.mean(scores)) / len(mentions[entity]) for entity, scores in shares.items()}
    seeds.update({passage: 0.1 / rank**0.5 for rank, passage in enumerate(base, start=1)})
    truth = solve_exactly(rows, seeds, restart)
    assert found == sorted(found, key=lambda entry: -entry[1])
    for passage, share in found:
        assert share == pytest.approx(truth[passage], abs=1e-6)
    assert {passage for passage, _ in found} == {name for name, share in truth.items() if name[0] != "e" and share} | {
        "elsewhere"
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("epsilon", [0.03, 0.003])
def test_a_share_is_too_small_by_epsilon_times_the_degree_at_most(seed: int, epsilon: float) -> None:
    rows = draw_corpus(seed, 400)
    start = [make_triples(*rows[7], 1.0)]
    found = dict(rank_nodes(Graph(rows), start, [], epsilon=epsilon))
    mentions = {e: len({p for s, o, p in rows if e in (s, o)}) for e in rows[7][:2]}
    truth = solve_exactly(rows, {entity: 1 / number for entity, number in mentions.items()}, 0.5)
    degrees = {p: len({e for s, o, q in rows if q == p for e in (s, o)}) for *_, p in rows}
    for passage, degree in degrees.items():
        share = found.get(passage, 0.0)
        assert truth[passage] - epsilon * degree - 1e-9 <= share <= truth[passage] + 1e-9


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("mentions", [1, 3])
def test_what_was_read_in_part_is_read_whole_when_it_is_worth_it(
    seed: int, mentions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares stay within epsilon for loops and repeated triples, although a seed shows few triples at first."""
    monkeypatch.setattr(pagerank, "_MENTIONS", mentions)
    chance = random.Random(seed)
    rows = draw_corpus(seed, 80) + [
        (f"e{n}", f"e{n}", f"p{chance.randrange(3):02}") for n in range(3) for _ in range(30)
    ]
    base = ["p00", "p01", "p02"]
    for epsilon in (0.02, 0.002, 1e-9):
        found = dict(rank_nodes(Graph(rows), [], base, epsilon=epsilon, restart=0.2))
        truth = solve_exactly(rows, {passage: rank**-0.5 for rank, passage in enumerate(base, start=1)}, 0.2)
        for passage in {row[2] for row in rows}:
            degree = len({entity for s, o, p in rows if p == passage for entity in (s, o)})
            assert truth[passage] - epsilon * degree - 1e-6 <= found.get(passage, 0.0) <= truth[passage] + 1e-6


def test_the_last_node_is_read_on_until_it_is_known_what_it_is_worth() -> None:
    """The only node left is read on: its many triples have few names, so its passage's degree is small."""
    rows = [("a", "a", "p0")] * 200 + [("a", "b", "p0"), ("b", "c", "p1")]
    truth = solve_exactly(rows, {"p0": 1.0}, 0.2)
    found = dict(rank_nodes(Graph(rows), [], ["p0"], epsilon=0.02, restart=0.2))
    assert found["p1"] >= truth["p1"] - 0.02 * 2 and found["p0"] < 0.9 and found["p1"] > 0


@pytest.mark.parametrize("triples", [99, 100, 101, 400])
def test_a_seed_counts_by_its_passages_not_by_its_triples(triples: int) -> None:
    """Many triples in three passages weigh as much as three passages."""
    rows = [("often", f"thing{n}", f"p{n % 3}") for n in range(triples)] + [("once", "thing", "q")]
    start = [make_triples("often", "thing0", "p0", 1.0), make_triples("once", "thing", "q", 1.0)]
    found = dict(rank_nodes(Graph(rows), start, [], epsilon=1e-9, restart=0.9))
    truth = solve_exactly(rows, {"often": 1 / 3, "thing0": 1, "once": 1, "thing": 1}, 0.9)
    assert found == pytest.approx({passage: truth[passage] for passage in found}, abs=1e-6)


def test_late_requests_are_spared_by_reading_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five requests are enough, where seven were made. The rankings are the same to the last digit."""
    few, requests, rankings = pagerank._FEW_REQUESTS, [], []
    for seed in range(30):
        chance = random.Random(seed)
        rows = [(f"e{chance.randrange(60)}", f"e{chance.randrange(60)}", f"p{n // 2:02}") for n in range(90)]
        for number in (few, 100):  # the second reads nothing ahead
            monkeypatch.setattr(pagerank, "_FEW_REQUESTS", number)
            graph = Graph(rows)
            rankings.append(rank_nodes(graph, [make_triples(*rows[0], 1.0)], ["p00", "p01"], epsilon=5e-4))
            requests.append(len(graph.limits))
    assert rankings[::2] == rankings[1::2]
    assert (max(requests[::2]), max(requests[1::2])) == (5, 7)


def test_what_it_reads_does_not_grow_with_the_graph() -> None:
    """Of ten unconnected copies of a corpus it reads one."""
    rows = draw_corpus(1)
    many = [(f"{n}{s}", f"{n}{o}", f"{n}{p}") for n in range(10) for s, o, p in rows]
    small, large = Graph(many[: len(rows)]), Graph(many)
    start = [make_triples(*many[3], 1.0)]
    assert rank_nodes(small, start, []) == rank_nodes(large, start, [])
    assert small.read == large.read < 4 * len(rows)


def test_a_hub_is_not_read_whole() -> None:
    """So little reaches each of a hub's neighbors that they are not read; the seed's other passages are found."""
    rows = [("seed", f"thing{n}", f"p{n}") for n in range(3)] + [("thing0", "hub", "p0")]
    rows += [(f"other{n}", "hub", f"q{n:05}") for n in range(20_000)]
    graph = Graph(rows)
    found = rank_nodes(graph, [make_triples("seed", "thing0", "p0", 1.0)], [], epsilon=1e-3)
    assert graph.read < 3_000
    assert {passage for passage, _ in found} == {"p0", "p1", "p2"}
    assert all(sum(limits) <= 1 / 1e-3 + len(limits) for limits in graph.limits[1:])


def test_a_hub_as_a_seed_says_next_to_nothing() -> None:
    """Beside a rare name, the seed "United States" gets almost no weight: the walks start at the rare name."""
    rows = [("rare", "hub", "p0"), ("rare", "thing", "p1")]
    rows += [(f"other{n}", "hub", f"q{n:05}") for n in range(5_000)]
    graph = Graph(rows)
    found = rank_nodes(graph, [make_triples("rare", "hub", "p0", 1.0)], [])
    assert {passage for passage, _ in found[:2]} == {"p0", "p1"}
    assert graph.read < 10_000


def test_a_triple_of_one_entity_joins_it_to_its_passage_alone() -> None:
    rows = [("a", "a", "p0"), ("a", "b", "p1")]
    truth = solve_exactly(rows, {"b": 1.0}, 0.5)
    found = dict(
        rank_nodes(Graph(rows), [StoredTriple("x", Triple("b", "p", "b"), "p1", 1.0, ("b",))], [], epsilon=1e-9)
    )
    assert found == pytest.approx({passage: truth[passage] for passage in ("p0", "p1")}, abs=1e-6)


def test_what_is_too_little_to_move_on_counts_where_it_is() -> None:
    rows = [("a", f"thing{n}", "p0") for n in range(5)]
    assert dict(rank_nodes(Graph(rows), [], ["p0"], epsilon=0.9, restart=0.3)) == pytest.approx({"p0": 0.3})


def test_nothing_to_start_from() -> None:
    graph = Graph(draw_corpus(0))
    assert rank_nodes(graph, [], []) == [] == rank_nodes(graph, [], ["p00"], passage_weight=0.0)
    assert graph.limits == []
    assert rank_nodes(graph, [make_triples("e1", "e2", "p00", 0.0)], []) == []
    assert [passage for passage, _ in rank_nodes(Graph([]), [], ["p2", "p1"])] == ["p2", "p1"]
    assert [passage for passage, _ in rank_nodes(Graph([]), [make_triples("e1", "e2", "p00", 0.5)], [])] == []


def test_a_linked_alias_has_the_edges_of_its_entity() -> None:
    """A triple joins each name of one end with each name of the other, and its passage with all of them."""
    graph = pagerank._Graph()
    graph.add([Incidence("1", ("ada", "bob"), "p", (("ada", "countess"), ("bob", "rob"), ("bob", "bobby")))])
    graph.add([Incidence("2", ("ada", "bob"), "q"), Incidence("3", ("ada",), "q")])
    names = {node: name for name, node in [*graph.entities.items(), *graph.passages.items()]}
    edges = {names[node]: {names[end]: count for end, count in ends.items()} for node, ends in graph.edges.items()}
    assert edges["ada"] == {"bob": 2, "rob": 1, "bobby": 1, "p": 1, "q": 1}
    assert edges["countess"] == {"bob": 1, "rob": 1, "bobby": 1, "p": 1}
    assert edges["p"] == dict.fromkeys(("ada", "countess", "bob", "rob", "bobby"), 1) and len(edges["q"]) == 2
    assert graph.degrees[graph.entities["ada"]] == 6
