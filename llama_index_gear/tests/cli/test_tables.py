"""The rows of CSV and TSV files: a row is a sentence, and a triple names a cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import GeARVectorStore
from llama_index_gear.ingestion.tables import read_table
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
        ("Ada,Bob\nAda,Cid\n", "Ada; Bob.\n\n\nAda; Cid."),  # a cell of the first row stands below it
        ("kind,Commute\nCommute,no\n", "kind: Commute; commute: no."),
        ("state/region,year\nBern,5\n", "state/region: Bern; year: 5."),
        ("name,1/2\nAda,5\n", "name; 1/2.\n\n\nAda; 5."),
        ("name,km/2\nAda,5\n", "name; km/2.\n\n\nAda; 5."),
        ("name,/etc\nAda,5\n", "name; /etc.\n\n\nAda; 5."),
        ("Ada,ada@x.org\nBob,bob@x.org\n", "Ada; ada@x.org.\n\n\nBob; bob@x.org."),
        ("Ada,Berlin\n", "Ada; Berlin."),
        (
            'name,said\nAda,"one, two\nthree"\n\nBob\nCid,ho!,more\n',
            "name: Ada; said: one, two three.\n\n\nname: Bob.\n\n\nname: Cid; said: ho!; more.",
        ),
        ("name\nAda\nBob\n", "name: Ada.\n\n\nname: Bob."),
        ("a;b\n1,5;2\n3,5;4\n", "a: 1,5; b: 2.\n\n\na: 3,5; b: 4."),
        ("Last, first;town\nLang, Otto;Bern\n", "last, first: Lang, Otto; town: Bern."),
        ("a\tb\n1\tx, y, z\n2\tx\n", "a: 1; b: x, y, z.\n\n\na: 2; b: x."),
        (
            "Our offices\n\nname|town\nAda|Bern\nBob|Rome\n",
            "Our offices.\n\n\nname: Ada; town: Bern.\n\n\nname: Bob; town: Rome.",
        ),
        ("sep=;\r\na;b\r\n1;2\r\n", "a: 1; b: 2."),
        ("one,two\n", "one; two."),
        ("name,phone,phone,\nAda,1,2,3\n", "name: Ada; phone: 1; phone: 2; 3."),
        ('name, note\nAda, "x, ""y"""\nBob, 5" pipe\n', 'name: Ada; note: x, "y".\n\n\nname: Bob; note: 5" pipe.'),
        ('a,b\n"1" ,"2"\n', "a: 1; b: 2."),
        ("", ""),
    ],
)
def test_rows_as_sentences(text: str, expected: str) -> None:
    assert read_table(text, ".csv") == expected


def test_a_tsv_file_has_tabs_unless_another_mark_parts_it() -> None:
    assert read_table("a\tb\n1,2\t3,4\n", ".tsv") == "a: 1,2; b: 3,4."
    assert read_table("a,b\n1,2\n", ".tsv") == "a: 1; b: 2."


def test_no_cell_is_cut_at_an_abbreviation(run: Runner, docs: Path, tmp_path: Path) -> None:
    """Neither by the passages nor by the sentences of the rules; a long row is cut between cells."""
    rows = [f"Person {n};Dr. Which;St. Gallen;Kt. Zug;Univ. Bern;Hauptstr. 5 Bonn" for n in range(60)]
    (docs / "many.csv").write_text("\n".join(["name;boss;town;canton;school;street", *rows]))
    note = "He was of the Univ. Bern and of the Kt. Zug, and then of St. Gallen. "
    wide = ["Ada", *(f"Dr. No {n} and Fa. Lang {n}" for n in range(60)), 4 * note]
    (docs / "wide.csv").write_text(
        "name," + ",".join(f"column{n}" for n in range(61)) + "\n" + ",".join(f'"{cell}"' for cell in wide)
    )
    run("index", "docs", "--store", "s")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        nodes = store.get_nodes()
    (many, wides) = ([node for node in nodes if node.metadata["file"] == file] for file in ("many.csv", "wide.csv"))
    assert len(many) > 5 and all(node.get_content().endswith("; street: Hauptstr. 5 Bonn.") for node in many)
    triples = [triple for node in many for triple in node.metadata["gear_triples"]]
    assert {"Dr. Which", "St. Gallen"} <= {triple["object"] for triple in triples}
    assert all(triple["predicate"].endswith("; street: Hauptstr. 5 Bonn.") for triple in triples)
    assert len(wides) > 3 and all(node.get_content().startswith("name: Ada; column") for node in wides)
    texts = "\n".join(node.get_content() for node in wides)
    assert all(f"column{n}: Dr. No {n} and Fa. Lang {n}" in texts for n in range(60))


def test_a_file_that_is_no_table_is_named_and_the_others_are_read(run: Runner, docs: Path, tmp_path: Path) -> None:
    (docs / "open.csv").write_text('a,b\n1,2\n3,"x\n4,5\n6,7\n')
    (docs / "last.csv").write_text('a,b\n1,"x')
    (docs / "within.csv").write_text('a,b\n"1,x\n2,y\n"3",z\n')
    (docs / "nul.csv").write_bytes(b"a,b\n1,\0\n")
    (docs / "latin.csv").write_bytes("a,b\nJosé,Köln\n".encode("latin-1"))
    (docs / "nothing.csv").write_text("")
    (docs / "bom.csv").write_text("Name,Town\nAda,Bern\nBob,Rome,more\nCid\n", "utf-8-sig")
    (docs / "long.csv").write_text('name,note\nAda,"' + "word " * 40_000 + '"\n')
    done = run("index", "docs", "--store", "s")
    assert done.code == 1 and "6 files" in done.out
    for file, line in (("open", 3), ("last", 2), ("within", 2)):
        assert f'\nfailed: {file}.csv: a quote (") in line {line} is not closed at the end of its cell: ' in done.err
    for file in ("nul", "latin"):
        assert f"\nskipped: {file}.csv: no UTF-8 text; if it is text, save it as UTF-8\n" in done.err
    assert "\nskipped: nothing.csv: there is no text in it\n" in done.err and "Traceback" not in done.err
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        (text,) = (node.get_content() for node in store.get_nodes() if node.metadata["file"] == "bom.csv")
    assert text.split("\n\n\n") == ["name: Ada; town: Bern.", "name: Bob; town: Rome; more.", "name: Cid."]
