"""README and guides state the figures of the committed results, and conclusions that follow from them."""

from __future__ import annotations

import re

import pytest
import report
from reporting.pages import BLOCKS, fill, remove_figures
from reporting.results import LLM_FILE, SELECTION_FILE, Results
from repository import BENCHMARKS

from llama_index_gear import MentionTripleExtractor
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever

CUTS = (5, 10, 15)
RESULTS = Results(BENCHMARKS / "results")
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


@pytest.mark.parametrize("method", ["graph + links", "graph + links, shipped"])
def test_links_gain_over_hybrid_on_each_source(method: str) -> None:
    """With what a link leads to in the first five and ten; in the first two, what one page answers loses nothing."""
    sources = RESULTS.files["links"]["sources"]
    assert len(sources) == 10
    for name, source in sources.items():
        hybrid, linked = source["rows"]["hybrid"], source["rows"][method]
        for cut in ("all gold@5", "all gold@10"):
            assert linked["link, passages"][cut] > hybrid["link, passages"][cut], name
        assert linked["one, passages"]["all gold@2"] >= hybrid["one, passages"]["all gold@2"], name


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
