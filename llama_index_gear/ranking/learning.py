"""Learning a ranking's weights from questions whose passages are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import mean, stdev
from typing import Any

import numpy as np
from llama_index.core.utils import get_tqdm_iterable

from llama_index_gear.characters import unify_spelling
from llama_index_gear.errors import ArgumentError, check_kinds, format_value
from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.signals import Company, Floats, order
from llama_index_gear.ranking.weights import RankingWeights

_FOLDS = 5
_ROUNDS = 20
"""Rounds of learning, at most. From gold passages two are enough, from documents some ten."""
_SETTLED = 0.005
"""A round that moves each weight by less is the last."""
_PULLS = (0.001, 0.01, 0.1, 1.0)
_GATHER = "write retriever.gather_pool"
_LEAST_EXAMPLES = 10
_LEAST_SHARE = 1e-12
_MAX_STEPS = 100
_LEAST_STEP = 1e-6
_SUFFICIENT = 1e-4
_LEAST_GAIN = 1e-10
_LEAST_SPREAD = 0.01
"""A signal that spreads less is scaled as if it spread as much: a hair's breadth earns no weight of hundreds."""


@dataclass(frozen=True)
class Example:
    """A question's pool, and the ids of the passages, or documents, that answer the question.

    Of a gold document, any passage is gold.
    """

    pool: Pool
    gold_ids: frozenset[str]

    @cached_property
    def gold_places(self) -> list[list[int]]:
        """For each gold id that the pool has something of, the places of its passages in the pool."""
        places: dict[str, list[int]] = {}
        for place, passage in enumerate(self.pool.passages):
            for id_ in {passage.id, passage.document} & self.gold_ids:
                places.setdefault(id_, []).append(place)
        return list(places.values())

    @cached_property
    def signals(self) -> Mapping[str, Floats]:
        """The signals of the pool's passages, by name, `page_links` by the package's weights for the others.

        What they are computed from is not kept: it takes a megabyte.
        """
        return Company(replace(self.pool)).compare()

    def score(self, weights: Mapping[str, float]) -> Floats:
        """Return the weighted sum of each passage's signals."""
        added = (weight * self.signals[name] for name, weight in weights.items())
        return sum(added, np.zeros(len(self.pool.passages)))

    def target(self, scores: Floats) -> Floats:
        """Return the probability that each passage is to have: equal for all that is gold.

        The passages of one document share its part as these scores are to one another, by the softmax.
        """
        target = np.zeros(len(self.pool.passages))
        for places in self.gold_places:
            powers = np.exp(scores[places] - scores[places].max())
            target[places] += powers / powers.sum() / len(self.gold_places)
        return target


@dataclass(frozen=True)
class RankingFit:
    """Weights learned from one's own questions, and what they are worth.

    Attributes:
        weights: the learned weights.
        pull: strength of the pull to the weights that learning started from; infinite: these are kept.
        recall_before: recall at 5 of these, in percent.
        recall_after: recall at 5 of the learned weights, in percent, each question ranked by weights that were learned
            from the others (five folds).
        questions: number of questions that were learned from: those with a gold passage in their pool.

    """

    weights: RankingWeights
    pull: float
    recall_before: float
    recall_after: float
    questions: int


