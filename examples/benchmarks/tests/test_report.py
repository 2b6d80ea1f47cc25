"""The report shows the committed results and nothing else."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report
from reporting import papers
from reporting.plots import draw_plots
from reporting.results import Results
from reporting.tables import format_published
from repository import BENCHMARKS

from llama_index_gear.expansion.beam_search import BeamSearch


def make_row(method: str, first: float, **more: Any) -> dict[str, Any]:
    recalls = {"recall@5": first, "recall@10": first + 1, "recall@15": first + 2}
    return {
        "method": method,
        **recalls,
        "interval@10": [first - 2, first + 3],
        "ms_per_query": first,
        "by_hops": {hops: {"questions": 1, **recalls} for hops in ("2", "3", "4")},
        "by_triples": {**{g: {"questions": 1, **recalls} for g in ("<9", "9-11", "11-13")}, ">=13": {"questions": 0}},
        **more,
    }


def make_conditions(**more: Any) -> dict[str, Any]:
    said = {"questions": 7, "passages": 1234, "triples": 5678, "triples_from": "file", "embed": "mpnet", "llm": "none",
            "scorer": "novelty"}  # fmt: skip
    return {**said, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def write(name: str, rows: list[dict[str, Any]], **more: Any) -> None:
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"conditions": make_conditions(**more), "methods": rows}), "utf-8"
        )

    rows = [make_row("hybrid", 11.11), make_row("hybrid+gear", 22.22), make_row("hipporag", 33.0)]
    write("musique_train-mpnet", rows, llm="recorded")
    gain = {f"gain@{cut}": {"p": 0.001, "p_corrected": 0.01 if cut == 10 else 0.5} for cut in (5, 10, 15)}
    write(
        "musique_train-minilm-sweeps",
        [
            make_row("hybrid+naive", 30.0),
            make_row("hybrid+naive[gamma=1]", 31.0, swept={"gamma": "1"}, **gain),
            make_row("hybrid+naive[gamma=2]", 32.0, swept={"gamma": "2"}, **{**gain, "gain@10": gain["gain@5"]}),
        ],
    )
    write(
        "musique_train-mpnet-bases",
        [
            make_row("bm25+naive", 35.0),
            make_row("bm25+naive[scorer=exact]", 36.0, swept={"scorer": "exact"}, **gain),
            make_row("dense+sync", 37.0),
            make_row("dense+sync[link_top_k=2]", 38.0, swept={"link_top_k": "2"}, **gain),
        ],
    )
    spent = {"calls": 2.0, "prompt_tokens": 1000.0, "completion_tokens": 10.0, "weighted_tokens": 1040.0, "steps": 1.5}
    answer = {"em": 40.0, "f1": 50.0, "answer_calls": 1.0}
    answered = make_row("t2rag", 44.0, **spent, **answer)
    answered["by_hops"] = {"2": {"questions": 3, "em": 60.0, "f1": 70.0, "recall@15": 1.0}}
    write(
        "musique_train-minilm-qwen",
        [
            answered,
            make_row("gold", 100.0, **answer),
            make_row("hybrid+gear", 51.0, **spent),
            make_row("hybrid+gear[max_steps=1]", 50.0, swept={}, **spent),
            make_row("hybrid", 60.0),
            make_row("hybrid+ircot[max_steps=1]", 55.0),
            make_row("hipporag", 45.0, **answer),
            make_row("hipporag-synonyms-filter", 46.0, **answer, **spent) | {"by_hops": answered["by_hops"]},
        ],
        llm="qwen",
        max_steps=2,
    )
    write(
        "musique_train-minilm-qwen-ircot", [make_row("hybrid", 60.0), make_row("bm25+ircot", 43.0, **answer, **spent)]
    )
    selections = [make_row(method, 71.0, **spent) for method in ("graph+select", "graph+selection")]
    write("musique_train-minilm-qwen-selection", [make_row("graph", 70.0), *selections])
    pair = [make_row("hipporag-synonyms", 20.0), make_row("hybrid+naive+pagerank", 21.0)]
    unclear = {f"gain@{cut}": {"points": cut - 8.0, "p": 0.1, "p_corrected": 0.5} for cut in (5, 10, 15)}
    pair[1] |= {"against": "hipporag-synonyms", **unclear}
    write("musique_train-mpnet-synonyms", pair)
    gain = {f"gain@{cut}": {"points": cut - 7.0, "p": 0.0, "p_corrected": cut / 20_000} for cut in (5, 10, 15)}
    naive = make_row("hybrid+naive", 20.0, against="hipporag", **unclear)
    ranked = make_row("hybrid+naive+pagerank", 22.0, against="hipporag", **gain)
    write("hotpotqa-minilm-hipporag", [naive, ranked, make_row("hipporag", 19.0)])
    gain = {f"gain@{cut}": {"points": 1.0, "p_corrected": cut / 20} for cut in (5, 10, 15)}
    once = ("hipporag", "hipporag-synonyms")
    twice = [make_row(f"{name}[fact_weight=2]", 34.0 + n, against=name, **gain) for n, name in enumerate(once)]
    write("musique_train-mpnet-facts", twice)
    gear = make_row("hybrid+gear", 41.0, against="hybrid+sync", **gain)
    write("musique_train-minilm-gear", [make_row("hybrid+sync", 40.0), gear])
    write(
        "musique_train-mpnet-okapi",
        [make_row("bm25", 50.0), make_row("rank-bm25", 51.0), make_row("rank-bm25+naive", 52.0)],
    )
    swept = make_row("hybrid+naive+pagerank[epsilon=1e-2]", 54.0, swept={"epsilon": "1e-2"}, **gain)
    exact = swept | {"method": "bm25+naive[base_top_k=5]"} | {"gain@15": {"p_corrected": 0.01}}
    write("musique_train-minilm-pagerank", [make_row("hybrid+naive+pagerank", 53.0), swept, exact])
    for file, triples in (("", 9_000), ("-share80", 7_200)):
        rows = [make_row(f"{base}{suffix}", 60.0) for base in ("bm25", "dense", "hybrid") for suffix in ("", "+naive")]
        write(f"hotpotqa-minilm{file}", rows, triples=triples, index_mib=480.9, peak_memory_mib=5002)
    sizes = [
        {"triples": 10 ** (4 + n), "search_ms": 0.3 - 0.1 * n, "expansion_ms": 1.0, "local_ms": 2.0,
         "whole_ms": 5.0 + 35.0 * n, "whole_to_expansion": 5.0, "whole_to_local": 2.5 + 17.5 * n, "ours_mib": 100,
         "ours_files_mib": 300, "whole_mib": 10, "whole_vectors_mib": 190}
        for n in range(2)
    ]  # fmt: skip
    for file, last in (("speed", 0.2), ("speed-extracted", 0.3)):
        (tmp_path / f"{file}.json").write_text(
            json.dumps({"sizes": sizes, "growth_exponents": {"ours": 0.1}, "last_exponents": {"ours": last}}), "utf-8"
        )
        sizes = [row | {"whole_to_local": 30.0, "local_ms": row["whole_ms"] / 30} for row in sizes]
    return tmp_path


def test_our_figures_stand_beside_the_papers(folder: Path) -> None:
    text = report.report(Results(folder), [])
    lines = text.splitlines()
    assert (
        "| hybrid | 39.9 / 46.3 / 49.1 | 11.1 / 12.1 / 13.1 | – | 77.8 / 85.8 / 89.7 | – | 60.0 / 61.0 / 62.0 |"
        in lines
    )
    gear = "58.4 / 67.6 / 71.5 | 22.2 / 23.2 / 24.2 | – | 93.4 / 96.8 / 97.3 | – | –"
    assert f"| GeAR (ours: one step with one call) | {gear} |" in lines
    assert "| T²RAG | 34.3 / 45.6 | 40.0 / 50.0 | 44.0 / 45.0 / 46.0 |" in lines
    assert "| gold passages | 36.6 / 59.2 | 40.0 / 50.0 | 100.0 / 101.0 / 102.0 |" in lines
    assert "| IRCoT (BM25) | 7.6 / 15.9 | 40.0 / 50.0 | 43.0 / 44.0 / 45.0 |" in lines
    assert "| bm25+ircot | 2.0 | 1,000 + 10 | 1,040 | 43.0 / 44.0 / 45.0 | 40.0 / 50.0 |" in lines
    assert "| graph+select | 2.0 | 1,000 + 10 | 1,040 | 71.0 / 72.0 / 73.0 | – |" in lines
    two = "- Files: `musique_train-minilm-qwen`, `musique_train-minilm-qwen-ircot`"
    assert text.count(f"{two}.") == 2 and text.count(f"{two}, `musique_train-minilm-qwen-selection`.") == 1
    assert "| T²RAG | 48.5 / 60.8 | 31.3 / 42.5 | 14.5 / 24.5 | 60.0 / 70.0 | – | – |" in lines
    assert "| triples | 35.2 / 47.2; 3.5 | 40.0 / 50.0; 3.0 | 44.0 / 45.0 / 46.0 |" in lines
    assert "| at most 1 | 50.0 / 51.0 / 52.0 | 2.0 / 1,000 | 1.50 |" in lines
    assert "| at most 2 | 51.0 / 52.0 / 53.0 | 2.0 / 1,000 | 1.50 |" in lines  # the whole file has as many
    assert "| gamma=1 | 31.0 / 32.0 / 33.0* |" in lines
    assert "| gamma=2 | 32.0 / 33.0 / 34.0 |" in lines  # not after the correction
    assert "| t2rag | 2.0 | 1,000 + 10 | 1,040 | 44.0 / 45.0 / 46.0 | 40.0 / 50.0 |" in lines
    pair = "| hybrid+naive+pagerank | hipporag-synonyms | -3.0 / +2.0 / +7.0 (0.5 / 0.5 / 0.5) | – | – | – |"
    assert pair in lines
    assert "| hybrid+naive | hipporag | – | – | – | -3.0 / +2.0 / +7.0 (0.5 / 0.5 / 0.5) |" in lines
    assert "| hybrid+naive+pagerank | hipporag | – | – | – | -2.0 / +3.0 / +8.0 (0.00025 / 0.0005 / 0.00075) |" in lines
    for method in ("hipporag", "hipporag-synonyms"):
        twice = f"| {method}[fact_weight=2] | {method} | +1.0 / +1.0 / +1.0 (0.25 / 0.5 / 0.75) | – | – | – |"
        assert twice in lines
    assert "| hybrid+gear | hybrid+sync | – | +1.0 / +1.0 / +1.0 (0.25 / 0.5 / 0.75) | – | – |" in lines
    assert "| facts weigh once | – | – | – | 19.0 / 20.0 / 21.0 |" in lines
    assert "| facts weigh once, with synonym edges | 20.0 / 21.0 / 22.0 | – | – | – |" in lines
    assert "| facts weigh twice | 34.0 / 35.0 / 36.0 | – | – | – |" in lines
    assert "| facts weigh twice, with synonym edges | 35.0 / 36.0 / 37.0 | – | – | – |" in lines
    assert "| Qdrant's BM25 | 50.0 / 51.0 / 52.0 | – |" in lines
    assert "| rank_bm25's | 51.0 / 52.0 / 53.0 | 52.0 / 53.0 / 54.0 |" in lines
    assert not any(line.startswith("| hybrid of") for line in lines)
    assert "| hybrid+naive+pagerank[epsilon=1e-2] | 54.0 / 55.0 / 56.0 | 54.0 |" in lines
    assert "| bm25+naive[base_top_k=5] | 54.0 / 55.0 / 56.0* | 54.0 |" in lines
    found = "60.0 / 61.0 / 62.0"
    assert f"| none | 0 | {found} | {found} | {found} |" in lines and f"| 80 % | 7,200 | {found} |" in text
    assert f"| all | 9,000 | {found} |" in text and not any(line.startswith("| 60 %") for line in lines)
    assert "| R@5 / 10 / 15, HotpotQA, minilm | triples |" in text
    assert "| `hotpotqa-minilm` | 1,234 | 9,000 | 481 | 5,002 |" in lines
    assert "| many hubs | 10,000 | 5.00 | 2.50 | out of reach | 0.10 | 2.00 | 0.50 |" in lines
    assert "| many hubs | 100,000 | 5.00 | 20.00 | yes | 0.10 | 2.00 | 0.50 |" in lines
    assert "| like HotpotQA's | 10,000 | 5.00 | 30.00 | yes | 0.10 | 2.00 | 0.50 |" in lines
    assert "| many hubs | 0.10 (0.20) |" in lines and "| like HotpotQA's | 0.10 (0.30) |" in lines
    assert "| GeAR (one step with one call) | 22.2; 1.5 | – | – | – |" in lines
    assert "| GeAR (ours: one step with one call) | 73.6 / 73.7 / 69.3 / 69.7 | 24.2 / 24.2 / 24.2 / – |" in lines


def test_settings_over_other_bases_have_the_columns_that_were_run(folder: Path) -> None:
    (part,) = (
        section for section in report.report(Results(folder), []).split("\n## ") if section.startswith("Settings over")
    )
    head, _, *rows = [line for line in part.splitlines() if line.startswith("| ")]
    assert head == "| R@5 / 10 / 15, MuSiQue, mpnet | bm25+naive | dense+sync |"
    assert rows == [
        "| as it is | 35.0 / 36.0 / 37.0 | 37.0 / 38.0 / 39.0 |",
        "| scorer=exact | 36.0 / 37.0 / 38.0* | – |",
        "| link_top_k=2 | – | 38.0 / 39.0 / 40.0* |",
    ]
    assert "- Files: `musique_train-mpnet-bases`." in part


def split_parts(text: str) -> dict[str, str]:
    """Return the report's sections by title."""
    return dict(part.split("\n", 1) for part in text.split("\n## ")[1:])


