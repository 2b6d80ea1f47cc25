"""The script that learns and measures the ranking, on pools that are made by hand."""

from __future__ import annotations

import json
import random
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import ranking
from harness.compared import METHODS
from harness.data import Question
from reporting import tables_ranking
from reporting.results import Results

from llama_index_gear import RankingWeights, Triple
from llama_index_gear.ranking.learning import Example
from llama_index_gear.ranking.pool import Pool, PoolPassage
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


def test_recall_and_gain_by_hand() -> None:
    pools = [make_pool(number) for number in range(4)]
    hybrid = ranking.recalls(pools, ranking.BASES["hybrid"])
    assert hybrid[2] == [0.5] * 4 and ranking.recalls(pools, ranking.BASES["pool"])[2] == [1.0] * 4
    by_graph = ranking.recalls(pools, ranking.BASES["pagerank"])
    row = ranking.summarize(by_graph, hybrid)
    assert (row["recall@2"], row["complete@2"], row["gain@2"]["points"]) == (100.0, 4, 50.0)
    assert row["gain@2"]["p"] == 2 / 2**4


def test_the_gain_over_hipporag_is_over_the_better_one_at_each_cut() -> None:
    pools = [make_pool(number) for number in range(8)]
    some, few = dict.fromkeys(ranking.CUTS, [0.5] * 8), dict.fromkeys(ranking.CUTS, [0.0] * 8)
    plain, joined = {**some, 2: [1.0] * 8}, {**few, 3: [1.0] * 8}
    by_pagerank = ranking.BASES["pagerank"]  # finds both gold passages of these pools
    rankings = {**ranking.BASES, "default": by_pagerank, "ranker": ranking.BASES["hybrid"]}
    rows = {
        row["method"]: row for row in ranking.measure(pools, rankings, {"hipporag": plain, "hipporag-synonyms": joined})
    }
    gains = {cut: rows["default"][f"gain_over_hipporag@{cut}"] for cut in ranking.CUTS}
    assert [gains[cut]["points"] for cut in (2, 3, 5)] == [0.0, 0.0, 50.0]
    assert gains[5]["p"] == round(2 / 2**8, 4) and gains[2]["p"] == 1.0
    assert rows["hipporag"]["gain@2"]["points"] == 50.0 and rows["hipporag-synonyms"]["gain@2"]["points"] == -50.0
    alone = {row["method"]: row for row in ranking.measure(pools, rankings, {})}
    assert "gain_over_hipporag@5" not in alone["default"] and "hipporag" not in alone


def test_the_script_learns_measures_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ranking.LEARNED:
        (tmp_path / f"{name}-file").mkdir()
    pools = [make_pool(number) for number in range(10)]
    beams = ["dell", "curry"]
    with_beams = [(question, pool.extend((), {"base": beams})) for question, pool in pools]
    monkeypatch.setattr(
        ranking, "gather_pools", lambda name, kind, options: ranking.Gathered(4, 2, pools, {}, with_beams, pools)
    )
    out, learned = tmp_path / "out.json", tmp_path / "weights.json"
    words = ["--data", "d", "--stores", str(tmp_path), "--embed", "e", "--out", str(out), "--learn", str(learned)]
    monkeypatch.setattr(sys, "argv", ["ranking.py", *words])
    ranking.main()
    weights = RankingWeights.load(learned)
    assert weights.signals and all(weight == round(weight, 3) > 0 for weight in weights.signals.values())
    results = json.loads(out.read_text("utf-8"))
    assert set(results) == {f"{name}-file" for name in ranking.LEARNED}
    rows = {row["method"]: row for row in results["musique-file"]["rows"]}
    assert rows["default"]["recall@2"] == 100.0 > rows["hybrid"]["recall@2"]
    assert rows["default + beams"]["recall@2"] == rows["default + aliases"]["recall@2"] == 100.0
    assert "musique file (10 questions)" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["ranking.py", *words[:2], "--stores", str(tmp_path / "none"), "--embed", "e"])
    with pytest.raises(
        SystemExit, match="no store of musique, 2wiki, hotpotqa, entailmentbank, lihua, qmsum, webpages"
    ):
        ranking.main()


def test_a_kind_of_text_is_left_out_with_all_its_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [make_pool(number) for number in range(2)]
    gathered = {(name, "file"): ranking.Gathered(4, 2, pools, {}, pools) for name in ranking.LEARNED}
    learned: list[set[str]] = []

    def learn(stores: ranking.Stores, *arguments: object) -> RankingWeights:
        learned.append({name for name, _ in stores})
        return RankingWeights.default()

    monkeypatch.setattr(ranking, "learn", learn)
    options = Namespace(shipped=[], learn=None)
    measured = [key[0] for key, rankings in ranking.learn_rankings(gathered, options) if "left out" in rankings]
    assert measured == [*ranking.LEARNED] and learned[:11] == [{*ranking.LEARNED}] * 11
    for name, others in zip(measured, learned[11:], strict=True):
        assert others == {*ranking.LEARNED}.difference(*(names for names in ranking.TEXTS.values() if name in names))


def test_each_kind_of_text_has_an_equal_part_in_what_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [make_pool(number) for number in range(30)]
    counted: list[int] = []

    def fit_weights(examples: list[Example]) -> RankingWeights:
        counted.append(len(examples))
        return RankingWeights.default()

    monkeypatch.setattr(ranking, "fit_weights", fit_weights)
    monkeypatch.setattr(ranking, "PER_KIND", 12)
    stores = {(name, "file"): pools for name in ("musique", "2wiki", "hotpotqa", "lihua")}
    ranking.learn(stores, lambda number: True)
    assert counted == [3 * (3 * 4 + 12)]  # three forms of each pool


