"""The figures of README and guides: tables of committed results, between markers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from reporting.results import (
    LLM_FILE,
    NONE,
    SELECTION_FILE,
    SHARED_FILES,
    Results,
    format_recalls,
    format_scores,
    format_shared_calls,
)
from reporting.tables import table
from reporting.tables_chunks import splitters
from reporting.tables_ranking import format_cell
from reporting.tables_reader import ROWS, SETS, find_row, name_file

CUTS = (5, 10, 15)
README_ROWS = {
    "BM25": "bm25",
    "dense": "dense",
    "hybrid": "hybrid",
    "hybrid + NaiveGE": "hybrid+naive",
    "hybrid + NaiveGE + PageRank": "hybrid+naive+pagerank",
    "hybrid + SyncGE": "hybrid+sync",
    'GeAR, `calls="single"`': "hybrid+gear",
    "HippoRAG 2's PageRank": "hipporag",
    "HippoRAG 2's PageRank, synonym edges": "hipporag-synonyms",
}
COSTS = {
    "gold passages": "gold",
    "no passages": "closed-book",
    "hybrid": "hybrid",
    "NaiveGE": "hybrid+naive",
    "`GraphRetriever`": "graph",
    "SyncGE": "hybrid+sync",
    "`PassageSelector` over `GraphRetriever`'s ten": "graph+select",
    'GeAR, `calls="selection"`, ten passages shown': "graph+selection",
    'GeAR, `calls="separate"`': "hybrid+gear",
    'GeAR, `calls="separate"`, at most one step': "hybrid+gear[max_steps=1]",
    'GeAR, `calls="merged"`': "hybrid+gear[calls=merged]",
    'GeAR, `calls="single"`': "hybrid+gear[calls=single]",
    "T²RAG": "t2rag",
    "T²RAG, `expand=True`": "t2rag[expand=true]",
    "IRCoT, for comparison": "hybrid+ircot",
    "HippoRAG 2 with its filter, for comparison": "hipporag-filter",
}
TRIPLES = {
    "none: hybrid alone": ("musique_train-minilm", "hybrid"),
    "of GPT-3.5": ("musique_train-minilm", "hybrid+naive"),
    "of `MentionTripleExtractor`": ("musique_train-minilm-offline", "hybrid+naive"),
}
OF_READER = [label for label in ROWS if label not in ("hybrid", "IRCoT, for comparison")]
RANKING_SETS = {"MuSiQue": "musique", "2WikiMultiHopQA": "2wiki", "HotpotQA": "hotpotqa"}
RANKING_ROWS = {
    "hybrid": ("file", "hybrid"),
    "`PassageRanker` over hybrid's forty": ("file", "ranker"),
    "`GraphRetriever`": ("file", "default"),
    "… with weights learned on the other two sets": ("file", "left out"),
    "… with triples by rule, without any model": ("offline", "default"),
}
"""Row → kind of its triples, and the method."""
_MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- /figures -->)", re.DOTALL)


def fill(text: str, results: Results) -> str:
    """Return a page with the tables between its markers made anew."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](results)}\n\n{match[3]}", text)


def remove_figures(text: str) -> str:
    """Return what is written by hand: a page without its code and without the tables between its markers."""
    return re.sub(r"```.*?```", "", _MARKED.sub("", text), flags=re.DOTALL)


def readme_table(results: Results) -> str:
    """Return the recall of the main methods on both corpora, with all-mpnet-base-v2."""
    files = {"MuSiQue": "musique_train-mpnet", "HotpotQA": "hotpotqa-mpnet"}
    head = ["recall@5 / @10 / @15, in percent"]
    for data, file in files.items():
        have = results.files[file]["conditions"]
        head.append(f"{data}: {have['questions']} questions, {have['passages']:,} passages")
    rows = []
    for label, method in README_ROWS.items():
        synonyms = "-synonyms" * method.endswith("synonyms")
        rows.append([label, *(format_starred(results.row(f"{file}{synonyms}", method)) for file in files.values())])
    return table(head, rows)


