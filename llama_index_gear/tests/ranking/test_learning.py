"""Learning weights: from drawn data whose weights are known, and from data that say nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

import numpy as np
import pytest

from llama_index_gear import RankingWeights
from llama_index_gear.errors import ArgumentError
from llama_index_gear.ranking.learning import (
    Example,
    RankingFit,
    _fit_table,
    _loss,
    fit_ranking,
    fit_weights,
)
from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.ranker import rank
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)
WORDS = [f"word{number}" for number in range(40)]
NAMES = [f"Name{number}" for number in range(30)]
START = RankingWeights({"tied": 0.5, "walk": 0.2, "new_words": 0.5, "linked": 0.3})
TRUE = RankingWeights({"tied": 9.0, "walk": 0.3, "new_words": 3.0})


def draw_pool(rng: np.random.Generator, size: int = 12) -> Pool:
    passages = []
    for number in range(size):
        text = " ".join(rng.choice(WORDS, 8))
        facts = [Triple(str(rng.choice(NAMES)), "of", str(rng.choice(NAMES))) for _ in range(rng.integers(0, 4))]
        passages.append(PoolPassage(f"p{number}", text, facts))
    lists = {name: [f"p{number}" for number in rng.permutation(size)[:10]] for name in ("dense", "bm25")}
    return Pool(" ".join(rng.choice(WORDS, 6)), passages, lists, ENCODER)


def draw_examples(number: int, weights: RankingWeights | None, seed: int = 0) -> list[Example]:
    """Draw pools, and of each the gold passage as these weights say; without weights, any."""
    rng, examples = np.random.default_rng(seed), []
    for _ in range(number):
        pool = draw_pool(rng)
        ids = [passage.id for passage in pool.passages]
        shares = {ranked.id: ranked.score for ranked in rank(pool, weights)} if weights else dict.fromkeys(ids, 1.0)
        odds = np.array([shares[name] for name in ids])
        examples.append(Example(pool, frozenset([str(rng.choice(ids, p=odds / odds.sum()))])))
    return examples


def fit(examples: Sequence[Example], start: RankingWeights | None = None) -> RankingFit:
    by_question = {str(number): example.pool for number, example in enumerate(examples)}
    gold_ids = [example.gold_ids for example in examples]
    return fit_ranking(by_question.__getitem__, list(by_question), gold_ids, start=start)


def measure_loss(examples: Sequence[Example], weights: RankingWeights) -> float:
    return mean(_loss(example, weights) for example in examples)


# -- one table --------------------------------------------------------------------------------------------------------

Table = Mapping[str, Any]


def draw_tables(rng: np.random.Generator, weights: Mapping[str, float], number: int) -> tuple[list[Table], list[Any]]:
    """Draw signals of pools of 5 to 20 passages, and of each pool the gold passage as these weights say."""
    tables: list[Table] = []
    targets: list[Any] = []
    for _ in range(number):
        size = int(rng.integers(5, 20))
        signals = {name: rng.normal(scale=3.0, size=size) for name in weights}
        scores = np.sum([weight * signals[name] for name, weight in weights.items()], axis=0)
        odds = np.exp(scores - scores.max())
        target = np.zeros(size)
        target[rng.choice(size, p=odds / odds.sum())] = 1.0
        tables.append({name: values.tolist() for name, values in signals.items()})
        targets.append(target)
    return tables, targets


def compute_loss(tables: Sequence[Table], targets: Sequence[Any], weights: Mapping[str, float]) -> float:
    """Return the cross entropy, by its definition."""
    losses = []
    for table, target in zip(tables, targets, strict=True):
        scores = np.sum([weights.get(name, 0.0) * np.array(values) for name, values in table.items()], axis=0)
        losses.append(float(np.log(np.exp(scores).sum()) - target @ scores))
    return mean(losses)


def test_known_weights_are_recovered() -> None:
    """The gold passages of 2,000 pools are drawn by the softmax of known weights."""
    known = {"a": 0.8, "b": 0.4, "c": 0.1, "d": 0.2}
    tables, targets = draw_tables(np.random.default_rng(1), known, 2000)
    assert _fit_table(tables, targets, {}, 1e-6) == pytest.approx(known, abs=0.08)


def test_a_signal_that_speaks_against_gold_passages_has_no_weight() -> None:
    """A weight below 0 would fit better, and is not taken."""
    tables, targets = draw_tables(np.random.default_rng(1), {"a": 0.8, "b": -0.4}, 500)
    learned = _fit_table(tables, targets, {}, 1e-6)
    assert learned["a"] > 0.6 and "b" not in learned
    assert _fit_table(tables, targets, {"b": 0.5}, 1e-6)["b"] == 0.0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pull", [1e-3, 0.1, 10.0])
def test_no_weights_nearby_have_a_smaller_loss(seed: int, pull: float) -> None:
    """The fit is the least of loss + pull / 2 · the squared distance from the start, in standard deviations."""
    rng = np.random.default_rng(seed)
    start = {"a": 1.0, "b": 0.5}
    tables, targets = draw_tables(rng, {"a": 0.3, "b": -0.5, "c": 0.2}, 40)
    scale = {name: float(np.std(np.concatenate([table[name] for table in tables]))) for name in "abc"}

    def objective(weights: Mapping[str, float]) -> float:
        moved = [(weights.get(name, 0.0) - start.get(name, 0.0)) * scale[name] for name in "abc"]
        return compute_loss(tables, targets, weights) + pull / 2 * sum(move**2 for move in moved)

    learned = _fit_table(tables, targets, start, pull)
    least = objective(learned)
    assert least <= objective(start)
    assert compute_loss(tables, targets, learned) <= compute_loss(tables, targets, start)
    for name in "abc":
        for step in (-0.01, 0.01):
            if (moved := learned.get(name, 0.0) + step) >= 0:
                assert objective({**learned, name: moved}) > least


def test_a_strong_pull_keeps_the_start_and_a_weak_one_does_not() -> None:
    tables, targets = draw_tables(np.random.default_rng(2), {"a": 1.0, "b": 0.0}, 50)
    start = {"a": 0.2, "b": 0.5}
    moves = [
        math.dist([start["a"], start["b"]], [learned["a"], learned["b"]])
        for learned in (_fit_table(tables, targets, start, pull) for pull in (1e6, 1.0, 1e-3))
    ]
    assert moves[0] < 1e-3 and moves == sorted(moves)


def test_a_signal_that_is_constant_keeps_its_weight() -> None:
    """In all pools, or in each of them."""
    tables, targets = draw_tables(np.random.default_rng(3), {"a": 1.0}, 30)
    constant: list[Table] = [
        {**table, "everywhere": [5.0] * len(target), "in each": [float(number)] * len(target)}
        for number, (table, target) in enumerate(zip(tables, targets, strict=True))
    ]
    start = {"everywhere": 0.7, "in each": 0.3, "a": 0.0}
    learned = _fit_table(constant, targets, start, 1e-3)
    assert {name: learned[name] for name in ("everywhere", "in each")} == pytest.approx(
        {name: start[name] for name in ("everywhere", "in each")}, abs=1e-6
    )
    assert learned["a"] == pytest.approx(_fit_table(tables, targets, {}, 1e-3)["a"], rel=1e-4)


def test_a_signal_that_separates_all_has_finite_weights() -> None:
    """Without a pull, its weight would grow without end."""
    tables: list[Table] = [{"a": [1.0, 0.0, 0.0]}] * 20
    learned = _fit_table(tables, [np.array([1.0, 0.0, 0.0])] * 20, {}, 1e-3)
    assert 1.0 < learned["a"] < 1000.0


# -- pools ------------------------------------------------------------------------------------------------------------


def test_learned_weights_rank_nearly_as_well_as_those_that_drew_the_data() -> None:
    """On pools that were not learned from, at least three quarters of the way from the start to them."""
    learned = fit_weights(draw_examples(400, TRUE), pull=1e-3)
    fresh = draw_examples(200, TRUE, seed=9)
    best, start = measure_loss(fresh, TRUE), measure_loss(fresh, START)
    assert measure_loss(fresh, learned) - best < 0.25 * (start - best)
    assert learned.signals["new_words"] > 1 and learned.signals["tied"] > 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", [None, START, TRUE], ids=["nothing", "start", "true"])
def test_learning_is_never_worse_than_its_start_on_what_it_learned(seed: int, start: RankingWeights | None) -> None:
    for drawn_by in (TRUE, None):
        examples = draw_examples(40, drawn_by, seed)
        before = RankingWeights({}) if start is None else start
        for pull in (1e-3, 1.0):
            assert measure_loss(examples, fit_weights(examples, start, pull=pull)) <= measure_loss(examples, before)


def test_what_is_learned_shares_the_question_among_its_gold_passages() -> None:
    """The two best passages by known weights are gold, always: each is to have half."""
    examples = [
        Example(example.pool, frozenset({*(place.id for place in rank(example.pool, TRUE, 2)), "elsewhere"}))
        for example in draw_examples(60, None)
    ]
    learned = fit_weights(examples, pull=1e-3)
    ranked = [rank(example.pool, learned) for example in examples]
    found = mean(
        len({place.id for place in places[:2]} & example.gold_ids)
        for places, example in zip(ranked, examples, strict=True)
    )
    assert found > 1.8


def test_pools_of_both_forms_are_learned_from_together() -> None:
    own = draw_examples(200, TRUE)
    foreign = [Example(example.pool.select({"base": example.pool.lists["dense"]}), example.gold_ids) for example in own]
    foreign = [example for example in foreign if example.gold_ids & example.pool.places.keys()]
    learned = fit_weights([*own, *foreign], START)
    for examples in (own, foreign):
        assert measure_loss(examples, learned) < measure_loss(examples, START)


def test_of_a_gold_document_any_passage_is_gold() -> None:
    """Each gold passage is one of three of a document; the other two are far from the question."""
    examples = []
    for example in draw_examples(120, TRUE):
        passages, (gold,) = list(example.pool.passages), example.gold_ids
        last = [passage.id for passage in passages if passage.id not in example.gold_ids][-2:]
        parts = [passage._replace(document="file" if passage.id in (gold, *last) else "") for passage in passages]
        examples.append(Example(replace(example.pool, passages=parts), frozenset({"file"})))
    learned = fit_weights(examples, pull=1e-3)
    by_passage = fit_weights(draw_examples(120, TRUE), pull=1e-3)
    every = [frozenset(part.id for part in example.pool.passages if part.document) for example in examples]
    diluted = fit_weights([Example(example.pool, ids) for example, ids in zip(examples, every, strict=True)], pull=1e-3)
    loss = measure_loss(draw_examples(200, TRUE, seed=9), learned)
    assert loss < measure_loss(draw_examples(200, TRUE, seed=9), diluted) - 0.05
    assert loss < measure_loss(draw_examples(200, TRUE, seed=9), by_passage) + 0.1


def test_learning_is_deterministic() -> None:
    examples = draw_examples(40, TRUE)
    assert fit(examples, START) == fit(draw_examples(40, TRUE), START)
    assert fit_weights(examples, START).to_json() == fit_weights(examples, START).to_json()


@pytest.mark.parametrize("seed", range(8))
def test_twenty_random_questions_keep_the_start(seed: int) -> None:
    """Gold passages that are drawn at random contradict the start's loss, but no other weights find them either."""
    fitted = fit(draw_examples(20, None, seed), TRUE)
    assert (fitted.pull, fitted.weights, fitted.recall_after) == (math.inf, TRUE, fitted.recall_before)


