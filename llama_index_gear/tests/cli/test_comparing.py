"""`compare`: recall, a paired test and a verdict on a user's own questions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear import RankingWeights
from llama_index_gear.cli.comparing import Found, Question, judge, show_comparison
from llama_index_gear.ranking.measures import permutation_p_value

Runner = Callable[..., Any]
QUESTION = "Where was the granddaughter of Oppenheimer's adviser born?"

GOLD = ["J. Robert Oppenheimer.txt", "people/Olivia.txt"]


def write(path: Path, rows: Sequence[object]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return str(path)


def test_with_gold_ids_there_is_recall_and_a_verdict(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    rows = [{"question": QUESTION, "gold_ids": GOLD}, {"question": "Who makes toys?", "gold_ids": ["Lego.txt-0"]}]
    compared = run("compare", write(tmp_path / "q.jsonl", rows), "--store", "s")
    lines = compared.out.splitlines()
    assert compared.code == 0 and lines[0] == "recall, in percent, of 2 questions"
    assert lines[1].split() == ["at", "2", "at", "5", "at", "10", "all", "in", "5", "all", "in", "10"]
    table = {line.split()[0]: [float(share) for share in line.split()[1:]] for line in lines[2:5]}
    assert table.keys() == {"dense", "hybrid", "GraphRetriever"}
    assert all(row[1:] == [100.0] * 4 for row in table.values())  # four passages: all are among the first five
    assert "at 5: +0.0 points; better on 0, worse on 0; p = 1 (" in lines[6]
    assert lines[7] == "Too few to tell: both find as much on 2 questions. Add questions, some of them hard."
    (tmp_path / "q.json").write_text(json.dumps([{**row, "gold_passage_ids": row.pop("gold_ids")} for row in rows]))
    assert run("compare", "q.json", "--store", "s").out == compared.out


def test_questions_and_files_may_spell_the_same_letters_otherwise(run: Runner, docs: Path, tmp_path: Path) -> None:
    (docs / "Gro\u0308ße.txt").write_text("Gro\u0308ße is a town.", "utf-8")  # decomposed letters
    run("index", "docs", "--store", "s")
    rows = [
        {"question": "Where is Größe?\u2028\x85 Line two", "gold_ids": ["Größe.txt"]},
        {"question": "Where is Gro\u0308ße?", "gold_ids": ["Gro\u0308ße.txt-0"]},
    ]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (tmp_path / "q.jsonl").write_bytes("\r\n".join([*lines, ""]).encode())
    compared = run("compare", "q.jsonl", "--store", "s")
    assert compared.code == 0 and compared.out.startswith("recall, in percent, of 2 questions\n")
    assert "\nhybrid             100.0" in compared.out


def test_without_gold_ids_the_lists_stand_side_by_side(run: Runner, docs: Path, tmp_path: Path) -> None:
    for number in range(30):
        (docs / f"Town {number}.txt").write_text(f"Town {number} was born of a market. A granddaughter was born there.")
    run("index", "docs", "--store", "s")
    compared = run("compare", write(tmp_path / "q.jsonl", [QUESTION, "Lego"]), "--store", "s")
    assert compared.code == 0 and "\n   dense " in compared.out
    assert "+ people/Olivia.txt-0" in compared.out or "  people/Olivia.txt-0" in compared.out
    assert "of 2 questions" in compared.out and "gold_ids" in compared.out


def make_found(text: str, gold: Sequence[str], graph: Sequence[str], hybrid: Sequence[str] = "vwxyz") -> Found:
    lists = {"dense": "stuvw", "hybrid": hybrid, "GraphRetriever": graph}
    nodes = {method: [TextNode(text=id_, id_=id_) for id_ in ids] for method, ids in lists.items()}
    return Found(Question(text, frozenset(gold)), nodes)


def test_the_questions_that_get_better_or_worse_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = [make_found(f"Better {n}?", ["a"], "abcde") for n in range(6)]
    found += [make_found("Half?", ["a", "v"], "abcde", "uxyzt"), make_found("Worse?", ["v"], "abcde")]
    found += [make_found("Same?", ["x"], "abxde")]
    show_comparison(found)
    lines = capsys.readouterr().out.splitlines()
    shares = {line.split()[0]: line.split()[1:] for line in lines[2:5]}
    # all gold in 5 and in 10: of nine questions seven, two and one, and none where half of the gold is found
    whole = {"GraphRetriever": ["77.8"] * 2, "hybrid": ["22.2"] * 2, "dense": ["11.1"] * 2}
    assert {method: cells[-2:] for method, cells in shares.items()} == whole
    assert shares["GraphRetriever"][:3] == ["72.2", "83.3", "83.3"]
    assert "better on 7, worse on 1" in lines[6]
    start = lines.index("better, in points of recall at 5:")
    assert lines[start + 1 : start + 8] == [*(f"  +100  Better {n}?" for n in range(6)), "   +50  Half?"]
    assert lines[start + 9 :] == ["worse, in points of recall at 5:", "  -100  Worse?"]


def test_without_gold_ids_the_lists_that_differ_most_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = [make_found(f"Little {n}?", [], "vwxya") for n in range(10)]
    found += [make_found("Much?", [], "abcde"), make_found("Same?", [], "vwxyz")]
    show_comparison(found)
    shown = capsys.readouterr().out
    assert shown.startswith("\nMuch?\n") and "Little 9?" not in shown and "… and 1 question more" in shown


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([1.0] * 8, "The graph helps beyond chance: use GraphRetriever."),
        ([-1.0] * 8, "The graph hurts beyond chance: use dense search. You don't need the graph here."),
        ([0.0] * 8, "You don't need the graph here: dense search finds as much on every question."),
        ([0.0] * 5, "Too few to tell: both find as much on 5 questions."),
        ([1.0] * 5 + [0.0], "Too few to tell: the two differ on 5 questions, and 6 are the least for a verdict."),
        ([1.0] * 5 + [-1.0] * 4, "You don't need the graph here, as far as 9 questions can tell"),
    ],
)
def test_the_verdict(gains: list[float], words: str) -> None:
    assert judge(gains, permutation_p_value(gains), "dense").startswith(words)


def test_learned_weights_are_saved_and_used(run: Runner, docs: Path, tmp_path: Path) -> None:
    """Ten questions whose passage every list ranks first: nothing is better beyond chance."""
    rows: list[object] = []
    for number in range(12):
        (docs / f"City {number}.txt").write_text(f"City {number} lies on the Ganges. Mayor {number}x{number} governs.")
        rows.append({"question": f"Who governs City {number}?", "gold_ids": [f"City {number}.txt"]})
    run("index", "docs", "--store", "s")
    fitted = run("compare", write(tmp_path / "q.jsonl", rows), "--store", "s", "--fit", "w.json")
    assert fitted.code == 0 and fitted.out.splitlines()[-1].startswith(
        ("No other weights are better", "Weights learned")
    )
    assert RankingWeights.load(tmp_path / "w.json").signals
    assert run("ask", "Who governs City 3?", "--store", "s", "--weights", "w.json").code == 0
    for text in ("{", '{"search": {}}', '["a"]'):
        (tmp_path / "w.json").write_text(text)
        refused = run("ask", "Who governs City 3?", "--store", "s", "--weights", "w.json")
        assert refused.code == 1 and refused.err.startswith(
            "error: --weights takes a file from `compare --fit`; w.json: "
        )
    few = run("compare", write(tmp_path / "q.jsonl", rows[:3]), "--store", "s", "--fit", "w.json")
    assert few.code == 1 and "3 of 3 questions have a gold passage in their pool, and 10 are needed" in few.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"question": "Who?"}\n{', ", line 2, is no JSON"),
        ("[", "is no JSON"),
        ("[]", "holds no question"),
        ('{"query": "Who?"}', "question 1: write a JSON list"),
        ('[{"question": "Who?", "gold_ids": "Lego.txt"}]', "question 1: gold_ids must be a list"),
        ('[{"question": "Who?", "gold_ids": ["Leggo.txt"]}]', "question 1: the store has neither a file nor a passage"),
    ],
)
def test_a_wrong_file_is_one_line(run: Runner, docs: Path, tmp_path: Path, text: str, words: str) -> None:
    run("index", "docs", "--store", "s")
    (tmp_path / "q.json").write_text(text)
    refused = run("compare", "q.json", "--store", "s")
    assert refused.code == 1 and words in refused.err.splitlines()[-1] and refused.out == ""
    assert refused.err.splitlines()[-1].startswith("error: ")
