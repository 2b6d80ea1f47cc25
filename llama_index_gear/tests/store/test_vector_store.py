import asyncio
import os
import random
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import numpy as np
import pytest
from llama_index.core import Settings
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, Document, MetadataMode, NodeWithScore, TextNode
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient, grpc
from qdrant_client.conversions.conversion import GrpcToRest, RestToGrpc
from qdrant_client.http import models
from qdrant_client.http.exceptions import UnexpectedResponse

from llama_index_gear.errors import (
    ArgumentError,
    EmbeddingError,
    StoreError,
    TripleError,
)
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.flow import EmbedQuery
from llama_index_gear.nodes import TRIPLES_KEY, attach_triples, read_triples
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever
from llama_index_gear.store.access import connection_of
from llama_index_gear.store.collections import AVERAGE_KEY
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.schema import point_id_of
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import (
    StoreContract,
    aread,
    contents,
    make_process,
    passage,
    read,
    read_averages,
)
from llama_index_gear.triple import Triple

MakeStore: TypeAlias = Callable[..., GeARVectorStore]
EMBED = WordEmbedding()
SERVER = os.environ.get("QDRANT_URL")
SERVER_OPTIONS: dict[str, Any] = {
    "url": SERVER,
    "grpc_port": int(os.environ.get("QDRANT_GRPC_PORT", "6334")),
    "check_compatibility": False,  # its warning would fail the tests
}


def edge_maker(folder: Path) -> Iterator[MakeStore]:
    made: list[GeARVectorStore] = []

    def make(**arguments: Any) -> GeARVectorStore:
        path = folder / f"store-{len(made)}"
        given = {"embed_model": WordEmbedding(), "embed_triples": True, **arguments}
        made.append(GeARVectorStore.from_path(path, **given))
        return made[-1]

    yield make
    for store in made:
        store.close()


def memory_maker(**defaults: Any) -> Iterator[MakeStore]:
    made: list[GeARVectorStore] = []

    def make(**arguments: Any) -> GeARVectorStore:
        client = QdrantClient(":memory:")
        made.append(GeARVectorStore(client=client, **{"embed_model": WordEmbedding(), **defaults, **arguments}))
        return made[-1]

    yield make
    for store in made:
        store.close()


IS_SHORT = os.environ.get("GEAR_MODES") != "all"
"""Each test of the contract in one mode on one engine, and in the other mode on the other."""


def list_modes(test: str, *, is_embedded: bool) -> list[str]:
    """Return the modes of a test of the contract on an engine."""
    modes = ["sync", "async"]
    return [modes[(zlib.crc32(test.encode()) + is_embedded) % 2]] if IS_SHORT else modes


