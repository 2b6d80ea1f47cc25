"""What stores take, by size: the embedded engine, an external graph, an ingest, and a store under kills."""

from __future__ import annotations

from typing import Any

from reporting.results import NONE, Results
from reporting.tables import section, sources, table

SIZES = ("speed", "speed-10m")


def store_sizes(results: Results) -> str:
    """Return the section on a store's rate of loading, memory, disk and time of a query."""
    if any(file not in results.files for file in SIZES):
        return ""
    tables = [scale_table(results), billion_table(results), ingest_table(results)]
    return section(
        "What a store takes",
        "\n\n".join(tables),
        "`speed.py` loads synthetic passages of ten triples each into the embedded engine with its defaults and "
        "`embed_triples=True`, on 2 cores. Three quarters of the mentions are of entities that stand in ten passages "
        "or more; the last column has entities as frequent as HotpotQA's. Its largest store is of a run of its own, of "
        "an earlier version.",
        "Memory in use leaves out the pages of files that the engine maps, about as much as the disk. They are given "
        "up when memory is short.",
        "A billion was not tried: it is extrapolated from the largest store. Vectors on the disk with quantized copies "
        "in memory take a quarter of their size in memory.",
        sources(results, *SIZES, "speed-extracted", "musique_train-minilm-ingest"),
    )


def external_graphs(results: Results) -> str:
    """Return the section on a knowledge graph in place of extraction: its size, and reading a dump."""
    if any(file not in results.files for file in ("graph_speed", "dump_speed")):
        return ""
    return section(
        "A graph that exists",
        "\n\n".join([graph_table(results), dump_table(results)]),
        "`graph_speed.py` measures a sparse graph of synthetic triples, opened anew after loading, on 2 cores. The "
        "commonest entity stands in 3 % of the triples. A step links 5 facts, takes the neighbors of 10 triples and "
        "the passages of 20; embedding what it meets comes on top.",
        "Reading a dump is compared with decompressing it and parsing its JSON, no more.",
        sources(results, "graph_speed", "dump_speed"),
    )


def kills(results: Results) -> str:
    """Return the section on a store that was killed at random moments."""
    if "soak" not in results.files:
        return ""
    return section(
        "A store under kills",
        soak_table(results),
        "`soak.py` kills a process at random moments while it adds, deletes and asks. After each kill every passage "
        "had all its triples.",
        sources(results, "soak"),
    )


def scale_table(results: Results) -> str:
    """Return the loading rate, memory, disk and time of a query, by the size of a store."""
    fewer_hubs = {f"{row['triples']:.0e}": row for row in results.files["speed-extracted"]["sizes"]}
    rows = []
    for row in (row for file in SIZES for row in results.files[file]["sizes"]):
        rows.append(
            [
                f"{row['triples']:,}",
                f"{row['triples_per_second_without_embedding']:,} ({row['triples_per_second_in_the_last_tenth']:,})",
                *(f"{row[key] / 1024:.2f} GiB" for key in ("ingest_mib", "ours_mib", "disk_mib")),
                f"{row['opening_seconds']} s",
                f"{row['search_ms']:.0f} ms",
                format_milliseconds(row),
                format_milliseconds(fewer_hubs.get(f"{row['triples']:.0e}")),
            ]
        )
    head = ["triples", "loading, triples a second (its last tenth)", "memory while loading", "memory in use", "disk"]
    head += ["opening", "base search", "graph expansion, median / 95th percentile", "the same, fewer hubs"]
    return table(head, rows)


def format_milliseconds(row: dict[str, Any] | None) -> str:
    """Return the median and the 95th percentile of a graph expansion."""
    return NONE if row is None else f"{row['expansion_ms']:.0f} / {row['expansion_ms_p95']:.0f} ms"


def billion_table(results: Results) -> str:
    """Return the needs of a billion triples, extrapolated from the largest store that was measured."""
    file = results.files["speed-10m"]
    (row,) = file["sizes"]
    disk, memory = (1e9 / row["triples"] * row[key] / 2**20 for key in ("disk_mib", "ours_mib"))
    vectors = 1.1e9 * 4 * file["dimension"] / 2**40  # of triples and of a tenth as many passages
    hours = 1e9 / row["triples_per_second_without_embedding"] / 3600
    return table(
        ["a billion triples", "extrapolated"],
        [
            [f"disk, {file['dimension']} dimensions", f"{disk:.1f} TiB"],
            ["of which vectors", f"{vectors:.1f} TiB"],
            ["memory that is no file's", f"{memory:.1f} TiB"],
            ["loading by one process", f"{hours:.0f} hours"],
        ],
    )


def ingest_table(results: Results) -> str:
    """Return the share of an ingest that the embedding model takes."""
    have = results.files["musique_train-minilm-ingest"]["conditions"]
    return table(
        ["ingest of MuSiQue, its triples ready, all-MiniLM-L6-v2", ""],
        [
            ["passages, triples", f"{have['passages']:,} and {have['triples']:,}"],
            [
                "share of the time that embedding takes",
                f"{100 * have['embedding_seconds'] / have['ingest_seconds']:.0f} %",
            ],
        ],
    )


def graph_table(results: Results) -> str:
    """Return the time of a step on an external graph, its memory and its disk, by size."""
    rows = []
    for graph in results.files["graph_speed"]["graphs"]:
        loading = graph["load_triples_per_second"]
        parts = ", ".join(f"{graph['step_ms'][part]}" for part in ("link", "neighbors", "passages"))
        rows.append(
            [
                f"{graph['triples']:,}",
                NONE if loading is None else f"{loading:,} a second",
                f"{graph['step_ms_median']:.0f} / {graph['step_ms_p95']:.0f} ms",
                f"{parts} ms",
                str(graph["embedded_a_step"]),
                *(f"{graph[key] / 1000:.1f} GB" for key in ("memory_mb", "disk_mb")),
                f"{graph['reopen_seconds']} s",
            ]
        )
    head = ["triples", "loading", "a step, median / 95th percentile", "link, neighbors, passages"]
    return table([*head, "texts embedded a step", "memory", "disk", "opening"], rows)


def dump_table(results: Results) -> str:
    """Return the speed at which a dump of Wikidata is read."""
    rows = [
        [
            f"`{dump['file']}`, {dump['megabytes']} MB",
            f"{dump['entities_per_second']:,}",
            f"{dump['ratio_to_bare']:.1f}",
            f"{max(dump['resident_mb'])} MB",
        ]
        for dump in results.files["dump_speed"]["dumps"]
    ]
    return table(["generated dump", "entities a second", "time, bare reading = 1", "memory at most"], rows)


def soak_table(results: Results) -> str:
    """Return what a store went through under random work and kills, and its state at the end."""
    have = results.files["soak"]
    equal = "yes" if have["equal_unrepaired"] else "no"
    return table(
        [f"{have['minutes']:.0f} minutes", ""],
        [
            ["calls that add, delete and ask", f"{sum(have['actions'].values()):,}"],
            ["`kill -9`", str(have["kills"])],
            ["of these in the middle of a call", str(have["in_the_middle"])],
            ["passages, triples at the end", f"{have['passages']:,} and {have['triples']:,}"],
            ["without any repair, the store is equal to one that was written once", equal],
        ],
    )
