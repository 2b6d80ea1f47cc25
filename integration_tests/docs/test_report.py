"""The report, README and guides show the committed results; `examples/benchmarks/tests` holds what they conclude."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest
import report
from reporting.pages import fill
from reporting.plots import draw_plots
from reporting.results import Results
from repository import BENCHMARKS

RESULTS = Results(BENCHMARKS / "results")


def test_the_committed_report_is_that_of_the_committed_results(tmp_path: Path) -> None:
    plots = list(draw_plots(RESULTS, tmp_path))
    assert report.report(RESULTS, plots) == (BENCHMARKS / "REPORT.md").read_text("utf-8"), "run report.py"
    committed = {path.stem for path in (BENCHMARKS / "plots").glob("*.svg")}
    assert committed == set(plots) and all((tmp_path / f"{name}.svg").stat().st_size > 5000 for name in plots)
    for name in plots:
        drawn, before = ((folder / f"{name}.svg").read_bytes() for folder in (tmp_path, BENCHMARKS / "plots"))
        if f">Matplotlib v{matplotlib.__version__}," in before.decode():  # another one draws otherwise
            assert drawn == before, f"{name}: run report.py"


@pytest.mark.parametrize("page", report.PAGES, ids=lambda page: page.stem)
def test_the_figures_between_markers_are_those_of_the_committed_results(page: Path) -> None:
    text = page.read_text("utf-8")
    assert fill(text, RESULTS) == text, "run report.py"