class TestOnEdge(StoreContract):
    """The contract with vectors of triples; in memory it is kept without, but by the tests that need some."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", list_modes(metafunc.function.__name__, is_embedded=True))

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Iterator[MakeStore]:
        yield from edge_maker(tmp_path)


class TestInMemory(StoreContract):
    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", list_modes(metafunc.function.__name__, is_embedded=False))

    many_triples = 2_100  # local Qdrant reads every payload in Python

    @pytest.fixture
    def make_store(self) -> Iterator[MakeStore]:
        yield from memory_maker()


class OverGrpc(QdrantClient):
    """Qdrant in memory, given what a server would be given: serialized gRPC messages."""

    def __init__(self) -> None:
        super().__init__(":memory:")

    def create_collection(self, *arguments: Any, **options: Any) -> bool:
        for key, kind in _SETTINGS.items():
            if key in options:
                getattr(RestToGrpc, f"convert_{kind}")(options[key]).SerializeToString()
        return super().create_collection(*arguments, **options)

    def upsert(self, *arguments: Any, **options: Any) -> Any:
        sent = [RestToGrpc.convert_point_struct(point).SerializeToString() for point in options["points"]]
        options["points"] = [GrpcToRest.convert_point_struct(grpc.PointStruct.FromString(point)) for point in sent]
        return super().upsert(*arguments, **options)

    def delete(self, *arguments: Any, **options: Any) -> Any:
        which = options["points_selector"]
        if isinstance(which, models.Filter):
            options["points_selector"] = _send_filter(which)
        elif isinstance(which, models.PointIdsList):
            sent = RestToGrpc.convert_points_selector(which).SerializeToString()
            options["points_selector"] = GrpcToRest.convert_points_selector(grpc.PointsSelector.FromString(sent))
        return super().delete(*arguments, **options)

    def query_batch_points(self, *arguments: Any, **options: Any) -> Any:
        sent = [RestToGrpc.convert_query_request(request, "").SerializeToString() for request in options["requests"]]
        options["requests"] = [GrpcToRest.convert_query_points(grpc.QueryPoints.FromString(query)) for query in sent]
        return super().query_batch_points(*arguments, **options)

    def scroll(self, *arguments: Any, **options: Any) -> Any:
        return super().scroll(*arguments, **{**options, "scroll_filter": _send_filter(options.get("scroll_filter"))})

    def count(self, *arguments: Any, **options: Any) -> Any:
        return super().count(*arguments, **{**options, "count_filter": _send_filter(options.get("count_filter"))})


_SETTINGS = {
    "vectors_config": "vectors_config",
    "sparse_vectors_config": "sparse_vector_config",
    "hnsw_config": "hnsw_config_diff",
    "optimizers_config": "optimizers_config_diff",
    "quantization_config": "quantization_config",
}


def _send_filter(match_: models.Filter | None) -> models.Filter | None:
    if match_ is None:
        return None
    return GrpcToRest.convert_filter(grpc.Filter.FromString(RestToGrpc.convert_filter(match_).SerializeToString()))


class TestOverGrpc(StoreContract):
    """The contract over gRPC: requests are built without validation, and a gRPC client takes exact types only."""

    many_passages = many_triples = 100  # a page's end is no matter of the wire

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", ["sync"])

    @pytest.fixture
    def make_store(self) -> MakeStore:
        given = {"embed_model": WordEmbedding(), "embed_triples": True}
        return lambda **arguments: GeARVectorStore(client=OverGrpc(), **{**given, **arguments})


def server_maker(clients: Callable[[], dict[str, Any]], runner: asyncio.Runner | None = None) -> Iterator[MakeStore]:
    made: list[GeARVectorStore] = []

    def make(**arguments: Any) -> GeARVectorStore:
        name = f"gear_test_{uuid.uuid4().hex}"
        options = {"embed_model": WordEmbedding(), **clients(), **arguments}
        made.append(GeARVectorStore(collection_name=name, **options))
        return made[-1]

    yield make
    for store in made:
        store.clear()
        if runner is None:
            store.close()
        else:
            runner.run(store.aclose())


@pytest.mark.skipif(SERVER is None, reason="start a Qdrant server and set QDRANT_URL=http://localhost:6333")
class TestOnAServer(StoreContract):
    @pytest.fixture(params=[False, True], ids=["rest", "grpc"])
    def make_store(self, request: pytest.FixtureRequest) -> Iterator[MakeStore]:
        is_grpc = request.param
        yield from server_maker(
            lambda: {"client": QdrantClient(prefer_grpc=is_grpc, **SERVER_OPTIONS), "embed_triples": is_grpc}
        )


@pytest.mark.skipif(SERVER is None, reason="start a Qdrant server and set QDRANT_URL=http://localhost:6333")
class TestOnAServerAwaited(StoreContract):
    """The async methods, through an async client; the tests themselves look through the sync client beside it."""

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", ["async"])

    @pytest.fixture(params=[False, True], ids=["rest", "grpc"])
    def make_store(self, request: pytest.FixtureRequest) -> Iterator[MakeStore]:
        yield from server_maker(
            lambda: {
                "client": QdrantClient(**SERVER_OPTIONS),
                "aclient": AsyncQdrantClient(prefer_grpc=request.param, **SERVER_OPTIONS),
                "embed_triples": not request.param,
            },
            self._runner,
        )


@pytest.fixture(params=["edge", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    yield from edge_maker(tmp_path) if request.param == "edge" else memory_maker(embed_triples=True)


def list_ids(found: Sequence[NodeWithScore]) -> list[str]:
    return [node.node.node_id for node in found]


def make_query(text: str, **options: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_str=text, **{"similarity_top_k": 5, **options})


# -- what a server is told -----------------------------------------------------------------------------------------


class Listening(OverGrpc):
    """Qdrant in memory that takes a server's options, which it ignores, and keeps a record of them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, dict[str, Any]]] = []

    def create_collection(self, *arguments: Any, **options: Any) -> bool:
        self.told.append(("create", options))
        return super().create_collection(*arguments, **options)

    def update_collection(self, *arguments: Any, **options: Any) -> bool:
        self.told.append(("update", options))
        return super().update_collection(*arguments, **options)

    def query_batch_points(self, *arguments: Any, **options: Any) -> Any:
        self.told += [("query", {"using": request.using, "params": request.params}) for request in options["requests"]]
        return super().query_batch_points(*arguments, **options)


OPTIONS: dict[str, Any] = {
    "shard_number": 6,
    "replication_factor": 2,
    "write_consistency_factor": 2,
    "on_disk_payload": True,
    "hnsw_config": models.HnswConfigDiff(m=0, payload_m=16),
}
QUANTIZATIONS = {
    "scalar": models.ScalarQuantization(
        scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
    ),
    "binary": models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True)),
}
RESCORED = models.SearchParams(quantization=models.QuantizationSearchParams(rescore=True, oversampling=2.0))


@pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning")
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_a_server_is_told_how_to_make_and_search_collections(quantization: str) -> None:
    client, chosen = Listening(), {**OPTIONS, "quantization_config": QUANTIZATIONS[quantization]}
    store = GeARVectorStore(
        client=client,
        embed_model=EMBED,
        embed_triples=True,
        collection_settings=CollectionSettings(
            collection_options=chosen,
            vector_options={"on_disk": True, "datatype": models.Datatype.FLOAT16},
            search_params=RESCORED,
        ),
    )
    store.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], embed_model=EMBED)])
    assert [name for name, _ in client.told] == ["create", "create"]
    for _, options in client.told:
        assert {key: options[key] for key in chosen} == chosen
        (vector,) = options["vectors_config"].values()
        assert (vector.on_disk, vector.datatype, vector.size) == (True, models.Datatype.FLOAT16, 256)
    assert list_ids(NaiveGERetriever(store).retrieve("Ada")) == ["p"]
    queries = [options for name, options in client.told if name == "query"]
    assert {str(search["using"]) for search in queries} == {"text-dense", "text-sparse-new"}
    assert all((search["params"] is RESCORED) == (search["using"] == "text-dense") for search in queries)


def test_what_is_read_without_a_vector_is_no_search() -> None:
    """Search parameters of dense vectors are not sent with a read of triples by their entities."""
    client = Listening()
    store = GeARVectorStore(
        client=client, embed_model=EMBED, collection_settings=CollectionSettings(search_params=RESCORED)
    )
    store.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], embed_model=EMBED)])
    assert len(read(store).incident_flow([(["ada"], [])], [5])[0]) == 1
    assert [options["params"] for name, options in client.told if name == "query"] == [None]


