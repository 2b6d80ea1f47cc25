"""Diverse triple beam search (GeAR Alg. 1), and the order of the passages that its beams lead to (GeAR §4.2).

The search is a flow: it reads neighbors (and, for scorers that need it, similarities or text scores) and computes the
rest on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.errors import ArgumentError, check_counts, check_numbers
from llama_index_gear.flow import EmbedTexts, Flow, ask
from llama_index_gear.llm.spans import SHOWN, span_flow
from llama_index_gear.store.triples import TripleGraph
from llama_index_gear.triple import StoredTriple, chain_text

Scorer: TypeAlias = Literal["novelty", "composed", "additive", "exact"]
Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """The settings of a diverse triple beam search.

    Args:
        beam_size: beams that are kept, b. Default 10 (GeAR App. B.2).
        beam_length: triples a beam grows to, l. Default 2 (GeAR App. B.2; Table 8: longer is no better).
        neighbors: candidates that extend a beam, the most similar to the question. Default 100 (GeAR App. B.2).
        gamma: γ of the diversity penalty. Default None: twice `beam_size` (GeAR App. B.2).
        diversity: False leaves the penalty out: plain beam search (GeAR Table 4).
        scorer: the score of a chain against the question.
            "novelty" (default): mean of its triples' cosines, divided by the squared length of the mean of their unit
            vectors. Two triples that say the same count as one; two that differ add up. Embeds nothing.
            "composed": cosine with the normalized sum of its triples' vectors. Embeds nothing.
            "additive": mean of its triples' cosines. Embeds nothing, and saves a round trip.
            "exact": cosine with the embedding of the chain's text, as in the paper. Embeds every candidate: all
            triples that the search starts from, and up to `beam_size` · `neighbors` a hop.

    Raises:
        ArgumentError: a number outside its range, or an unknown scorer.

    """

    beam_size: int = 10
    beam_length: int = 2
    neighbors: int = 100
    gamma: float | None = None
    diversity: bool = True
    scorer: Scorer = "novelty"

    def __post_init__(self) -> None:
        check_counts(beam_size=self.beam_size, beam_length=self.beam_length, neighbors=self.neighbors)
        if self.gamma is not None:
            check_numbers("above 0", lambda number: number > 0, gamma=self.gamma)
        if self.scorer not in get_args(Scorer):
            raise ArgumentError(f"scorer must be one of {', '.join(get_args(Scorer))}; got {self.scorer!r}")

    @property
    def reads_text(self) -> bool:
        """True if the scorer reads the chains' texts; other scorers use only stored vectors."""
        return self.scorer == "exact"


@dataclass(frozen=True)
class Beam:
    """A chain of triples, each sharing an entity with the one before it.

    Attributes:
        score: accumulated score, penalties included (GeAR Alg. 1 lines 13 and 18).
        chain: the triples, in order.
        dot: sum of the triples' cosines with the question.
        norm: squared length of the sum of the triples' unit vectors ("novelty" and "composed" scorers only).

    """

    score: float
    chain: tuple[StoredTriple, ...]
    dot: float
    norm: float = 1.0


def diverse_triple_beam_search_flow(
    graph: TripleGraph, question: str, query: Sequence[float], initial: Sequence[StoredTriple], settings: BeamSearch
) -> Flow[list[Beam]]:
    """Walk from triple to neighboring triple, and keep the best and most diverse chains (GeAR Alg. 1).

    The extensions of a beam are sorted, best first, and the score of the n-th (from 0) is multiplied by
    exp(−min(n, γ)/γ). A negative score (cosines can be) is divided instead, so that a penalty never promotes an
    extension above one that ranked before it. Equal scores keep the order of discovery: by beam, then by similarity to
    the question, then by triple id. If no beam can be extended, the search ends early with the beams that it has.

    Args:
        graph: the graph that is walked.
        question: the question's text, for a graph that is searched by words.
        query: the question's embedding.
        initial: the triples to start from, with their cosines; repetitions count once.
        settings: beam size, length, scorer, …

    Returns:
        At most `beam_size` beams, best first; empty only if `initial` is.

    """
    unique = list({triple.id: triple for triple in initial}.values())
    search = _beam_search_flow(graph, question, query, unique, settings)
    return span_flow("beam_search", search, _show_beams, query=question, triples=len(unique))


def _beam_search_flow(
    graph: TripleGraph, question: str, query: Sequence[float], unique: Sequence[StoredTriple], settings: BeamSearch
) -> Flow[list[Beam]]:
    if not unique:
        return []
    dots: Array = np.array([triple.score for triple in unique])
    norms: Array = np.ones(len(unique))
    texts = [triple.triple.text for triple in unique] if settings.reads_text else []
    scores = yield from _scores_flow(query, 1, texts, dots, norms, settings)
    best = _rank_top_k(scores, settings.beam_size)
    beams = [Beam(float(scores[n]), (unique[n],), float(dots[n])) for n in best]
    for _ in range(settings.beam_length - 1):
        extended = yield from _extend_flow(graph, question, query, beams, settings)
        if not extended:
            break
        beams = extended
    return beams


def _show_beams(beams: Sequence[Beam]) -> list[str]:
    return [chain_text([stored.triple for stored in beam.chain]) for beam in beams[:SHOWN]]