def ranking_table(results: Results) -> str:
    """Return the recall of the ranking on three whole corpora, with triples by rule and by a model."""
    head, columns = ["recall@5 / @10, in percent"], []
    for label, name in RANKING_SETS.items():
        files = {kind: results.files["ranking"].get(f"{name}-{kind}", {"rows": []}) for kind in ("file", "offline")}
        head.append(f"{label}: {files['file']['questions']} questions, {files['file']['passages']:,} passages")
        columns.append({(kind, row["method"]): row for kind, file in files.items() for row in file["rows"]})
    rows = []
    for label, place in RANKING_ROWS.items():
        cells = [column.get(place) for column in columns]
        rows.append(
            [label, *(" / ".join(format_cell(cell, cut) for cut in (5, 10)) if cell else NONE for cell in cells)]
        )
    return table(head, rows)


def reader_table(results: Results) -> str:
    """Return what a strong reader finds and answers with no call, one call, and one call a step."""
    head = ["recall@5 / @10; calls; exact match"]
    for label, name in SETS.items():
        have = results.files[name_file(name, "once")]["conditions"]
        head.append(f"{label}: {have['questions']} questions")
    rows = []
    for label in OF_READER:
        cells = []
        for name in SETS.values():
            row = find_row(results, name, label)
            if row is None:
                cells.append(NONE)
                continue
            parts = [f"{row['recall@5']:.1f} / {row['recall@10']:.1f}", f"{row.get('calls', 0):.1f}"]
            if "em" in row:
                parts.append(f"{row['em']:.1f}")
            cells.append("; ".join(parts))
        rows.append([label, *cells])
    return table(head, rows)


def format_starred(row: dict[str, Any] | None) -> str:
    """Return R@5 / 10 / 15 of a row, with a star at each cut where it gains beyond chance on its comparison."""
    if row is None:
        return NONE
    return " / ".join(f"{row[f'recall@{cut}']:.1f}{format_star(row.get(f'gain@{cut}'))}" for cut in CUTS)


def format_star(gain: dict[str, float] | None) -> str:
    """Return a star if a gain is beyond chance, else an empty text."""
    return "\\*" * (gain is not None and gain["points"] > 0 and gain["p_corrected"] < 0.05)


def costs_table(results: Results) -> str:
    """Return calls, tokens, recall and answers of every method with a small model."""
    rows = []
    for label, method in COSTS.items():
        row = results.row(LLM_FILE, method) or results.row(SELECTION_FILE, method)
        calls = tokens = NONE
        if row is not None and row.get("calls"):
            calls = f"{row['calls']:.1f}"
            tokens = f"{row['prompt_tokens']:,.0f} + {row['completion_tokens']:,.0f}"
        rows.append([label, calls, tokens, format_recalls(row), format_scores(row)])
    have = results.files[LLM_FILE]["conditions"]
    head = [f"{have['questions']} questions, at most {have['max_steps']} steps", "calls"]
    return table([*head, "tokens, prompt + completion", "R@5 / 10 / 15", "exact match / F1"], rows)


def triples_by_source(results: Results) -> str:
    """Return the recall of hybrid + NaiveGE with triples by rule and by a model."""
    rows = [[label, format_recalls(results.row(*place))] for label, place in TRIPLES.items()]
    return table(["triples", "R@5 / 10 / 15"], rows)


def shared_table(results: Results) -> str:
    """Return calls, tokens and recall where passages share a call of the extractor."""
    first = results.files[SHARED_FILES[1]]["conditions"]
    alone = format_recalls(results.row(SHARED_FILES[1], "hybrid"))
    head = ["passages a call", "calls", "asked again", "tokens a passage, prompt + completion", "triples"]
    head += ["NaiveGE, R@5 / 10 / 15", "NaiveGE + PageRank"]
    rows = [format_shared_calls(results, number) for number in SHARED_FILES]
    rows.append([f"none: hybrid alone, {first['passages']} passages, {first['questions']} questions", *[NONE] * 4,
                 alone, alone])  # fmt: skip
    return table(head, rows)


def scale_table(results: Results) -> str:
    """Return the loading rate, memory, disk and time of a query, by the size of a store."""
    fewer_hubs = {f"{row['triples']:.0e}": row for row in results.files["speed-extracted"]["sizes"]}
    rows = []
    for row in (row for file in ("speed", "speed-10m") for row in results.files[file]["sizes"]):
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


BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "results": readme_table,
    "ranking": ranking_table,
    "costs": costs_table,
    "triples": triples_by_source,
    "reader": reader_table,
    "shared-calls": shared_table,
    "scale": scale_table,
    "ingest": ingest_table,
    "billion": billion_table,
    "soak": soak_table,
    "graph-speed": graph_table,
    "dump-speed": dump_table,
    "splitters": splitters,
}