class Awaited(QdrantClient):
    """Qdrant in memory that records which writes had to be over when it answered."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.waits: list[tuple[str, str, bool]] = []

    def upsert(self, *arguments: Any, **options: Any) -> Any:
        self.waits.append(("upsert", options["collection_name"], options.get("wait", True)))
        return super().upsert(*arguments, **options)

    def delete(self, *arguments: Any, **options: Any) -> Any:
        self.waits.append(("delete", options["collection_name"], options.get("wait", True)))
        return super().delete(*arguments, **options)

    def batch_update_points(self, *arguments: Any, **options: Any) -> Any:
        self.waits.append(("update", options["collection_name"], options.get("wait", True)))
        return super().batch_update_points(*arguments, **options)


def test_what_was_written_can_be_found_at_once() -> None:
    """A server is asked to answer when a write is over, not when it is queued."""
    client, copy = Awaited(), Awaited()
    store = GeARVectorStore(client=client, embed_model=EMBED)
    store.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], document="d", embed_model=EMBED)])
    store.add([passage("p", "Ada saw Bob.", [("Ada", "saw", "Bob")], document="d", embed_model=EMBED)])
    target = GeARVectorStore(client=copy, embed_model=EMBED)
    target.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], document="d", embed_model=EMBED)])
    copy.waits.clear()
    store.copy_to(target)
    store.delete_nodes(["p"])
    store.delete("d")
    written = {("upsert", "gear", True), *((call, "gear_triples", True) for call in ("upsert", "update"))}
    assert set(copy.waits) == written
    assert set(client.waits) == written | {("delete", name, True) for name in ("gear", "gear_triples")}


async def test_indexes_are_built_once_after_a_bulk_load(tmp_path: Path) -> None:
    def list_thresholds(client: Listening, kind: str) -> list[int]:
        return [kwargs["optimizers_config"].indexing_threshold for name, kwargs in client.told if name == kind]

    node = passage("p", "Ada met Bob.", [("Ada", "met", "Bob")], embed_model=EMBED)
    chosen = {"optimizers_config": models.OptimizersConfigDiff(indexing_threshold=7, max_segment_size=9)}
    for options, expected in (({}, 20_000), (chosen, 7)):
        client = Listening()
        store = GeARVectorStore(
            client=client, embed_model=EMBED, collection_settings=CollectionSettings(collection_options=options)
        )
        with pytest.raises(KeyError), store.bulk_load():
            store.add([node])
            raise KeyError
        assert (list_thresholds(client, "create"), list_thresholds(client, "update")) == ([0, 0], [expected, expected])
        async with store.abulk_load():
            await store.async_add([node])
        assert list_thresholds(client, "update")[2:] == [0, 0, expected, expected]
        if options:
            assert all(kwargs["optimizers_config"].max_segment_size == 9 for _, kwargs in client.told)
    with (embedded := GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED)).bulk_load():
        embedded.add([node])
    assert len(embedded.get_nodes()) == 1
    embedded.close()


# -- from one engine to another ------------------------------------------------------------------------------------


def list_servers() -> list[Any]:
    gated = pytest.mark.skipif(SERVER is None, reason="start a Qdrant server and set QDRANT_URL=http://localhost:6333")
    return [pytest.param(":memory:", id="memory"), pytest.param(SERVER, id="server", marks=gated)]


@pytest.mark.parametrize("location", list_servers())
@pytest.mark.parametrize("back", [False, True])
def test_an_embedded_store_moves_to_a_server_and_back(tmp_path: Path, location: str, back: bool) -> None:
    name = f"gear_test_{uuid.uuid4().hex}"
    embedded = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED, collection_name=name)
    served = GeARVectorStore(
        client=QdrantClient(location, check_compatibility=False), embed_model=EMBED, collection_name=name
    )
    source, target = (served, embedded) if back else (embedded, served)
    documents = [
        Document(text="Ada met Bob. Bob wrote Emma.", id_="d-1", metadata={"year": 1990, "tags": ["a", "b"]}),
        Document(text="Emma is read in Rome.", id_="d-2", metadata={"title": "Emma", "nested": {"deep": 1.5}}),
    ]
    IngestionPipeline(transformations=[MentionTripleExtractor(), EMBED], vector_store=source).run(documents=documents)
    assert source.copy_to(target) == 2
    assert contents(target) == contents(source)
    assert target.check().ok
    query = VectorStoreQuery(
        query_str="Who wrote Emma?", mode=VectorStoreQueryMode.HYBRID, similarity_top_k=2, hybrid_top_k=2
    )
    one, other = source.query(query), target.query(query)
    assert one.ids == other.ids and len(one.ids or []) == 2
    np.testing.assert_allclose(one.similarities or [], other.similarities or [], atol=1e-6)
    served.clear()
    served.close()
    embedded.close()


def test_a_passage_of_more_triples_than_a_page_is_copied_whole(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.store.commits.PAGE", 2)
    source, target = make_store(), make_store()
    source.add([passage(name, name, [(name, "has", f"part {n}") for n in range(3)]) for name in ("p", "q")])
    assert source.copy_to(target) == 2
    assert contents(target) == contents(source) and len(contents(target)[target.triple_collection_name]) == 6


def test_passages_that_have_no_collection_of_triples_are_copied(make_store: MakeStore) -> None:
    """The copy takes passages that LlamaIndex's own Qdrant store wrote."""
    source, target = make_store(), make_store()
    source.add([passage("p", "Ada met Bob."), passage("q", "Bob met Cid.")])
    source.client.delete_collection(source.triple_collection_name)
    assert GeARVectorStore(client=source.client, embed_model=EMBED).copy_to(target) == 2
    assert contents(target) == {**contents(source), target.triple_collection_name: {}} and target.check().ok


