"""kill -9 during a store's writes: all that is there is whole, and repeating the call mends the rest.

The call runs in a process of its own, whose client asks before each write. So a kill meets the call at the drawn
write, on slow machines too: before it, or a drawn time after it began, in it or in what follows.
"""

import random
import shutil
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.nodes import passage_id, read_triples
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.processes import PROCESSES
from llama_index_gear.tests.store_contract import Contents, contents, passage

SMALL = WordEmbedding(16)
PASSAGES, DOCUMENTS = 24, 6


class AskingClient(EdgeClient):
    """An embedded engine that asks before each write."""

    def __init__(self, path: Path, ask: Callable[[], object]) -> None:
        super().__init__(path)
        self._ask = ask

    def _update(self, *arguments: Any) -> None:
        self._ask()
        super()._update(*arguments)

    def create_collection(self, *arguments: Any, **options: Any) -> bool:
        self._ask()
        return super().create_collection(*arguments, **options)

    def delete_collection(self, *arguments: Any, **options: Any) -> bool:
        self._ask()
        return super().delete_collection(*arguments, **options)


def ingest(store: GeARVectorStore, version: int = 1) -> None:
    """Add all passages of a version, few at a time, so that there are many moments to die."""
    nodes = []
    for n in range(PASSAGES):
        facts = [
            (f"Entity {n}", "has version", f"V{version}"),
            (f"Entity {n}", "knows", f"Entity {n + 1 + version}"),
            (f"Entity {n}", "is in", "Hub"),
        ]
        metadata, document = {"version": version, "parity": "odd" if n % 2 else "even"}, f"d{n % DOCUMENTS}"
        text = f"passage {n} version {version}"
        nodes.append(passage(f"p{n}", text, facts, document=document, embed_model=SMALL, metadata=metadata))
    store.add(nodes)


def delete(store: GeARVectorStore) -> None:
    """Delete documents one by one, then nodes by a filter."""
    for number in range(DOCUMENTS // 2):
        store.delete(f"d{number}")
    store.delete_nodes(["p3", "p4", "p5"])
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="parity", value="even")]))


def link(store: GeARVectorStore) -> None:
    store.link_aliases([(f"Entity {n}", f"Entity {n + 5}") for n in range(0, PASSAGES, 2)])


def unlink(store: GeARVectorStore) -> None:
    store.unlink_aliases()


def ingest_and_link(store: GeARVectorStore) -> None:
    ingest(store)
    link(store)


def run_pipeline(store: GeARVectorStore, documents: Path, versions: dict[str, str]) -> None:
    """Run an ingestion pipeline whose document store is kept beside the store and replaced at the end of the run.

    It is replaced as a whole: LlamaIndex writes the file in place, and a kill while it does leaves half of one.
    """
    kept = SimpleDocumentStore.from_persist_path(str(documents)) if documents.exists() else SimpleDocumentStore()
    pipeline = IngestionPipeline(
        transformations=[
            SentenceSplitter(chunk_size=40, chunk_overlap=0, id_func=passage_id),
            MentionTripleExtractor(),
            SMALL,
        ],
        vector_store=store,
        docstore=kept,
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        disable_cache=True,
    )
    parts = (
        "{0} met Alice Archer in the town of Riverside, and {1} of them stayed there for long.",
        "The Harbour Company of Riverside gave {0} a ship with {1} sails for a journey to Lakewood.",
        "In Lakewood {0} wrote {1} letters to Bertram Baker, who never answered any of them at all.",
    )
    texts = {name: " ".join(parts).format(f"Captain {name.title()}", version) for name, version in versions.items()}
    pipeline.run(documents=[Document(id_=name, text=text) for name, text in texts.items()])
    kept.persist(str(documents.with_suffix(".new")))
    documents.with_suffix(".new").replace(documents)


def run_first(store: GeARVectorStore, documents: Path) -> None:
    """Ingest six documents of three passages each."""
    run_pipeline(store, documents, dict.fromkeys("abcdef", "one"))


def run_second(store: GeARVectorStore, documents: Path) -> None:
    """Ingest again: two documents are unchanged, two have changed, two are gone, two are new."""
    run_pipeline(store, documents, {**dict.fromkeys("ab", "one"), **dict.fromkeys("cdgh", "two")})


