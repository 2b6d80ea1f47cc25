"""The script that learns and measures the ranking, on pools that are made by hand."""

from __future__ import annotations

import json
import random
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import ranking
from harness.data import Question
from reporting import tables_ranking
from reporting.results import Results

from llama_index_gear import RankingWeights, Triple
from llama_index_gear.ranking.learning import Example
from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.ranker import rank
from llama_index_gear.store.bm25 import make_encoder

ENCODER = make_encoder("english", 60.0)
RESULTS = Path(ranking.__file__).parent / "results" / "ranking.json"


def make_pool(number: int) -> tuple[Question, Pool]:
    """Make a question whose second gold passage only PageRank and the first one's fact lead to."""
    facts = {"curry": [Triple("Curry", "son of", "Dell")], "dell": [Triple("Dell", "played for", "Tech")]}
    texts = {"curry": "Curry is the son of Dell", "dell": "Dell played for Tech", "cheese": "Cheese", "milk": "Milk"}
    passages = [PoolPassage(name, text, facts.get(name, ())) for name, text in texts.items()]
    lists = {
        "dense": ["curry", "cheese", "milk"],
        "bm25": ["curry", "milk"],
        "pagerank": ["curry", "dell"],
    }
    question = Question(str(number), "For whom did the father of Curry play?", ("curry", "dell"))
    return question, Pool(question.question, passages, lists, ENCODER)


def test_variants_are_the_pool_and_two_of_its_other_forms() -> None:
    _, pool = make_pool(0)
    drawn = [ranking.draw_variants(pool, random.Random(seed)) for seed in range(40)]
    assert all(len(variants) == 3 and variants[0] is pool for variants in drawn)
    others = [variant for variants in drawn for variant in variants[1:]]
    assert {frozenset(variant.lists) for variant in others} == {
        frozenset(names.split()) for names in ("base", "base pagerank", "dense pagerank", "bm25 pagerank", "dense bm25")
    }
    assert all("base" in variants[2].lists and "base" not in variants[1].lists for variants in drawn)
    for variant in others:
        named = {passage_id for ids in variant.lists.values() for passage_id in ids}
        assert {passage.id for passage in variant.passages} == named


def gather(number: int, *, has_documents: bool = False) -> ranking.Gathered:
    return ranking.Gathered(4, 2, [make_pool(one) for one in range(number)], has_documents)


def test_recall_and_gain_by_hand() -> None:
    of_set = gather(4)
    hybrid = ranking.recalls(of_set, ranking.BASES["hybrid"])
    assert hybrid[2] == [0.5] * 4 and ranking.recalls(of_set, ranking.BASES["pool"])[2] == [1.0] * 4
    by_graph = ranking.recalls(of_set, ranking.BASES["pagerank"])
    row = ranking.summarize(by_graph, {"hybrid": hybrid, "dense": {cut: [0.75] * 4 for cut in ranking.CUTS}})
    assert (row["recall@2"], row["complete@2"], row["gain@2"]["points"]) == (100.0, 4, 50.0)
    assert row["over_best@2"]["points"] == 25.0 and row["gain@2"]["p"] == 2 / 2**4


def test_gold_documents_count_at_their_first_passage() -> None:
    """The second gold document stands behind two passages of the first."""
    question, pool = make_pool(0)
    of = {"curry": "A", "cheese": "A", "milk": "B", "dell": "C"}
    parts = [passage._replace(document=of[passage.id]) for passage in pool.passages]
    pools = [(replace(question, gold=("A", "B")), replace(pool, passages=parts))]
    of_set = ranking.Gathered(4, 2, pools, has_documents=True)
    found = ranking.recalls(of_set, ranking.BASES["dense"])
    assert [found[cut] for cut in (2, 3)] == [[1.0], [1.0]]
    within = ranking.recalls(of_set, ranking.BASES["dense"], within=True)
    assert [within[cut] for cut in (2, 3)] == [[0.5], [1.0]]
    (row, *_) = ranking.measure(of_set, {"dense": ranking.BASES["dense"]})
    assert (row["recall@2"], row["within@2"]) == (100.0, 50.0)


def test_the_rankings_are_those_of_the_package() -> None:
    of_set, weights = gather(3), RankingWeights.default()
    rankings = ranking.list_rankings([weights] * ranking.FOLDS)
    for number, (_, pool) in enumerate(of_set.pools):
        assert list(rankings["default"](of_set, number, 4)) == [one.id for one in rank(pool, weights)]
        forty = pool.select({"base": ranking.fuse_lists(pool.lists, 40)})
        assert list(rankings["ranker"](of_set, number, 2)) == [one.id for one in rank(forty, weights, 2)]


def run_script(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["ranking.py", *map(str, words)])
    ranking.main()