def test_a_copy_beside_the_original(make_store: MakeStore) -> None:
    """Two collections of one client are two stores."""
    source = make_store()
    beside = GeARVectorStore(client=source.client, embed_model=EMBED, collection_name="beside")
    source.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob")])])
    assert source.copy_to(beside) == 1
    assert [*contents(beside).values()] == [*contents(source).values()]
    again = GeARVectorStore(client=source.client, embed_model=EMBED, collection_name=source.collection_name)
    with pytest.raises(ArgumentError, match="into itself"):
        source.copy_to(again)


# -- bad input -----------------------------------------------------------------------------------------------------


def test_a_node_without_embedding_is_refused_before_anything_is_written(make_store: MakeStore) -> None:
    store = make_store()
    with pytest.raises(EmbeddingError, match="'bare'.*no embedding.*transformations"):
        store.add([passage("p", "x", [("A", "is", "B")]), TextNode(id_="bare", text="x")])
    assert contents(store) == {}


@pytest.mark.parametrize(
    "malformed", ["text", 7, ["text"], [{"subject": "A"}], [{"subject": "A", "predicate": "is", "object": " "}], [None]]
)
def test_malformed_triples_are_refused_before_anything_is_written(make_store: MakeStore, malformed: Any) -> None:
    store = make_store()
    bad = TextNode(id_="bad", text="x", metadata={TRIPLES_KEY: malformed}, embedding=EMBED.get_text_embedding("x"))
    with pytest.raises(TripleError):
        store.add([passage("p", "x"), bad])
    assert contents(store) == {}


HARD_TEXTS = {
    "empty": "",
    "spaces": " \n\t ",
    "emoji": "👩‍👩‍👧‍👦 lives in 🇫🇷 👍🏽",
    "right to left": "\u202eמשה נולד ב\u2067קהיר\u2069",
    "combining": "Zu\u0308rich e\u0301 \u200dZWJ\u200c ZWNJ \ufeff BOM",
    "nul": "a\x00b \x07 \x1b[31m",
    "astral": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
    "json": '{"_node_content": "\\u0000"} \\ "quoted"',
}


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS.keys())
def test_any_text_comes_back_unchanged(make_store: MakeStore, text: str) -> None:
    store = make_store()
    triples = [(text, "is", "B"), ("A", text, text)] if text.strip() else []
    given = passage("id " + text, text, triples, document="doc " + text, metadata={"value": text})
    store.add([given, passage("other", "other")])
    (node,) = store.get_nodes(["id " + text])
    assert (node.node_id, node.get_content(), node.ref_doc_id) == ("id " + text, text, "doc " + text)
    assert node.metadata == given.metadata
    same = MetadataFilters(filters=[MetadataFilter(key="value", value=text)])
    assert [n.node_id for n in store.get_nodes(filters=same)] == ["id " + text]
    query = EMBED.get_query_embedding(text)
    facts = [Triple(*fact) for fact in triples]
    found = read(store, same).passage_triples_flow(["id " + text], query, None)
    assert {t.triple for t in found} == set(facts)
    for fact in facts:
        (near,) = read(store).neighbors_flow([fact.entities], query, [], 5)
        fetched = read(store).fetch_triples_flow([candidate.id for candidate in near]).values()
        assert (fact, "id " + text) in [(triple.triple, triple.passage_id) for triple in fetched]
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID):
        store.query(make_query(text, mode=mode))
    store.delete("doc " + text)
    assert [n.node_id for n in store.get_nodes()] == ["other"]
    assert read(store).passage_triples_flow(["id " + text], query, None) == []