def test_a_signal_that_hardly_spreads_gets_no_large_weight() -> None:
    """Its next value may be a thousand times as large: facts that have no word of twenty questions may have one."""
    tables: list[Table] = [{"a": [1e-3, 0.0, 0.0]}] * 20
    learned = _fit_table(tables, [np.array([1.0, 0.0, 0.0])] * 20, {}, 1.0)
    assert 0 < learned["a"] < 10


def test_many_questions_are_learned_from_and_held_out_recall_rises() -> None:
    wrong = RankingWeights({"tied": -1.0})
    fitted = fit(draw_examples(150, TRUE), wrong)
    assert fitted.pull < math.inf and fitted.questions == 150
    assert fitted.recall_after > fitted.recall_before + 20
    fresh = draw_examples(100, TRUE, seed=5)
    assert measure_loss(fresh, fitted.weights) < measure_loss(fresh, wrong)


def test_a_start_that_is_right_is_kept() -> None:
    fitted = fit(draw_examples(60, TRUE), TRUE)
    assert fitted.recall_after == fitted.recall_before and (fitted.pull, fitted.weights) == (math.inf, TRUE)


def test_the_weights_of_the_package_are_the_start_where_none_is_given() -> None:
    examples = draw_examples(30, None)
    assert fit(examples) == fit(examples, RankingWeights.default())


