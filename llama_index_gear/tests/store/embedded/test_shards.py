"""The owner of an embedded store: a forked process leaves it to its parent; the last reference to it closes it."""

import gc
import os
import re
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client.http import models

from llama_index_gear.errors import GeARError
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever, SyncGERetriever
from llama_index_gear.retrievers.paper_gear import ExternalGeARRetriever, PaperGeARRetriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(16)
NODE = passage("p", "x", [("A", "is", "B")], embed_model=EMBED)
TRIPLES = [Triple("A", "is", "B")]
REFUSED = "StoreLockedError: .* was open when this process was forked, and stays the parent's: close it before forking"
LIMIT = 60  # seconds; a child that takes so long hangs

forks = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def run_forked(work: Callable[[], object]) -> str:
    """Run the work in a forked child and return its result or its error."""
    read, write = os.pipe()
    if (process := os.fork()) == 0:
        try:
            said = repr(work())
        except GeARError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001 - the parent tells
            said = f"unexpected {error!r}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], LIMIT)
    if not ready:
        os.kill(process, 9)
    os.waitpid(process, 0)
    with os.fdopen(read) as pipe:
        return pipe.read() if ready else "hangs"


def list_files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    """An open store."""
    store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED)
    store.add([NODE])
    yield store
    store.close()


VECTORS = models.VectorParams(size=4, distance=models.Distance.COSINE)
CALLS: dict[str, Callable[[GeARVectorStore], object]] = {
    "get_nodes": lambda store: store.get_nodes(),
    "add": lambda store: store.add([NODE]),
    "delete": lambda store: store.delete("d"),
    "clear": lambda store: store.clear(),
    "check": lambda store: store.check(),
    "exists": lambda store: store.client.collection_exists("gear"),
    "create": lambda store: store.client.create_collection("other", {"v": VECTORS}),
}