def test_every_table_names_its_files_and_the_legend_has_their_set_ups(folder: Path) -> None:
    parts = split_parts(report.report(Results(folder), []))
    legend = parts.pop("Legend")
    seven = "| 7 | 1,234 | 5,678 GPT-3.5's | mpnet | novelty |"
    assert f"| `musique_train-mpnet` {seven} recorded | – | 2.5 |" in legend
    assert f"| `musique_train-minilm-qwen` {seven} qwen | 2 | 2.5 |" in legend
    assert "| `musique_train-mpnet-facts` | 7 | 1,234 | 5,678 GPT-3.5's | mpnet | – | – | – | 2.5 |" in legend
    set_up = set(re.findall(r"^\| `([^`]+)` \|", legend, re.MULTILINE))
    assert set_up == {name for name, file in Results(folder).files.items() if "methods" in file}
    for title, part in parts.items():
        named = re.findall(r"`([^`]+)`", "".join(re.findall(r"^- Files: (.*)\.$", part, re.MULTILINE)))
        not_run = "\n- Files: none, not run." in part
        assert named or not_run or title == "Index and memory", title
        assert set(named) <= set_up | {"speed", "speed-extracted"}, title
    assert "- Our questions, answers: 3 of 2 hops." in parts["By hops (T²RAG Table 4, GeAR Figure 3)"]
    assert f"`{BeamSearch().scorer}`, the default" in legend


