"""A collection that is taken over is only read, whatever aliases and addresses lead to it, and whenever they do.

With QDRANT_URL all of this runs against a server too.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, TransformComponent
from qdrant_client import QdrantClient
from qdrant_client.http import models
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_index_gear import ExistingCollection, GeARTripleExtractor, GeARVectorStore, MentionTripleExtractor
from llama_index_gear.errors import ArgumentError
from llama_index_gear.store.deletes import UnfinishedWrites
from llama_index_gear.store.schema import ANY_CALL, UNFINISHED
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import passage

EMBED = WordEmbedding(64)
TEXTS = ["Max Born taught Robert Oppenheimer.", "Olivia was born in Cambridge.", "Irene was a daughter of Max Born."]
NAMES = ("docs", "docs_gear", "docs_gear_triples", "other", "other_triples")
REFUSED = "would write into the collection.*GeARVectorStore\\('.*_gear', …\\)"


def connect() -> QdrantClient:
    return QdrantClient(os.environ["QDRANT_URL"], check_compatibility=False, timeout=60)


@pytest.fixture(params=["memory", "folder", "server"] if "QDRANT_URL" in os.environ else ["memory", "folder"])
def client(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[QdrantClient]:
    """A client of an engine that has aliases, with the collection `docs` of another program."""
    makers: dict[str, Callable[[], QdrantClient]] = {
        "memory": lambda: QdrantClient(":memory:"),
        "folder": lambda: QdrantClient(path=str(tmp_path / "qdrant")),
        "server": connect,
    }
    client = makers[request.param]()
    fill(client)
    yield client
    for name in NAMES:
        client.delete_collection(name)
    client.close()


def fill(client: Any) -> None:
    client.create_collection("docs", {"text-dense": models.VectorParams(size=64, distance=models.Distance.COSINE)})
    client.upsert(
        "docs",
        [
            models.PointStruct(
                id=str(uuid.UUID(int=number)),
                payload={"text": text},
                vector={"text-dense": EMBED.get_text_embedding(text)},
            )
            for number, text in enumerate(TEXTS)
        ],
        wait=True,
    )


def make_store(client: Any, name: str = "current", **options: Any) -> GeARVectorStore:
    return GeARVectorStore(name, client, embed_model=EMBED, **options)


def lead(client: QdrantClient, alias: str, collection: str) -> None:
    """Make an alias, or move it."""
    made = models.CreateAlias(collection_name=collection, alias_name=alias)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])


def read_all(client: QdrantClient, name: str = "docs") -> Any:
    """Return a collection's settings, and its points with their vectors."""
    points, _ = client.scroll(name, limit=1_000, with_payload=True, with_vectors=True)
    return client.get_collection(name).config, sorted(points, key=lambda point: str(point.id))


def extract(collection: ExistingCollection, store: GeARVectorStore, mode: str, *arguments: Any) -> Any:
    if mode == "sync":
        return collection.extract_to(store, *arguments)
    return asyncio.run(collection.aextract_to(store, *arguments))


class Doing(TransformComponent):
    """Extracts triples, and does something before."""

    do: Callable[[], None]

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        self.do()
        return MentionTripleExtractor()(nodes)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        return {"name": "Doing"}


class Relay:
    """A client that passes calls on: nobody sees that it has the same server as another. It does something before."""

    def __init__(self, client: QdrantClient, before: Callable[[str, dict[str, Any]], None] = lambda *_: None) -> None:
        self._to, self._before = client, before

    def query_batch_points(self, *arguments: Any, **options: Any) -> Any:
        return self._to.query_batch_points(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._to, name)
        if name.startswith("_"):
            return called

        def call(*arguments: Any, **options: Any) -> Any:
            self._before(name, options)
            return called(*arguments, **options)

        return call


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("read", "store", "alias"),
    [("docs", "current", "current"), ("current", "docs", "current"), ("docs", "current", "current_triples")],
    ids=["the store's", "the reader's", "the triples'"],
)
def test_an_alias_of_the_collection_is_the_collection(
    client: QdrantClient, read: str, store: str, alias: str, mode: str
) -> None:
    lead(client, alias, "docs")
    theirs, others = read_all(client), client.get_collections()
    collection, target = ExistingCollection(read, client), make_store(client, store)
    with pytest.raises(ArgumentError, match=REFUSED):
        extract(collection, target, mode)
    with pytest.raises(ArgumentError, match=REFUSED):
        extract(ExistingCollection(read, Relay(client)), target, mode)  # an address that does not tell
    with pytest.raises(ArgumentError, match=REFUSED):
        collection.estimate(target, GeARTripleExtractor(ScriptedLLM()))
    assert read_all(client) == theirs and client.get_collections() == others


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("alias", ["current", "current_triples"])
def test_an_alias_that_is_made_during_the_run_is_seen(client: QdrantClient, alias: str, mode: str) -> None:
    theirs = read_all(client)
    extractor = Doing(do=lambda: lead(client, alias, "docs"))
    with pytest.raises(ArgumentError, match=REFUSED):
        extract(ExistingCollection("docs", client), make_store(client), mode, extractor)
    assert read_all(client) == theirs