def test_triples_that_are_gone_do_no_harm(make_store: MakeStore) -> None:
    """A search survives that another caller deletes triples between two hops."""
    store = make_store()
    store.add([passage("p", "x", [("A", "is", "B"), ("B", "is", "C")])])
    known, gone = Triple("A", "is", "B").id("p"), str(uuid.uuid4())
    both = read(store).similarities_flow([([known, gone], [known, gone]), ([gone], [known])])
    np.testing.assert_allclose(both[0], [1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(both[1], [0.0], atol=1e-5)


# -- opening and closing -------------------------------------------------------------------------------------------


def test_nothing_is_opened_before_the_first_call(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store"
    store = GeARVectorStore.from_path(path, embed_model=EMBED)
    assert not path.exists() and not path.parent.exists()
    assert store.get_nodes() == []
    assert not path.exists()  # reading makes nothing either
    store.add([passage("p", "x")])
    assert path.exists()
    store.close()


def test_payload_indexes_are_made_on_both_collections(tmp_path: Path) -> None:
    store = GeARVectorStore.from_path(
        tmp_path,
        embed_model=EMBED,
        embed_triples=True,
        collection_settings=CollectionSettings(payload_indexes=[{"field_name": "year", "field_schema": "integer"}]),
    )
    store.add([passage("p", "x", [("A", "is", "B")], metadata={"year": 3})])
    passages, triples = (
        set(store.client.get_collection(name).payload_schema)
        for name in (store.collection_name, store.triple_collection_name)
    )
    assert passages == {"doc_id", "year"}
    assert triples == {"entities", "passage_id", "doc_id", "aliases[].alias", "gear_unfinished", "metadata.year"}
    above = MetadataFilters(filters=[MetadataFilter(key="year", value=2, operator=FilterOperator.GT)])
    assert [node.node_id for node in store.get_nodes(filters=above)] == ["p"]
    assert len(read(store, above).passage_triples_flow(["p"], EMBED.get_query_embedding("A"), None)) == 1
    store.close()


def test_a_collection_of_another_program_is_not_touched(tmp_path: Path) -> None:
    client = EdgeClient(tmp_path)
    client.create_collection("gear", models.VectorParams(size=4, distance=models.Distance.COSINE))
    store = GeARVectorStore(client=client, embed_model=EMBED)
    for attempt in (lambda: store.get_nodes(), lambda: store.add([passage("p", "x")])):
        with pytest.raises(StoreError, match="made by another program"):
            attempt()
    assert client.count("gear").count == 0
    assert not client.collection_exists("gear_triples")
    store.close()


# -- what another embedding model left behind ----------------------------------------------------------------------


class Backwards(WordEmbedding):
    """Another embedding model of the same dimension, which reads every word backwards."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return super()._get_text_embedding(text[::-1])


def make_fact(name: str) -> Triple:
    return Triple(f"Entity {name}", "is told", "of it")


def make_passages(names: Sequence[str], embed_model: WordEmbedding) -> list[BaseNode]:
    bare = {name: passage(name, f"Entity {name} is told of.", embed_model=embed_model) for name in names}
    return [attach_triples(node, [make_fact(name)]) for name, node in bare.items()]


def test_passages_that_mostly_another_model_embedded(make_store: MakeStore) -> None:
    """A check finds them even if the first is the store's own; one alone may have been embedded with other words."""
    first, *rest = sorted((f"p{n}" for n in range(12)), key=point_id_of)
    for others, is_wrong in ((rest, True), ([first], False)):
        store = make_store()
        store.add(
            [
                *make_passages([name for name in (first, *rest) if name not in others], EMBED),
                *make_passages(others, Backwards()),
            ]
        )
        report = store.check()
        assert (report.wrong_embedder, report.triple_agreement) == (is_wrong, 1.0), report
        assert report.passage_agreement is not None and (report.passage_agreement > 0.999) != is_wrong


def test_triples_of_which_another_model_embedded_one(make_store: MakeStore) -> None:
    """A check reports a single triple, since the words that triples are embedded with are known."""
    store = make_store()
    first, *rest = sorted((f"p{n}" for n in range(12)), key=lambda name: make_fact(name).id(name))
    store.add(make_passages(rest, EMBED))
    assert store.check().ok
    GeARVectorStore(client=store.client, embed_model=Backwards()).add(make_passages([first], EMBED))
    report = store.check()
    assert report.wrong_embedder and report.triple_agreement is not None and report.triple_agreement < 0.5, report
    assert report.passage_agreement == 1.0


def test_more_damaged_passages_than_are_read_at_once_are_mended(make_store: MakeStore) -> None:
    small = WordEmbedding(8)
    store = make_store(embed_model=small)
    names = [f"p{n}" for n in range(260)]
    store.add(make_passages(names, small))
    store.client.delete(store.triple_collection_name, points_selector=[make_fact(name).id(name) for name in names])
    assert len(store.check(sample_size=0).incomplete) == 260
    report = store.repair()
    assert report.ok and report.triples == 260


# -- many callers --------------------------------------------------------------------------------------------------


def test_eight_threads_that_add_and_readers_beside_them_lose_nothing(make_store: MakeStore) -> None:
    store = make_store(embed_model=WordEmbedding(16), batch_size=5)
    small = WordEmbedding(16)
    store.add([passage("first", "first", [("First", "in", "Hub")], embed_model=small)])
    vector = small.get_query_embedding("Hub")
    done = threading.Event()

    def write(worker: int) -> None:
        for start in range(0, 20, 10):
            store.add(
                [
                    passage(
                        f"w{worker}-{n}", f"text {worker} {n}", [(f"E{worker}-{n}", "in", "Hub")], embed_model=small
                    )
                    for n in range(start, start + 10)
                ]
            )

    def read_all() -> int:
        rounds = 0
        while not done.is_set() or not rounds:
            (near,) = read(store).neighbors_flow([("hub",)], vector, [], 500)
            assert len({triple.id for triple in near}) == len(near) >= 1
            assert store.query(make_query("text", similarity_top_k=3)).ids
            assert read(store).link_flow(["Hub"], 3, vector)[0]
            assert len(store.get_nodes(["first"])) == 1
            rounds += 1
        return rounds

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(read_all) for _ in range(2)]
        writers = [pool.submit(write, worker) for worker in range(8)]
        try:
            for writer in writers:
                writer.result(timeout=120)
        finally:
            done.set()
        assert all(reader.result(timeout=120) for reader in readers)
    everyone = {f"w{worker}-{n}" for worker in range(8) for n in range(20)} | {"first"}
    assert {node.node_id for node in store.get_nodes()} == everyone
    assert len(contents(store)[store.triple_collection_name]) == len(everyone)


def test_eight_threads_that_make_the_same_new_store(make_store: MakeStore) -> None:
    store = make_store()
    barrier = threading.Barrier(8)

    def write(worker: int) -> None:
        barrier.wait(timeout=60)
        store.add([passage(f"w{worker}", "x", [("A", "is", "B")])])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert {node.node_id for node in store.get_nodes()} == {f"w{worker}" for worker in range(8)}


async def test_two_async_writers_and_readers_beside_them(make_store: MakeStore) -> None:
    """Writers replace and delete the same documents: no exception, no passage in two pieces, the last write holds."""
    small = WordEmbedding(16)
    store = make_store(embed_model=small, batch_size=2)

    def make_version(number: int, names: Sequence[int]) -> list[BaseNode]:
        return [
            passage(
                f"p{n}",
                f"Entity {n} has version V{number}.",
                [(f"Entity {n}", "has version", f"V{number}"), (f"Entity {n}", "is in", "Hub")],
                document=f"d{n % 3}",
                embed_model=small,
                metadata={"version": number},
            )
            for n in names
        ]

    async def write(first: int) -> None:
        for number in range(first, first + 8, 2):
            await store.async_add(make_version(number, range(9)))
            await store.adelete(f"d{number % 3}")

    done = asyncio.Event()

    async def read() -> int:
        rounds = 0
        while not done.is_set() or not rounds:
            found = await NaiveGERetriever(store, similarity_top_k=9).aretrieve(
                "Which version has Entity 3 in the Hub?"
            )
            for node in found:
                stated = {triple.object for triple in read_triples(node.node)}
                assert stated == {"Hub", f"V{node.node.metadata['version']}"}
                assert f"V{node.node.metadata['version']}." in node.node.get_content()
            rounds += 1
        return rounds

    readers = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.gather(write(0), write(1))
    await asyncio.gather(*(store.async_add(make_version(8 + first, range(first, 9, 2))) for first in (0, 1)))
    done.set()
    assert all(await asyncio.gather(*readers))
    assert (await store.acheck()).ok
    assert {node.node_id: node.metadata["version"] for node in store.get_nodes()} == {
        f"p{n}": 8 + n % 2 for n in range(9)
    }


class Noted:
    """A client that notes the threads in which it is called."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.threads: list[int] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.threads.append(threading.get_ident())
            return method(*arguments, **options)

        return call


async def test_async_methods_leave_the_event_loop_free() -> None:
    client = Noted(QdrantClient(":memory:"))
    store = GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True)  # type: ignore[arg-type]
    calls: dict[str, Callable[[], Any]] = {
        "async_add": lambda: store.async_add([passage("p", "x", [("A", "is", "B")], document="d")]),
        "aquery": lambda: store.aquery(make_query("x")),
        "aget_nodes": lambda: store.aget_nodes(),
        "aanswer": lambda: aread(store).passage_triples_flow(["p"], EMBED.get_query_embedding("A"), None),
        "adelete_nodes": lambda: store.adelete_nodes(["p"]),
        "adelete": lambda: store.adelete("d"),
    }
    for name, call in calls.items():
        client.threads.clear()
        await call()
        assert client.threads and threading.get_ident() not in client.threads, f"{name} stalled the event loop"


def test_a_store_with_only_an_async_client_says_which_methods_to_use() -> None:
    client = AsyncQdrantClient(":memory:")
    store = GeARVectorStore(aclient=client, embed_model=EMBED)
    with pytest.raises(StoreError, match="async methods"):
        store.get_nodes()

    async def use() -> list[str]:
        await store.async_add([passage("p", "x", [("A", "is", "B")])])
        found = await store.aquery(make_query("x"))
        await store.adelete_nodes(["p"])
        assert await store.aget_nodes() == []
        await client.close()
        return found.ids or []

    assert asyncio.run(use()) == ["p"]


# -- settings ------------------------------------------------------------------------------------------------------


def test_the_embedding_model_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"))
    monkeypatch.setattr(Settings, "_embed_model", MockEmbedding(embed_dim=4))
    assert len(connection_of(store).answer(EmbedQuery("x"))) == 4
    store.close()


def test_the_stemmer_speaks_the_language_that_was_chosen(make_store: MakeStore) -> None:
    sparse = VectorStoreQueryMode.SPARSE
    german = make_store(language="german")
    german.add([passage("p", "Die Häuser"), passage("q", "Das Boot")])
    assert german.query(make_query("Haus", mode=sparse)).ids == ["p"]
    english = make_store()
    english.add([passage("p", "Die Häuser"), passage("q", "Das Boot")])
    assert english.query(make_query("Haus", mode=sparse)).ids == []


def test_random_writes_leave_exactly_what_the_last_ones_say(make_store: MakeStore) -> None:
    """The store equals a dict that takes the same writes."""
    rng = random.Random(7)
    small = WordEmbedding(16)
    store = make_store(embed_model=small, batch_size=3)
    model: dict[str, tuple[str, set[str]]] = {}
    for _ in range(40):
        action = rng.random()
        names = [f"p{rng.randrange(8)}" for _ in range(rng.randint(1, 4))]
        if action < 0.6:
            nodes = []
            for name in names:
                facts = [(f"E{rng.randrange(4)}", "knows", f"E{rng.randrange(4)}") for _ in range(rng.randrange(4))]
                document = f"d{rng.randrange(3)}"
                nodes.append(passage(name, f"text {rng.random()}", facts, document=document, embed_model=small))
                model[name] = (document, {Triple(*fact).id(name) for fact in facts})
            store.add(nodes)
        elif action < 0.8:
            store.delete_nodes(names)
            model = {name: value for name, value in model.items() if name not in names}
        else:
            document = f"d{rng.randrange(3)}"
            store.delete(document)
            model = {name: value for name, value in model.items() if value[0] != document}
        assert {node.node_id for node in store.get_nodes()} == set(model)
        held = contents(store).get(store.triple_collection_name, {})
        assert set(held) == {triple for _, triples in model.values() for triple in triples}
        assert all(payload["doc_id"] == model[payload["passage_id"]][0] for payload, _ in held.values())


@pytest.mark.parametrize("make", [TextNode, Document])
def test_a_document_that_was_never_split_is_deleted_by_its_id(make_store: MakeStore, make: Any) -> None:
    store = make_store()
    for name in ("a", "b"):
        node = make(id_=name, text=f"text {name}", embedding=EMBED.get_text_embedding(name))
        store.add([attach_triples(node, [Triple(name, "is", "here")])])
    store.delete("None")
    assert len(store.get_nodes()) == 2
    store.delete("a")
    assert [node.node_id for node in store.get_nodes()] == ["b"]
    assert {payload["passage_id"] for payload, _ in contents(store)[store.triple_collection_name].values()} == {"b"}
    assert store.query(make_query("text", doc_ids=["b"])).ids == ["b"]


def test_a_collection_without_triples_has_an_answer_to_everything() -> None:
    """Every request has an answer in a collection that LlamaIndex's own Qdrant store made."""
    client = QdrantClient(":memory:")
    store = GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True)
    store.add([passage("p", "x", [("A", "is", "B")])])
    client.delete_collection(store.triple_collection_name)
    opened = GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True)
    vector = EMBED.get_query_embedding("A")
    known = Triple("A", "is", "B").id("p")
    assert read(opened).passage_triples_flow(["p"], vector, None) == []
    assert read(opened).neighbors_flow([("a",)], vector, [], 5) == [[]]
    assert read(opened).link_flow(["A"], 1, vector) == [[]]
    assert read(opened).fetch_triples_flow([known]) == {}
    assert read(opened).similarities_flow([([known], [known])]) == [[0.0]]
    assert [node.node_id for node in opened.get_nodes()] == ["p"]
    opened.add([passage("q", "x", [("A", "is", "C")])])
    assert len(read(opened).passage_triples_flow(["q"], vector, None)) == 1


