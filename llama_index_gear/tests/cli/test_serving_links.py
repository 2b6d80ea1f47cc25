"""The links that the tools of `mcp` leave when they add and delete documents: those of a fresh index."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear import GeARVectorStore, LinkTripleExtractor, MentionTripleExtractor, read_triples
from llama_index_gear.cli import serving
from llama_index_gear.cli.store_note import read_note, write_note
from llama_index_gear.nodes import is_link
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.cli.test_links import HISTORIES, read_all, write

pytest.importorskip("mcp.server.mcpserver", reason="needs the extra mcp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's own

Runner = Callable[..., Any]
NAMES = ["ada", "bob", "cid", "dee"]


@pytest.fixture
def folder(tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two files, of which one links to what is not there yet."""
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "yard.md").write_text("# Yard\n\nGrease is kept in [[North Crane]] all year.", "utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\nA north crane is told of here, of Ulm.", "utf-8")
    return tmp_path / "docs"


def list_links(store: Path) -> dict[str, list[str]]:
    """Return what the links and known names of each passage lead to."""
    with GeARVectorStore.from_path(store, embed_model=WordEmbedding()) as opened:
        found = {node.node_id: list(filter(is_link, read_triples(node))) for node in opened.get_nodes()}
    return {id_: [triple.object for triple in links] for id_, links in found.items() if links}