def test_questions_whose_passages_were_not_found_are_left_out() -> None:
    examples = draw_examples(30, TRUE)
    lost = [Example(example.pool, frozenset(ids)) for example, ids in zip(examples, ([], ["x"]), strict=False)]
    with_lost, without = fit([*lost, *examples], START), fit(examples, START)
    assert with_lost == without and without.questions == 30


def test_recall_counts_the_passages_that_were_not_found() -> None:
    """Recall at 5, in percent: a gold passage outside its pool is never found."""
    examples = [Example(example.pool, example.gold_ids | {"elsewhere"}) for example in draw_examples(20, TRUE)]
    assert 0 < fit(examples, TRUE).recall_before <= 50


# -- bad arguments ----------------------------------------------------------------------------------------------------


def gather(question: str) -> Pool:
    return draw_pool(np.random.default_rng(len(question)))


QUESTIONS = [f"question {number}" for number in range(12)]
GOLD = [["p0"]] * 12
BAD: list[tuple[dict[str, Any], str]] = [
    ({"gather_pool": lambda question: ["p0"]}, "gather_pool must return a pool"),
    ({"questions": "question"}, r"questions must be a list of str, .*: write \[question\]"),
    ({"questions": [5] * 12}, "questions must be a list of str, got 5 in it"),
    ({"questions": QUESTIONS[:11]}, "11 questions, but gold ids for 12"),
    ({"gold_ids": GOLD[:11]}, "12 questions, but gold ids for 11"),
    ({"gold_ids": None}, "gold_ids must be a list"),
    ({"gold_ids": "p" * 12}, "gold_ids must be a list"),
    ({"gold_ids": ["p0"] * 12}, r"gold_ids\[0\] must be a list of str, got 'p0': write \[id\]"),
    ({"gold_ids": [*GOLD[:11], [5]]}, r"gold_ids\[11\] must be a list of str, got 5 in it"),
    ({"gold_ids": [*GOLD[:11], None]}, "gold_ids must be a list of Collection, got None in it"),
    ({"gold_ids": [["unknown"]] * 12}, "0 of 12 questions have a gold passage in their pool, and 10 are needed"),
    ({"gold_ids": [*GOLD[:9], ["x"], [], ["y"]]}, "9 of 12 questions .*: check that the gold ids are those"),
    ({"questions": [], "gold_ids": []}, "0 of 0 questions"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_bad_arguments_are_refused_in_plain_words(wrong: dict[str, Any], message: str) -> None:
    fine: dict[str, Any] = {"gather_pool": gather, "questions": QUESTIONS, "gold_ids": GOLD}
    with pytest.raises(ArgumentError, match=message):
        fit_ranking(**{**fine, **wrong})


def test_collections_of_every_kind_are_taken() -> None:
    given: list[tuple[Any, Callable[[Sequence[str]], Any]]] = [(list, list), (tuple, set), (tuple, frozenset)]
    fits = [fit_ranking(gather, outer(QUESTIONS), outer([inner(ids) for ids in GOLD])) for outer, inner in given]
    assert fits[0] == fits[1] == fits[2]


def test_fit_weights_needs_a_gold_passage() -> None:
    with pytest.raises(ArgumentError, match="no gold passage is in the pool of its question"):
        fit_weights([Example(gather("x"), frozenset(["unknown"]))])


def test_gold_ids_may_be_spelled_otherwise_than_the_passages() -> None:
    examples = draw_examples(30, TRUE)
    spelled = [
        Example(
            Pool(
                example.pool.question,
                [
                    PoolPassage(f"Gro\u0308ße-{passage.id}", passage.text, passage.triples)
                    for passage in example.pool.passages
                ],
                {name: [f"Gro\u0308ße-{id_}" for id_ in ids] for name, ids in example.pool.lists.items()},
                ENCODER,
            ),
            frozenset(f"Größe-{id_}" for id_ in example.gold_ids),
        )
        for example in examples
    ]
    assert fit(spelled) == fit(examples)