def test_what_one_store_of_a_client_clears_is_gone_for_another() -> None:
    client = QdrantClient(":memory:")
    one, other = (GeARVectorStore(client=client, embed_model=EMBED) for _ in range(2))
    one.add([passage("p", "x", [("A", "is", "B")])])
    assert len(other.get_nodes()) == 1
    one.clear()
    assert other.get_nodes() == [] and read(other).fetch_triples_flow([Triple("A", "is", "B").id("p")]) == {}
    one.add([passage("q", "three dimensions", embed_model=WordEmbedding(3))])
    with pytest.raises(EmbeddingError, match="has 3"):
        other.add([passage("p", "x")])
    assert [node.node_id for node in other.get_nodes()] == ["q"]


class Served(QdrantClient):
    """Qdrant in memory that refuses to read a collection that is not there as a server does."""

    def __init__(self) -> None:
        super().__init__(":memory:")

    def scroll(self, collection_name: str, *arguments: Any, **options: Any) -> Any:
        if not self.collection_exists(collection_name):
            raise UnexpectedResponse(404, "Not Found", b'{"status": {"error": "Not found"}}', httpx.Headers())
        return super().scroll(collection_name, *arguments, **options)


SERVED: dict[str, Callable[[], QdrantClient]] = {"memory": Served}
if SERVER is not None:
    SERVED |= {name: partial(QdrantClient, prefer_grpc=name == "grpc", **SERVER_OPTIONS) for name in ("rest", "grpc")}