async def test_a_new_document_is_linked_and_a_deleted_one_is_not(run: Runner, folder: Path) -> None:
    run("index", "docs", "--store", "s")
    store, tools = folder.parent / "s", serving.StoreTools(folder.parent / "s")
    await tools.add("It is tall. See [[yard]].", "North Crane", "crane")
    await tools.finish()
    led = {"yard.md-0": ["North Crane"], "other.md-0": ["North Crane"], "crane-0": ["Yard"]}
    assert list_links(store) == led
    assert "2 passages: 0 new or changed, 0 deleted" in run("index", "docs", "--store", "s").out
    assert list_links(store) == led
    await tools.add("It is tall.", "North Crane", "crane")
    await tools.delete("yard.md")
    await tools.finish()
    assert list_links(store) == {"other.md-0": ["North Crane"]}
    await tools.delete("crane")
    await tools.finish()
    assert list_links(store) == {}


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_whatever_the_history_of_documents_the_end_equals_a_fresh_store(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Documents come, change and go among files, which do so too; the server is killed before any of its writes."""
    draw = random.Random(seed)
    run("index", "docs", "--store", "s")
    store = folder.parent / "s"
    wanted: dict[str, tuple[str, str]] = {}

    async def change(tools: serving.StoreTools, id: str) -> None:
        if id in wanted:
            await tools.add(*wanted[id], id)
        else:
            await tools.delete(id)

    for _ in range(8):
        id = draw.choice(NAMES)
        if id in wanted and draw.random() < 0.4:
            del wanted[id]
        else:
            wanted[id] = write(draw, NAMES), draw.choice([id, "Plan of " + draw.choice(NAMES)])
        if draw.random() < 0.5:
            tools, left = serving.StoreTools(store), iter(range(draw.randrange(3)))
            with monkeypatch.context() as patched:
                for name in ("async_add", "adelete_nodes"):
                    patched.setattr(GeARVectorStore, name, die_after(left, getattr(GeARVectorStore, name)))
                await asyncio.gather(change(tools, id), return_exceptions=True)
                await tools.finish()
        tools = serving.StoreTools(store)
        await asyncio.gather(
            change(tools, id), return_exceptions=True
        )  # "there is no document" that is deleted already
        await tools.finish()
        if draw.random() < 0.3:
            (folder / f"{draw.choice(NAMES)}.md").write_text(write(draw, NAMES), "utf-8")
            run("index", "docs", "--store", "s")
        with GeARVectorStore.from_path(store, embed_model=WordEmbedding()) as opened:
            assert LinkTripleExtractor().update(opened) == 0
    run("index", "docs", "--store", "fresh")
    tools = serving.StoreTools(folder.parent / "fresh")
    for id, (text, title) in wanted.items():
        await tools.add(text, title, id)
    await tools.finish()
    assert read_all(store) == read_all(folder.parent / "fresh")


def die_after(left: Any, write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a write of the store before which the process ends, if none is left."""

    async def write_or_die(self: GeARVectorStore, *arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise KilledError
        return await write(self, *arguments, **options)

    return write_or_die


async def test_links_follow_once_for_writes_that_wait_for_each_other(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the last of them is refused."""
    run("index", "docs", "--store", "s")
    store, tools = folder.parent / "s", serving.StoreTools(folder.parent / "s")
    updates: list[GeARVectorStore] = []
    aupdate = LinkTripleExtractor.aupdate

    async def count(self: LinkTripleExtractor, store: Any) -> int:
        updates.append(store)
        return await aupdate(self, store)

    monkeypatch.setattr(LinkTripleExtractor, "aupdate", count)
    adds = [tools.add(f"See [[n{number + 1}]].", f"n{number}", f"n{number}") for number in range(5)]
    *_, refused = await asyncio.gather(*adds, tools.delete("nobody"), return_exceptions=True)
    await tools.finish()
    assert "no document" in str(refused) and len(updates) == 1
    assert list_links(store) == {f"n{number}-0": [f"n{number + 1}"] for number in range(4)}


async def test_links_of_a_large_store_wait_for_index(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(serving, "_RELINKED", 2)
    tools = serving.StoreTools(folder.parent / "s")
    await tools.add("It is tall.", "North Crane", "crane")
    await tools.finish()
    assert list_links(folder.parent / "s") == {}
    run("index", "docs", "--store", "s")
    assert list_links(folder.parent / "s") == {"yard.md-0": ["North Crane"], "other.md-0": ["North Crane"]}


class BreakingEmbedding(WordEmbedding):
    """Fails on one text, as a model behind a network may."""

    def _get_text_embedding(self, text: str) -> list[float]:
        if "breaks" in text:
            raise ConnectionError("the model is gone")
        return super()._get_text_embedding(text)


async def test_links_follow_if_the_last_of_the_writes_that_wait_fails(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(serving, "load_embedding", lambda name: BreakingEmbedding())
    store, tools = folder.parent / "s", serving.StoreTools(folder.parent / "s")
    adds = tools.add("It is tall.", "North Crane", "crane"), tools.add("It breaks.", "Broken", "broken")
    _, failed = await asyncio.gather(*adds, return_exceptions=True)
    await tools.finish()
    assert isinstance(failed, ConnectionError)
    assert list_links(store) == {"yard.md-0": ["North Crane"], "other.md-0": ["North Crane"]}


async def test_no_link_leads_to_another_tenant(tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    nodes = [
        TextNode(
            id_=tenant, text="See [[Plan]], [[North Crane]] and [[Rates]].", metadata={"title": tenant, "of": tenant}
        )
        for tenant in ("acme", "zeta")
    ]
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=embedding, tenant_field="of") as opened:
        opened.add(embedding(MentionTripleExtractor()(nodes)))
    for tenant, title in (("acme", "North Crane"), ("zeta", "Plan")):
        tools = serving.StoreTools(tmp_path / "s", tenant=("of", tenant))
        await tools.add("It is tall. See [[Rates]], [[acme]] and [[zeta]].", title, f"of {tenant}")
        await tools.finish()
    assert list_links(tmp_path / "s") == {
        "acme": ["North Crane"],
        "of acme-0": ["acme"],
        "zeta": ["Plan"],
        "of zeta-0": ["zeta"],
    }


async def test_the_passages_of_a_collection_have_no_links(run: Runner, folder: Path) -> None:
    run("index", "docs", "--store", "s")
    store = folder.parent / "s"
    note = read_note(store)
    assert note is not None
    write_note(store, replace(note, files="", collection="docs"))
    tools = serving.StoreTools(store)
    await tools.add("It is tall. See [[yard]].", "North Crane", "crane")
    await tools.finish()
    assert list_links(store) == {}
