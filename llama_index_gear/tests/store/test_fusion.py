import itertools
import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.store.fusion import reciprocal_rank_fusion

RANKING = st.lists(st.integers(0, 20), max_size=12)


def test_worked_example() -> None:
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "d"]])
    assert fused == [("c", 1 / (60 + 3) + 1 / (60 + 1)), ("a", 1 / (60 + 1)), ("b", 1 / (60 + 2)), ("d", 1 / (60 + 2))]


def test_k_and_weights() -> None:
    fused = reciprocal_rank_fusion([["a", "b"], ["b", "c"]], k=0, weights=[1, 3])
    assert fused == [("b", 1 / (0 + 2) + 3 / (0 + 1)), ("c", 3 / (0 + 2)), ("a", 1 / (0 + 1))]
    assert reciprocal_rank_fusion([["a"], ["b"]], weights=[0, 1]) == [("b", 1 / 61), ("a", 0.0)]


def test_ties_keep_first_seen_order() -> None:
    assert [item for item, _ in reciprocal_rank_fusion([["z", "a"], ["a", "z"]])] == ["z", "a"]
    assert [item for item, _ in reciprocal_rank_fusion([["z"], ["m"], ["a"]])] == ["z", "m", "a"]


def test_a_tie_is_a_tie_whatever_the_order_of_the_ranks() -> None:
    """Rounding decides no tie: added left to right, 1/61 + 1/62 + 1/63 and 1/63 + 1/62 + 1/61 can differ."""
    for ranks in itertools.permutations(range(1, 7), 3):
        six = [[f"filler {number} {rank}" for rank in range(1, 7)] for number in range(6)]
        for ranking, first in zip(six[:3], ranks, strict=True):
            ranking[first - 1] = "first"
        for ranking, second in zip(six[3:], reversed(ranks), strict=True):
            ranking[second - 1] = "second"
        assert [item for item, _ in reciprocal_rank_fusion(six)][:2] == ["first", "second"]


def test_a_repeated_item_counts_once_at_its_better_rank() -> None:
    assert reciprocal_rank_fusion([["a", "b", "a", "b", "c"]]) == [("a", 1 / 61), ("b", 1 / 62), ("c", 1 / 63)]


def test_nothing() -> None:
    assert reciprocal_rank_fusion([]) == reciprocal_rank_fusion([[], []]) == []


@given(RANKING)
def test_fusing_one_list_preserves_it(ranking: list[int]) -> None:
    assert [item for item, _ in reciprocal_rank_fusion([ranking])] == list(dict.fromkeys(ranking))


@given(st.lists(RANKING, max_size=5))
def test_scores_fall_and_no_item_is_lost(rankings: list[list[int]]) -> None:
    fused = reciprocal_rank_fusion(rankings)
    assert sorted(item for item, _ in fused) == sorted(set().union(*rankings))
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)
    for item, score in fused:
        assert math.isclose(score, sum(1 / (61 + [*dict.fromkeys(r)].index(item)) for r in rankings if item in r))


@given(st.lists(RANKING, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_lists_changes_no_score(rankings: list[list[int]], random: Random) -> None:
    shuffled = random.sample(rankings, len(rankings))
    assert dict(reciprocal_rank_fusion(shuffled)) == dict(reciprocal_rank_fusion(rankings))
