"""Time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reporting.results import DATA, EMBED, METHODS, NONE, OURS, Results, named
from reporting.tables import section, table

AIM = 20
GRAPHS = {"speed": "many hubs", "speed-extracted": "like HotpotQA's"}
LARGER = "-10m"


def times(results: Results) -> str:
    """Milliseconds a question, and how long HippoRAG's retrieval takes beside each method."""
    files = {f"{data}, {embed}": f"{folder}-{embed}" for data, folder in DATA.items() for embed in EMBED}
    rows = []
    for label, method in METHODS.items():
        row = [named(label, OURS, "")]
        for file in files.values():
            found, its = results.row(file, method), results.row(file, "hipporag")
            beside = f"; {its['ms_per_query'] / found['ms_per_query']:.1f}" if found and its else ""
            row.append(NONE if found is None else f"{found['ms_per_query']:.1f}{beside}")
        rows.append(row)
    return section(
        "Milliseconds a question",
        table(["ms; HippoRAG's as a multiple", *files], rows),
        "Medians at R@10 (of one list: of 15 passages), base retrieval included, without embedding the question and "
        "without waiting for a model: the reader's facts are given. HippoRAG's graph and vectors are in memory, ours "
        "on the disk behind an index. A column is one run's: between runs the same row differs by up to three times.",
        *(f"{said}." for file in files.values() if (said := results.setup(file))),
    )


def memory(results: Results) -> str:
    """What an index takes, and the run that measured it."""
    rows = []
    for folder in DATA.values():
        for embed in EMBED:
            have = results.files.get(f"{folder}-{embed}", {}).get("conditions", {})
            if "index_mib" in have:
                counts = [f"{have[name]:,}" for name in ("passages", "triples")]
                sizes = [f"{have[name]:,.0f}" for name in ("index_mib", "peak_memory_mib")]
                rows.append([f"`{folder}-{embed}.json`", *counts, *sizes])
    if not rows:
        return ""
    return section(
        "Index and memory",
        table(["file", "passages", "triples", "index, MiB on the disk", "peak memory of the whole run, MiB"], rows),
        "The run's memory is that of one process with the embedding model, HippoRAG's graph and vectors, and all rows "
        "of the file. What the store alone takes, by size, stands in the next table and in the guide on scale.",
    )


def speed(results: Results) -> str:
    """Time and memory against the size of the graph."""
    rows = [
        [
            name,
            f"{row['triples']:,}",
            f"{row['whole_to_expansion']:.2f}",
            f"{row['whole_to_local']:.2f}",
            f"{row['whole_mib'] / row['ours_mib']:.2f}",
            f"{(row['whole_mib'] + row['whole_vectors_mib']) / row['ours_mib']:.2f}",
            f"{(row['whole_mib'] + row['whole_vectors_mib']) / (row['ours_mib'] + row['ours_files_mib']):.2f}",
        ]
        for file, name in GRAPHS.items()
        for row in sizes(results, file)
    ]
    if not rows:
        return ""
    head = [
        "graph",
        "triples",
        "time: igraph's to our beam search's",
        "igraph's to our local PageRank's",
        "memory: igraph's graph to our store",
        "with HippoRAG's vectors to our store",
        "with HippoRAG's vectors to our store and its files",
    ]
    return section(
        "igraph's PageRank over the whole graph, as multiples of ours",
        table(head, rows),
        *(
            f"{name[0].upper()}{name[1:]}: {said}"
            for file, name in GRAPHS.items()
            if file in results.files
            for said in (aim(sizes(results, file)), growth(results.files[file]))
        ),
        *(
            f"{row['triples']:,} triples: of a run of its own, of an earlier version, with {other['queries']} "
            "questions; our files no longer fit in memory."
            for other in (results.files.get(f"{file}{LARGER}", {}) for file in GRAPHS)
            for row in other.get("sizes", [])
        ),
        "Synthetic triples, medians of one run a graph; `speed.py` says what is compared, `harness/"
        "synthetic_graphs.py` how graphs are drawn: entities as frequent as HotpotQA's, or far more hubs than any "
        "extraction that we know has. Our memory is the store's own; with files, so are the pages of its files that "
        "happen to be in memory, and are given up when it is short.",
    )


def sizes(results: Results, file: str) -> list[dict[str, Any]]:
    """The rows of a file, and of the larger store that was measured by itself."""
    return [row for each in (file, f"{file}{LARGER}") for row in results.files.get(each, {}).get("sizes", [])]


def growth(file: dict[str, Any]) -> str:
    """To which powers of the size the times grow."""
    each = (
        f"{exponent:.2f} ({name}; from the last size but one to the last {file['last_exponents'][name]:.2f})"
        for name, exponent in file["growth_exponents"].items()
    )
    return f"time grows with the size to the power of {', '.join(each)}."


def aim(sizes: Sequence[dict[str, Any]]) -> str:
    """Where our PageRank takes at most a twentieth of igraph's time, and where not."""
    said: dict[bool, list[str]] = {True: [], False: []}
    for row in sizes:
        ratio = row["whole_ms"] / row["local_ms"]
        said[ratio >= AIM].append(f"{row['triples']:,} ({ratio:.1f} times)")
    met, missed = (", ".join(said[each]) or "none of these sizes" for each in (True, False))
    beyond = [f"{row['triples']:,}" for row in sizes if row["whole_ms"] / AIM < row["search_ms"]]
    said_beyond = (
        f" 1/{AIM} of igraph's time is less than the base search alone takes with {' and '.join(beyond)} triples."
    )
    return (
        f"the aim, that local PageRank takes at most 1/{AIM} of the time of igraph's, is met with these numbers of "
        f"triples: {met}. It is not met with: {missed}." + said_beyond * bool(beyond)
    )
