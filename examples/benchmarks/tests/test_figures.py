"""README and guides state the figures of the committed results, and conclusions that follow from them."""

from __future__ import annotations

import re
from itertools import product

import pytest
import report
from reporting.pages import BLOCKS, fill, remove_figures
from reporting.results import EMBED, LLM_FILE, SELECTION_FILE, Results
from repository import BENCHMARKS

from llama_index_gear import MentionTripleExtractor
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever

CUTS = (5, 10, 15)
RESULTS = Results(BENCHMARKS / "results")
FILES = [f"{data}-{embed}" for data in ("hotpotqa", "musique_train") for embed in EMBED]
WITH_A_SMALL_MODEL = (
    *("hybrid+naive", "hybrid+sync", "graph+select", "graph+selection", "hybrid+gear", "hybrid+gear[max_steps=1]"),
    *("hybrid+gear[calls=merged]", "hybrid+gear[calls=single]", "t2rag", "hybrid+ircot"),
    "hipporag-filter",
)
PAGES = {page.stem: page.read_text("utf-8") for page in report.PAGES}


def test_every_marker_is_closed_and_every_table_is_on_one_page() -> None:
    text = "\n".join(PAGES.values())
    named = re.findall(r"<!-- figures: ([\w-]+) -->", text)
    assert sorted(named) == sorted(BLOCKS) and text.count("<!-- /figures -->") == len(named)
    assert "<!--" not in "".join(remove_figures(page) for page in PAGES.values())


@pytest.mark.parametrize("name", PAGES)
def test_no_figure_of_a_result_is_written_by_hand(name: str) -> None:
    """Recalls, p-values and intervals stand only between the markers that the report fills."""
    by_hand = remove_figures(PAGES[name])
    assert re.findall(r"\d+\.\d / \d+\.\d|\bp [=≥≤<>] ?\d|± ?\d|\d\.\d points", by_hand) == []


def test_a_changed_figure_would_be_made_anew() -> None:
    page = PAGES["README"]
    changed, count = re.subn(r"^\| hybrid \| .*$", "| hybrid | 99.9 |", page, flags=re.MULTILINE)
    assert count == 3 and fill(changed, RESULTS) == page


def select_beyond_chance(file: str, method: str, against: str = "") -> dict[int, float]:
    """Return the cuts at which a method gains beyond chance, with its gain in points."""
    row = RESULTS.row(file, method)
    assert row is not None and row["against"] == (against or method.rpartition("+")[0]), method
    gains = {cut: row[f"gain@{cut}"] for cut in CUTS}
    return {cut: gain["points"] for cut, gain in gains.items() if gain["points"] > 0 and gain["p_corrected"] < 0.05}


def test_graph_expansion_gains_without_a_model() -> None:
    assert all(tuple(select_beyond_chance(file, "bm25+naive")) == CUTS for file in FILES)
    of_hybrid = [tuple(select_beyond_chance(file, "hybrid+naive")) for file in FILES]
    assert of_hybrid == [CUTS, (15,), (), (15,)]


def test_a_call_of_a_model_gains_most_and_gear_makes_more_of_it() -> None:
    for embed in EMBED:
        sync, gear = (select_beyond_chance(f"musique_train-{embed}", f"hybrid+{method}") for method in ("sync", "gear"))
        naive = RESULTS.row(f"musique_train-{embed}", "hybrid+naive")
        assert naive is not None and tuple(sync) == tuple(gear) == CUTS
        assert all(sync[cut] > naive[f"gain@{cut}"]["points"] for cut in CUTS)
        gained = select_beyond_chance(f"musique_train-{embed}-gear", "hybrid+gear", against="hybrid+sync")
        assert tuple(gained) == (10, 15)


def test_what_pagerank_adds() -> None:
    every, (at_15,) = (
        select_beyond_chance(f"musique_train-{embed}", "hybrid+sync+pagerank") for embed in ("minilm", "mpnet")
    )
    assert tuple(every) == CUTS and at_15 == 15
    one, two = (select_beyond_chance(f"hotpotqa-{embed}", "hybrid+naive+pagerank") for embed in EMBED)
    assert (tuple(one), tuple(two)) == ((15,), (10, 15))
    for embed in EMBED:
        file = f"musique_train-{embed}"
        assert not select_beyond_chance(file, "hybrid+naive+pagerank")
        assert not any(select_beyond_chance(file, f"{base}+gear+pagerank") for base in ("bm25", "dense", "hybrid"))
    others = [(embed, base) for embed in EMBED for base in ("bm25", "dense")]
    gains = {
        (embed, base): select_beyond_chance(f"hotpotqa-{embed}", f"{base}+naive+pagerank") for embed, base in others
    }
    assert all(tuple(gain) == (10, 15) for gain in gains.values())
    naive = {
        (embed, base): select_beyond_chance(f"musique_train-{embed}", f"{base}+naive+pagerank")
        for embed, base in others
    }
    assert {pair: tuple(gain) for pair, gain in naive.items() if gain} == {("minilm", "bm25"): (10,)}
    sync = [tuple(select_beyond_chance(f"musique_train-{embed}", f"{base}+sync+pagerank")) for embed, base in others]
    assert sync == [CUTS, (10,), CUTS, CUTS]


def test_naive_with_pagerank_beside_hipporag() -> None:
    ahead = [
        tuple(select_beyond_chance(f"{file}-hipporag", "hybrid+naive+pagerank", against="hipporag")) for file in FILES
    ]
    assert ahead == [CUTS, CUTS, (), (5,)]
    full = [
        tuple(select_beyond_chance(f"{file}-synonyms", "hybrid+naive+pagerank", "hipporag-synonyms")) for file in FILES
    ]
    assert full == [CUTS, (15,), (), ()]