def fill_store(client: QdrantClient) -> GeARVectorStore:
    """Fill a store, and return it by its aliases."""
    ExistingCollection("docs", client).extract_to(make_store(client, "docs_gear"))
    for alias in ("current", "current_triples"):
        lead(client, alias, alias.replace("current", "docs_gear"))
    return make_store(client)


def test_a_store_behind_aliases_is_filled(client: QdrantClient) -> None:
    theirs, store = read_all(client), fill_store(client)
    client.delete("docs", [str(uuid.UUID(int=1))], wait=True)
    report = ExistingCollection("docs", client).extract_to(store)
    assert (report.passages, report.written, report.deleted) == (2, 0, 1)
    assert len(make_store(client, "docs_gear").get_nodes()) == 2 and store.check().ok
    assert read_all(client)[1] == [theirs[1][0], theirs[1][2]]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_alias_that_is_moved_during_the_run_is_seen(
    client: QdrantClient, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.existing_collection._PAGE", 1)
    theirs, store = read_all(client), fill_store(client)
    extractor = Doing(do=lambda: lead(client, "current", "docs"))
    with pytest.raises(ArgumentError, match=REFUSED):
        extract(ExistingCollection("docs", client), store, mode, extractor)
    assert read_all(client) == theirs


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_a_call_left_is_finished_in_the_store_that_was_looked_at(
    client: QdrantClient, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The aliases are moved to a store that is only read, behind the last look at them."""
    read, store = make_store(client, "other"), fill_store(client)
    read.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], embed_model=EMBED)])
    for name in ("docs_gear_triples", "other_triples"):
        client.set_payload(name, {UNFINISHED: [ANY_CALL, "1-a-1-1"]}, points=models.Filter(), wait=True)
    theirs = [read_all(client, name) for name in ("other", "other_triples")]
    finish = UnfinishedWrites.finish_flow

    def move_and_finish(self: UnfinishedWrites) -> Any:
        lead(client, "current", "other")
        lead(client, "current_triples", "other_triples")
        return finish(self)

    monkeypatch.setattr(UnfinishedWrites, "finish_flow", move_and_finish)
    with pytest.raises(ArgumentError):
        extract(ExistingCollection("other", client), store, mode)
    assert [read_all(client, name) for name in ("other", "other_triples")] == theirs
    left, _ = client.scroll("docs_gear_triples", limit=100)
    assert left and not any(UNFINISHED in (point.payload or {}) for point in left)


def test_an_alias_that_is_moved_while_a_page_is_stored_changes_nothing(client: QdrantClient) -> None:
    """The page goes to the collection that the alias led to when it was begun."""
    fill_store(client)
    text = "Eve taught Robert Oppenheimer."
    vector: dict[str, Any] = {"text-dense": EMBED.get_text_embedding(text)}
    client.upsert("docs", [models.PointStruct(id=str(uuid.UUID(int=9)), payload={"text": text}, vector=vector)])
    theirs = read_all(client)

    class Moving(WordEmbedding):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            if not texts[0].endswith("."):  # texts of triples: the store is about to write
                lead(client, "current", "docs")
                lead(client, "current_triples", "docs")
            return super()._get_text_embeddings(texts)

    report = ExistingCollection("docs", client).extract_to(
        GeARVectorStore("current", client, embed_model=Moving(dimension=64))
    )
    assert report.written == 1 and read_all(client) == theirs
    assert len(make_store(client, "docs_gear").get_nodes()) == 4 and make_store(client, "docs_gear").check().ok


@pytest.mark.parametrize("method", ["create_collection", "collection_exists"])
def test_an_alias_that_is_made_when_the_store_makes_its_collections_is_seen(client: QdrantClient, method: str) -> None:
    """Nothing stands between the last look and the write."""
    theirs = read_all(client)
    asked: list[str] = []

    def make_alias(name: str, options: dict[str, Any]) -> None:
        if name == method and options["collection_name"] == "current_triples":
            asked.append(name)
            if method == "create_collection" or len(asked) == 4:  # the fourth time, the store is about to write
                lead(client, "current_triples", "docs")

    with pytest.raises(ArgumentError, match="nothing is written into it"):
        ExistingCollection("docs", client).extract_to(make_store(Relay(client, make_alias)))
    assert asked and read_all(client) == theirs


def test_nothing_is_deleted_through_an_alias_that_was_moved(client: QdrantClient) -> None:
    store = fill_store(client)
    client.delete("docs", [str(uuid.UUID(int=1))], wait=True)
    theirs = read_all(client)

    def move(name: str, options: dict[str, Any]) -> None:
        if name == "scroll" and options["with_payload"] is False:  # what is gone is looked up
            lead(client, "current", "docs")

    relay = ExistingCollection("docs", Relay(client, move), place=ExistingCollection("docs", client).place)
    with pytest.raises(ArgumentError, match=REFUSED):
        relay.extract_to(store)  # a relay tells no server's place
    assert read_all(client) == theirs


def test_a_store_s_own_collection_is_read_into_another_store_and_not_into_itself(
    client: QdrantClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.existing_collection._PAGE", 1)
    fill_store(client)
    own = [read_all(client, name) for name in ("docs_gear", "docs_gear_triples")]
    for read, name in (("current", "docs_gear"), ("docs_gear", "current")):
        for reader in (client, Relay(client)):
            with pytest.raises(ArgumentError, match=REFUSED):
                ExistingCollection(read, reader).extract_to(make_store(client, name))
    lead(client, "read", "docs")

    def move() -> None:
        if client.collection_exists("other"):
            lead(client, "read", "other")

    with pytest.raises(ArgumentError, match=REFUSED):  # the reader's alias is moved to the store during the run
        ExistingCollection("read", client).extract_to(make_store(client, "other"), Doing(do=move))
    assert len(make_store(client, "other").get_nodes()) == 1
    assert own == [read_all(client, name) for name in ("docs_gear", "docs_gear_triples")]
    beside = GeARVectorStore("docs_gear", QdrantClient(":memory:"), embed_model=EMBED)
    if isinstance(client._client, QdrantLocal) and client._client.persistent:  # a folder, not what is elsewhere
        assert ExistingCollection("docs_gear", client).extract_to(beside).written == 3


def test_a_store_is_not_copied_into_itself_by_an_alias(client: QdrantClient) -> None:
    store = fill_store(client)
    for source, target in ((store, make_store(client, "docs_gear")), (make_store(client, "docs_gear"), store)):
        with pytest.raises(ArgumentError, match="into itself: both stores have the collection 'docs_gear'"):
            source.copy_to(target)
        with pytest.raises(ArgumentError, match="into itself"):
            asyncio.run(source.acopy_to(target))
    other = make_store(client, "other")
    lead(client, "other_triples", "docs_gear")  # the passages of the one would be triples of the other
    with pytest.raises(ArgumentError, match="into itself"):
        store.copy_to(other)
    assert store.check().ok and not client.collection_exists("other")


def test_an_embedded_store_that_another_program_filled_is_only_read(tmp_path: Any) -> None:
    """The embedded engine has no aliases; a store of the collection's name has the collection."""
    with GeARVectorStore.from_path(tmp_path / "edge", collection_name="other", embed_model=EMBED) as made:
        made.add([passage("p", "Ada met Bob.", embed_model=EMBED)])
        fill(made.client)
        theirs = [point.model_dump() for point in made.client.scroll("docs", with_payload=True, with_vectors=True)[0]]
        with pytest.raises(ArgumentError, match=REFUSED):
            ExistingCollection("docs", made.client).extract_to(make_store(made.client, "docs"))
        assert ExistingCollection("docs", made.client).extract_to(make_store(made.client, "docs_gear")).written == 3
        found, _ = made.client.scroll("docs", with_payload=True, with_vectors=True)
        assert [point.model_dump() for point in found] == theirs