def fit_ranking(
    gather_pool: Callable[[str], Pool],
    questions: Sequence[str],
    gold_ids: Sequence[Collection[str]],
    *,
    start: RankingWeights | None = None,
    show_progress: bool = False,
) -> RankingFit:
    """Learn a ranking's weights from questions of one's own.

    `fit_ranking(retriever.gather_pool, questions, gold_ids)` learns for a `GraphRetriever`. For another retriever and a
    `PassageRanker` it is `fit_ranking(lambda question: ranker.gather_pool(base.retrieve(question), question), …)`.

    The learned weights are regularized towards those that they start from. Five-fold cross-validation chooses the
    strength (`RankingFit.pull`): of those whose loss is within one standard error of the least, the strongest. If the
    recall at 5 of the questions left out doesn't rise by more than two standard errors, the start is kept.

    Args:
        gather_pool: returns the pool of a question.
        questions: questions, at least ten with a gold passage in their pool.
        gold_ids: for each question, the ids of the passages, or of the documents, that it needs.
        start: weights to start from. Default: those that come with the package.
        show_progress: show a progress bar while pools are gathered.

    Raises:
        ArgumentError: texts or ids that are no list, not as many gold ids as questions, or too few pools that hold a
            gold passage.

    """
    check_kinds(str, hint="write [question] for one", questions=questions)
    check_kinds(Collection, hint="write a list of ids for each question", gold_ids=gold_ids)
    for number, ids in enumerate(gold_ids):
        named: dict[str, Any] = {f"gold_ids[{number}]": ids}
        check_kinds(str, hint="write [id] for one", **named)
    if len(questions) != len(gold_ids):
        raise ArgumentError(f"{len(questions)} questions, but gold ids for {len(gold_ids)}")
    start = RankingWeights.default() if start is None else start
    examples = []
    for question, ids in get_tqdm_iterable(list(zip(questions, gold_ids, strict=True)), show_progress, "Gathering"):
        pool = gather_pool(question)
        if not isinstance(pool, Pool):
            raise ArgumentError(f"gather_pool must return a pool, got {format_value(pool)}: {_GATHER}")
        examples.append(Example(pool, _find_gold(pool, ids)))
    known = [example for example in examples if example.gold_places]
    if len(known) < _LEAST_EXAMPLES:
        raise ArgumentError(
            f"{len(known)} of {len(questions)} questions have a gold passage in their pool, and {_LEAST_EXAMPLES} are "
            "needed: check that the gold ids are those of stored passages or documents, or add questions"
        )
    kept = [(_loss(example, start), _recall(example, start)) for example in known]
    tried = {math.inf: kept, **{pull: _cross_validate(known, start, pull) for pull in _PULLS}}
    losses = {pull: [loss for loss, _ in rows] for pull, rows in tried.items()}
    best = min(losses, key=lambda pull: mean(losses[pull]))
    bound = mean(losses[best]) + stdev(losses[best]) / math.sqrt(len(known))
    pull = max(pull for pull in tried if mean(losses[pull]) <= bound)
    if not _is_gain([after - before for (_, before), (_, after) in zip(kept, tried[pull], strict=True)]):
        pull = math.inf
    weights = start if pull == math.inf else fit_weights(known, start, pull=pull)
    before, after = (mean(recall for _, recall in rows) for rows in (kept, tried[pull]))
    return RankingFit(weights, pull, 100 * before, 100 * after, len(known))


def _find_gold(pool: Pool, ids: Collection[str]) -> frozenset[str]:
    """Return gold ids as the pool spells them: two spellings of the same letters are one id."""
    named = {id_ for passage in pool.passages for id_ in (passage.id, passage.document)}
    spelled = {unify_spelling(id_): id_ for id_ in sorted(named)}
    exact = set(spelled.values())
    return frozenset(id_ if id_ in exact else spelled.get(unify_spelling(id_), id_) for id_ in ids)


def _is_gain(gains: Sequence[float]) -> bool:
    """Return True if the mean of these gains is above 0 by more than two standard errors."""
    return mean(gains) > 2 * stdev(gains) / math.sqrt(len(gains))


def _cross_validate(examples: Sequence[Example], start: RankingWeights, pull: float) -> list[tuple[float, float]]:
    """Return loss and recall of each example under weights that were learned from the other folds."""
    rows: dict[int, tuple[float, float]] = {}
    for fold in range(_FOLDS):
        held_out = range(fold, len(examples), _FOLDS)
        weights = fit_weights([example for n, example in enumerate(examples) if n % _FOLDS != fold], start, pull=pull)
        rows |= {n: (_loss(examples[n], weights), _recall(examples[n], weights)) for n in held_out}
    return [rows[n] for n in range(len(examples))]


def _loss(example: Example, weights: RankingWeights) -> float:
    scores = example.score(weights.signals)
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    gold = [math.fsum(shares[places]) for places in example.gold_places]
    return -mean(math.log(max(share, _LEAST_SHARE)) for share in gold)


def _recall(example: Example, weights: RankingWeights) -> float:
    first = set(order(example.score(weights.signals))[:5])
    return sum(not first.isdisjoint(places) for places in example.gold_places) / len(example.gold_ids)


