"""The committed results as tables beside the papers' and as plots: `REPORT.md`, `plots/*.svg`.

    python examples/benchmarks/report.py

Every figure of ours comes from a file in `results/`; what was not run is "–". Under each table stands in what the
set-ups differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from reporting.plots import plotted
from reporting.results import Results
from reporting.tables_gear import diversity, table_2, table_3, table_7, table_8, table_11
from reporting.tables_ours import costs, shared_calls, shares, triples_table
from reporting.tables_settings import bases, exactness, okapi, sweeps
from reporting.tables_speed import memory, speed, times
from reporting.tables_t2rag import by_hops, table_1, table_5

HERE = Path(__file__).parent
TABLES: tuple[Callable[[Results], str], ...] = (
    table_2,
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
    shared_calls,
    shares,
    sweeps,
    bases,
    okapi,
    exactness,
    times,
    memory,
    speed,
)


def report(results: Results, plots: Sequence[str]) -> str:
    """The whole, in Markdown."""
    head = (
        "# Results beside the papers'\n\n"
        "Made by `report.py` from the files in `results/`; don't edit. Recall@5 / @10 / @15 in percent. The 95 % "
        "intervals under a table are of single recalls, not of the differences between methods, which are paired: for "
        "those, p is of an exact paired permutation test, after Holm's correction over all comparisons of the file.\n"
    )
    pictures = "\n".join(f"![{name}](plots/{name}.svg)" for name in plots)
    return "\n".join([head, *(part for each in TABLES if (part := each(results))), pictures]).rstrip() + "\n"


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for REPORT.md and plots/")
    arguments = parser.parse_args()
    results = Results(arguments.results)
    plots = list(plotted(results, arguments.out / "plots"))
    (arguments.out / "REPORT.md").write_text(report(results, plots), "utf-8")


if __name__ == "__main__":
    main()
