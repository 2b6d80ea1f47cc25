"""The committed results as tables and plots: `REPORT.md`, `plots/*.svg`, and the figures of README and guides.

    python examples/benchmarks/report.py

Every figure of ours comes from a file in `results/`. In README and guides, this command writes the tables between
`<!-- figures: NAME -->` and `<!-- /figures -->`, of results and of the public names; the text around them is written by
hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from reporting.legend import legend
from reporting.pages import fill
from reporting.plots import draw_plots
from reporting.results import Results
from reporting.tables_chunks import chunk_sizes
from reporting.tables_gear import differences, diversity, hipporag, table_2, table_3, table_7, table_8, table_11
from reporting.tables_links import links
from reporting.tables_ours import costs, extraction, shares, triples_table
from reporting.tables_peers import peers
from reporting.tables_ranking import ranking
from reporting.tables_reader import reader
from reporting.tables_settings import bases, exactness, okapi, sweeps
from reporting.tables_speed import memory, speed, times
from reporting.tables_stores import external_graphs, kills, store_sizes
from reporting.tables_t2rag import by_hops, table_1, table_5

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "examples" / "guides").glob("*.md")))
TABLES: tuple[Callable[[Results], str], ...] = (
    legend,
    ranking,
    links,
    peers,
    chunk_sizes,
    reader,
    table_2,
    hipporag,
    differences,
    table_3,
    diversity,
    table_7,
    table_8,
    table_11,
    table_1,
    by_hops,
    table_5,
    costs,
    triples_table,
    extraction,
    shares,
    sweeps,
    bases,
    okapi,
    exactness,
    times,
    memory,
    speed,
    store_sizes,
    external_graphs,
    kills,
)


def report(results: Results, plots: Sequence[str]) -> str:
    """Return the whole report, in Markdown."""
    head = (
        "# Results beside the papers'\n\nFor contributors, and for whoever doubts a figure; [README](../../README.md) "
        "has the main results. Made by `report.py` from the files in `results/`; don't edit.\n"
    )
    pictures = "\n".join(f"![{name}](plots/{name}.svg)" for name in plots)
    return "\n".join([head, *(part for make in TABLES if (part := make(results))), pictures]).rstrip() + "\n"


def main() -> None:
    """Write the report, the plots, and the figures of README and guides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    results = Results(HERE / "results")
    plots = list(draw_plots(results, HERE / "plots"))
    (HERE / "REPORT.md").write_text(report(results, plots), "utf-8")
    for page in PAGES:
        page.write_text(fill(page.read_text("utf-8"), results), "utf-8")


if __name__ == "__main__":
    main()