def fit_weights(
    examples: Sequence[Example], start: RankingWeights | None = None, *, pull: float = 1e-3
) -> RankingWeights:
    """Learn weights from the pools of questions and their gold passages.

    The ranking is a softmax over the pool, and its loss the cross entropy with what is gold: all gold passages and
    documents share the question's probability equally, and a document has the sum of its passages. Signals are scaled
    to a standard deviation of 1, and `pull` · |w − start|² / 2 is added to the mean loss. No weight falls below 0: a
    better place or a stronger link never counts against a passage.

    Args:
        examples: questions, at least one with a gold passage in its pool.
        start: the weights that the learned ones are pulled to; None: 0.
        pull: strength of the pull. Default 1e-3, next to none.

    Raises:
        ArgumentError: no pool holds a gold passage.

    """
    known = [example for example in examples if example.gold_places]
    if not known:
        raise ArgumentError("no gold passage is in the pool of its question: check the gold ids")
    start = RankingWeights({}) if start is None else start
    signals = [example.signals for example in known]
    weights = start.signals
    for _ in range(_ROUNDS):
        # The weights say which passages of a gold document count, and these say the weights: expectation-maximization.
        targets = [example.target(example.score(weights)) for example in known]
        before, weights = weights, _fit_table(signals, targets, start.signals, pull)
        if all(abs(weight - before.get(name, 0.0)) < _SETTLED for name, weight in weights.items()):
            break
    return RankingWeights(weights)


def _fit_table(
    signals: Sequence[Mapping[str, Floats]], targets: Sequence[Floats], start: Mapping[str, float], pull: float
) -> dict[str, float]:
    """Return the weights in the signals' own units. A signal that says nothing keeps its start."""
    names = list(signals[0])
    tables = [np.array([of_pool[name] for name in names]).T for of_pool in signals]
    scale = np.maximum(np.concatenate(tables).std(axis=0), _LEAST_SPREAD)
    origin = np.array([start.get(name, 0.0) for name in names]) * scale
    weights = _Softmax([table / scale for table in tables], targets, origin, pull).solve() / scale
    learned = {name: float(weight) for name, weight in zip(names, weights, strict=True)}
    return {name: weight for name, weight in learned.items() if weight or name in start}


class _Softmax:
    """The loss of one table of weights over all pools, and its minimum.

    Args:
        tables: for each pool, the signals of its passages, shape (passages, signals).
        targets: for each pool, the probability of each passage, shape (passages,).
        origin: the weights that the solution is pulled to, shape (signals,).
        pull: strength of the pull.

    """

    def __init__(self, tables: Sequence[Floats], targets: Sequence[Floats], origin: Floats, pull: float) -> None:
        widest = max(map(len, targets))
        self._tables = np.zeros((len(tables), widest, len(origin)))
        self._padding = np.full((len(tables), widest), -np.inf)
        goal = np.zeros(len(origin))
        for number, (table, target) in enumerate(zip(tables, targets, strict=True)):
            self._tables[number, : len(table)] = table
            self._padding[number, : len(table)] = 0.0
            goal += target @ table
        self._goal = goal / len(tables)
        self._origin = origin
        self._pull = pull

    def solve(self) -> Floats:
        """Return the weights, none below 0, of the least loss: Newton's method over those that are free to move.

        A weight of 0 that the loss would have negative stays 0. Steps are halved until the loss falls.
        """
        weights = np.maximum(self._origin, 0.0)
        loss, shares = self._loss(weights)
        for _ in range(_MAX_STEPS):
            gradient, curvature = self._derivatives(weights, shares)
            free = np.flatnonzero((weights > 0) | (gradient < 0))
            if not free.size:
                break
            step = np.zeros_like(weights)
            step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
            size, gain = 1.0, 0.0
            while size > _LEAST_STEP:
                moved = np.maximum(weights - size * step, 0.0)
                following = self._loss(moved)
                if following[0] <= loss - _SUFFICIENT * float(gradient @ (weights - moved)):
                    gain = loss - following[0]
                    weights, (loss, shares) = moved, following
                    break
                size /= 2
            if gain < _LEAST_GAIN:
                break
        return weights

    def _loss(self, weights: Floats) -> tuple[float, Floats]:
        """Return the loss, and each passage's probability."""
        scores = self._tables @ weights + self._padding
        highest = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - highest)
        totals = powers.sum(axis=1, keepdims=True)
        pulled = weights - self._origin
        loss = (np.log(totals) + highest).mean() - self._goal @ weights + 0.5 * self._pull * pulled @ pulled
        return float(loss), powers / totals

    def _derivatives(self, weights: Floats, shares: Floats) -> tuple[Floats, Floats]:
        means = np.einsum("qp,qps->qs", shares, self._tables)
        gradient = means.mean(axis=0) - self._goal + self._pull * (weights - self._origin)
        squares = np.einsum("qps,qpt->st", self._tables * shares[:, :, None], self._tables, optimize=True)
        number = len(self._tables)
        return gradient, (squares - means.T @ means) / number + self._pull * np.eye(len(weights))