class TestForks:
    pytestmark = forks

    @pytest.mark.parametrize("name", CALLS)
    def test_a_child_is_refused_a_store_that_its_parent_has_open(self, store: GeARVectorStore, name: str) -> None:
        before = list_files(store.client.path)
        said = run_forked(lambda: CALLS[name](store))
        assert re.match(REFUSED, said), said
        assert list_files(store.client.path) == before
        assert [node.node_id for node in store.get_nodes()] == ["p"]

    def test_a_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_held(self, store: GeARVectorStore) -> None:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with store.client._shards.lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert "StoreLockedError" in run_forked(store.get_nodes)
            assert run_forked(store.close) == "None"
        finally:
            done.set()
            thread.join()

    def test_a_child_does_not_wait_for_a_write_of_its_parent(self, tmp_path: Path) -> None:
        held, done = threading.Event(), threading.Event()

        class Slow(WordEmbedding):
            def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
                held.set()
                done.wait()
                return super()._get_text_embeddings(texts)

        store = GeARVectorStore.from_path(tmp_path, embed_model=Slow(dimension=16), embed_triples=True)
        thread = threading.Thread(target=store.add, args=([NODE],))
        thread.start()
        held.wait()
        try:
            for name in ("add", "delete", "clear"):
                assert "StoreLockedError" in run_forked(lambda name=name: CALLS[name](store))  # type: ignore[misc]
        finally:
            done.set()
            thread.join()
        assert [node.node_id for node in store.get_nodes()] == ["p"]
        store.close()

    def test_closing_in_a_child_changes_nothing(self, store: GeARVectorStore) -> None:
        before = list_files(store.client.path)
        assert run_forked(store.close) == "None"
        assert list_files(store.client.path) == before

        def close_and_read() -> object:
            store.close()
            return store.get_nodes()

        assert "is open in another process" in run_forked(close_and_read)
        assert "is open in another process" in run_forked(lambda: EdgeClient(store.client.path).count("gear"))
        store.close()
        store.add([NODE])

    def test_a_child_may_open_what_its_parent_has_closed(self, tmp_path: Path) -> None:
        store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED)

        def add_and_close() -> list[str]:
            with store:
                return store.add([NODE])

        assert run_forked(add_and_close) == "['p']"  # nobody has opened it
        assert run_forked(lambda: [node.node_id for node in store.get_nodes()]) == "['p']"
        assert len(store.get_nodes()) == 1
        store.close()
        assert run_forked(lambda: [node.node_id for node in store.get_nodes()]) == "['p']"

    def test_a_parent_may_close_and_open_again_while_its_child_lives(self, store: GeARVectorStore) -> None:
        wait, go = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(wait, 1)
            os._exit(0)
        os.close(wait)
        try:
            store.close()
            assert len(store.get_nodes()) == 1
        finally:
            os.close(go)
            os.waitpid(child, 0)

    def test_the_end_of_a_child_changes_nothing(self, tmp_path: Path) -> None:
        ends = ["sys.exit()", "os._exit(0)", "del store; gc.collect(); os._exit(0)"]
        script = f"""
import gc, os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from {Path(__file__).stem} import EMBED, NODE, list_files
from llama_index_gear.store.vector_store import GeARVectorStore
for number, end in enumerate({ends!r}):
    folder = Path(sys.argv[1]) / str(number)
    store = GeARVectorStore.from_path(folder, embed_model=EMBED)
    store.add([NODE])
    before = list_files(folder)
    child = os.fork()
    if child == 0:
        exec(end)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, end
    assert list_files(folder) == before, end
    store.add([NODE])
    assert len(store.get_nodes()) == 1, end
print("done")
"""
        command = [sys.executable, "-c", script, str(tmp_path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)
        assert done.stdout == "done\n"  # said once: no child went on


# -- the last reference closes -------------------------------------------------------------------------------------


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off, so that only reference counts close a store."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_alone(folder: Path) -> object:
    store = GeARVectorStore.from_path(folder, embed_model=EMBED, embed_triples=True)
    store.add([NODE])
    return store


def open_tenant_store(folder: Path) -> object:
    store = GeARVectorStore.from_path(folder, embed_model=EMBED, embed_triples=True, tenant_field="team").for_tenant(
        "a"
    )
    store.add([NODE])
    return store


def open_graph(folder: Path) -> ExternalTripleStore:
    graph = ExternalTripleStore.from_path(folder, embed_model=EMBED)
    graph.load(TRIPLES)
    return graph


def make_holder_of(make: Callable[[GeARVectorStore], object]) -> Callable[[Path], object]:
    def make_holder(folder: Path) -> object:
        store = GeARVectorStore.from_path(folder, embed_model=EMBED, embed_triples=True)
        store.add([NODE])
        holder: Any = make(store)
        holder.retrieve("x")
        return holder

    return make_holder


def make_external_retriever(folder: Path) -> object:
    retriever = make_holder_of(
        lambda store: ExternalGeARRetriever(
            SyncGERetriever(store, llm=ScriptedLLM(otherwise=lambda _: "[]"), graph=open_graph(folder / "graph"))
        )
    )
    return retriever(folder / "store")


LLM = ScriptedLLM(otherwise=lambda _: "[]")
HOLDERS: dict[str, Callable[[Path], object]] = {
    "store": open_alone,
    "tenant's store": open_tenant_store,
    "graph": open_graph,
    "NaiveGERetriever": make_holder_of(NaiveGERetriever),
    "SyncGERetriever": make_holder_of(lambda store: SyncGERetriever(store, llm=LLM)),
    "GeARRetriever": make_holder_of(lambda store: PaperGeARRetriever(SyncGERetriever(store, llm=LLM))),
    "T2RAGRetriever": make_holder_of(lambda store: T2RAGRetriever(store, llm=LLM)),
    "ExternalGeARRetriever": make_external_retriever,
}


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("name", HOLDERS)
def test_the_last_reference_closes(tmp_path: Path, name: str) -> None:
    for _ in range(20 if name == "store" else 2):
        holder = HOLDERS[name](tmp_path)  # StoreLockedError if the last one is still open
        del holder


@pytest.mark.usefixtures("without_collector")
async def test_the_last_reference_closes_after_async_calls(tmp_path: Path) -> None:
    for _ in range(3):
        store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED, embed_triples=True)
        await store.async_add([NODE])
        assert len(await NaiveGERetriever(store).aretrieve("x")) == 1
        del store


@pytest.mark.usefixtures("without_collector")
def test_a_tenant_s_store_keeps_it_open(tmp_path: Path) -> None:
    store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED, tenant_field="team")
    bound = store.for_tenant("a")
    del store
    bound.add([NODE])
    assert assert_another_is_refused(tmp_path)
    bound.close()


def assert_another_is_refused(folder: Path) -> bool:
    with pytest.raises(GeARError, match="is open in another process or client"):
        EdgeClient(folder).count("gear")
    return True


def test_leaving_the_block_closes(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), GeARVectorStore.from_path(tmp_path, embed_model=EMBED) as store:
        store.add([NODE])
        1 / 0  # noqa: B018
    with EdgeClient(tmp_path) as client:
        assert client.count("gear").count == 1
    with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as facts:
        facts.load(TRIPLES)
    with EdgeClient(tmp_path) as client:
        assert client.count("graph").count == 1


async def test_leaving_the_async_block_closes(tmp_path: Path) -> None:
    async with GeARVectorStore.from_path(tmp_path, embed_model=EMBED) as store:
        await store.async_add([NODE])
    async with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as facts:
        await facts.aload(TRIPLES)
    with EdgeClient(tmp_path) as client:
        assert client.count("gear").count == client.count("graph").count == 1
