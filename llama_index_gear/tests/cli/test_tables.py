"""The rows of CSV and TSV files: a row is a sentence, and a triple names a cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli.tables import read_table
from llama_index_gear.testing import WordEmbedding

Runner = Callable[..., Any]

HEAD = ("Full Name", "Office", "reports_to", "Role")
ROWS = [
    ("Greta Halloran", "Portsmouth", "", "Founder"),
    ("Tomas Viklund", "Gothenburg", "Greta Halloran", "Head of Maintenance"),
    ("Priya Raman", "New Castle", "Greta Halloran", "Buyer"),
    ("João Mendes", "Coimbra", "Priya Raman", "Driver"),
    ("Ebba Lindqvist", "Malmö", "Tomas Viklund", "Engineer"),
    ("Silas Crane", "New Castle", "João Mendes", "Porter"),
    ("Noor Abadi", "Salem", "Greta Halloran", "Chemist"),
    ("Ulrike Brandt", "Bremen", "Priya Raman", "Sales"),
    ("Aurelio Restrepo", "Huila", "Priya Raman", "Farmer"),
    ("Otto Lang", "Emmerich", "Tomas Viklund", "Mechanic"),
]


@pytest.mark.parametrize(("file", "mark"), [("people.csv", ","), ("people.tsv", "\t"), ("people.csv", ";")])
def test_a_question_finds_its_row_and_triples_name_cells(
    run: Runner, docs: Path, tmp_path: Path, file: str, mark: str
) -> None:
    lines = [mark.join(f'"{cell}"' if " " in cell else cell for cell in row) for row in (HEAD, *ROWS)]
    (docs / file).write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    run("index", "docs", "--store", "s")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        nodes = [node for node in store.get_nodes() if node.metadata["file"] == file]
    triples = [triple for node in nodes for triple in node.metadata["gear_triples"]]
    names = {triple["object"] for triple in triples}
    assert {"Ebba Lindqvist", "Malmö", "Tomas Viklund", "New Castle", "Head of Maintenance"} <= names
    assert names <= {cell for row in ROWS for cell in row} and {triple["subject"] for triple in triples} == {"people"}
    sentence = "full name: Ebba Lindqvist; office: Malmö; reports to: Tomas Viklund; role: Engineer."
    assert {triple["predicate"] for triple in triples if triple["object"] == "Malmö"} == {sentence}
    asked = run("ask", "In which office does Ebba Lindqvist work?", "--store", "s")
    assert asked.out.startswith(f"1. {file}\n") and sentence in "\n".join(node.get_content() for node in nodes)


def test_a_row_is_never_cut_and_its_passage_begins_with_one(run: Runner, docs: Path, tmp_path: Path) -> None:
    rows = [f"Person {n},Town {n},12 Long Street" for n in range(100)]
    (docs / "many.csv").write_text("\n".join(["name,town,address", *rows]))
    run("index", "docs", "--store", "s")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        texts = [node.get_content() for node in store.get_nodes() if node.metadata["file"] == "many.csv"]
    assert len(texts) > 5 and all(text.startswith("name: Person ") and text.endswith("Street.") for text in texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", "a: 1; b: 2."),
        ("country,2019,2020\nPeru,5,6\n", "country: Peru; 2019: 5; 2020: 6."),
        ("Ada,Bob\nBob,Cid\n", "Ada; Bob.\n\nBob; Cid."),  # a cell of the first row stands in another
        ("Ada,ada@x.org\nBob,bob@x.org\n", "Ada; ada@x.org.\n\nBob; bob@x.org."),
        ("Ada,Berlin\n", "Ada; Berlin."),
        (
            'name,said\nAda,"one, two\nthree"\n\nBob\nCid,ho!,more\n',
            "name: Ada; said: one, two three.\n\nname: Bob.\n\nname: Cid; said: ho!; more.",
        ),
        ("name\nAda\nBob\n", "name: Ada.\n\nname: Bob."),
        ("", ""),
    ],
)
def test_rows_as_sentences(text: str, expected: str) -> None:
    assert read_table(text, ".csv") == expected


def test_what_is_no_table_is_named(run: Runner, docs: Path) -> None:
    (docs / "broken.csv").write_text('a,b\n1,"' + "x" * 200_000)
    refused = run("index", "docs", "--store", "s")
    assert refused.code == 1 and "failed: broken.csv: it is no table: " in refused.err