def test_pagerank_takes_about_twice_the_time() -> None:
    for file in FILES:
        naive, both = (RESULTS.row(file, method) for method in ("hybrid+naive", "hybrid+naive+pagerank"))
        assert naive is not None and both is not None
        assert 1.75 < both["ms_per_query"] / naive["ms_per_query"] < 2.25


def test_which_base_is_best_and_which_gains_most() -> None:
    """Hybrid is the best base or within half a point of it, and BM25 gains more than hybrid."""
    for file, most_gained in (("musique_train-mpnet", [0, 0, 0]), ("hotpotqa-mpnet", [0, 1, 1])):
        for suffix in ("", "+naive"):
            bm25, dense, hybrid = (RESULTS.row(file, f"{base}{suffix}") for base in ("bm25", "dense", "hybrid"))
            assert bm25 is not None and dense is not None and hybrid is not None
            best = {cut: max(bm25[f"recall@{cut}"], dense[f"recall@{cut}"]) for cut in CUTS}
            assert all(best[cut] - hybrid[f"recall@{cut}"] <= 0.5 for cut in CUTS)
        gains = []
        for base in ("bm25", "dense", "hybrid"):
            row = RESULTS.row(file, f"{base}+naive")
            assert row is not None
            gains.append([row[f"gain@{cut}"]["points"] for cut in CUTS])
        assert [max(range(3), key=lambda base: gains[base][at]) for at in range(3)] == most_gained
        assert all(gains[0][at] > gains[2][at] for at in range(3))


def test_no_other_setting_does_better_beyond_chance() -> None:
    swept = [
        row[f"gain@{cut}"]
        for name, file in RESULTS.files.items()
        if name.startswith("musique_train-") and name.endswith(("-sweeps", "-bases", "-pagerank"))
        for row in file["methods"]
        if "swept" in row
        for cut in CUTS
    ]
    apart = [gain for gain in swept if gain["p_corrected"] < 0.05]
    assert len(swept) > 300 and len(apart) > 5 and all(gain["points"] < 0 for gain in apart)


def test_the_papers_scorer_does_not_differ_beyond_chance() -> None:
    for embed, method in product(EMBED, ("naive", "sync", "gear")):
        row = RESULTS.row(f"musique_train-{embed}-sweeps", f"hybrid+{method}[scorer=exact]")
        assert row is not None and all(row[f"gain@{cut}"]["p_corrected"] >= 0.05 for cut in CUTS)
    scorers = {name: file["conditions"]["scorer"] for name, file in RESULTS.files.items() if "methods" in file}
    assert set(scorers.values()) == {"novelty"} and len(scorers) > 10


def test_with_a_small_model_no_method_differs_from_hybrid_beyond_chance() -> None:
    """And its selection does not differ from the retriever whose passages it reads."""
    points = {}
    for method in WITH_A_SMALL_MODEL:
        row = RESULTS.row(LLM_FILE, method) or RESULTS.row(SELECTION_FILE, method)
        assert row is not None, method
        assert row["against"] == ("graph" if method.startswith("graph+") else "hybrid")
        assert [cut for cut in CUTS if row[f"gain@{cut}"]["p_corrected"] < 0.05] == [], method
        points[method] = row["gain@15"]["points"]
    assert min(points, key=lambda method: points[method]) == "t2rag"
    selection = RESULTS.row(SELECTION_FILE, "graph+selection")
    assert selection is not None and selection["steps"] == 1  # it ended every question at its first
    gear, one = (RESULTS.row(LLM_FILE, f"hybrid+gear{steps}") for steps in ("", "[max_steps=1]"))
    assert gear is not None and one is not None and gear["steps"] < 2
    two = RESULTS.of_steps(LLM_FILE, "hybrid+gear", 2)
    assert two is not None and two["steps"] < 1.5  # most questions took one
    assert one["recall@5"] > gear["recall@5"]


def test_a_killed_store_needed_no_repair() -> None:
    assert RESULTS.files["soak"]["minutes"] == 10 and RESULTS.files["soak"]["equal_unrepaired"] is True


def test_the_sizes_that_were_measured() -> None:
    sizes = [row["triples"] for file in ("speed", "speed-10m") for row in RESULTS.files[file]["sizes"]]
    assert sizes == pytest.approx([1e4, 1e5, 1e6, 5e6, 1e7], rel=1e-3)
    fewer_hubs = [row["triples"] for row in RESULTS.files["speed-extracted"]["sizes"]]
    assert fewer_hubs == pytest.approx(sizes[:4], rel=1e-3)


def test_the_figures_in_a_docstring_are_committed_results() -> None:
    said = " ".join(str(PaperGeARRetriever.__doc__).split())
    file = "musique_train-minilm-sweeps"
    for name, words in (
        ("hybrid+gear", "in one step, R@5/10/15 is"),
        ("hybrid+gear[passage_link_top_k=10]", "with 10 it is"),
    ):
        row = RESULTS.row(file, name)
        assert row is not None and f"{words} " + "/".join(f"{row[f'recall@{k}']:.1f}" for k in CUTS) in said
    said = " ".join(str(MentionTripleExtractor.__doc__).split())
    assert f"R@10 are about ± {RESULTS.half_width('musique_train-minilm-offline'):.1f} points" in said