@pytest.mark.parametrize("committed", [True, False])
def test_no_sentence_stands_under_two_tables(committed: bool, folder: Path) -> None:
    text = (BENCHMARKS / "REPORT.md").read_text("utf-8") if committed else report.report(Results(folder), [])
    notes = [line[2:] for line in text.splitlines() if line.startswith("- ") and not line.startswith("- Files: ")]
    sentences = Counter(sentence for note in notes for sentence in re.split(r"(?<=[.:;]) ", note))
    assert len(sentences) > 40 and [sentence for sentence, times in sentences.items() if times > 1] == []


def test_a_row_is_called_what_it_is(folder: Path) -> None:
    """The report calls our rows neither plain HippoRAG nor plain GeAR: a label says what the row leaves out."""
    seen = set()
    for part in report.report(Results(folder), []).split("\n## ")[1:]:
        for label, *cells in (line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")):
            has_ours = any(figure in " ".join(cells) for figure in ("22.2", "24.2", "33.0", "35.0", "40.0 / 50.0"))
            if label.startswith("HippoRAG") and has_ours:
                seen.add(label)
                assert "no model, no synonyms" in label or label == "HippoRAG 2", part
            if label.startswith("GeAR") and has_ours:
                seen.add(label)
                assert "one step with one call" in label, part
    assert len(seen) == 5
    cut = "hybrid's list of ten, cut, has 55.0 / 56.0 / 57.0; hybrid itself has 60.0 / 61.0 / 62.0."
    assert report.report(Results(folder), []).count(cut) == 1


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


def test_plots_are_drawn_from_the_figures(folder: Path) -> None:
    names = list(draw_plots(Results(folder), folder / "plots"))
    assert names == ["recall-by-hops", "recall-by-step", "tokens-by-step", "latency-by-size"]
    first = (folder / "plots" / "recall-by-hops.svg").read_bytes()
    assert b"hops" in first and b">GeAR (one step with one call)<" in first and b"no model, no synonyms" in first
    list(draw_plots(Results(folder), folder / "plots"))
    assert (folder / "plots" / "recall-by-hops.svg").read_bytes() == first