CALLS: dict[str, Callable[[GeARVectorStore, Path], None]] = {
    "ingest": lambda store, _: ingest(store),
    "update": lambda store, _: ingest(store, 2),
    "delete": lambda store, _: delete(store),
    "clear": lambda store, _: store.clear(),
    "link": lambda store, _: link(store),
    "unlink": lambda store, _: unlink(store),
    "ingest and link": lambda store, _: ingest_and_link(store),
    "pipeline": run_first,
    "pipeline again": run_second,
}
BEFORE = {
    "update": "ingest",
    "delete": "ingest",
    "clear": "ingest",
    "link": "ingest",
    "unlink": "ingest and link",
    "pipeline again": "pipeline",
}


def perform(folder: Path, call: str, ask: Callable[[], object]) -> None:
    """Perform the call that is killed."""
    store = GeARVectorStore(client=AskingClient(folder, ask), embed_model=SMALL, batch_size=4)
    CALLS[call](store, folder.with_suffix(".json"))
    store.close()


def run_in_process(folder: Path, call: str, connection: Connection) -> None:
    def ask() -> None:
        connection.send("may I?")
        connection.recv()

    perform(folder, call, ask)


def kill(folder: Path, call: str, write: int, wait: float | None) -> None:
    """Run the call in a process of its own and kill it `wait` seconds after a write began, or before it (None)."""
    connection, far_end = PROCESSES.Pipe()
    process = PROCESSES.Process(target=run_in_process, args=(folder, call, far_end))
    process.start()
    far_end.close()  # so that we are told if the process ends by itself
    for number in range(1, write + 1):
        assert connection.poll(120) and connection.recv() == "may I?"
        if number < write or wait is not None:
            connection.send("yes")
    time.sleep(wait or 0)
    process.kill()
    process.join()
    for opened in (connection, process):
        opened.close()


def read_checked(folder: Path) -> Contents:
    """Return the store's contents, after checking that each passage has all its triples."""
    store = GeARVectorStore.from_path(folder, embed_model=SMALL)
    held = contents(store)
    for node in store.get_nodes():
        stated = {triple.id(node.node_id) for triple in read_triples(node)}
        assert stated
        assert stated <= set(held[store.triple_collection_name]), node.node_id
    store.close()
    return held


@pytest.mark.parametrize(
    ("call", "moments"),
    [
        ("ingest", 5),
        ("update", 5),
        ("delete", 4),
        ("clear", 3),
        ("link", 3),
        ("unlink", 3),
        ("pipeline", 3),
        ("pipeline again", 3),
    ],
)
def test_a_killed_call_leaves_whole_passages_and_is_mended_by_repeating_it(
    tmp_path: Path, call: str, moments: int
) -> None:
    undisturbed, begun = tmp_path / "undisturbed", []

    def prepare(folder: Path) -> None:
        if call in BEFORE:
            perform(folder, BEFORE[call], lambda: None)

    prepare(undisturbed)
    before = read_checked(undisturbed)
    perform(undisturbed, call, lambda: begun.append(time.perf_counter()))
    expected = read_checked(undisturbed)
    between = (begun[-1] - begun[0]) / (len(begun) - 1)
    met = 0
    for number in range(moments):
        folder = tmp_path / f"killed-{number}"
        prepare(folder)
        rng = random.Random(f"{call} {number}")
        write = 1 + int((number + rng.random()) * len(begun) / moments)  # one of each part of the call
        wait = None if number % 4 == 3 else rng.uniform(0, between)
        kill(folder, call, write, wait)
        met += read_checked(folder) not in (before, expected)
        if number % 3 == 1:
            store = GeARVectorStore.from_path(folder, embed_model=SMALL)
            assert store.repair().ok
            store.close()
        perform(folder, call, lambda: None)
        assert read_checked(folder) == expected, (
            f"moment {number}: write {write} of {len(begun)}, {wait} s after it began"
        )
        shutil.rmtree(folder)
    assert met > moments // 5, "kills are to meet the call half done"
