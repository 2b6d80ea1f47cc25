"""The report shows the committed results and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import report
from reporting import papers
from reporting.plots import draw_plots
from reporting.results import Results
from reporting.tables import format_published
from repository import BENCHMARKS

from llama_index_gear.expansion.beam_search import BeamSearch

REPORT = (BENCHMARKS / "REPORT.md").read_text("utf-8")
RESULTS = Results(BENCHMARKS / "results")
OF_FILES_OF_THEIR_OWN = {
    "Passages ranked together, without a language model", "Links between documents", "Peers by their own code",
    "Chunks of several sizes", "Index and memory",
}  # fmt: skip


def split_parts(text: str) -> dict[str, str]:
    """Return the report's sections by title."""
    return dict(part.split("\n", 1) for part in text.split("\n## ")[1:])


def test_every_table_names_its_files_and_the_legend_has_their_set_ups() -> None:
    parts = split_parts(REPORT)
    legend = parts.pop("Legend")
    set_up = set(re.findall(r"^\| `([^`]+)` \|", legend, re.MULTILINE))
    assert set_up == {name for name, file in RESULTS.files.items() if "methods" in file}
    for title, part in parts.items():
        named = re.findall(r"`([^`]+)`", "".join(re.findall(r"^- Files: (.*)\.$", part, re.MULTILINE)))
        assert named or title in OF_FILES_OF_THEIR_OWN, title
        assert set(named) <= RESULTS.files.keys(), title
    assert f"`{BeamSearch().scorer}`, the default" in legend


def test_no_sentence_stands_under_two_tables() -> None:
    notes = [line[2:] for line in REPORT.splitlines() if line.startswith("- ") and not line.startswith("- Files: ")]
    sentences = Counter(sentence for note in notes for sentence in re.split(r"(?<=[.:;]) ", note))
    assert len(sentences) > 40 and [sentence for sentence, times in sentences.items() if times > 1] == []


def list_figures(table: Any) -> Iterator[str]:
    """Yield each run of a paper's figures as the report prints it."""
    if isinstance(table, dict):
        table = tuple(table.values())
    if isinstance(table[0], float):
        yield format_published(
            [figure for figure in table if isinstance(figure, float)]
        )  # calls are counted, an integer
    else:
        for part in table:
            yield from list_figures(part)


def test_every_figure_of_the_papers_is_printed(tmp_path: Path) -> None:
    tables = {name: table for name, table in vars(papers).items() if "_TABLE_" in name}
    text = report.report(Results(tmp_path), [])
    assert len(tables) == 10
    assert [
        (name, figure) for name, table in tables.items() for figure in list_figures(table) if figure not in text
    ] == []


def test_without_results_there_are_only_the_papers(tmp_path: Path) -> None:
    text = report.report(Results(tmp_path), list(draw_plots(Results(tmp_path), tmp_path / "plots")))
    assert "| GeAR | 19.0 / 35.6 | – | – |" in text and "- Files: none, not run." in text and ".svg" not in text