@pytest.mark.parametrize("make_client", SERVED.values(), ids=SERVED)
def test_a_store_that_another_process_cleared_is_written_and_deleted_from(
    make_client: Callable[[], QdrantClient],
) -> None:
    client, facts = make_client(), [("Ada", "met", "Bob")]
    one, other = (make_process(client, EMBED) for _ in range(2))
    other.clear()
    one.add([passage("p", "x", facts, document="d")])
    calls: list[Callable[[], Any]] = [
        lambda: one.add([passage("q", "y", facts, document="d")]),
        lambda: one.delete("d"),
        lambda: one.delete_nodes(["q"]),
    ]
    for call in calls:
        one.add([passage("p", "x", facts, document="d")])
        other.clear()
        call()
        assert one.check().ok and [node.node_id for node in one.get_nodes()] == (["q"] if call is calls[0] else [])
    one.clear()
    client.close()


@pytest.mark.parametrize("reembed", [False, True])
def test_a_collection_without_triples_is_mended(reembed: bool) -> None:
    client = QdrantClient(":memory:")
    store = GeARVectorStore(client=client, embed_model=EMBED)
    store.add([passage("p", "x", [("A", "is", "B")])])
    client.delete_collection(store.triple_collection_name)
    opened = GeARVectorStore(client=client, embed_model=EMBED)
    assert opened.check().incomplete == ("p",)
    assert opened.repair(reembed=reembed).ok and opened.check().triples == 1