def test_the_script_learns_measures_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gather_pools(name: str, kind: str, options: object) -> ranking.Gathered | None:
        return gather(10) if kind == "offline" else None

    monkeypatch.setattr(ranking, "gather_pools", gather_pools)
    monkeypatch.setattr(ranking, "PER_KIND", 30)
    out, learned = tmp_path / "out.json", tmp_path / "weights.json"
    words = ["--data", "d", "--cache", tmp_path, "--out", out]
    run_script(monkeypatch, *words, "--learn", learned)
    weights = RankingWeights.load(learned)
    assert weights.signals and all(weight == round(weight, 3) > 0 for weight in weights.signals.values())
    results = json.loads(out.read_text("utf-8"))
    assert set(results) == {f"{name}-offline" for name in (*ranking.LEARNED, *ranking.OTHERS)}
    for name, of_set in results.items():
        rows = {row["method"]: row for row in of_set["rows"]}
        assert rows["default"]["recall@2"] == 100.0 > rows["hybrid"]["recall@2"]
        assert ("left out" in rows) == (name.removesuffix("-offline") in ranking.LEARNED)
    assert "musique offline (10 questions)" in capsys.readouterr().out

    def learn(*arguments: object) -> None:
        raise AssertionError("nothing is to be learned")

    monkeypatch.setattr(ranking, "learn", learn)
    run_script(monkeypatch, *words, "--sets", "lihua")  # by the shipped weights
    (of_set,) = json.loads(out.read_text("utf-8")).values()
    assert "left out" not in {row["method"] for row in of_set["rows"]}
    with pytest.raises(SystemExit, match="no set hotpot; there are musique"):
        run_script(monkeypatch, *words, "--sets", "hotpot")


def test_a_kind_of_text_is_left_out_with_all_its_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = {(name, kind): gather(2) for name in ranking.LEARNED for kind in ranking.KINDS}
    learned: list[set[str]] = []

    def learn(stores: ranking.Stores, *arguments: object) -> RankingWeights:
        learned.append({name for name, _ in stores})
        return RankingWeights.default()

    monkeypatch.setattr(ranking, "learn", learn)
    options = Namespace(sets=[], learn=None, left_out=None)
    measured = [key for key, rankings in ranking.learn_rankings(gathered, options) if "left out" in rankings]
    assert measured == [*gathered] and learned[: ranking.FOLDS] == [{*ranking.LEARNED}] * ranking.FOLDS
    assert learned[ranking.FOLDS :] == [{*ranking.LEARNED}.difference(names) for names in ranking.TEXTS.values()]


def test_each_kind_of_text_has_an_equal_part_in_what_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def fit_weights(examples: list[Example]) -> RankingWeights:
        counted.append(len(examples))
        return RankingWeights.default()

    monkeypatch.setattr(ranking, "fit_weights", fit_weights)
    monkeypatch.setattr(ranking, "PER_KIND", 12)
    stores = {(name, "file"): gather(30) for name in ("musique", "2wiki", "hotpotqa")} | {
        ("lihua", "offline"): gather(5)
    }
    ranking.learn(stores, lambda number: True)
    assert counted == [3 * (3 * 4 + 12)]  # three forms of each pool


def test_a_signal_is_left_out() -> None:
    weights = ranking.without_signal(RankingWeights({"tied": 1.0, "linked": 2.0}), "linked")
    assert weights == RankingWeights({"tied": 1.0})


def test_pools_of_a_set_are_gathered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the sample of the examples, by its true store."""
    options = Namespace(data=tmp_path, cache=tmp_path, model=None)
    assert ranking.gather_pools("sample", "file", options) is None
    gathered = ranking.gather_pools("sample", "offline", options)
    assert gathered is not None and gathered.triples > gathered.passages == 101 and len(gathered.pools) == 20
    rows = {
        row["method"]: row for row in ranking.measure(gathered, ranking.list_rankings([RankingWeights.default()] * 5))
    }
    assert rows["default"]["recall@5"] > rows["hybrid"]["recall@5"] > 40
    monkeypatch.setattr(ranking, "load", None)
    again = ranking.gather_pools("sample", "offline", options)
    assert again is not None and [pool.lists for _, pool in again.pools] == [pool.lists for _, pool in gathered.pools]


def test_the_committed_results_have_the_rows_that_the_script_makes() -> None:
    committed = json.loads(RESULTS.read_text("utf-8"))
    weights = RankingWeights.default()
    for name, of_set in committed.items():
        left_out = weights if name.rsplit("-", 1)[0] in ranking.LEARNED else None
        rows = [row["method"] for row in of_set["rows"]]
        assert rows == list(ranking.list_rankings([weights] * ranking.FOLDS, left_out))
    assert {name.rsplit("-", 1)[0] for name in committed} == {*ranking.LEARNED, *ranking.OTHERS}


def test_the_table_says_who_gains(tmp_path: Path) -> None:
    clear, chance, worse = ({"points": points, "p": p} for points, p in ((2.0, 0.01), (2.0, 0.2), (-2.0, 0.01)))
    both: dict[str, object] = {f"recall@{cut}": 50.0 for cut in ranking.CUTS}
    both.update({f"complete@{cut}": 1 for cut in (5, 10)})
    gains = {f"gain@{cut}": clear for cut in ranking.CUTS} | {"gain@3": chance, "gain@5": worse}
    rows = [{"method": method, **both, **(gains if method == "default" else {})} for method in ("default", "hybrid")]
    of_set = {"questions": 4, "passages": 2, "triples": 3, "rows": rows}
    (tmp_path / "ranking.json").write_text(json.dumps({"2wiki-file": of_set}), "utf-8")
    compared = {"2wiki-file": [{"method": "property graph", **both}]}
    (tmp_path / "compared.json").write_text(json.dumps(compared), "utf-8")
    lines = [line for line in tables_ranking.ranking(Results(tmp_path)).splitlines() if line.startswith("| ")][2:]
    assert [line.split(" | ")[0][2:] for line in lines] == [
        "hybrid",
        "LlamaIndex's `PropertyGraphIndex`",
        "`GraphRetriever`",
    ]
    assert lines[2].split(" | ")[1:4] == ["50.0\\*", "50.0", "50.0"] and lines[2].endswith("25 | 25 |")