def test_a_signal_is_left_out() -> None:
    weights = ranking.without_signal(RankingWeights({"tied": 1.0, "linked": 2.0}), "linked")
    assert weights == RankingWeights({"tied": 1.0})


def test_the_shipped_weights_rank_some_sets_and_nothing_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn(*arguments: object) -> None:
        raise AssertionError("nothing is to be learned")

    (tmp_path / "hotpotqa-file").mkdir()
    pools = [make_pool(number) for number in range(10)]
    monkeypatch.setattr(ranking, "gather_pools", lambda name, kind, options: ranking.Gathered(4, 2, pools))
    monkeypatch.setattr(ranking, "learn", learn)
    words = ["ranking.py", "--data", "d", "--stores", str(tmp_path), "--embed", "e", "--shipped"]
    monkeypatch.setattr(sys, "argv", [*words, "hotpotqa", "--out", str(tmp_path / "out.json")])
    ranking.main()
    (of_set,) = json.loads((tmp_path / "out.json").read_text("utf-8")).values()
    rows = {row["method"]: row for row in of_set["rows"]}
    assert rows["default"]["recall@2"] == 100.0 > rows["hybrid"]["recall@2"]
    assert rows.keys().isdisjoint({"left out", "default + beams"})
    refused = {"hotpot": "--shipped: no set hotpot", "musique": "no store of musique", "hotpotqa --learn w": "leave --"}
    for option, message in refused.items():
        monkeypatch.setattr(sys, "argv", [*words, *option.split()])
        with pytest.raises(SystemExit, match=message):
            ranking.main()


def test_the_committed_results_have_the_rows_that_the_script_makes() -> None:
    committed = json.loads(RESULTS.read_text("utf-8"))
    _, pool = make_pool(0)
    weights = [RankingWeights.default()] * ranking.FOLDS
    for name, of_set in committed.items():
        left_out = weights[0] if name.rsplit("-", 1)[0] in ranking.LEARNED else None
        rows = [row["method"] for row in of_set["rows"] if row["method"] not in METHODS]
        linked = [(Question("", "", ()), pool)] if "default + aliases" in rows else []
        of_script = ranking.Gathered(0, 0, [], with_beams=[(Question("", "", ()), pool)], with_aliases=linked)
        assert rows == list(ranking.list_rankings(weights, weights, left_out, of_script))
    assert {name.rsplit("-", 1)[0] for name in committed} == {*ranking.LEARNED, *ranking.OTHERS}
    by_shipped = json.loads(RESULTS.with_stem("ranking-mpnet").read_text("utf-8"))
    for of_set in by_shipped.values():
        rows = [row["method"] for row in of_set["rows"] if row["method"] not in METHODS]
        assert rows == list(ranking.list_rankings(weights, [], None, ranking.Gathered(0, 0, [])))


def test_what_the_report_says_of_beams_and_aliases() -> None:
    gains: dict[tuple[str, str, int], float] = {}
    for name, of_set in json.loads(RESULTS.read_text("utf-8")).items():
        rows = {row["method"]: row for row in of_set["rows"]}
        for part in ("beams", "aliases"):
            if (data := name.rsplit("-", 1)[0]) in ranking.LEARNED:
                for cut in ranking.CUTS:
                    gain = rows[f"default + {part}"][f"recall@{cut}"] - rows["default"][f"recall@{cut}"]
                    gains[f"{part} {data}", name, cut] = round(gain, 1)
    by_beams = {key: gain for key, gain in gains.items() if key[0].startswith("beams") and key[2] == 5}
    others = [gain for key, gain in by_beams.items() if key[0] != "beams hotpotqa"]
    assert max(others) == 1.1 and min(others) > 0
    assert min(gain for key, gain in by_beams.items() if key[0] == "beams hotpotqa") == -0.6
    by_aliases = [gain for key, gain in gains.items() if key[0].startswith("aliases")]
    assert (min(by_aliases), max(by_aliases)) == (-0.7, 1.0)
    text = tables_ranking.ranking(Results(RESULTS.parent))
    assert all(said in text for said in ("up to 1.1 points", "takes up to 0.6", "by −0.7 to +1.0"))


def test_the_table_says_who_gains_on_whom(tmp_path: Path) -> None:
    clear, chance, worse = ({"points": points, "p": p} for points, p in ((2.0, 0.01), (2.0, 0.2), (-2.0, 0.01)))
    both = {f"recall@{cut}": 50.0 for cut in ranking.CUTS} | {f"gain@{cut}": clear for cut in ranking.CUTS}
    over = {f"gain_over_hipporag@{cut}": clear for cut in ranking.CUTS}
    over |= {"gain_over_hipporag@3": chance, "gain_over_hipporag@5": worse}
    methods = ("default − named", "default", "property graph", "naive", "hybrid")
    rows = [{"method": method, **both, **(over if method == "default" else {})} for method in methods]
    of_set = {"questions": 1, "passages": 2, "triples": 3, "rows": rows}
    (tmp_path / "ranking.json").write_text(json.dumps({"2wiki-file": of_set}), "utf-8")
    lines = [line for line in tables_ranking.ranking(Results(tmp_path)).splitlines() if line.startswith("| ")][2:]
    labels = ["hybrid", "NaiveGE, the papers' expansion", "LlamaIndex's `PropertyGraphIndex`", "`GraphRetriever`"]
    assert [line.split(" | ")[0][2:] for line in lines] == [*labels, "`GraphRetriever` − named"]
    assert lines[3].split(" | ")[1:5] == ["50.0\\*†", "50.0\\*", "50.0\\*", "50.0\\*†"]
    assert sum("†" in line for line in lines) == 1