def test_what_llama_index_s_own_store_wrote_is_in_order() -> None:
    """A check accepts its passages, even one of no document, whose name it writes as "None"."""

    def encode_words(texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        return [[1]] * len(texts), [[1.0]] * len(texts)

    client = QdrantClient(":memory:")
    qdrant_store = QdrantVectorStore(
        "gear", client=client, enable_hybrid=True, sparse_doc_fn=encode_words, sparse_query_fn=encode_words
    )
    one, other = (str(uuid.UUID(int=number)) for number in (1, 2))  # it takes no other ids
    qdrant_store.add([passage(one, "Ada met Bob.", metadata={"year": 1}), passage(other, "Bob met Cid.", document="d")])
    report = GeARVectorStore(client=client, embed_model=EMBED).check()
    assert report.ok and report.passages == 2, report


def make_long_passages(name: str, words: int, number: int = 1) -> list[BaseNode]:
    return [passage(f"{name}{count}", f"{name}1 " * words) for count in range(number)]


def find_averages(store: GeARVectorStore) -> set[float]:
    return set(read_averages(store).values())


def test_two_writers_of_an_empty_store_use_one_average_length(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writer begins when the first has learned, and ends before the first has written."""
    one = make_store()
    other, upsert = GeARVectorStore(client=one.client, embed_model=EMBED), one.client.upsert

    def write_between(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(one.client, "upsert", upsert)
        other.add(make_long_passages("b", 400))
        return upsert(*arguments, **options)

    monkeypatch.setattr(one.client, "upsert", write_between)
    one.add(make_long_passages("a", 200))
    assert find_averages(one) == {200.0} and len(one.get_nodes()) == 2


async def test_async_writers_of_an_empty_store_use_one_average_length(make_store: MakeStore) -> None:
    store = make_store(batch_size=1)
    await asyncio.gather(*(store.async_add(make_long_passages("abcd"[n], 200 + 40 * n, 5)) for n in range(4)))
    assert len(find_averages(store)) == 1


def test_a_store_that_was_cleared_during_a_write_learns_anew(tmp_path: Path) -> None:
    """The write goes on after the clearing, and does not use what was forgotten."""
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED, batch_size=1)
    store.add(make_long_passages("a", 300))
    claim = store._writes.locks.claim(None)
    claim.acquire()
    with ThreadPoolExecutor(2) as pool:
        clearing = pool.submit(store.clear)
        while len(store._writes.locks._claims) < 2:
            time.sleep(0.001)
        writing = pool.submit(store.add, make_long_passages("b", 100))
        while len(store._writes.locks._claims) < 3:
            time.sleep(0.001)
        claim.release()
        clearing.result(), writing.result()
    assert find_averages(store) == {100.0}
    store.close()


def test_the_average_length_is_learned_from_the_first_thousand_passages(make_store: MakeStore) -> None:
    small = WordEmbedding(8)
    store = make_store(embed_model=small)
    first = [passage(f"a{count}", "a1 b1 " * 50, embed_model=small) for count in range(1_000)]
    store.add([*first, *(passage(f"b{count}", "a1 " * 2_000, embed_model=small) for count in range(50))])
    assert find_averages(store) == {100.0}


def test_tenants_share_the_average_length(make_store: MakeStore) -> None:
    store = make_store(tenant_field="who")
    store.for_tenant("ann").add(make_long_passages("a", 200))
    store.for_tenant("bob").add(make_long_passages("b", 240))
    assert find_averages(store) == {200.0}
    store.for_tenant("ann").clear()
    store.for_tenant("cid").add(make_long_passages("c", 280))
    assert find_averages(store) == {200.0} and store.check().ok


def test_an_average_length_that_is_not_stored_is_that_of_the_stored_passages(make_store: MakeStore) -> None:
    """As where another program made the collection: `add`, `check`, `repair` and `copy_to` tell it from the texts."""
    store = make_store()
    store.add(make_long_passages("a", 300, 20))
    store.client.update_collection(store.collection_name, metadata={AVERAGE_KEY: None})
    kept = store.client.get_collection(store.collection_name).config.metadata
    assert kept["gear_format"] == 1 and not kept.get(AVERAGE_KEY)
    opened = GeARVectorStore(client=store.client, embed_model=EMBED)
    assert opened.check().ok
    stray = GeARVectorStore(
        client=store.client, embed_model=EMBED, collection_settings=CollectionSettings(bm25_avg_len=90.0)
    )
    stray.add(make_long_passages("b", 300))
    store.client.update_collection(store.collection_name, metadata={AVERAGE_KEY: None})
    opened = GeARVectorStore(client=store.client, embed_model=EMBED)
    assert opened.check().bm25_drift == 1
    opened.add(make_long_passages("c", 70))
    assert find_averages(opened) == {300.0, 90.0} and opened.check().bm25_drift == 1
    assert opened.repair().ok and find_averages(opened) == {300.0}
    source, target = make_store(), make_store()
    source.add(make_long_passages("d", 100))
    target.add(make_long_passages("e", 200))
    target.client.update_collection(target.collection_name, metadata={AVERAGE_KEY: None})
    target = GeARVectorStore(client=target.client, embed_model=EMBED)
    source.copy_to(target)
    assert find_averages(target) == {200.0}


def test_a_store_may_not_be_called_like_another_one_s_triples() -> None:
    with pytest.raises(ArgumentError, match="gear_triples"):
        GeARVectorStore(client=QdrantClient(":memory:"), collection_name="gear_triples")


async def test_adding_reads_no_passage_on_the_event_loop(make_store: MakeStore) -> None:
    """Checking and encoding passages, which would hold up the loop, happens in a thread."""
    readers: set[str] = set()

    class Watched(TextNode):
        def get_content(self, metadata_mode: MetadataMode = MetadataMode.NONE) -> str:
            readers.add(threading.current_thread().name)
            return super().get_content(metadata_mode)

        def get_embedding(self) -> list[float]:
            readers.add(threading.current_thread().name)
            return super().get_embedding()

    node = Watched(id_="p", text="x", embedding=EMBED.get_text_embedding("x"))
    store = make_store()
    await store.async_add([attach_triples(node, [Triple("A", "is", "B")])])
    assert readers and threading.current_thread().name not in readers
    readers.clear()
    store.add([node])
    assert readers == {threading.current_thread().name}


def test_a_wave_of_pagerank_is_one_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads no triple beyond a limit, and asks nothing for a group without members; hubs are not counted first.

    Memory is asked before the engine.
    """
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding())
    said = [("hub", "has", f"spoke {number}") for number in range(400)]
    store.add([passage(f"p{n}", f"spokes {n}", said[40 * n : 40 * n + 40]) for n in range(10)])
    read(store).incident_flow([(["hub"], [])], [1])  # the collections are found
    trips: list[str] = []
    sizes: list[int] = []
    call, ask = store._connection._call, store.client.query_batch_points

    def note_and_call(request: Any) -> Any:
        trips.append(request.method)
        return call(request)

    def note_and_ask(collection_name: str, requests: Any, **options: Any) -> Any:
        answers = ask(collection_name, requests, **options)
        sizes.extend(len(answer.points) for answer in answers)
        return answers

    monkeypatch.setattr(store._connection, "_call", note_and_call)
    monkeypatch.setattr(store.client, "query_batch_points", note_and_ask)
    groups: list[tuple[list[str], list[str]]] = [(["hub"], []), ([], []), (["spoke 7"], []), ([], ["p3"])]
    for limits, lengths in (([350, 9, 9, 50], [350, 0, 1, 40]), ([20, 9, 9, 30], [20, 0, 1, 30])):
        assert [len(answer) for answer in read(store).incident_flow(groups, limits)] == lengths
        assert trips == ["find_incidences", "query_batch_points"] and sizes == [length for length in lengths if length]
        trips.clear()
        sizes.clear()
    store.close()
