"""Ids that meet: a document has one origin, and a run that would overwrite another's passages names it instead."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from qdrant_client import QdrantClient, models

from llama_index_gear import ExistingCollection, GeARVectorStore
from llama_index_gear.cli import serving as serving
from llama_index_gear.errors import ArgumentError
from llama_index_gear.testing import WordEmbedding

Runner = Callable[..., Any]
NOTE = "\n\n".join(
    f"Decision {n}: Ann Lee signed the contract with Bob Smith in Basel, for {n} francs." for n in range(40)
)


def read(folder: Path) -> dict[str, tuple[str | None, str | None, str]]:
    """Return the document, the file and the text of each passage, by id; the store must be in order."""
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        assert store.check().ok
        return {
            node.node_id: (node.ref_doc_id, node.metadata.get("file"), node.get_content()) for node in store.get_nodes()
        }


def write(folder: Path, node_id: str, document: str | None, text: str = "Eve has a diary.", **metadata: Any) -> None:
    node = TextNode(id_=node_id, text=text, metadata=metadata)
    if document is not None:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        store.add(store.embed_model([node]))


@pytest.fixture
def folder(run: Runner, docs: Path, tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of the files."""
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    run("index", "docs", "--store", "s")
    return tmp_path / "s"


async def test_a_document_that_a_client_added_is_left_alone_and_the_file_of_its_name_is_named(
    run: Runner, folder: Path, docs: Path
) -> None:
    tools = serving.StoreTools(folder)
    await tools.add(NOTE, "Minutes", "minutes.md")
    await tools.finish()
    before = read(folder)
    (docs / "minutes.md").write_text("# Minutes\n\nTo be written.")
    (docs / "new.txt").write_text("Ada Lovelace wrote to Charles Babbage.")
    for _ in range(2):
        said = run("index", "docs", "--store", "s")
        assert (
            said.code == 1
            and "failed: minutes.md: the store has a document 'minutes.md' that is of no file" in said.err
        )
        assert "rename the file, or delete that document first" in said.err
    after = read(folder)
    assert after.pop("new.txt-0")[1] == "new.txt" and after == before, "the other files are indexed"
    await tools.delete("minutes.md")
    await tools.finish()
    assert run("index", "docs", "--store", "s").code == 0
    assert {one for name, one in read(folder).items() if name.startswith("minutes")} == {
        ("minutes.md", "minutes.md", "# Minutes\n\nTo be written.")
    }


@pytest.mark.parametrize(
    ("node_id", "document", "metadata"),
    [
        ("Lego.txt-1", "Lego.txt", {}),  # a document's second passage
        ("8c1f", "Lego.txt", {}),  # a document whose passages have ids of another form
        ("Lego.txt-0", "other", {}),
        ("Lego.txt-0", None, {}),
        ("Lego.txt-0", "other", {"file": "Lego.txt"}),  # what another program calls a file
        ("Lego.txt-0", "Lego.txt", {"gear_source": {"collection": "c", "place": "p", "point": 1}}),
        ("8c1f", "Lego.txt", {"file": "Lego.txt", "gear_source": {"collection": "c", "place": "p", "point": 1}}),
    ],
)
def test_a_passage_of_another_origin_is_never_overwritten_nor_joined(
    run: Runner, folder: Path, docs: Path, node_id: str, document: str | None, metadata: dict[str, Any]
) -> None:
    text = (docs / "Lego.txt").read_text()
    (docs / "Lego.txt").unlink()
    run("index", "docs", "--store", "s")
    write(folder, node_id, document, **metadata)
    before = read(folder)
    (docs / "Lego.txt").write_text(text)
    said = run("index", "docs", "--store", "s")
    assert said.code == 1 and "failed: Lego.txt: the store has a " in said.err and "rename the file" in said.err
    assert read(folder) == before
    (docs / "Lego.txt").unlink()
    assert run("index", "docs", "--store", "s").code == 0 and read(folder) == before, "it is no file that is gone"


