"""The harness tests itself: gold scores 100, nothing 0, small cases by arithmetic, HippoRAG by power iteration."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "benchmarks"))
import retrieval
from data import Dataset, Passage, Question
from hipporag import HippoRAGRetriever
from measures import compared, exact_match, f1, interval, normalised, recall

from llama_index_gear import GeARVectorStore, Triple, attach_triples
from llama_index_gear.testing import WordEmbedding

# -- measures ---------------------------------------------------------------------------------------------------------


def test_recall() -> None:
    assert recall(["a", "x", "b"], ["a", "b", "c"], 3) == pytest.approx(2 / 3)
    assert recall(["a", "x", "b"], ["a", "b", "c"], 1) == pytest.approx(1 / 3)
    assert recall(["a", "a"], ["a"], 2) == 1.0 and recall([], ["a"], 5) == 0.0
    with pytest.raises(ValueError, match="without gold"):
        recall(["a"], [], 5)


@pytest.mark.parametrize(
    ("answer", "accepted", "match", "overlap"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
        ("  an   apple, a day ", ["Apple day"], 1.0, 1.0),
        ("Paris, France", ["Paris"], 0.0, 2 / 3),
        ("Paris", ["London", "Paris, France"], 0.0, 2 / 3),  # the best of those accepted
        ("in 1998", ["1998"], 0.0, 2 / 3),
        ("yes", ["Yes."], 1.0, 1.0),
        ("yes it is", ["yes"], 0.0, 0.0),  # a closed answer counts only whole
        ("yes", ["yes it is"], 0.0, 0.0),
        ("no", ["no one"], 0.0, 0.0),
        ("north north", ["north"], 0.0, 2 / 3),
        ("south", ["north"], 0.0, 0.0),
        ("", ["north"], 0.0, 0.0),
        ("north", [], 0.0, 0.0),
    ],
)
def test_exact_match_and_f1(answer: str, accepted: Sequence[str], match: float, overlap: float) -> None:
    assert exact_match(answer, accepted) == match
    assert f1(answer, accepted) == pytest.approx(overlap)


def test_a_closed_answer_scores_only_if_both_sides_say_it() -> None:
    """As in HotpotQA's script, which looks at the normalised answers as wholes."""
    assert f1("no", ["No"]) == 1.0 and f1("no way", ["way no"]) == 1.0
    assert normalised("The U.S.A. — an idea") == "usa — idea"


def test_an_interval_holds_the_mean_and_shrinks_with_more_questions() -> None:
    few, many = [0.0, 1.0] * 10, [0.0, 1.0] * 1000
    (low, high), (lower, higher) = interval(few), interval(many)
    assert low < 0.5 < high and lower < 0.5 < higher and higher - lower < (high - low) / 5
    assert interval(few) == (low, high) and interval([1.0, 1.0]) == (1.0, 1.0)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(20), rel=0.1)


def test_a_paired_comparison() -> None:
    same = compared([0.5, 1.0, 0.0], [0.5, 1.0, 0.0])
    assert (same.difference, same.low, same.high, same.p_value, same.wins, same.losses) == (0, 0, 0, 1, 0, 0)
    better = compared([1.0] * 8 + [0.0] * 2, [0.0] * 8 + [0.0] * 2)
    assert better.difference == pytest.approx(0.8) and (better.wins, better.losses) == (8, 0)
    assert better.p_value == pytest.approx(2 / 2**8)  # all eight signs the same, either way
    worse = compared([0.0] * 10, [1.0] * 8 + [0.0] * 2)
    assert worse.difference == pytest.approx(-0.8) and worse.p_value == pytest.approx(better.p_value)
    with pytest.raises(ValueError, match="paired"):
        compared([1.0], [])


# -- the harness ------------------------------------------------------------------------------------------------------

TEXTS = {
    "stephen": ("Stephen plays basketball; his father is Dell Curry", [("Stephen", "father", "Dell Curry")]),
    "dell": ("Dell Curry went to Virginia Tech", [("Dell Curry", "went to", "Virginia Tech")]),
    "tech": ("Virginia Tech took Curry in 1982", [("Virginia Tech", "took", "Curry")]),
    "milk": ("Cheese is made of milk", [("cheese", "made of", "milk"), ("cheese", "is", "cheese")]),
    "bare": ("Nothing is said here", []),
}
ASKED = [Question("1", "Who is the father of Stephen", ("stephen", "dell")), Question("2", "What is cheese", ("milk",))]


@pytest.fixture
def dataset() -> Dataset:
    passages = [Passage(name, name, text) for name, (text, _) in TEXTS.items()]
    return Dataset("small", passages, ASKED, {name: triples for name, (_, triples) in TEXTS.items()})


@pytest.fixture
def nodes(dataset: Dataset) -> list[TextNode]:
    return retrieval.to_nodes(dataset, with_triples=True)


