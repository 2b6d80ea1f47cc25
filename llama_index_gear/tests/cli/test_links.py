"""`index` and the links between files: counted, named where they lead nowhere, and followed through every change."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import GeARVectorStore, read_triples
from llama_index_gear.cli import indexing
from llama_index_gear.ingestion import converter
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.cli.test_indexing import index_and_die

Runner = Callable[..., Any]
needs_converter = pytest.mark.skipif(not converter.is_installed(), reason="needs the extra files")
HISTORIES = int(os.environ.get("GEAR_HISTORIES", "3"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of files."""
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def read_links(store: Path) -> dict[str, list[str]]:
    """Return what the links of each passage lead to."""
    with GeARVectorStore.from_path(store, embed_model=WordEmbedding()) as opened:
        assert opened.check().ok
        nodes = opened.get_nodes()
    found = {
        node.node_id: [triple.object for triple in read_triples(node) if "” links to" in triple.predicate]
        for node in nodes
    }
    return {id_: objects for id_, objects in found.items() if objects}


def test_links_are_counted_and_those_that_lead_nowhere_are_named(run: Runner, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (folder / "crane.md").write_text("# The crane\n\nIt is tall.", "utf-8")
    text = (
        "# Yard\n\nSee [it](../crane.md),\n[gone](gone.md) or [[nobody]]; [view](../picture.png), [web](https://a.b)."
    )
    (folder / "sub" / "yard.md").write_text(text, "utf-8")
    ran = run("index", "docs", "--store", "s")
    assert ran.code == 0 and "1 link between files, 2 that lead nowhere\n" in ran.out
    assert [line for line in ran.err.splitlines() if line.startswith("dead link")] == [
        "dead link: sub/yard.md:4: nobody",
        "dead link: sub/yard.md:4: gone.md",
    ]
    assert read_links(folder.parent / "s") == {"sub/yard.md-0": ["The crane"]}


def test_check_names_links_that_lead_nowhere_too(run: Runner, folder: Path) -> None:
    """With their lines while the folder is there and says the same; a picture is there as long as the folder is."""
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (folder / "crane.md").write_text("# The crane\n\nIt is tall.", "utf-8")
    filler = "\n\n".join(
        f"{name} of the yard is oiled in spring, and once more in autumn." for name in "ABCDEFGHIJKL" * 3
    )
    (folder / "yard.md").write_text(f"{filler}\n\n[it](crane.md) [gone](gone.md)\n[view](picture.png)", "utf-8")
    (folder / "other.md").write_text("Words.\n\nSee [[nobody]].", "utf-8")
    indexed, checked = run("index", "docs", "--store", "s"), run("check", "--store", "s")
    named = ["dead link: other.md:3: nobody", "dead link: yard.md:73: gone.md"]
    for ran in (indexed, checked):
        assert ran.code == 0 and "\n1 link between files, 2 that lead nowhere\n" in ran.out
        assert sorted(line for line in ran.err.splitlines() if line.startswith("dead link")) == named
    (folder / "yard.md").write_text("Other words.", "utf-8")
    assert "yard.md" not in run("check", "--store", "s").err  # it no longer says so
    folder.rename(folder.parent / "away")
    checked = run("check", "--store", "s")
    assert checked.code == 0 and "1 link between files, 3 that lead nowhere\n" in checked.out
    assert {"dead link: other.md: nobody", "dead link: yard.md: picture.png"} <= set(checked.err.splitlines())


def test_what_a_link_leads_to_is_explained_by_it(run: Runner, folder: Path) -> None:
    (folder / "yard.md").write_text("# Yard\n\nGrease is kept in [there](crane.md) all year.", "utf-8")
    (folder / "crane.md").write_text("# North Crane\n\nIt is tall, and made of steel.", "utf-8")
    for number in range(5):
        (folder / f"n{number}.md").write_text(f"# Note {number}\n\nNothing is said of number {number}.", "utf-8")
    run("index", "docs", "--store", "s")
    asked = json.loads(run("ask", "--store", "s", "--json", "What do they say of the grease of the yard?").out)
    (crane,) = [passage for passage in asked["passages"] if passage["title"] == "North Crane"]
    said = "“Grease is kept in there all year.” links to"
    assert crane["chain"][0] == ["Yard", said, "North Crane"]
    assert f"is about “North Crane”, which “Yard” links to: {said} North Crane" in {
        reason["reason"] for reason in crane["reasons"]
    }
    shown = run("ask", "--store", "s", "What do they say of the grease of the yard?").out
    assert f"   ↳ Yard — {said} — North Crane\n" in shown


def test_what_a_page_shows_of_another_changes_with_it(run: Runner, folder: Path) -> None:
    """A dead link in it is the other's alone, and the line of one behind it is that of the file."""
    (folder / "sub").mkdir()
    crane = "# North Crane\n\nNora Blum built it, of [steel](steel.md).\n\n"
    (folder / "sub" / "crane.md").write_text(f"{crane}## Oil\n\nIt is of Bremen.", "utf-8")
    (folder / "yard.md").write_text("# Yard\n\n![[crane]]\n\nSee [[nobody]].", "utf-8")
    (folder / "other.md").write_text("# Other\n\nNothing is here.", "utf-8")
    ran = run("index", "docs", "--store", "s")
    dead = ["dead link: sub/crane.md:3: steel.md", "dead link: yard.md:5: nobody"]
    for again in (ran, run("check", "--store", "s")):
        assert sorted(line for line in again.err.splitlines() if line.startswith("dead link")) == dead
    stored = read_all(folder.parent / "s")
    assert "Nora Blum built it, of [steel](sub/steel.md)." in stored["yard.md-0"][0]
    said = [triple["object"] for triple in stored["yard.md-0"][1]["gear_triples"]]
    assert "Nora Blum" in said and read_links(folder.parent / "s") == {"yard.md-0": ["North Crane"]}
    (folder / "sub" / "crane.md").write_text(f"{crane}## Oil\n\nIt is of Kiel.", "utf-8")
    assert "3 passages: 2 new or changed, 0 deleted" in run("index", "docs", "--store", "s").out
    assert "It is of Kiel." in read_all(folder.parent / "s")["yard.md-0"][0]
    (folder / "sub" / "crane.md").unlink()
    assert "2 passages: 1 new or changed, 1 deleted" in run("index", "docs", "--store", "s").out
    assert read_all(folder.parent / "s")["yard.md-0"][0] == "# Yard\n\n![[crane]]\n\nSee [[nobody]]."


def test_a_dead_link_has_a_line_where_the_text_is_the_files_own(run: Runner, folder: Path) -> None:
    """A page of a wiki is text, and is turned into Markdown: its lines are others."""
    (folder / "a.wiki").write_text("{|\n|x\n|}\n\n== Oil ==\n\nSee [[Nowhere]].", "utf-8")
    (folder / "b.txt").write_text("Words.\n\nSee [[Nowhere]].", "utf-8")
    (folder / "c.markdown").write_text("See [it](gone.md).", "utf-8")
    ran = run("index", "docs", "--store", "s")
    assert [line for line in ran.err.splitlines() if line.startswith("dead link")] == [
        "dead link: a.wiki: Nowhere",
        "dead link: b.txt:3: Nowhere",
        "dead link: c.markdown:1: gone.md",
    ]


def test_a_file_of_that_name_elsewhere_is_no_target_of_a_path(run: Runner, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "plan.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (folder / "a.md").write_text(
        "See [it](old/plan.png), [it](plan.png), [[x/plan.png|it]], [it](sub/plan.png).", "utf-8"
    )
    ran = run("index", "docs", "--store", "s")
    assert [line for line in ran.err.splitlines() if line.startswith("dead link")] == [
        "dead link: a.md:1: old/plan.png"
    ]


def test_a_target_that_moves_is_followed_and_only_what_changes_is_written(
    run: Runner, folder: Path, embedding: Any
) -> None:
    (folder / "yard.md").write_text("# Yard\n\nGrease is kept in [[crane]] all year.", "utf-8")
    (folder / "other.md").write_text("# Other\n\nNothing is here.", "utf-8")
    run("index", "docs", "--store", "s")
    assert read_links(folder.parent / "s") == {}
    (folder / "crane.md").write_text("# North Crane\n\nIt is tall.", "utf-8")
    assert "3 passages: 2 new or changed, 0 deleted" in run("index", "docs", "--store", "s").out
    assert read_links(folder.parent / "s") == {"yard.md-0": ["North Crane"]}
    embedding.embedded = 0
    assert "3 passages: 0 new or changed, 0 deleted" in run("index", "docs", "--store", "s").out
    assert embedding.embedded == 0
    (folder / "sub").mkdir()
    (folder / "crane.md").rename(folder / "sub" / "crane.md")
    assert "1 new or changed, 1 deleted" in run("index", "docs", "--store", "s").out
    (folder / "sub" / "crane.md").write_text("# South Crane\n\nIt is tall.", "utf-8")
    assert "2 new or changed, 0 deleted" in run("index", "docs", "--store", "s").out
    assert read_links(folder.parent / "s") == {"yard.md-0": ["South Crane"]}
    (folder / "sub" / "crane.md").unlink()
    assert "1 new or changed, 1 deleted" in run("index", "docs", "--store", "s").out
    assert read_links(folder.parent / "s") == {}


@needs_converter
def test_converted_files_keep_their_links(run: Runner, folder: Path) -> None:
    (folder / "a.html").write_text(
        "<html><head><title>Yard page</title></head><body><nav><a href='b.html'>Menu</a></nav><h1>Yard page</h1>"
        "<p>Grease is kept in <a href='sub/crane.html#top'>the <b>north</b> crane</a>.</p></body></html>",
        "utf-8",
    )
    (folder / "sub").mkdir()
    (folder / "sub" / "crane.html").write_text("<h1>North Crane</h1><p>It is tall.</p>", "utf-8")
    (folder / "pump house.rst").write_text(
        ".. _the-pump:\n\nPump house\n==========\n\n:doc:`sub/crane` is near, and :ref:`that <oil>`.\n", "utf-8"
    )
    (folder / "manual.adoc").write_text("= Manual\n\n[[oil]]\n== Oil of Bremen\n\nSee xref:the-pump[].\n", "utf-8")
    for name, own, answered in (("first", "<1@x>", None), ("second", "<2@x>", "<1@x>")):
        letter = EmailMessage()
        letter["Subject"], letter["Message-ID"] = f"The {name} letter", own
        if answered:
            letter["In-Reply-To"] = answered
        letter.set_content("Some words.")
        (folder / f"{name}.eml").write_bytes(letter.as_bytes())
    run("index", "docs", "--store", "s")
    assert read_links(folder.parent / "s") == {
        "a.html-0": ["North Crane"],
        "manual.adoc-0": ["Pump house"],
        "pump house.rst-0": ["North Crane", "Manual", "Oil of Bremen"],
        "second.eml-0": ["The first letter"],
    }


def write(draw: random.Random, names: list[str]) -> str:
    kinds = ["[x]({}.md)", "[[{}]]", "[x](../{}.md#part)", "{}", "Words of Ada Blum. {}"]
    parts = [draw.choice(kinds).format(draw.choice(names)) for _ in range(draw.randrange(1, 5))]
    said = [f"It is said to lead {part} from here, and goes on." for part in parts]
    shown = [f"![[{draw.choice(names)}]]"] if draw.random() < 0.3 else []
    return f"# {draw.choice(['Title', 'Plan'])} of {draw.choice(names)}\n\n" + "\n\n".join([*said, *shown])


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_whatever_the_history_of_a_folder_the_end_equals_a_fresh_index(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Files are added, edited, renamed, moved and deleted, and runs are killed in between."""
    draw = random.Random(seed)
    names = ["ada", "bob", "cid", "dee"]
    places = [folder / part / f"{name}.md" for part in ("", "sub", "far/off") for name in names]
    monkeypatch.setattr(indexing, "_BATCH", 2)
    for _ in range(5):
        for _ in range(draw.randrange(1, 4)):
            there = [place for place in places if place.exists()]
            action = draw.choice(["add", "edit", "move", "delete"]) if len(there) > 1 else "add"
            target = draw.choice([place for place in places if place.exists() == (action in ("edit", "delete"))])
            target.parent.mkdir(parents=True, exist_ok=True)
            if action == "delete":
                target.unlink()
            elif action == "move":
                draw.choice(there).rename(target)
            else:
                target.write_text(write(draw, names), "utf-8")
        if draw.random() < 0.3:
            index_and_die(run, monkeypatch, draw.randrange(3))
        else:
            assert run("index", "docs", "--store", "s").code == 0
    run("index", "docs", "--store", "s")
    assert ": 0 new or changed, 0 deleted" in run("index", "docs", "--store", "s").out
    run("index", "docs", "--store", "fresh")
    assert read_all(folder.parent / "s") == read_all(folder.parent / "fresh")


def read_all(store: Path) -> dict[str, Any]:
    with GeARVectorStore.from_path(store, embed_model=WordEmbedding()) as opened:
        assert opened.check().ok
        return {node.node_id: (node.get_content(), node.metadata) for node in opened.get_nodes()}