def _extend_flow(
    graph: TripleGraph, question: str, query: Sequence[float], beams: Sequence[Beam], settings: BeamSearch
) -> Flow[list[Beam]]:
    visited = list(dict.fromkeys(triple.id for beam in beams for triple in beam.chain))
    ends = [beam.chain[-1].entities for beam in beams]
    neighbors = yield from graph.neighbors_flow(ends, query, visited, settings.neighbors, question)  # a list a beam
    fetched: dict[str, StoredTriple] = {}
    if settings.reads_text and any(neighbors):
        ids = dict.fromkeys(candidate.id for candidates in neighbors for candidate in candidates)
        fetched = yield from graph.fetch_triples_flow(list(ids))
        neighbors = [[candidate for candidate in candidates if candidate.id in fetched] for candidates in neighbors]
    extensions = [
        (beam, candidate) for beam, candidates in zip(beams, neighbors, strict=True) for candidate in candidates
    ]
    if not extensions:
        return []
    dots: Array = np.array([beam.dot + candidate.score for beam, candidate in extensions])
    norms: Array = np.ones(len(extensions))
    if settings.scorer in ("novelty", "composed"):
        pairs = [
            ([triple.id for triple in beam.chain], [candidate.id for candidate in candidates])
            for beam, candidates in zip(beams, neighbors, strict=True)
        ]
        products = yield from graph.similarities_flow(pairs)
        flat = [product for row in products for product in row]
        norms += np.array([beam.norm for beam, _ in extensions]) + 2 * np.array(flat)
    texts = [
        chain_text([*(triple.triple for triple in beam.chain), fetched[candidate.id].triple])
        for beam, candidate in (extensions if settings.reads_text else [])
    ]
    gains = yield from _scores_flow(query, len(beams[0].chain) + 1, texts, dots, norms, settings)
    totals = np.array([beam.score for beam, _ in extensions]) + gains
    start = 0
    for candidates in neighbors:  # the extensions of a beam stand together
        part = slice(start, start + len(candidates))
        if settings.diversity:
            totals[part] = _penalize(totals[part], settings.gamma or 2 * settings.beam_size)
        start = part.stop
    best = _rank_top_k(totals, settings.beam_size)
    if not settings.reads_text:
        fetched = yield from graph.fetch_triples_flow(list(dict.fromkeys(extensions[n][1].id for n in best)))
    extended = []
    for n in best:
        beam, candidate = extensions[n]
        if candidate.id in fetched:  # a triple that was deleted meanwhile is no extension
            added = replace(fetched[candidate.id], score=candidate.score)
            extended.append(Beam(float(totals[n]), (*beam.chain, added), float(dots[n]), float(norms[n])))
    return extended


def _penalize(totals: Array, gamma: float) -> Array:
    """Multiply the n-th best score of one beam's extensions by exp(−min(n, γ)/γ) (GeAR Alg. 1 lines 15–18)."""
    factor = np.empty_like(totals)
    factor[np.argsort(-totals, kind="stable")] = np.exp(-np.minimum(np.arange(len(totals)), float(gamma)) / gamma)
    penalized: Array = np.where(totals >= 0, totals * factor, totals / factor)
    return penalized


def _scores_flow(
    query: Sequence[float],
    length: int,
    texts: Sequence[str],
    dots: Array,
    norms: Array,
    settings: BeamSearch,
) -> Flow[Array]:
    """Compute score(q, T) of chains of one length (GeAR Alg. 1 lines 3 and 13); `dots` and `norms` are as in `Beam`."""
    if settings.reads_text:
        return _compute_cosines(query, (yield from ask(EmbedTexts(texts))))
    if settings.scorer == "additive":
        return dots / length
    # With S the sum of a chain's unit vectors: cosine = q·S / |S|; novelty = (q·S/n) / |S/n|² = n q·S / |S|².
    positive = np.maximum(norms, 1e-12)
    scored: Array = dots / np.sqrt(positive) if settings.scorer == "composed" else length * dots / positive
    return scored


def _compute_cosines(query: Sequence[float], embeddings: Sequence[Sequence[float]]) -> Array:
    """Compute the cosine of the question and each chain's own embedding, the paper's scorer (GeAR §4.2)."""
    matrix: Array = np.asarray(embeddings, dtype=np.float64).reshape(-1, len(query))
    vector: Array = np.asarray(query, dtype=np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
    products = matrix @ vector
    cosines: Array = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return cosines


def _rank_top_k(scores: Array, size: int) -> list[int]:
    """Return the indices of the highest scores, best first; equal scores keep the order of discovery."""
    return [int(n) for n in np.argsort(-scores, kind="stable")[:size]]


def flatten(beams: Sequence[Beam]) -> dict[str, tuple[StoredTriple, ...]]:
    """Rank the beams' passages breadth-first (GeAR §4.2): those of all first triples, then of all second ones, ….

    Returns:
        Passage id → the part of the chain that leads there, in rank order. At equal depth beams keep their order. The
        first occurrence of a passage counts.

    """
    passages: dict[str, tuple[StoredTriple, ...]] = {}
    for depth in range(max((len(beam.chain) for beam in beams), default=0)):
        for beam in beams:
            if depth < len(beam.chain):
                passages.setdefault(beam.chain[depth].passage_id, beam.chain[: depth + 1])
    return passages