class Fixed(BaseRetriever):
    """Finds the same always."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__()
        self.ids = ids

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(id_=each)) for each in self.ids]


@pytest.fixture
def options() -> argparse.Namespace:
    return argparse.Namespace(
        limit=None, scorer="novelty", no_diversity=False, beam_size=10, beam_length=2, neighbours=100, gamma=None,
        epsilon=1e-3, base_top_k=None, link_top_k=1, passage_link_top_k=3,
    )  # fmt: skip


@pytest.mark.parametrize(("ids", "recalls", "hits"), [(list(TEXTS), 100.0, "21"), (["bare"], 0.0, "00")])
def test_gold_scores_100_and_nothing_scores_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dataset: Dataset, options: Any, ids: list[str], recalls: float,
    hits: str,
) -> None:  # fmt: skip
    store = GeARVectorStore.from_path(tmp_path, embed_model=WordEmbedding())
    monkeypatch.setattr(retrieval, "expanded", lambda *_: Fixed(ids))
    result = retrieval.measure("fixed", dataset, store, [], options)
    assert [result[f"recall@{cut}"] for cut in (5, 10, 15)] == [recalls] * 3
    assert [result[f"interval@{cut}"] for cut in (5, 10, 15)] == [[recalls, recalls]] * 3
    assert [result[f"hits@{cut}"] for cut in (5, 10, 15)] == [hits] * 3


def test_methods_by_name(tmp_path: Path, dataset: Dataset, nodes: list[TextNode], options: Any) -> None:
    embed = WordEmbedding()
    with_vectors = [node.model_copy(update={"embedding": embed.get_text_embedding(node.text)}) for node in nodes]
    store = GeARVectorStore.from_path(tmp_path, embed_model=embed)
    store.add(with_vectors)
    results = [
        retrieval.measure(name, dataset, store, nodes, options)
        for name in ("bm25", "hybrid", "hybrid+naive", "hybrid+naive+pagerank", "hipporag")
    ]
    retrieval.comparisons(results, dataset, None)
    assert [result.get("against") for result in results] == [None, None, "hybrid", "hybrid+naive", None]
    assert all(result["recall@15"] == 100.0 for result in results[2:])
    assert results[3]["gain@5"]["points"] == 0.0 and results[0]["graph_ms_per_query"] == 0.0
    retrieval.comparisons(results, dataset, "hipporag")
    assert [result["against"] for result in results[:4]] == ["hipporag"] * 4
    with pytest.raises(SystemExit, match="unknown method 'bm25\\+magic'"):
        retrieval.measure("bm25+magic", dataset, store, nodes, options)
    store.close()


@pytest.mark.parametrize("synonyms", [False, True])
def test_hipporag_is_pagerank_over_the_whole_graph(nodes: list[TextNode], synonyms: bool) -> None:
    """Against power iteration over a graph that is built here again."""
    embed = WordEmbedding()
    extra = attach_triples(
        TextNode(id_="extra", text="Stephen Dell"),
        [Triple("curry dell", "is", "son"), Triple("Stephen", "is son of", "his father")],
    )
    whole = [*nodes, extra]
    retriever = HippoRAGRetriever(whole, embed, similarity_top_k=9, facts=2, synonyms=synonyms)
    found = retriever.retrieve("Who is the father of Stephen")
    names = [node.node_id for node in whole]
    facts = [(node_id, slots) for node_id, (_, triples) in TEXTS.items() for slots in triples]
    facts += [("extra", ("curry dell", "is", "son")), ("extra", ("Stephen", "is son of", "his father"))]
    phrases = sorted({slot.lower() for _, (subject, _, object_) in facts for slot in (subject, object_)})
    number = {name: n for n, name in enumerate([*names, *(f"phrase {each}" for each in phrases)])}
    weights = np.zeros((len(number), len(number)))
    for node_id, (subject, _, object_) in facts:
        one, other = number[f"phrase {subject.lower()}"], number[f"phrase {object_.lower()}"]
        if one != other:
            weights[one, other] += 1
            weights[other, one] += 1
        for phrase in (one, other):
            weights[number[node_id], phrase] = weights[phrase, number[node_id]] = 1
    if synonyms:  # the same words in another order
        one, other = number["phrase dell curry"], number["phrase curry dell"]
        weights[one, other] = weights[other, one] = 1
    query = np.asarray(embed.get_query_embedding("Who is the father of Stephen"))

    def scaled(texts: list[str]) -> Any:
        cosines = np.asarray(embed.get_text_embedding_batch(texts)) @ query
        return (cosines - cosines.min()) / (cosines.max() - cosines.min())

    scores = scaled([" ".join(slots) for _, slots in facts])
    best = sorted(range(len(facts)), key=lambda n: -scores[n])[:2]
    assert {facts[n][1][0] for n in best} == {"Stephen"}  # one phrase of two facts, in two passages
    start = np.zeros(len(number))
    start[: len(names)] = 0.05 * scaled([node.get_content(MetadataMode.EMBED) for node in whole])
    start[number["phrase stephen"]] = (scores[best[0]] + scores[best[1]]) / 2 / 2
    for n in best:
        name = facts[n][1][2].lower()
        passages = {"dell curry": 2, "his father": 1}[name]
        start[number[f"phrase {name}"]] = scores[n] / passages
    start /= start.sum()
    degrees = weights.sum(axis=1)
    shares = start
    for _ in range(200):
        moving = np.divide(shares, degrees, out=np.zeros_like(shares), where=degrees > 0) @ weights
        lost = shares[degrees == 0].sum()  # where there is no way on, the walk starts anew
        shares = 0.5 * start + 0.5 * (moving + lost * start)
    expected = {name: shares[number[name]] for name in names}
    assert {each.node.node_id: each.score for each in found} == pytest.approx(expected, abs=1e-6)
    assert [each.node.node_id for each in found] == sorted(names, key=lambda name: -expected[name])
    assert {each.node.node_id for each in found[:2]} == {"stephen", "extra"}
