"""The tables of README and guides that stand between markers: committed results, and the public names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import llama_index_gear
from reporting.results import NONE, Results
from reporting.tables import table
from reporting.tables_ranking import format_cell, format_complete
from reporting.tables_reader import ROWS, SETS, find_row, name_file
from reporting.tables_stores import SIZES, format_milliseconds

NOT_SHOWN = {"hybrid", "SyncGE", "`PassageSelector` over hybrid's first 40", "IRCoT, for comparison"}
NOT_SHOWN |= {'`PaperGeARRetriever`, `calls="merged"`', "`GeARRetriever`, no triples"}
OF_READER = [label for label in ROWS if label not in NOT_SHOWN and label[0] != "…"]
RANKING_ROWS = {
    "hybrid": ("file", "hybrid"),
    "`PassageRanker`": ("file", "ranker"),
    "`GraphRetriever`": ("file", "default"),
    "… weights of other texts": ("file", "left out"),
    "… triples by rule": ("offline", "default"),
}
"""Row of the encyclopaedias → kind of its triples, and the method."""
OTHER_ROWS = {
    "dense": ("offline", "dense"),
    "BM25": ("offline", "bm25"),
    "hybrid": ("offline", "hybrid"),
    "`PassageRanker`": ("offline", "ranker"),
    "`GraphRetriever`": ("offline", "default"),
    "… weights of other texts": ("offline", "left out"),
}
"""Row of the other kinds of text → the same."""
PEERS = {"2wiki": "2Wiki", "musique": "MuSiQue", "lihua": "chats"}
PEER_ROWS = {
    "hybrid": "hybrid",
    "LinearRAG": "linearrag",
    "hubmesh": "hubmesh",
    "HippoRAG 2": "hipporag",
    "`GraphRetriever`": "left out, offline",
}
"""Row of the peers' table → method."""
_MARKED = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- /figures -->)", re.DOTALL)


def fill(text: str, results: Results) -> str:
    """Return a page with the tables between its markers made anew."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](results)}\n\n{match[3]}", text)


def remove_figures(text: str) -> str:
    """Return what is written by hand: a page without its code and without the tables between its markers."""
    return re.sub(r"```.*?```", "", _MARKED.sub("", text), flags=re.DOTALL)


def ranking_table(results: Results) -> str:
    """Return what the ranking finds in three whole encyclopaedias, with triples by rule and by a model."""
    return recall_table(
        results, {"musique": "MuSiQue", "2wiki": "2WikiMultiHopQA", "hotpotqa": "HotpotQA"}, RANKING_ROWS
    )


def other_texts_table(results: Results) -> str:
    """Return what the ranking finds in four other kinds of text, with triples by rule."""
    names = {"entailmentbank": "school science", "lihua": "chats", "qmsum": "meetings", "webpages": "web pages"}
    return recall_table(results, names, OTHER_ROWS)


def peers_table(results: Results) -> str:
    """Return what peers find by their own code, and the ranking by weights that other kinds of text gave."""
    head, columns = ["recall@5/@10"], []
    for name, of_set in results.files["peers"].items():
        head.append(f"{PEERS[name]}: {of_set['passages']:,}")
        rows = {row["method"]: row for row in of_set["rows"]}
        columns.append(["/".join(format_cell(rows[method], cut) for cut in (5, 10)) for method in PEER_ROWS.values()])
    return table(head, [[label, *cells] for label, cells in zip(PEER_ROWS, zip(*columns, strict=True), strict=True)])


def recall_table(results: Results, names: Mapping[str, str], places: Mapping[str, tuple[str, str]]) -> str:
    """Return recall and complete questions of some sets, a column each."""
    head, columns = ["recall@5/@10 (complete)"], []
    for name, label in names.items():
        of_kinds = {kind: results.files["ranking"].get(f"{name}-{kind}", {"rows": []}) for kind in ("file", "offline")}
        size = of_kinds["offline"]
        head.append(f"{label}: {size['questions']}, {size['passages']:,}")
        columns.append(
            {
                (kind, row["method"]): (row, size["questions"])
                for kind, of_set in of_kinds.items()
                for row in (*of_set["rows"], *results.files["compared"].get(f"{name}-{kind}", []))
            }
        )
    rows = [[label, *(format_found(column.get(place)) for column in columns)] for label, place in places.items()]
    return table(head, rows)


def format_found(found: tuple[dict[str, Any], int] | None) -> str:
    """Return a cell of `recall_table`."""
    if found is None:
        return NONE
    row, questions = found
    recalls = "/".join(format_cell(row, cut) for cut in (5, 10))
    return f"{recalls} ({'/'.join(format_complete(row, cut, questions) for cut in (5, 10))})"


def reader_table(results: Results) -> str:
    """Return what a strong reader finds and answers with no call, one call, and one call a step."""
    head = ["recall@5/@10; calls; exact match"]
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
            parts = [f"{row['recall@5']:.1f}/{row['recall@10']:.1f}", f"{row.get('calls', 0):.1f}"]
            if "em" in row:
                parts.append(f"{row['em']:.1f}")
            cells.append("; ".join(parts))
        rows.append([label, *cells])
    return table(head, rows)


def scale_table(results: Results) -> str:
    """Return what a store takes by its size, in short; the report has all of it."""
    rows = [
        [
            f"{row['triples']:,}",
            f"{row['triples_per_second_without_embedding']:,}",
            f"{row['ingest_mib'] / 1024:.2f} / {row['ours_mib'] / 1024:.2f} GiB",
            f"{row['disk_mib'] / 1024:.2f} GiB",
            format_milliseconds(row),
        ]
        for file in SIZES
        for row in results.files[file]["sizes"]
    ]
    head = ["triples", "loaded a second", "memory, loading / in use", "disk", "graph expansion, median / 95 %"]
    return table(head, rows)


def names_table(_: Results) -> str:
    """Return the public classes and functions, each with the first paragraph of its docstring."""
    public = {name: getattr(llama_index_gear, name) for name in llama_index_gear.__all__}
    paragraphs = {name: str(thing.__doc__).split("\n\n")[0] for name, thing in public.items() if callable(thing)}
    rows = [[f"`{name}`", " ".join(said.replace("|", "\\|").split())] for name, said in paragraphs.items()]
    return table(["name", "what it is or does"], rows)


BLOCKS: Mapping[str, Callable[[Results], str]] = {
    "ranking": ranking_table,
    "other-texts": other_texts_table,
    "peers": peers_table,
    "reader": reader_table,
    "scale": scale_table,
    "names": names_table,
}
