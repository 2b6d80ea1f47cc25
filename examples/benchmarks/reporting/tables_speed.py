"""Time and memory."""

from __future__ import annotations

from typing import Any

from reporting.results import DATA, EMBED, METHODS, NONE, OURS, Results, format_label
from reporting.tables import section, sources, table

AIM = 20
GRAPHS = {"speed": "many hubs", "speed-extracted": "like HotpotQA's"}
LARGER = "-10m"


def times(results: Results) -> str:
    """Return the section on milliseconds a question, with HippoRAG's time as a multiple of each method's."""
    files = {f"{data}, {embed}": f"{folder}-{embed}" for data, folder in DATA.items() for embed in EMBED}
    rows = []
    for label, method in METHODS.items():
        row = [format_label(label, OURS, "")]
        for file in files.values():
            measured, hipporag = results.row(file, method), results.row(file, "hipporag")
            multiple = f"; {hipporag['ms_per_query'] / measured['ms_per_query']:.1f}" if measured and hipporag else ""
            row.append(NONE if measured is None else f"{measured['ms_per_query']:.1f}{multiple}")
        rows.append(row)
    return section(
        "Milliseconds a question",
        table(["ms; HippoRAG's as a multiple", *files], rows),
        "Medians at R@10; methods of one list make 15 passages. Base retrieval is included, embedding the question is "
        "not. No model is waited for: the reader's facts are given. HippoRAG's graph and vectors are in memory, ours "
        "on the disk behind an index. A column is one run's: between runs the same row differs by up to three times.",
        sources(results, *files.values()),
    )


def memory(results: Results) -> str:
    """Return the section on the disk of an index, and on the memory of the run that measured it."""
    rows = []
    for folder in DATA.values():
        for embed in EMBED:
            have = results.files.get(f"{folder}-{embed}", {}).get("conditions", {})
            if "index_mib" in have:
                counts = [f"{have[name]:,}" for name in ("passages", "triples")]
                mebibytes = [f"{have[name]:,.0f}" for name in ("index_mib", "peak_memory_mib")]
                rows.append([f"`{folder}-{embed}`", *counts, *mebibytes])
    if not rows:
        return ""
    return section(
        "Index and memory",
        table(["file", "passages", "triples", "index, MiB on the disk", "peak memory of the whole run, MiB"], rows),
        "A run's memory is that of one process with the embedding model, HippoRAG's graph and vectors, and all methods "
        "of the file. The next tables show what the store alone takes.",
    )


def speed(results: Results) -> str:
    """Return the section on time and memory against the size of the graph."""
    rows = [
        [
            name,
            f"{row['triples']:,}",
            f"{row['whole_to_expansion']:.2f}",
            f"{row['whole_to_local']:.2f}",
            judge_aim(row),
            f"{row['whole_mib'] / row['ours_mib']:.2f}",
            f"{(row['whole_mib'] + row['whole_vectors_mib']) / row['ours_mib']:.2f}",
            f"{(row['whole_mib'] + row['whole_vectors_mib']) / (row['ours_mib'] + row['ours_files_mib']):.2f}",
        ]
        for file, name in GRAPHS.items()
        for row in find_sizes(results, file)
    ]
    if not rows:
        return ""
    head = [
        "graph",
        "triples",
        "time: igraph's to our beam search's",
        "igraph's to our local PageRank's",
        f"at least {AIM}",
        "memory: igraph's graph to our store",
        "with HippoRAG's vectors to our store",
        "with HippoRAG's vectors to our store and its files",
    ]
    return section(
        "igraph's PageRank over the whole graph, as multiples of ours",
        table(head, rows) + growth_table(results),
        f"The aim is that igraph's PageRank takes at least {AIM} times as long as ours. It is out of reach where our "
        "base search alone takes more than that share of igraph's time.",
        *(
            f"The row of {row['triples']:,} triples is of another run, of an earlier version, with {other['queries']} "
            "questions. Our files no longer fit in memory there."
            for other in (results.files.get(f"{file}{LARGER}", {}) for file in GRAPHS)
            for row in other.get("sizes", [])
        ),
        "Triples are synthetic; times are medians of one run a graph. `speed.py` says what is compared. "
        "`harness/synthetic_graphs.py` draws the graphs: with entities as frequent as HotpotQA's, or with far more "
        "hubs than any extraction that we know has. Our memory is the store's own. In the last column it includes the "
        "pages of its files that happen to be in memory; they are given up when memory is short.",
        sources(results, *(file for name in GRAPHS for file in (name, f"{name}{LARGER}"))),
    )


def find_sizes(results: Results, file: str) -> list[dict[str, Any]]:
    """Return the rows of a file, and those of the larger store that was measured by itself."""
    return [row for name in (file, f"{file}{LARGER}") for row in results.files.get(name, {}).get("sizes", [])]


def growth_table(results: Results) -> str:
    """Return a table of the powers of the size to which the times grow."""
    files = {name: results.files[file] for file, name in GRAPHS.items() if file in results.files}
    rows = [
        [
            name,
            *(f"{power:.2f} ({file['last_exponents'][part]:.2f})" for part, power in file["growth_exponents"].items()),
        ]
        for name, file in files.items()
    ]
    head = [
        "time grows with triples to the power of (of the last step alone)",
        *next(iter(files.values()))["growth_exponents"],
    ]
    return "\n\n" + table(head, rows)


def judge_aim(row: dict[str, Any]) -> str:
    """Say if our PageRank takes at most a twentieth of igraph's time, or if the base search alone takes more."""
    if row["whole_ms"] / row["local_ms"] >= AIM:
        return "yes"
    return "out of reach" if row["whole_ms"] / AIM < row["search_ms"] else "no"
