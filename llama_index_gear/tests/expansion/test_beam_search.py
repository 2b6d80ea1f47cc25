import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.beam_search import Beam, BeamSearch, Scorer, diverse_triple_beam_search_flow, flatten
from llama_index_gear.flow import EmbedTexts, Flow, Request, ask, run
from llama_index_gear.triple import Candidate, StoredTriple, Triple

Vector = NDArray[np.float64]
Chain = tuple[int, ...]
QUESTION = "which?"


def _compute_cosine(one: Vector, two: Vector) -> float:
    return float(one @ two / math.sqrt(one @ one) / math.sqrt(two @ two))


def _draw_vector(text: str) -> Vector:
    """Return a vector that depends on the text alone."""
    return np.random.default_rng(zlib.crc32(text.encode())).normal(size=3)


# -- The world: a graph of numbers, and what a store would answer about it --------------------------------------------


@dataclass(frozen=True)
class ReadNeighbors(Request[list[list[Candidate]]]):
    triple_entities: Sequence[tuple[str, ...]]
    query: Sequence[float]
    exclude: Sequence[str]
    limit: int


@dataclass(frozen=True)
class ReadTriples(Request[dict[str, StoredTriple]]):
    ids: Sequence[str]


@dataclass(frozen=True)
class ReadSimilarities(Request[list[list[float]]]):
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True)
class World:
    """A graph whose triple n joins the entities `ends[n]` and has the unit vector `vectors[n]`."""

    query: Vector
    ends: tuple[tuple[int, int], ...]
    vectors: tuple[Vector, ...]

    def make_triple(self, n: int) -> StoredTriple:
        subject, object_ = self.ends[n]
        # Mentions differ in case and punctuation, so that nothing but the entity key joins two triples.
        fact = Triple(f"Entity-{subject}" if n % 2 else f"entity {subject}.", f"relation {n}", f"ENTITY {object_}")
        return StoredTriple(f"id{n:03}", fact, f"passage {n % 5}", _compute_cosine(self.query, self.vectors[n]))

    def text(self, chain: Chain) -> str:
        facts = [self.make_triple(n).triple for n in chain]
        return ". ".join(f"{fact.subject} {fact.predicate} {fact.object}" for fact in facts)

    def neighbors_flow(
        self,
        triple_entities: Sequence[tuple[str, ...]],
        query: Sequence[float],
        exclude: Sequence[str],
        limit: int,
        question: str = "",
    ) -> Flow[list[list[Candidate]]]:
        return ask(ReadNeighbors(triple_entities, query, exclude, limit))

    def fetch_triples_flow(self, ids: Sequence[str]) -> Flow[dict[str, StoredTriple]]:
        return ask(ReadTriples(ids))

    def similarities_flow(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Flow[list[list[float]]]:
        return ask(ReadSimilarities(pairs))

    def answer(self, request: Any) -> Any:
        by_id = {self.make_triple(n).id: n for n in range(len(self.ends))}
        match request:
            case ReadNeighbors():
                return [
                    [
                        Candidate(triple.id, triple.score)
                        for triple in sorted(
                            map(self.make_triple, by_id.values()), key=lambda triple: (-triple.score, triple.id)
                        )
                        if triple.id not in request.exclude and set(triple.triple.entities) & set(keys)
                    ][: request.limit]
                    for keys in request.triple_entities
                ]
            case ReadTriples():
                return {triple_id: replace(self.make_triple(by_id[triple_id]), score=0.0) for triple_id in request.ids}
            case ReadSimilarities():
                return [
                    [float(sum(self.vectors[by_id[c]] for c in chain) @ self.vectors[by_id[n]]) for n in near]
                    for chain, near in request.pairs
                ]
            case EmbedTexts():
                return [_draw_vector(text) for text in request.texts]
        raise AssertionError(request)

    def search(self, initial: Sequence[int], settings: BeamSearch) -> list[Beam]:
        starts = [self.make_triple(n) for n in initial]
        return run(self.walk_flow(starts, settings), self.answer)

    def walk_flow(self, starts: Sequence[StoredTriple], settings: BeamSearch) -> Flow[list[Beam]]:
        graph: Any = self  # a search links nothing
        return diverse_triple_beam_search_flow(graph, QUESTION, list(self.query), starts, settings)


def _list_numbers(beams: Sequence[Beam]) -> list[Chain]:
    return [tuple(int(triple.id.removeprefix("id")) for triple in beam.chain) for beam in beams]


# -- GeAR Alg. 1, word for word ---------------------------------------------------------------------------------------


def _score(world: World, scorer: Scorer, chain: Chain) -> float:
    vectors = [world.vectors[n] for n in chain]
    cosines = [_compute_cosine(world.query, vector) for vector in vectors]
    total = np.sum(vectors, axis=0)
    mean = total / len(chain)
    if scorer == "additive":
        return sum(cosines) / len(chain)
    if scorer == "composed":
        return _compute_cosine(world.query, total)
    if scorer == "novelty":
        return (sum(cosines) / len(chain)) / float(mean @ mean)
    return _compute_cosine(
        world.query, _draw_vector(world.text(chain))
    )  # an embedding model that reads the chain's text


def run_algorithm_1(world: World, initial: Sequence[int], options: BeamSearch) -> list[tuple[float, Chain]]:
    """Run Algorithm 1 slowly and literally; the project's own rules (spec §3.1) are marked with `#`."""
    b = options.beam_size
    gamma = 2 * b if options.gamma is None else options.gamma
    scored: list[tuple[float, Chain]] = []
    for t in initial:
        if (t,) not in [chain for _, chain in scored]:  # repetitions count once
            scored.append((_score(world, options.scorer, (t,)), (t,)))
    beams = sorted(scored, key=lambda entry: -entry[0])[:b]
    for _ in range(2, options.beam_length + 1):
        in_a_beam = [t for _, chain in beams for t in chain]
        extensions: list[tuple[float, Chain]] = []
        for s, chain in beams:
            near = [
                t
                for t in range(len(world.ends))
                if t not in in_a_beam and set(world.ends[t]) & set(world.ends[chain[-1]])
            ]
            near = sorted(near, key=lambda t: -_compute_cosine(world.query, world.vectors[t]))[: options.neighbors]
            longer = [(s + _score(world, options.scorer, (*chain, t)), (*chain, t)) for t in near]
            longer.sort(key=lambda entry: -entry[0])
            if options.diversity:
                for n in range(len(longer)):
                    penalty = math.exp(-min(n, gamma) / gamma)
                    value = longer[n][0]
                    longer[n] = (value * penalty if value >= 0 else value / penalty, longer[n][1])  # negative: divided
            extensions += longer
        if not extensions:  # the last non-empty set is the answer
            break
        beams = sorted(extensions, key=lambda entry: -entry[0])[:b]
    return beams


# -- Random worlds ----------------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn, size: int = 12) -> World:
    count = draw(st.integers(1, size))
    entity = st.integers(0, draw(st.integers(1, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Towards, away from, or at any angle to the question: cosines of one sign, or of both.
    drift = draw(st.sampled_from([0.0, 1.0, -1.0]))
    query = rng.normal(size=3)
    raw = [rng.normal(size=3) + drift * query for _ in range(count)]
    vectors = tuple(vector / math.sqrt(vector @ vector) for vector in raw)
    return World(
        query / math.sqrt(query @ query), tuple(draw(st.tuples(entity, entity)) for _ in range(count)), vectors
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[World, list[int], BeamSearch]:
    world = draw(worlds())
    initial = draw(st.lists(st.integers(0, len(world.ends) - 1), min_size=1, max_size=8))
    scorers: list[Scorer] = ["novelty", "composed", "additive", "exact"]
    return (
        world,
        initial,
        BeamSearch(
            beam_size=draw(st.integers(1, 5)),
            beam_length=draw(st.integers(1, 4)),
            neighbors=draw(st.one_of(st.integers(1, 4), st.just(100))),
            gamma=draw(st.one_of(st.none(), st.floats(0.25, 9))),
            diversity=draw(st.booleans()),
            scorer=draw(st.sampled_from(scorers)),
        ),
    )


@settings(max_examples=400)
@given(problems())
def test_same_as_algorithm_1(problem: tuple[World, list[int], BeamSearch]) -> None:
    world, initial, options = problem
    expected = run_algorithm_1(world, initial, options)
    beams = world.search(initial, options)
    assert _list_numbers(beams) == [chain for _, chain in expected]
    assert [beam.score for beam in beams] == pytest.approx([score for score, _ in expected], rel=1e-9, abs=1e-9)


@settings(max_examples=200)
@given(problems())
def test_what_always_holds(problem: tuple[World, list[int], BeamSearch]) -> None:
    world, initial, options = problem
    beams = world.search(initial, options)
    assert 1 <= len(beams) <= options.beam_size
    assert [beam.score for beam in beams] == sorted((beam.score for beam in beams), reverse=True)
    assert len({len(beam.chain) for beam in beams}) == 1 and len(beams[0].chain) <= options.beam_length
    assert len(set(_list_numbers(beams))) == len(beams)
    for beam, chain in zip(beams, _list_numbers(beams), strict=True):
        assert chain[0] in initial
        assert len(set(chain)) == len(chain)
        for one, two in pairwise(beam.chain):
            assert set(one.triple.entities) & set(two.triple.entities)
        assert beam.chain == tuple(map(world.make_triple, chain))
    assert world.search(initial, options) == beams
    assert world.search([*initial, *initial[::-1]], options) == beams


@settings(max_examples=100)
@given(problems())
def test_a_hop_enters_no_triple_that_stands_in_a_beam(problem: tuple[World, list[int], BeamSearch]) -> None:
    world, initial, options = problem
    shorter = world.search(initial, replace(options, beam_length=1))
    longer = world.search(initial, replace(options, beam_length=2))
    visited = {n for chain in _list_numbers(shorter) for n in chain}
    for chain in _list_numbers(longer):
        assert (chain[0],) in _list_numbers(shorter)
        assert not set(chain[1:]) & visited


@settings(max_examples=200)
@given(problems())
def test_the_penalty_promotes_nothing_and_raises_no_score(problem: tuple[World, list[int], BeamSearch]) -> None:
    """With diversity, one beam's extensions keep their order and no score rises, negative scores included."""
    world, initial, options = problem
    all_of_one = replace(options, beam_size=50, beam_length=2, gamma=options.gamma or 4.0, diversity=False)
    plain = world.search(initial[:1], all_of_one)
    diverse = world.search(initial[:1], replace(all_of_one, diversity=True))
    assert _list_numbers(diverse) == _list_numbers(plain)
    assert diverse[0].score == plain[0].score
    assert all(after.score <= before.score for after, before in zip(diverse, plain, strict=True))


# -- Worked by hand ---------------------------------------------------------------------------------------------------


def _make_star(cosines: Sequence[float]) -> World:
    """Return a world in which triple n runs from entity 0 to entity n + 1 and has this cosine with the question."""
    vectors = [np.array([cosine, math.sqrt(1 - cosine**2), 0.0]) for cosine in cosines]
    ends = tuple((0, n + 1) for n in range(len(cosines)))
    return World(np.array([1.0, 0.0, 0.0]), ends, tuple(vectors))


def _make_row(cosines: Sequence[float]) -> World:
    """Return a world in which triple n runs from entity n to entity n + 1."""
    return replace(_make_star(cosines), ends=tuple((n, n + 1) for n in range(len(cosines))))


def test_worked_example_composed_and_novelty() -> None:
    # (0.8, 0.6) · (0.6, 0.8) = 0.96 and (0.8, 0.6) · (0.0, 1.0) = 0.6
    world = _make_star([0.8, 0.6, 0.0])
    beams = world.search([0], BeamSearch(scorer="composed", beam_size=2))
    assert _list_numbers(beams) == [(0, 1), (0, 2)]
    assert [beam.score for beam in beams] == pytest.approx(
        [
            0.8 + (0.8 + 0.6) / math.sqrt(1 + 2 * 0.96 + 1),
            (0.8 + (0.8 + 0.0) / math.sqrt(1 + 2 * 0.6 + 1)) * math.exp(-1 / 4),
        ]
    )
    beams = world.search([0], BeamSearch(scorer="novelty", beam_size=2, gamma=3))
    assert _list_numbers(beams) == [(0, 1), (0, 2)]
    assert [beam.score for beam in beams] == pytest.approx(
        [
            0.8 + ((0.8 + 0.6) / 2) / ((1 + 2 * 0.96 + 1) / 2**2),
            (0.8 + ((0.8 + 0.0) / 2) / ((1 + 2 * 0.6 + 1) / 2**2)) * math.exp(-1 / 3),
        ]
    )


def test_two_triples_that_say_the_same_count_as_one() -> None:
    """ "novelty" gives an echo of the first triple nothing, and adds the score of a new one."""
    echo = World(np.array([1.0, 0, 0]), ((0, 1), (1, 0)), (np.array([0.6, 0.8, 0]),) * 2)
    assert echo.search([0], BeamSearch())[0].score == pytest.approx(0.6 + 0.6)
    new = World(np.array([1.0, 0, 0]), ((0, 1), (1, 2)), (np.array([0.6, 0.8, 0]), np.array([0.6, 0, 0.8])))
    assert new.search([0], BeamSearch())[0].score == pytest.approx(0.6 + 0.6 / ((1 + 2 * 0.36 + 1) / 2**2))


def test_diversity_keeps_one_beam_from_taking_all_places() -> None:
    """Without the penalty, the better start's second child would beat the other start's first."""
    star = _make_star([0.9, 0.5, 0.49, 0.4, 0.5])
    world = replace(star, ends=((0, 1), (1, 2), (1, 3), (7, 8), (8, 9)))
    kept = BeamSearch(scorer="additive", beam_size=2, gamma=0.1, neighbors=2)
    assert _list_numbers(world.search([0, 3], kept)) == [(0, 1), (3, 4)]
    assert _list_numbers(world.search([0, 3], replace(kept, diversity=False))) == [(0, 1), (0, 2)]


def test_beams_that_cannot_grow_drop_out_unless_all_do() -> None:
    star = _make_star([0.9, 0.1, 0.2])
    world = replace(star, ends=((0, 1), (5, 6), (6, 7)))
    assert _list_numbers(world.search([0, 1], BeamSearch())) == [(1, 2)]
    assert _list_numbers(world.search([0], BeamSearch())) == [(0,)]
    assert _list_numbers(_make_row([0.5, 0.4, 0.3]).search([0], BeamSearch(beam_length=9))) == [(0, 1, 2)]


@pytest.mark.parametrize("diversity", [True, False])
def test_equal_scores_keep_the_order_of_discovery(diversity: bool) -> None:
    """The sort is stable: a hundred chains with three scores would reveal any other."""
    world = _make_star([0.9, *(n % 3 / 4 for n in range(1, 101))])

    def search_chains(initial: Sequence[int], length: int) -> list[Chain]:
        options = BeamSearch(beam_size=100, beam_length=length, scorer="additive", diversity=diversity)
        return _list_numbers(world.search(initial, options))

    order = [*range(2, 101, 2), *range(99, 0, -2)]
    assert search_chains(order, 1) == [(n,) for n in sorted(order, key=lambda n: -(n % 3))]
    assert search_chains([0], 2) == [(0, n) for n in sorted(range(1, 101), key=lambda n: -(n % 3))]


def test_no_start_no_beam_no_question_to_anyone() -> None:
    with pytest.raises(StopIteration) as stop:
        next(_make_star([]).walk_flow([], BeamSearch()))
    assert stop.value.value == []


# -- What a search asks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scorer", "start", "hop"),
    [
        ("additive", [], [ReadNeighbors, ReadTriples]),
        ("composed", [], [ReadNeighbors, ReadSimilarities, ReadTriples]),
        ("novelty", [], [ReadNeighbors, ReadSimilarities, ReadTriples]),
        ("exact", [EmbedTexts], [ReadNeighbors, ReadTriples, EmbedTexts]),
    ],
)
def test_round_trips(scorer: Scorer, start: list[type], hop: list[type]) -> None:
    world = _make_row([0.5, 0.4, 0.3, 0.2])
    asked: list[list[Any]] = []
    flow = world.walk_flow(
        [world.make_triple(0), world.make_triple(1)],
        BeamSearch(beam_length=4, scorer=scorer),
    )
    batch = next(flow)
    with pytest.raises(StopIteration):
        while True:
            asked.append(list(batch))
            batch = flow.send([world.answer(request) for request in batch])
    # Beam 1 grows to triple 2, then to 3; then nothing is left to ask about.
    assert [[type(request) for request in batch] for batch in asked] == [
        [t] for t in [*start, *hop, *hop, ReadNeighbors]
    ]


def test_what_a_hop_asks_for() -> None:
    world = _make_star([0.9, 0.8, 0.7, 0.6])
    starts = [world.make_triple(0), world.make_triple(1)]
    settings = BeamSearch(neighbors=7, beam_length=2)
    flow = world.walk_flow(starts, settings)
    (request,) = next(flow)
    assert isinstance(request, ReadNeighbors)
    assert [set(keys) for keys in request.triple_entities] == [{"entity 0", "entity 1"}, {"entity 0", "entity 2"}]
    assert (list(request.query), sorted(request.exclude), request.limit) == ([1.0, 0.0, 0.0], ["id000", "id001"], 7)
    (request,) = flow.send([[[Candidate("id002", 0.7), Candidate("id004", 0.1)], [Candidate("id003", 0.6)]]])
    assert isinstance(request, ReadSimilarities)
    assert [(list(chain), list(near)) for chain, near in request.pairs] == [
        (["id000"], ["id002", "id004"]),
        (["id001"], ["id003"]),
    ]
    (request,) = flow.send([[[0.0, 0.0], [0.0]]])
    assert isinstance(request, ReadTriples)
    assert sorted(request.ids) == ["id002", "id003", "id004"]


def test_only_winners_are_read() -> None:
    """A hop compares all candidates, but reads only the facts of the beams that it keeps."""
    world = _make_star([0.9 - n / 200 for n in range(101)])
    read: list[str] = []

    def answer(request: Any) -> Any:
        read.extend(request.ids if isinstance(request, ReadTriples) else ())
        return world.answer(request)

    starts = [world.make_triple(n) for n in range(4)]
    run(world.walk_flow(starts, BeamSearch(beam_size=3)), answer)
    assert 1 <= len(read) <= 3


@pytest.mark.parametrize("scorer", ["novelty", "additive", "exact"])
def test_a_candidate_that_is_deleted_before_it_is_read_is_no_extension(scorer: Scorer) -> None:
    world = _make_star([0.9, 0.8, 0.7])

    def answer(request: Any) -> Any:
        if not isinstance(request, ReadTriples):
            return world.answer(request)
        return {key: fact for key, fact in world.answer(request).items() if key not in gone}

    def search_chains() -> list[Chain]:
        options = BeamSearch(scorer=scorer)
        return _list_numbers(run(world.walk_flow([world.make_triple(0)], options), answer))

    gone = {"id001"}
    assert search_chains() == [(0, 2)]
    gone = {"id001", "id002"}
    assert search_chains() == [(0,)]


# -- Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scorer", ["cosine", None, print])
def test_an_unknown_scorer_is_refused(scorer: Any) -> None:
    with pytest.raises(ArgumentError, match="scorer must be one of novelty, composed, additive, exact; got"):
        BeamSearch(scorer=scorer)


def test_defaults_are_the_papers() -> None:
    default = BeamSearch()
    assert (default.beam_size, default.beam_length, default.neighbors, default.gamma, default.diversity) == (
        10,
        2,
        100,
        None,
        True,
    )


# -- Flatten ----------------------------------------------------------------------------------------------------------


def _make_beam(*places: str) -> Beam:
    """Return a beam: `_make_beam("a1", "b2")` holds triple a of passage 1, then triple b of passage 2."""
    return Beam(0.0, tuple(StoredTriple(p[0], Triple(p[0], "r", "x"), p[1:], 0.0) for p in places), 0.0)


def _flatten_ids(*beams: Beam) -> list[tuple[str, str]]:
    return [(passage, "".join(triple.id for triple in chain)) for passage, chain in flatten(beams).items()]


def test_flatten_is_breadth_first_and_keeps_the_first_occurrence() -> None:
    beams = _make_beam("a1", "b2", "c3"), _make_beam("d4", "e1", "f5"), _make_beam("g2", "h4", "i6")
    assert _flatten_ids(*beams) == [("1", "a"), ("4", "d"), ("2", "g"), ("3", "abc"), ("5", "def"), ("6", "ghi")]


def test_flatten_of_beams_of_different_length() -> None:
    assert _flatten_ids(_make_beam("a1"), _make_beam("b2", "c3"), _make_beam("d1", "e4", "f5")) == [
        ("1", "a"),
        ("2", "b"),
        ("3", "bc"),
        ("4", "de"),
        ("5", "def"),
    ]
    assert flatten([]) == {}


@given(st.lists(st.lists(st.sampled_from(["a1", "b1", "c2", "d3", "e4"]), min_size=1, max_size=4), max_size=5))
def test_flatten_by_its_definition(chains: list[list[str]]) -> None:
    order: list[str] = []
    for depth in range(4):
        for chain in chains:
            if len(chain) > depth and chain[depth][1:] not in order:
                order.append(chain[depth][1:])
    flat = _flatten_ids(*[_make_beam(*chain) for chain in chains])
    assert [passage for passage, _ in flat] == order
    starts = {"".join(place[0] for place in chain[: n + 1]) for chain in chains for n in range(len(chain))}
    assert all(
        path in starts and path[-1] in {"1": "ab", "2": "c", "3": "d", "4": "e"}[passage] for passage, path in flat
    )