async def test_a_file_with_pages_and_a_file_or_a_document_that_is_named_like_one(
    run: Runner, folder: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llama_index_gear.ingestion.files import FolderReader

    def read_texts(self: FolderReader, path: Path, name: str) -> tuple[str, list[str], list[str]]:
        return "", ["Ann met Bob.", "Bob met Eve."] if path.suffix == ".pdf" else [path.read_text()], []

    monkeypatch.setattr(FolderReader, "_read_texts", read_texts)
    (docs / "a.pdf").write_text("")
    (docs / "a.pdf#2").write_text("Cid met Dan.")
    said = run("index", "docs", "--store", "s")
    assert (
        said.code == 1 and "failed: a.pdf#2: its passages have ids of 'a.pdf': rename one of the two files" in said.err
    )
    stored = read(folder)
    assert stored["a.pdf#1-0"][1:] == ("a.pdf", "Ann met Bob.") and stored["a.pdf#2-0"][1:] == ("a.pdf", "Bob met Eve.")
    tools = serving.StoreTools(folder)
    for name in ("a.pdf", "a.pdf#1"):
        with pytest.raises(ArgumentError, match="is a file: change the file"):
            await tools.add("Eve.", "Eve", name)
    await tools.finish()
    (docs / "a.pdf").rename(docs / "b.pdf")
    assert run("index", "docs", "--store", "s").code == 0, "a file that is gone is in nobody's way"
    assert read(folder)["a.pdf#2-0"][1:] == ("a.pdf#2", "Cid met Dan.")
    (docs / "b.pdf").rename(docs / "a.pdf")
    said = run("index", "docs", "--store", "s")
    assert said.code == 1 and "failed: a.pdf#2: " in said.err and "failed: a.pdf: the store has a passage" in said.err
    assert read(folder)["a.pdf#2-0"][1:] == ("a.pdf#2", "Cid met Dan."), "neither overwrites the other"


async def test_names_that_look_alike_are_documents_of_their_own(run: Runner, folder: Path, docs: Path) -> None:
    names = ["x", "x-0", "X", unicodedata.normalize("NFC", "é.txt"), unicodedata.normalize("NFD", "é.txt")]
    for name in names:
        (docs / name).write_text(f"Ada Lovelace is in the file called {name}.")
    assert run("index", "docs", "--store", "s").code == 0
    stored = read(folder)
    for name in names:
        assert stored[f"{name}-0"][:2] == (name, name) and stored[f"{name}-0"][2].endswith(f" {name}.")
    tools = serving.StoreTools(folder)
    with pytest.raises(ArgumentError, match=r"'x-0' is a document, and a passage of another one"):
        await tools.delete("x-0")
    with pytest.raises(ArgumentError, match="is of another document: take another id than 'x-0-0'"):
        await tools.add("Eve.", "Eve", "x-0-0")
    await tools.finish()
    assert read(folder) == stored


async def test_a_tenant_s_document_is_left_alone_by_a_file(
    run: Runner, docs: Path, tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    run("index", "docs", "--store", "s")
    tools = serving.StoreTools(tmp_path / "s", tenant=("customer", "acme"))
    await tools.add("The plan of acme.", "Plan", "plan.md")
    await tools.finish()
    (docs / "plan.md").write_text("The plan of nobody.")
    said = run("index", "docs", "--store", "s")
    assert said.code == 1 and "failed: plan.md: " in said.err
    assert read(tmp_path / "s")["plan.md-0"][2] == "The plan of acme."
    other = serving.StoreTools(tmp_path / "s", tenant=("customer", "zeta"))
    with pytest.raises(ArgumentError, match="cannot be taken"):
        await other.add("The plan of zeta.", "Plan", "plan.md")
    await other.finish()
    assert read(tmp_path / "s")["plan.md-0"][2] == "The plan of acme."


@pytest.mark.parametrize("origin", ["client", "file"])
async def test_a_collection_s_passage_overwrites_none_of_another_origin(folder: Path, origin: str) -> None:
    node_id = "Lego.txt-0" if origin == "file" else "minutes-0"
    tools = serving.StoreTools(folder)
    await tools.add("Ann Lee signed.", "Minutes", "minutes")
    await tools.finish()
    before = read(folder)
    node = TextNode(id_=node_id, text="Eve has a diary.")
    vector = WordEmbedding().get_text_embedding(node.text)
    client = QdrantClient(":memory:")
    client.create_collection("theirs", models.VectorParams(size=len(vector), distance=models.Distance.COSINE))
    payload = node_to_metadata_dict(node, remove_text=False, flat_metadata=False)
    client.upsert("theirs", [models.PointStruct(id=1, vector=vector, payload=payload)])
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        with pytest.raises(ArgumentError, match=f"has a passage '{node_id}' that no collection gave"):
            ExistingCollection("theirs", client).extract_to(store)
    assert read(folder) == before
