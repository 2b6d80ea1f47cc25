"""The contract of a store: what holds for a `GeARVectorStore` on every engine of Qdrant, sync and async.

A subclass of `StoreContract` has a fixture `make_store`, which makes stores on one engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, EmbeddingError, StoreError, TenantError, UnsupportedFilter
from llama_index_gear.flow import Flow, arun, run
from llama_index_gear.nodes import TRIPLES_KEY, attach_triples, read_triples
from llama_index_gear.store.access import connection_of, reads_of
from llama_index_gear.store.aliases import AliasPair
from llama_index_gear.store.check_and_repair import StoreReport
from llama_index_gear.store.filters import list_word_fields
from llama_index_gear.store.locks import PassageLocks
from llama_index_gear.store.schema import WRITE_FIELDS, point_id_of, to_node
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.triple import Candidate, Incidence, StoredTriple, Triple


def passage(
    node_id: str,
    text: str,
    triples: Iterable[Iterable[str]] = (),
    *,
    document: str | None = None,
    embed_model: BaseEmbedding | None = None,
    metadata: dict[str, Any] | None = None,
) -> BaseNode:
    """Make a passage as it reaches a store: with triples, an embedding and, if it has one, its source document."""
    node = TextNode(
        id_=node_id,
        text=text,
        metadata=metadata or {},
        embedding=(embed_model or WordEmbedding()).get_text_embedding(text),
        relationships={} if document is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)},
    )
    facts = [Triple(*fact) for fact in triples]
    return attach_triples(node, facts) if facts else node


def make_process(client: QdrantClient, embed_model: BaseEmbedding, **arguments: Any) -> GeARVectorStore:
    """Make a store as another process has it: with locks that it shares with nobody."""
    store = GeARVectorStore(client=client, embed_model=embed_model, **arguments)
    store._locks = locks = PassageLocks()
    store._collections.get_epoch = lambda: locks.epoch
    store._bind_to(store._tenancy)
    return store


@dataclass(frozen=True, eq=False)
class Vector:
    """A dense vector (component → value) or a sparse one (word → weight); equal if no value differs by over 1e-5."""

    values: dict[int, float]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector) or self.values.keys() != other.values.keys():
            return False
        return all(abs(value - other.values[index]) <= 1e-5 for index, value in self.values.items())

    __hash__ = None  # type: ignore[assignment]  # equality with a tolerance allows no hash


Contents: TypeAlias = dict[str, dict[str, tuple[dict[str, Any], dict[str, Vector]]]]


def contents(store: GeARVectorStore) -> Contents:
    """Return all that a store holds: collection → point id → (payload, vectors by name). The store needs a sync client.

    The names of writes, which differ each time, are left out of the payloads.

    Compare two results with `==`: vectors are compared with a tolerance, everything else exactly.
    """
    collections: Contents = {}
    for name in (store.collection_name, store.triple_collection_name):
        if not store.client.collection_exists(name):
            continue
        points: dict[str, tuple[dict[str, Any], dict[str, Vector]]] = {}
        offset = None
        while True:
            page, offset = store.client.scroll(name, limit=1000, offset=offset, with_payload=True, with_vectors=True)
            for point in page:
                payload = {key: value for key, value in point.payload.items() if key not in WRITE_FIELDS}
                points[str(point.id)] = (payload, {key: _vector(value) for key, value in point.vector.items()})
            if offset is None:
                break
        collections[name] = points
    return collections


def _payloads(store: GeARVectorStore) -> dict[str, dict[str, str]]:
    """Return all payloads as text: collection → point id → JSON, its keys sorted, since a server keeps no order."""
    return {
        name: {point_id: json.dumps(payload, sort_keys=True) for point_id, (payload, _) in points.items()}
        for name, points in contents(store).items()
    }


def _vector(vector: Any) -> Vector:
    if hasattr(vector, "indices"):
        return Vector(dict(zip(vector.indices, vector.values, strict=True)))
    return Vector(dict(enumerate(vector)))


class _Reader:
    def __init__(self, source: Any, filters: MetadataFilters | None, drive: Callable[[Flow[Any]], Any]) -> None:
        self._source, self._filters, self._drive = source, filters, drive

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            is_store = isinstance(self._source, GeARVectorStore)
            reads = reads_of(self._source, self._filters) if is_store else self._source.reads
            return self._drive(getattr(reads, name)(*arguments, **options))

        return call


def read(source: Any, filters: MetadataFilters | None = None) -> Any:
    """Return an object that drives what reads a store or a graph: `read(store).link_flow(…)` is the flow's result."""
    return _Reader(source, filters, lambda flow: run(flow, source._connection.answer))


def aread(source: Any, filters: MetadataFilters | None = None) -> Any:
    """`read`, for results to await."""
    return _Reader(source, filters, lambda flow: arun(flow, source._connection.aanswer))


class Driver:
    """A store whose calls all run in one mode: the sync methods, or their async twins on an event loop."""

    def __init__(self, store: GeARVectorStore, runner: asyncio.Runner | None = None) -> None:
        self.store = store
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        """Return the method of this name, or its async twin on the loop."""
        runner = self._runner
        if runner is None:
            return getattr(self.store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await getattr(self.store, "async_add" if name == "add" else f"a{name}")(*arguments, **options)

        return lambda *arguments, **options: runner.run(call(*arguments, **options))

    def query(self, text: str, mode: VectorStoreQueryMode, **options: Any) -> VectorStoreQueryResult:
        """`query` or `aquery`, for a text; 10 passages by default."""
        options = {"similarity_top_k": 10, **options}
        result: VectorStoreQueryResult = self.__getattr__("query")(
            VectorStoreQuery(query_str=text, mode=mode, **options)
        )
        return result

    def read(self, filters: MetadataFilters | None = None) -> Any:
        """`read`, or `aread`."""
        runner = self._runner
        if runner is None:
            return read(self.store, filters)

        async def drive(flow: Flow[Any]) -> Any:
            return await arun(flow, connection_of(self.store).aanswer)

        return _Reader(self.store, filters, lambda flow: runner.run(drive(flow)))


@contextmanager
def _raises(expected: type[Exception], words: str = "") -> Iterator[None]:
    try:
        yield
    except expected as error:
        assert words in str(error)
        return
    raise AssertionError(f"{expected.__name__} was not raised")


def _is(key: str, value: Any = None, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


def _and(*filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=FilterCondition.AND)


def _or(*filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=FilterCondition.OR)


def _not(*filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=FilterCondition.NOT)


class _BackwardsEmbedding(WordEmbedding):
    """Another model of the same dimension, which reads every word backwards."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return super()._get_text_embedding(text[::-1])


_EMBED = WordEmbedding()
_DEFAULT, _SPARSE, _HYBRID = VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID

_SON = ("Stephen Curry", "is a son of", "Dell Curry")
_JOINED = ("Dell Curry", "joined", "Charlotte Hornets")
_PLAYS = ("Charlotte Hornets", "play in", "North Carolina")
_DRAFTED = ("Wardell Curry", "was drafted by", "Utah Jazz")
_OTHER_DELL = ("W. Curry", "teaches at", "Elon University")


def _aliased(prefix: str = "") -> list[BaseNode]:
    """Make three passages that write one person's name in three ways."""
    facts = {"p-son": (_SON, 2009), "p-drafted": (_DRAFTED, 1986), "p-other": (_OTHER_DELL, 2009.5)}
    return [
        passage(prefix + name, "Text.", [fact], document=prefix + name.replace("p-", "d-"), metadata={"year": year})
        for name, (fact, year) in facts.items()
    ]


def _curry() -> list[BaseNode]:
    """Make four passages of three documents. The first and the last state the same fact; all share entities."""
    return [
        passage("p-son", "Stephen Curry is a son of Dell Curry.", [_SON], document="d-1", metadata={"year": 1988}),
        passage("p-joined", "Dell Curry joined the Charlotte Hornets.", [_JOINED, _SON], document="d-2"),
        passage("p-plays", "The Charlotte Hornets play in North Carolina.", [_PLAYS], document="d-2"),
        passage("p-again", "Dell Curry has a son, Stephen.", [_SON], document="d-3", metadata={"year": 2009}),
    ]


_LETTERS = [
    ("A", "alpha gamma"),
    ("B", "beta delta"),
    ("C", "beta epsilon zeta"),
    ("D", "beta eta theta iota"),
    ("E", "omega kappa"),
]
_QUESTION = "alpha beta beta beta"
"""Dense, "beta" is three quarters of the question: B (3/√(10·2) = 0.67), C (3/√(10·3)), D (3/√(10·4)), A (1/√(10·2)),
E (0). BM25 counts a word once and "alpha" is the rare one: A, then B, C, D by length; E is no hit."""

# fmt: off
_TABLE: dict[str, dict[str, Any]] = {
    "n0": {"year": 1990, "price": 0.5, "kind": "a", "title": "red house by the sea", "tags": ["x", "y"], "big": 2**40,
           "labels": ["red house", "the sea"]},
    "n1": {"year": 1995, "price": 1.5, "kind": "b", "title": "blue house", "tags": ["y"], "note": None},
    "n2": {"year": 2000, "price": 1.5, "kind": "c", "title": "red boat", "tags": [], "note": "seen"},
    "n3": {"year": 2005, "price": 2.5, "kind": "a", "title": "a sea of houses", "note": [],
           "a": {"b": 1}, "floats": [0.1 + 0.2]},
    "n4": {"year": 2010, "kind": "日本", "nested": {"deep": {"level": 3}},
           "words": {"deep": "Die Größe, हिन्दी"}, "dash-ed": "z", "page label": "iv",
           "nodes": "mine", "relations": ["kin"], "gear_extraction": {"outcome": "truncated", "calls": 1}, "a.b": 1,
           "br[0]": 2, "a": {"b": 3}},
    "n5": {},
}
# fmt: on
_O = FilterOperator
_TEXT_INDEXES = [{"field_name": key, "field_schema": "text"} for key in ("title", "labels", "words.deep")]
_UUID = "123e4567-e89b-12d3-a456-426614174000"
_MIXED: list[Any] = [
    *(
        0,
        1840,
        1840.0,
        4.5,
        2**60,
        True,
        False,
        None,
        "",
        "x",
        "about 1840",
        "1840",
        "2024-01-05",
        _UUID,
        _UUID.upper(),
    ),
    *([1840, 4.5], ["x", 5], ["x", "y z"], [], [[1840], ["x"]], [1840.0, "x", None], {"lat": 1.0, "lon": 2.0}),
]
"""Values of one field, of all kinds."""
_FILTERS: list[tuple[MetadataFilters, str]] = [
    (_and(), "n0 n1 n2 n3 n4 n5"),
    (_and(_is("kind", "a")), "n0 n3"),
    (_and(_is("kind", "日本")), "n4"),
    (_and(_is("year", 1995)), "n1"),
    (_and(_is("year", 1995.0)), "n1"),
    (_and(_is("year", "1995")), ""),
    (_and(_is("price", 1.5)), "n1 n2"),
    (_and(_is("big", 2**40)), "n0"),
    (_and(_is("tags", "y")), "n0 n1"),
    (_and(_is("nested.deep.level", 3)), "n4"),
    (_and(_is("dash-ed", "z")), "n4"),
    (_and(_is("page label", "iv")), "n4"),
    (_and(_is("page label", operator=_O.IS_EMPTY)), "n0 n1 n2 n3 n5"),
    (_and(_is("nodes", "mine")), "n4"),
    (_not(_is("nodes", "mine"), _is("relations", "kin")), "n0 n1 n2 n3 n5"),
    (_and(_is("relations", operator=_O.IS_EMPTY)), "n0 n1 n2 n3 n5"),
    (_and(_is("gear_extraction", operator=_O.IS_EMPTY)), "n0 n1 n2 n3 n5"),
    (_and(_is("gear_extraction.outcome", "truncated")), "n4"),
    (_not(_is("gear_extraction.outcome", "truncated")), "n0 n1 n2 n3 n5"),
    (_and(_is("kind", "a", _O.NE)), "n1 n2 n4"),
    (_and(_is("year", 2000, _O.NE)), "n0 n1 n3 n4"),
    (_and(_is("year", 2000, _O.GT)), "n3 n4"),
    (_and(_is("year", 2000, _O.GTE)), "n2 n3 n4"),
    (_and(_is("year", 2000, _O.LT)), "n0 n1"),
    (_and(_is("year", 2000, _O.LTE)), "n0 n1 n2"),
    (_and(_is("price", 1.5, _O.GT)), "n3"),
    (_and(_is("kind", ["a", "c"], _O.IN)), "n0 n2 n3"),
    (_and(_is("kind", "a,c", _O.IN)), "n0 n2 n3"),
    (_and(_is("year", [1990, 2010], _O.IN)), "n0 n4"),
    (_and(_is("tags", ["x", "y"], _O.IN)), "n0 n1"),
    (_and(_is("kind", [], _O.IN)), ""),
    (_and(_is("kind", ["a", "c"], _O.NIN)), "n1 n4"),
    (_and(_is("year", [1990, 2010], _O.NIN)), "n1 n2 n3"),
    (_and(_is("title", "red", _O.TEXT_MATCH)), "n0 n2"),
    (_and(_is("title", "sea red", _O.TEXT_MATCH)), "n0"),
    (_and(_is("title", "RED", _O.TEXT_MATCH_INSENSITIVE)), "n0 n2"),
    (_and(_is("title", "SEA, red-house!", _O.TEXT_MATCH)), "n0"),
    (_and(_is("title", "hous", _O.TEXT_MATCH)), ""),
    (_and(_is("title", "a", _O.TEXT_MATCH)), "n3"),
    (_and(_is("title", "", _O.TEXT_MATCH)), ""),
    (_and(_is("title", "+", _O.TEXT_MATCH)), ""),
    (_and(_is("title", "red + sea", _O.TEXT_MATCH)), "n0"),
    (_not(_is("title", "red", _O.TEXT_MATCH)), "n1 n3 n4 n5"),
    (_and(_is("labels", "house sea", _O.TEXT_MATCH)), "n0"),
    (_and(_is("labels", "house boat", _O.TEXT_MATCH)), ""),
    (_and(_is("words.deep", "größe", _O.TEXT_MATCH)), "n4"),
    (_and(_is("words.deep", "हिन्दी", _O.TEXT_MATCH)), "n4"),
    (_and(_is("note", operator=_O.IS_EMPTY)), "n0 n1 n3 n4 n5"),
    (_and(_is("tags", operator=_O.IS_EMPTY)), "n2 n3 n4 n5"),
    (_and(_is("unknown", "a")), ""),
    (_and(_is("unknown", 3, _O.GT)), ""),
    (_and(_is("unknown", operator=_O.IS_EMPTY)), "n0 n1 n2 n3 n4 n5"),
    (_and(_is("kind", "a"), _is("year", 2000, _O.GT)), "n3"),
    (_or(_is("kind", "b"), _is("year", 2000, _O.GT)), "n1 n3 n4"),
    (_not(_is("kind", "a"), _is("kind", "b")), "n2 n4 n5"),
    (_and(_or(_is("kind", "a"), _is("kind", "b")), _not(_is("year", 1990))), "n1 n3"),
    (_or(_and(_is("kind", "a"), _is("year", 1990)), _and(_is("kind", "c"), _is("price", 1.5))), "n0 n2"),
    (_not(_or(_is("kind", "a"), _and(_is("price", 1.5), _not(_is("kind", "c"))))), "n2 n4 n5"),
    (MetadataFilters(filters=[_is("kind", "a"), _is("year", 2000, _O.GT)], condition=None), "n3"),
    (MetadataFilters(filters=[], condition=None), "n0 n1 n2 n3 n4 n5"),
    (_and(_is("kind", [], _O.NIN)), "n0 n1 n2 n3 n4"),
    (_and(_is("price", [0.5, 2.5], _O.IN)), "n0 n3"),
    (_and(_is("price", [0.5, 2.5], _O.NIN)), "n1 n2"),
    (_and(_is("price", 1.5, _O.NE)), "n0 n3"),
    (_and(_is("floats", 0.3)), "n3"),
    (_and(_is("tags", "y", _O.CONTAINS)), "n0 n1"),
    (_and(_is("kind", "a", _O.CONTAINS)), ""),
    (_not(_is("tags", "y", _O.CONTAINS)), "n2 n3 n4 n5"),
    (_and(_is("floats", 0.1 + 0.2, _O.CONTAINS)), "n3"),
    (_and(_is("tags", ["x", "z"], _O.ANY)), "n0"),
    (_and(_is("tags", [], _O.ANY)), ""),
    (_and(_is("tags", ["x", "y"], _O.ALL)), "n0"),
    (_and(_is("a.b", 1)), "n3 n4"),
    (_and(_is("a.b", 3)), "n4"),
    (_not(_is("a.b", 1)), "n0 n1 n2 n5"),
    (_and(_is("a.b", 1, _O.NE)), ""),
    (_and(_is("a.b", 9, _O.NE)), "n3 n4"),
    (_and(_is("a.b", [9], _O.NIN)), "n3 n4"),
    (_and(_is("a.b", 1, _O.GT)), "n4"),
    (_and(_is("a.b", operator=_O.IS_EMPTY)), "n0 n1 n2 n5"),
    (_and(_is("br[0]", 2)), "n4"),
    (_and(_is("br[0]", operator=_O.IS_EMPTY)), "n0 n1 n2 n3 n5"),
]


class StoreContract:
    """The contract of a `GeARVectorStore` on any Qdrant, as a pytest suite.

    A subclass provides the fixture `make_store`: a function that returns a `GeARVectorStore` over fresh, empty storage.
    It uses `embed_model=WordEmbedding()` unless its keyword arguments say otherwise, and passes them to the store. It
    may choose `embed_triples`: the tests that need vectors of triples, or none, say so.
    Every test runs twice: with the sync methods and with the async methods.

    Attributes:
        many_passages: number of passages in the tests of paging.
        many_triples: number of triples that one passage, and one entity, must be able to have.

    """

    many_passages = 1_100
    many_triples = 10_000

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Run each test in both modes."""
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", ["sync", "async"])

    def setup_method(self) -> None:
        """Make one event loop a test, so that an async client's connections live as long."""
        self._runner = asyncio.Runner()

    def teardown_method(self) -> None:
        """Close the loop."""
        self._runner.close()

    def drive(self, store: GeARVectorStore, mode: str) -> Driver:
        """Return a driver of the store, in one mode."""
        return Driver(store, self._runner if mode == "async" else None)

    # -- passages ------------------------------------------------------------------------------------------------

    def test_what_is_added_comes_back(self, make_store: Any, mode: str) -> None:
        """`get_nodes` returns ids, text, metadata, document and embedding, in the order of the ids."""
        do = self.drive(make_store(), mode)
        nodes = _curry()
        assert do.add(nodes) == ["p-son", "p-joined", "p-plays", "p-again"]
        asked = ["p-plays", "p-son", "unknown", "p-again", "p-son"]
        stored = do.get_nodes(asked)
        assert [node.node_id for node in stored] == ["p-plays", "p-son", "p-again"]
        by_id = {node.node_id: node for node in nodes}
        for node in stored:
            given = by_id[node.node_id]
            assert type(node) is type(given)
            assert node.get_content() == given.get_content()
            assert node.metadata == given.metadata
            assert node.ref_doc_id == given.ref_doc_id
            assert node.excluded_llm_metadata_keys == given.excluded_llm_metadata_keys
            np.testing.assert_allclose(node.get_embedding(), given.get_embedding(), atol=1e-6)
        assert {node.node_id for node in do.get_nodes()} == set(by_id)
        fetched = do.read().get_flow(asked, vectors=False)
        assert [node.node_id for node in fetched] == ["p-plays", "p-son", "p-again"]

    def test_node_ids_need_not_be_uuids(self, make_store: Any, mode: str) -> None:
        """Any text can be an id, and is returned unchanged."""
        do = self.drive(make_store(), mode)
        ids = [
            "passage 1",
            "7",
            "0B0F1A2E-2C5D-4A35-9D4F-3C0A1E2B7C11",  # a UUID, in capitals
            "0b0f1a2e-2c5d-4a35-9d4f-3c0a1e2b7c11",
            "日本/🎈",
            "a" * 500,
        ]
        nodes = [passage(node_id, f"text {number}", [(f"S{number}", "is", "O")]) for number, node_id in enumerate(ids)]
        assert do.add(nodes) == ids
        assert [(node.node_id, node.get_content()) for node in do.get_nodes(ids)] == [
            (node_id, f"text {number}") for number, node_id in enumerate(ids)
        ]
        assert set(do.query("text", _DEFAULT).ids or []) == set(ids)
        assert {passage_id for passage_id, *_ in _triples(do, ids)} == set(ids)
        do.delete_nodes([ids[2]])
        assert [node.node_id for node in do.get_nodes(ids)] == [*ids[:2], *ids[3:]]

    def test_limit(self, make_store: Any, mode: str) -> None:
        """`limit` bounds the number of passages, with and without ids."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        assert len(do.get_nodes(limit=3)) == 3
        assert len(do.get_nodes(limit=30)) == 4
        assert [node.node_id for node in do.get_nodes(["p-plays", "p-son", "p-again"], limit=2)] == ["p-plays", "p-son"]
        assert do.get_nodes([]) == []

    def test_more_passages_than_a_page(self, make_store: Any, mode: str) -> None:
        """All passages are read and deleted, not just the first page."""
        small = WordEmbedding(8)
        do = self.drive(make_store(embed_model=small), mode)
        count = self.many_passages
        do.add([passage(f"n{n}", f"passage {n}", embed_model=small, metadata={"odd": n % 2}) for n in range(count)])
        assert {node.node_id for node in do.get_nodes()} == {f"n{n}" for n in range(count)}
        asked = [f"n{n}" for n in reversed(range(count))]
        assert [node.node_id for node in do.get_nodes(asked)] == asked
        do.delete_nodes(filters=_and(_is("odd", 1)))
        assert {node.node_id for node in do.get_nodes()} == {f"n{n}" for n in range(0, count, 2)}

    # -- writing -------------------------------------------------------------------------------------------------

    def test_writing_twice_changes_nothing(self, make_store: Any, mode: str) -> None:
        """A second write leaves the same points, payloads and vectors in both collections."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        before = contents(do.store)
        assert {name: len(points) for name, points in before.items()} == {
            do.store.collection_name: 4,
            do.store.triple_collection_name: 5,
        }
        do.add(_curry())
        assert contents(do.store) == before
        do.add(do.get_nodes())
        assert contents(do.store) == before

    def test_a_replaced_passage_replaces_its_triples(self, make_store: Any, mode: str) -> None:
        """Outdated triples go, kept ones get the new metadata, other passages keep theirs."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        others = _triples(do, ["p-son", "p-plays", "p-again"])
        do.add([passage("p-joined", "New text.", [_SON, _PLAYS], document="d-9", metadata={"year": 7})])
        assert _triples(do, ["p-joined"]) == {("p-joined", *_SON), ("p-joined", *_PLAYS)}
        assert _triples(do, ["p-joined"], _and(_is("year", 7))) == {("p-joined", *_SON), ("p-joined", *_PLAYS)}
        assert _triples(do, ["p-son", "p-plays", "p-again"]) == others
        (node,) = do.get_nodes(["p-joined"])
        assert (node.get_content(), node.metadata["year"], node.ref_doc_id) == ("New text.", 7, "d-9")
        assert read_triples(node) == [Triple(*_SON), Triple(*_PLAYS)]
        do.delete("d-2")  # its old document
        assert _triples(do, ["p-joined"]) == {("p-joined", *_SON), ("p-joined", *_PLAYS)}
        do.add([passage("p-joined", "Nothing said.", document="d-9")])
        assert _triples(do, ["p-joined"]) == set()
        assert len(do.get_nodes()) == 3

    def test_a_node_named_twice_in_one_call_counts_once(self, make_store: Any, mode: str) -> None:
        """The last of two nodes with one id is stored, with its triples only."""
        do = self.drive(make_store(), mode)
        assert do.add([passage("p", "first", [_SON]), passage("p", "last", [_JOINED])]) == ["p", "p"]
        assert [node.get_content() for node in do.get_nodes()] == ["last"]
        assert _triples(do, ["p"]) == {("p", *_JOINED)}

    def test_the_caller_s_nodes_stay_as_they_are(self, make_store: Any, mode: str) -> None:
        """`add` does not change the nodes that it gets."""
        do = self.drive(make_store(), mode)
        nodes = _curry()
        before = [node.to_dict() for node in nodes]
        do.add(nodes)
        assert [node.to_dict() for node in nodes] == before

    def test_what_changed_since_it_was_read_is_left(self, make_store: Any, mode: str) -> None:
        """With `if_unchanged_since`, `add` writes only passages that are unchanged, and returns their ids in order."""
        do = self.drive(make_store(batch_size=2), mode)
        do.add(_curry())
        ids = ["p-son", "p-joined", "p-plays", "p-again"]
        read = do.get_nodes(ids)
        do.add([passage("p-joined", "Edited.", [_PLAYS])])
        do.delete_nodes(["p-plays"])
        given = [passage(node_id, "Come of what was read.", [_JOINED]) for node_id in ids]
        assert do.add(given, if_unchanged_since=read) == ["p-son", "p-again"]
        texts = {node.node_id: node.get_content() for node in do.get_nodes()}
        assert texts == {**dict.fromkeys(["p-son", "p-again"], "Come of what was read."), "p-joined": "Edited."}
        assert _all_triples(do) == {("p-son", *_JOINED), ("p-joined", *_PLAYS), ("p-again", *_JOINED)}
        assert do.add(given[:2]) == ids[:2]

    def test_delete_a_document(self, make_store: Any, mode: str) -> None:
        """A document's passages and their triples go; other passages keep the same facts and entities."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        do.delete("d-2")
        assert {node.node_id for node in do.get_nodes()} == {"p-son", "p-again"}
        assert _all_triples(do) == {("p-son", *_SON), ("p-again", *_SON)}
        do.delete("unknown")
        assert len(do.get_nodes()) == 2

    def test_delete_by_ids(self, make_store: Any, mode: str) -> None:
        """Passages with these ids go, with their triples; unknown ids are ignored."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        do.delete_nodes(["p-son", "unknown"])
        assert {node.node_id for node in do.get_nodes()} == {"p-joined", "p-plays", "p-again"}
        assert _all_triples(do) == {
            ("p-joined", *_JOINED),
            ("p-joined", *_SON),
            ("p-plays", *_PLAYS),
            ("p-again", *_SON),
        }
        do.delete_nodes([])
        assert len(do.get_nodes()) == 3

    def test_delete_by_filters(self, make_store: Any, mode: str) -> None:
        """Passages that match go, with their triples."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        do.delete_nodes(filters=_and(_is("year", 2000, _O.LT)))
        assert {node.node_id for node in do.get_nodes()} == {"p-joined", "p-plays", "p-again"}
        assert ("p-son", *_SON) not in _all_triples(do)
        assert len(_all_triples(do)) == 4

    def test_delete_by_ids_and_filters(self, make_store: Any, mode: str) -> None:
        """Only passages that have one of the ids and match go."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        do.delete_nodes(["p-son", "p-joined"], _and(_is("year", 1900, _O.GT)))
        assert {node.node_id for node in do.get_nodes()} == {"p-joined", "p-plays", "p-again"}
        do.delete_nodes(["p-joined"], _or(_is("year", 2009), _is("year", 1988)))
        assert {node.node_id for node in do.get_nodes()} == {"p-joined", "p-plays", "p-again"}
        assert len(_all_triples(do)) == 4

    def test_delete_spares_the_triples_of_what_does_not_match(self, make_store: Any, mode: str) -> None:
        """A passage keeps its triples, even if the filter matches what their metadata lacks."""
        do = self.drive(make_store(), mode)
        do.add(
            [passage("raw", "x"), passage("done", "x", [_SON], metadata={"gear_extraction": {"outcome": "extracted"}})]
        )
        do.delete_nodes(filters=_and(_is("gear_extraction.outcome", operator=_O.IS_EMPTY)))
        assert [node.node_id for node in do.get_nodes()] == ["done"] and _all_triples(do) == {("done", *_SON)}

    def test_delete_no_ids(self, make_store: Any, mode: str) -> None:
        """An empty list of ids deletes nothing, whatever the filters match."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        before = contents(do.store)
        for filters in (None, _and(), _and(_is("year", 1988)), _not(_is("year", 1))):
            do.delete_nodes([], filters)
            assert contents(do.store) == before

    def test_delete_nodes_needs_to_be_told_which(self, make_store: Any, mode: str) -> None:
        """Neither ids nor filters is an error, not a request to delete everything."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        for filters in (None, _and(), MetadataFilters(filters=[], condition=None)):
            with _raises(ArgumentError):
                do.delete_nodes(None, filters)
        for filters in (_or(), _not(), _and(_and()), _or(_or()), _not(_not()), _and(_is("year", 1), _or())):
            for node_ids in (None, ["p-son"]):
                with _raises(UnsupportedFilter):
                    do.delete_nodes(node_ids, filters)
        for document in ("", None):
            with _raises(ArgumentError):
                do.delete(document)
        assert len(do.get_nodes()) == 4

    def test_clear(self, make_store: Any, mode: str) -> None:
        """Nothing is left, and the store can be filled again, even with another dimension."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        do.clear()
        assert contents(do.store) == {}
        assert do.get_nodes() == []
        do.clear()
        do.add([passage("p", "three dimensions", embed_model=WordEmbedding(3))])
        assert [node.node_id for node in do.get_nodes()] == ["p"]

    def test_an_empty_store_has_an_answer_to_everything(self, make_store: Any, mode: str) -> None:
        """Every call returns an empty answer, before the first write and after everything was deleted."""
        do = self.drive(make_store(), mode)
        vector = _EMBED.get_query_embedding("Curry")
        for _ in range(2):
            do.delete("d-1")
            do.delete_nodes(["p-son"])
            do.delete_nodes(filters=_and(_is("year", 1988)))
            assert do.get_nodes() == []
            assert do.get_nodes(["p-son"]) == []
            assert do.get_nodes(filters=_and(_is("year", 1988))) == []
            for query_mode in (_DEFAULT, _SPARSE, _HYBRID):
                result = do.query("Curry", query_mode)
                assert (result.nodes, result.similarities, result.ids) == ([], [], [])
            assert do.read().link_flow(["a", "b"], 5, vector) == [[], []]
            assert do.read().link_flow([], 5, vector) == []
            assert do.read().passage_triples_flow(["p-son"], vector, None) == []
            assert do.read().passage_triples_flow([], vector, 5) == []
            assert do.read().neighbors_flow([("dell curry",), ("nba",)], vector, [], 5) == [[], []]
            assert do.read().neighbors_flow([], vector, [], 5) == []
            assert do.read().incident_flow([(["nba"], []), ([], ["p-son"])], [5, 5]) == [[], []]
            assert do.read().incident_flow([], []) == []
            assert do.read().fetch_triples_flow([Triple(*_SON).id("p-son")]) == do.read().fetch_triples_flow([]) == {}
            assert do.read().similarities_flow([]) == []
            assert do.read().get_flow(["p-son"], vectors=False) == []
            assert do.read().get_flow([], vectors=False) == []
            assert do.add([]) == []
            do.add(_curry())
            do.delete_nodes([node.node_id for node in _curry()])

    # -- base search ---------------------------------------------------------------------------------------------

    def test_dense_search(self, make_store: Any, mode: str) -> None:
        """Passages come best first by cosine, for a text or its embedding."""
        do = self.drive(make_store(), mode)
        do.add([passage(node_id, text) for node_id, text in _LETTERS])
        result = do.query(_QUESTION, _DEFAULT)
        assert result.ids == ["B", "C", "D", "A", "E"]
        vector = np.array(_EMBED.get_query_embedding(_QUESTION))
        texts = dict(_LETTERS)
        cosines = [float(vector @ _EMBED.get_text_embedding(texts[node_id])) for node_id in result.ids]
        np.testing.assert_allclose(result.similarities or [], cosines, atol=1e-5)
        assert [node.node_id for node in result.nodes or []] == result.ids
        assert do.query(_QUESTION, _DEFAULT, similarity_top_k=2).ids == ["B", "C"]
        given = do.query("", _DEFAULT, query_embedding=vector.tolist())
        assert given.ids == result.ids

    def test_sparse_search(self, make_store: Any, mode: str) -> None:
        """BM25 weighs rare words more; a passage that shares no word is no hit."""
        do = self.drive(make_store(), mode)
        do.add([passage(node_id, text) for node_id, text in _LETTERS])
        result = do.query(_QUESTION, _SPARSE)
        assert result.ids == ["A", "B", "C", "D"]
        scores = result.similarities or []
        assert scores == sorted(scores, reverse=True)
        assert scores[0] > 2 * scores[1] > 0
        assert do.query(_QUESTION, _SPARSE, sparse_top_k=1).ids == ["A"]
        assert do.query("nothing like it", _SPARSE).ids == []
        assert do.query("", _SPARSE).ids == []

    def test_hybrid_search(self, make_store: Any, mode: str) -> None:
        """Reciprocal rank fusion of both, k = 60: `alpha/(60 + dense rank) + (1 - alpha)/(60 + sparse rank)`."""
        do = self.drive(make_store(), mode)
        do.add([passage(node_id, text) for node_id, text in _LETTERS])
        expected = {
            "B": 0.5 / (60 + 1) + 0.5 / (60 + 2),
            "A": 0.5 / (60 + 4) + 0.5 / (60 + 1),
            "C": 0.5 / (60 + 2) + 0.5 / (60 + 3),
            "D": 0.5 / (60 + 3) + 0.5 / (60 + 4),
            "E": 0.5 / (60 + 5),
        }
        result = do.query(_QUESTION, _HYBRID)
        assert result.ids == list(expected)
        np.testing.assert_allclose(result.similarities or [], list(expected.values()), rtol=1e-9)
        tilted = do.query(_QUESTION, _HYBRID, alpha=0.2, hybrid_top_k=2)
        assert tilted.ids == ["A", "B"]
        np.testing.assert_allclose(
            tilted.similarities or [], [0.2 / (60 + 4) + 0.8 / (60 + 1), 0.2 / (60 + 1) + 0.8 / (60 + 2)], rtol=1e-9
        )
        narrow = do.query(_QUESTION, _HYBRID, similarity_top_k=2, sparse_top_k=1)
        assert narrow.ids == ["A", "B"] or narrow.ids == ["B", "A"]  # 0.5/61 each

    def test_search_within_documents_and_nodes(self, make_store: Any, mode: str) -> None:
        """`doc_ids`, `node_ids` and filters all apply, in every mode."""
        do = self.drive(make_store(), mode)
        do.add(
            [
                passage(node_id, text, document="odd" if number % 2 else "even", metadata={"number": number})
                for number, (node_id, text) in enumerate(_LETTERS)
            ]
        )
        for query_mode, even in ((_DEFAULT, {"A", "C", "E"}), (_SPARSE, {"A", "C"}), (_HYBRID, {"A", "C", "E"})):
            assert set(do.query(_QUESTION, query_mode, doc_ids=["even"]).ids or []) == even
            assert set(do.query(_QUESTION, query_mode, node_ids=["B", "D", "?"]).ids or []) == {"B", "D"}
            both = do.query(_QUESTION, query_mode, doc_ids=["even"], filters=_and(_is("number", 1, _O.GT)))
            assert set(both.ids or []) == even - {"A"}
            assert do.query(_QUESTION, query_mode, doc_ids=["even"], node_ids=["B"]).ids == []

    def test_what_a_query_cannot_mean_raises(self, make_store: Any, mode: str) -> None:
        """Unknown modes, a top-k below 1 and a query without text and embedding raise."""
        do = self.drive(make_store(), mode)
        for _ in range(2):  # also while the store is empty, where a query could answer []
            with _raises(ArgumentError):
                do.query("x", VectorStoreQueryMode.MMR)
            for top_k in (0, -1):
                with _raises(ArgumentError):
                    do.query("x", _DEFAULT, similarity_top_k=top_k)
            do.add(_curry())
        with _raises(ArgumentError):
            do.query(None, _SPARSE)  # type: ignore[arg-type]
        with _raises(ArgumentError):
            do.query(None, _DEFAULT)  # type: ignore[arg-type]

    # -- filters -------------------------------------------------------------------------------------------------

    def test_filters_bind_passages_and_triples_alike(self, make_store: Any, mode: str) -> None:
        """Every operator, also nested, selects the same passages through every call."""
        do = self.drive(
            make_store(embed_triples=True, collection_settings=CollectionSettings(payload_indexes=_TEXT_INDEXES)), mode
        )
        do.add(
            [
                passage(node_id, "stone", [(node_id, "is", "Hub")], metadata=metadata)
                for node_id, metadata in _TABLE.items()
            ]
        )
        vector = _EMBED.get_query_embedding("Hub")
        ids = list(_TABLE)
        for filters, expected in _FILTERS:
            wanted = set(expected.split())
            reached = {
                "get_nodes": {node.node_id for node in do.get_nodes(filters=filters)},
                "get_nodes of ids": {node.node_id for node in do.get_nodes(ids, filters)},
                "get_flow": {node.node_id for node in do.read(filters).get_flow(ids, vectors=False)},
                "passage_triples_flow": {
                    triple.passage_id for triple in do.read(filters).passage_triples_flow(ids, vector, None)
                },
                "passage_triples_flow, limited": {
                    triple.passage_id for triple in do.read(filters).passage_triples_flow(ids, vector, 9)
                },
                "neighbors_flow": {
                    triple.passage_id
                    for triple in _read(do, do.read(filters).neighbors_flow([("hub",)], vector, [], 9)[0])
                },
                "incident_flow, an entity": {
                    triple.passage_id for triple in do.read(filters).incident_flow([(["hub"], [])], [9])[0]
                },
                "incident_flow, passages": {
                    triple.passage_id for triple in do.read(filters).incident_flow([([], ids)], [9])[0]
                },
                "link_flow": {triple.passage_id for triple in do.read(filters).link_flow(["Hub"], 9, vector)[0]},
                "search_flow": {triple.passage_id for triple in do.read(filters).search_flow(["Hub"], 9)},
                "lists_flow": {
                    to_node(point).node_id
                    for points in do.read(filters).lists_flow("stone", vector, [_DEFAULT, _SPARSE], 9)
                    for point in points
                },
                "align_flow": {scored.node.node_id for scored in do.read(filters).align_flow(["stone"], 9)[0]},
                "ids_flow": set(do.read(filters).ids_flow()),
                "dense": set(do.query("stone", _DEFAULT, filters=filters).ids or []),
                "sparse": set(do.query("stone", _SPARSE, filters=filters).ids or []),
                "hybrid": set(do.query("stone", _HYBRID, filters=filters).ids or []),
            }
            assert reached == dict.fromkeys(reached, wanted), filters

    def test_an_index_changes_no_result(self, make_store: Any, mode: str) -> None:
        """Of a field with an index of any type, with values of all kinds, a filter finds what it finds without one."""
        kinds = ["keyword", "integer", "float", "bool", "uuid", "text", "geo"]
        do = self.drive(
            make_store(
                embed_triples=True,
                collection_settings=CollectionSettings(
                    payload_indexes=[{"field_name": f"by.{k}", "field_schema": k} for k in kinds]
                ),
            ),
            mode,
        )
        do.add(
            [
                passage(f"p{n}", "stone", [(f"p{n}", "is", "Hub")], metadata={"by": dict.fromkeys(["none", *kinds], v)})
                for n, v in enumerate(_MIXED)
            ]
        )
        ones = [_O.EQ, _O.NE, _O.CONTAINS, _O.GT, _O.GTE, _O.LT, _O.LTE]
        asked: list[tuple[FilterOperator, Any]] = [
            (operator, value)
            for value in _MIXED
            if isinstance(value, str | int | float) and not isinstance(value, bool)
            for operator in (ones[:3] if isinstance(value, str) else ones)
        ]
        lists: list[Any] = [["x"], ["x", "1840"], [1840], [0, 1840], [4.5], [1840, 4.5], [_UUID.upper()]]
        asked += [(operator, value) for value in lists for operator in (_O.IN, _O.NIN, _O.ANY, _O.ALL)]
        for operator, value in [*asked, (_O.IS_EMPTY, None)]:
            found = {}
            for kind in ["none", *kinds]:
                leaf = MetadataFilter(key=f"by.{kind}", operator=operator, value=value)
                found[kind] = {node.node_id for node in do.get_nodes(filters=MetadataFilters(filters=[leaf]))}
            assert found == dict.fromkeys(found, found["none"]), (operator, value)
            leaf = MetadataFilter(key="by.integer", operator=operator, value=value)
            triples = do.read(MetadataFilters(filters=[leaf])).search_flow(["Hub"], 99)
            assert {triple.passage_id for triple in triples} == found["none"], leaf

    def test_words_are_compared_or_refused(self, make_store: Any, mode: str) -> None:
        """Without a text index an engine compares words all the same, or says what to do. `repair` makes the index."""
        store = make_store(embed_triples=True)
        do = self.drive(store, mode)
        nodes = [passage(name, "x", [(name, "is", "Hub")], metadata=metadata) for name, metadata in _TABLE.items()]
        for node in nodes:
            node.embedding = _EMBED.get_text_embedding(node.get_content(metadata_mode=MetadataMode.EMBED))
        do.add(nodes)
        is_refused = False
        for filters, expected in _FILTERS:
            if list_word_fields(filters):
                try:
                    found = {node.node_id for node in do.get_nodes(filters=filters)}
                    triples = {triple.passage_id for triple in do.read(filters).search_flow(["Hub"], 9)}
                except UnsupportedFilter as error:
                    is_refused = True
                    assert "payload_indexes" in str(error) and "repair()" in str(error)
                else:
                    assert found == triples == set(expected.split()), filters
        if is_refused:
            store._collections.payload_indexes = _TEXT_INDEXES  # as in a store that is made anew
            assert do.repair().ok
            for filters, expected in _FILTERS:
                assert {node.node_id for node in do.get_nodes(filters=filters)} == set(expected.split()), filters

    def test_filters_that_cannot_be_honored_raise(self, make_store: Any, mode: str) -> None:
        """No call ignores such a filter, at any depth, and nothing is deleted."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_curry())
        vector = _EMBED.get_query_embedding("Curry")
        wrong: list[tuple[str, Any, _O]] = [
            ("year", None, _O.EQ),
            ("year", float("nan"), _O.EQ),
            ("year", 2**63, _O.EQ),
            ("year", [1988], _O.NE),
            ("year", 1988, _O.IN),
            ("year", [float("inf")], _O.NIN),
            ("year", "1988", _O.GT),
            ("year", 2**63, _O.LT),
            ("year", 1988, _O.TEXT_MATCH),
            ("year", "\ud800", _O.TEXT_MATCH_INSENSITIVE),
            ("year", ["a"], _O.CONTAINS),
            ("year", "a", _O.ANY),
            ("year", "a", _O.ALL),
            ("year", [], _O.ALL),
            *((key, 1, _O.EQ) for key in ("", 'a"b', "a\\b", "a\ud800")),
        ]
        own = ("_node_content", "_node_type", "gear_triples", "gear_extraction.calls", "gear_triples.subject")
        leaves = (_is(*filter_) for filter_ in (*wrong, *((key, None, _O.IS_EMPTY) for key in own)))
        unconditional = MetadataFilters(filters=[_and()], condition=None)
        for plain in (*map(_and, leaves), _or(), _not(), _and(_and()), _and(_or()), _and(_not()), unconditional):
            for filters in (plain, _or(_is("year", 1988), _not(plain))):
                for request in (
                    methodcaller("get_flow", ["p-son"], vectors=False),
                    methodcaller("passage_triples_flow", ["p-son"], vector, None),
                    methodcaller("neighbors_flow", [("dell curry",)], vector, [], 5),
                    methodcaller("incident_flow", [(["dell curry"], [])], [5]),
                    methodcaller("link_flow", ["Curry"], 5, vector),
                    methodcaller("search_flow", ["Curry"], 5),
                    methodcaller("lists_flow", "Curry", vector, [_DEFAULT, _SPARSE], 5),
                    methodcaller("align_flow", ["Curry"], 5),
                    methodcaller("ids_flow"),
                ):
                    with _raises(UnsupportedFilter):
                        request(do.read(filters))
                with _raises(UnsupportedFilter):
                    do.get_nodes(filters=filters)
                for query_mode in (_DEFAULT, _SPARSE, _HYBRID):
                    with _raises(UnsupportedFilter):
                        do.query("Curry", query_mode, filters=filters)
                with _raises(UnsupportedFilter):
                    do.delete_nodes(filters=filters)
        assert len(do.get_nodes()) == 4

    def test_metadata_may_be_called_anything(self, make_store: Any, mode: str) -> None:
        """Metadata may have the store's own keys: it is returned, it filters, and triples stay intact."""
        do = self.drive(make_store(embed_triples=True), mode)
        own_keys = ("entities", "subject", "predicate", "object", "passage_id", "metadata", "text", "score", "id")
        metadata = {key: f"my {key}" for key in own_keys}
        document_keys = {"doc_id": "mine", "ref_doc_id": "mine", "document_id": "mine"}
        do.add(
            [
                passage("p", "text", [_SON], document="d", metadata={**metadata, **document_keys}),
                passage("q", "x", [_SON]),
            ]
        )
        (node,) = do.get_nodes(["p"])
        assert {key: node.metadata[key] for key in {**metadata, **document_keys}} == {**metadata, **document_keys}
        for key, value in metadata.items():
            assert _triples(do, ["p", "q"], _and(_is(key, value))) == {("p", *_SON)}, key
            assert [node.node_id for node in do.get_nodes(filters=_and(_is(key, value)))] == ["p"], key
        assert _triples(do, ["p"]) == {("p", *_SON)}
        (neighbors,) = do.read().neighbors_flow([("dell curry",)], _EMBED.get_query_embedding("x"), [], 9)
        assert {(triple.passage_id, triple.triple) for triple in _read(do, neighbors)} == {
            ("p", Triple(*_SON)),
            ("q", Triple(*_SON)),
        }
        do.delete("mine")
        assert len(do.get_nodes()) == 2
        do.delete("d")
        assert _all_triples(do) == {("q", *_SON)}

    # -- the graph side ------------------------------------------------------------------------------------------

    def test_triples_of_passages(self, make_store: Any, mode: str) -> None:
        """All triples, or the best, come most similar to the query first, with their cosines."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_curry())
        vector = _EMBED.get_query_embedding("where do the Charlotte Hornets play")
        triples = do.read().passage_triples_flow(["p-joined", "p-plays", "unknown"], vector, None)
        assert [triple.triple for triple in triples] == [Triple(*_PLAYS), Triple(*_JOINED), Triple(*_SON)]
        assert [triple.passage_id for triple in triples] == ["p-plays", "p-joined", "p-joined"]
        _check_scores(triples, vector)
        assert do.read().passage_triples_flow(["p-joined", "p-plays"], vector, 2) == triples[:2]

    def test_neighbors(self, make_store: Any, mode: str) -> None:
        """Neighbors share an entity, of any passage, and are not in `exclude`; by cosine, then id; at most `limit`."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(
            [
                *_curry(),
                passage("p-case", "x", [("DELL  curry", "was born in", "Harrisonburg")]),
                passage("p-far", "x", [("Charlotte", "lies in", "Mecklenburg County")]),
            ]
        )
        vector = _EMBED.get_query_embedding("Who is a son of Dell Curry")
        triple = Triple(*_JOINED)
        asked = [triple.entities, ("north carolina",), ("charlotte",), ("curry",)]
        excluded = [triple.id("p-joined")]
        dell, north, charlotte, part = do.read().neighbors_flow(asked, vector, excluded, 50)
        sons = sorted(Triple(*_SON).id(passage_id) for passage_id in ("p-son", "p-joined", "p-again"))
        born = Triple("DELL curry", "was born in", "Harrisonburg").id("p-case")
        assert [candidate.id for candidate in dell] == [*sons, born, Triple(*_PLAYS).id("p-plays")]
        assert [candidate.id for candidate in north] == [Triple(*_PLAYS).id("p-plays")]
        assert [candidate.passage_id for candidate in _read(do, charlotte)] == ["p-far"]
        assert part == []
        _check_scores(_read(do, dell), vector)
        (limited,) = do.read().neighbors_flow([triple.entities], vector, excluded, 4)
        assert limited == dell[:4]
        (without,) = do.read().neighbors_flow([triple.entities], vector, [*excluded, *sons[:2]], 50)
        assert [candidate.id for candidate in without] == [sons[2], born, Triple(*_PLAYS).id("p-plays")]

    def test_touching(self, make_store: Any, mode: str) -> None:
        """Incident triples have one of the entities or are of one of the passages; by id; at most the limit."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        son, joined, plays = Triple(*_SON), Triple(*_JOINED), Triple(*_PLAYS)
        everything = sorted(
            [
                Incidence(triple.id(passage_id), triple.entities, passage_id)
                for triple, passage_id in (
                    (son, "p-son"),
                    (son, "p-joined"),
                    (son, "p-again"),
                    (joined, "p-joined"),
                    (plays, "p-plays"),
                )
            ]
        )
        groups: list[tuple[list[str], list[str]]] = [
            (["dell curry"], []),
            ([], ["p-joined", "unknown"]),
            (["north carolina", "unknown"], ["p-son"]),
            (["stephen curry", "north carolina"], ["p-joined", "p-plays"]),
            ([], []),
        ]
        answers = do.read().incident_flow(groups, [9] * len(groups))
        for (entities, passage_ids), answer in zip(groups, answers, strict=True):
            assert answer == [
                incidence
                for incidence in everything
                if {*incidence.entities} & {*entities} or incidence.passage_id in passage_ids
            ]
        assert [len(answer) for answer in answers] == [4, 2, 2, 5, 0]
        (few,) = do.read().incident_flow(groups[:1], [3])
        assert few == answers[0][:3]
        limited = do.read().incident_flow(groups, [3, 1, 9, 2, 9])
        assert limited == [answers[0][:3], answers[1][:1], answers[2], answers[3][:2], []]

    def test_touching_a_hub(self, make_store: Any, mode: str) -> None:
        """An entity with more triples than one query reads gets as exact an answer, and so do other groups."""
        do = self.drive(make_store(), mode)
        slots_of_triples = [("hub", "has", f"spoke {number}") for number in range(320)]
        facts = [Triple(*slots) for slots in slots_of_triples]
        do.add([passage(f"p{n}", f"spokes {n}", slots_of_triples[32 * n : 32 * n + 32]) for n in range(10)])
        everything = sorted(
            Incidence(fact.id(f"p{n // 32}"), fact.entities, f"p{n // 32}") for n, fact in enumerate(facts)
        )
        hub, spoke, stated = do.read().incident_flow([(["hub"], []), (["spoke 319"], []), ([], ["p3"])], [400, 4, 40])
        assert hub == everything and [incidence.entities for incidence in spoke] == [facts[319].entities]
        assert stated == [incidence for incidence in everything if incidence.passage_id == "p3"] and len(stated) == 32
        (few, again) = do.read().incident_flow([(["hub"], []), (["spoke 319"], [])], [301, 4])
        assert few == everything[:301] and again == spoke
        (few, again) = do.read().incident_flow([(["hub"], []), (["spoke 319"], [])], [4, 4])
        assert few == everything[:4] and again == spoke
        (again, whole) = do.read().incident_flow([(["spoke 319"], []), ([], ["p3"])], [400, 40])
        assert again == spoke and whole == stated

    def test_facts(self, make_store: Any, mode: str) -> None:
        """Triples are fetched by id, with their passages; unknown ids are left out, repeated ones do no harm."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        son, plays = Triple(*_SON), Triple(*_PLAYS)
        ids = [plays.id("p-plays"), son.id("p-again"), son.id("nowhere"), plays.id("p-plays")]
        assert do.read().fetch_triples_flow(ids) == {
            ids[0]: StoredTriple(ids[0], plays, "p-plays", 0.0),
            ids[1]: StoredTriple(ids[1], son, "p-again", 0.0),
        }

    def test_linking(self, make_store: Any, mode: str) -> None:
        """Each text gets its nearest triples, most similar first; scores are cosines with the query, not the text."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_curry())
        vector = _EMBED.get_query_embedding("In which state do the Charlotte Hornets play")
        texts = [
            "Dell Curry joined Charlotte Hornets",
            "Hornets play in Carolina",
            "Dell Curry joined Charlotte Hornets",
        ]
        joined, plays, again = do.read().link_flow(texts, 2, vector)
        assert [len(joined), len(plays)] == [2, 2]
        assert joined[0].triple == Triple(*_JOINED)
        assert plays[0].triple == Triple(*_PLAYS)
        assert again == joined
        _check_scores(joined, vector)
        _check_scores(plays, vector)
        assert joined[0].score < plays[0].score  # though each is the best for its own text

    def test_propositions(self, make_store: Any, mode: str) -> None:
        """The hits of all texts form one list, most similar first, each triple once, until all passages are reached."""
        do = self.drive(make_store(embed_triples=True), mode)
        assert do.read().search_flow(["Dell Curry"], 3) == []
        do.add(_curry())
        texts = ["Dell Curry joined", "Charlotte Hornets play in"]
        all_hits = do.read().search_flow(texts, 9)
        assert len(all_hits) == len({triple.id for triple in all_hits}) == 5
        cosines = {
            triple.id: max(
                float(np.dot(_EMBED.get_text_embedding(text), _EMBED.get_text_embedding(triple.triple.text)))
                for text in texts
            )
            for triple in all_hits
        }
        assert all(abs(triple.score - cosines[triple.id]) < 1e-5 for triple in all_hits)
        assert [triple.score for triple in all_hits] == sorted((triple.score for triple in all_hits), reverse=True)
        for passages in (1, 2, 3, 4):
            hits = do.read().search_flow(texts, passages)
            assert hits == all_hits[: len(hits)]
            assert len({triple.passage_id for triple in hits}) == passages
            assert len({triple.passage_id for triple in hits[:-1]}) == passages - 1
        recent = _and(_is("year", 2000, FilterOperator.GT))
        assert {triple.passage_id for triple in do.read(recent).search_flow(texts, 4)} == {"p-again"}
        assert do.read().search_flow([], 4) == []
        vector = _EMBED.get_text_embedding(texts[1])
        assert do.read().search_flow(texts[:1], 9, [vector]) == all_hits

    def test_propositions_of_a_passage_that_says_it_in_a_hundred_ways(self, make_store: Any, mode: str) -> None:
        """However many triples of one passage come first, the next passage is reached."""
        do = self.drive(make_store(embed_triples=True), mode)
        often = [("Dell Curry", "joined", f"team number {n}") for n in range(300)]
        do.add([passage("p-often", "Often.", often), passage("p-once", "Once.", [("Dell", "saw", "the sea")])])
        hits = do.read().search_flow(["Dell Curry joined team number", "nothing of this kind"], 2)
        assert {triple.passage_id for triple in hits} == {"p-often", "p-once"} and hits[-1].passage_id == "p-once"
        assert len(hits) == len({triple.id for triple in hits}) == 301
        assert len(do.read().search_flow(["Dell Curry joined team number"], 1)) == 1
        assert len(do.read().search_flow(["Dell Curry joined team number"], 3)) == 301

    def test_propositions_beyond_the_first_hits_of_a_text(self, make_store: Any, mode: str) -> None:
        """Many close hits of one text all come before a less close hit of another."""
        do = self.drive(make_store(embed_triples=True), mode)
        often = [("Dell Curry", "joined", f"team{n}") for n in range(50)]
        near = passage("p-near", "Near.", [("Dell Curry", "joined", "some other team")])
        far = passage("p-far", "Far.", [("milk", "is", "white and very good to drink")])
        do.add([passage("p-often", "Often.", often), near, far])
        hits = do.read().search_flow(["Dell Curry joined", "milk"], 2)
        assert [triple.passage_id for triple in hits] == ["p-often"] * 50 + ["p-near"]

    def test_similarities(self, make_store: Any, mode: str) -> None:
        """Similarities are dot products with the sum of the chain's vectors, in the order of the candidates."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_curry())
        facts = [(Triple(*_SON), "p-son"), (Triple(*_JOINED), "p-joined"), (Triple(*_PLAYS), "p-plays")]
        ids = [triple.id(passage_id) for triple, passage_id in facts]
        vectors = np.array([_EMBED.get_text_embedding(triple.text) for triple, _ in facts])
        pairs = [([ids[0]], [ids[1], ids[2]]), (ids[:2], [ids[2], ids[0]]), ([ids[2]], []), ([ids[0]] * 2, [ids[1]])]
        answers = do.read().similarities_flow(pairs)
        expected = [
            [vectors[0] @ vectors[1], vectors[0] @ vectors[2]],
            [(vectors[0] + vectors[1]) @ vectors[2], (vectors[0] + vectors[1]) @ vectors[0]],
            [],
            [2 * vectors[0] @ vectors[1]],
        ]
        assert [len(answer) for answer in answers] == [2, 2, 0, 1]
        for answer, products in zip(answers, expected, strict=True):
            np.testing.assert_allclose(answer, products, atol=1e-5)

    def test_a_passage_and_an_entity_with_very_many_triples(self, make_store: Any, mode: str) -> None:
        """Writing, reading and deleting handle all triples, not just the first page."""
        small = WordEmbedding(8)
        do = self.drive(make_store(embed_triples=True, embed_model=small), mode)
        count = self.many_triples if mode == "sync" else min(self.many_triples, 2_100)
        hub = [("Hub", "knows", f"Person {n}") for n in range(count)]
        do.add([passage("p", "Hub", hub, embed_model=small), passage("q", "Hub", hub[:1], embed_model=small)])
        vector = small.get_query_embedding("Hub")
        triples = do.read().passage_triples_flow(["p"], vector, None)
        assert {triple.triple.object for triple in triples} == {f"Person {n}" for n in range(count)}
        (near,) = do.read().neighbors_flow([("hub",)], vector, [], count + 5)
        assert len(near) == count + 1
        scores = [triple.score for triple in near]
        np.testing.assert_allclose(scores, sorted(scores, reverse=True), atol=1e-6)
        do.add([passage("p", "Hub", hub[:2], embed_model=small)])
        assert len(do.read().passage_triples_flow(["p", "q"], vector, None)) == 3

    def test_property_graph_extractors_are_understood(self, make_store: Any, mode: str) -> None:
        """Relations that LlamaIndex's extractors attach are stored as triples: objects, or the dicts of a cache."""
        do = self.drive(make_store(), mode)
        entities = [EntityNode(name="Dell Curry"), EntityNode(name="Charlotte Hornets")]
        relations = [Relation(label="joined", source_id=entities[0].id, target_id=entities[1].id)]
        objects = passage("p", "x", metadata={KG_NODES_KEY: entities, KG_RELATIONS_KEY: relations, "year": 1988})
        dicts = passage(
            "q",
            "x",
            metadata={
                KG_NODES_KEY: [entity.model_dump() for entity in entities],
                KG_RELATIONS_KEY: [relation.model_dump() for relation in relations],
            },
        )
        do.add([objects, dicts])
        assert _all_triples(do) == {("p", *_JOINED), ("q", *_JOINED)}
        assert _triples(do, ["p", "q"], _and(_is("year", 1988))) == {("p", *_JOINED)}
        for payload, _ in contents(do.store)[do.store.triple_collection_name].values():
            assert not {KG_NODES_KEY, KG_RELATIONS_KEY} & set(payload["metadata"])  # not the whole graph in each
        assert [read_triples(node) for node in do.get_nodes(["p", "q"])] == [[Triple(*_JOINED)]] * 2

    # -- names that mean the same --------------------------------------------------------------------------------

    def test_links_lead_from_name_to_name_and_are_undone_to_the_byte(self, make_store: Any, mode: str) -> None:
        """Neighbors and incidences are found through a link, from both sides, and not through two links."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_aliased())
        before = _payloads(do.store)
        son, drafted, other = (Triple(*fact) for fact in (_SON, _DRAFTED, _OTHER_DELL))
        assert do.link_aliases(
            [("Dell Curry", "Wardell Curry"), ("Wardell Curry", "W. Curry"), ("Dell Curry", "nobody")]
        ) == [
            AliasPair("Wardell Curry", "Dell Curry"),
            AliasPair("Wardell Curry", "W. Curry"),
        ]
        assert do.link_aliases() == [] == do.link_aliases([("Wardell Curry", "Dell Curry")])  # no fact states another
        vector = _EMBED.get_query_embedding("Curry")
        stored = do.read().fetch_triples_flow([son.id("p-son"), drafted.id("p-drafted"), other.id("p-other")])
        assert {triple.triple: triple.entities for triple in stored.values()} == {
            triple: triple.entities for triple in (son, drafted, other)
        }
        answers = do.read().neighbors_flow([son.entities, drafted.entities, other.entities], vector, [], 10)
        found = [{candidate.id for candidate in answer} for answer in answers]
        ids = son.id("p-son"), drafted.id("p-drafted"), other.id("p-other")
        assert found == [{ids[0], ids[1]}, set(ids), {ids[1], ids[2]}]
        ((incidence, *more),) = do.read().incident_flow([(["stephen curry"], [])], [10])
        assert not more and incidence.entities == son.entities
        assert incidence.aliases == (("dell curry", "wardell curry"),)
        (incidences,) = do.read().incident_flow([(["dell curry"], [])], [10])
        assert {incidence.id for incidence in incidences} == {ids[0], ids[1]}
        assert do.check().ok
        assert do.unlink_aliases([("W. Curry", "Wardell Curry"), ("Dell Curry", "W. Curry")]) == [
            AliasPair("Wardell Curry", "W. Curry")
        ]
        assert do.list_aliases() == [AliasPair("Wardell Curry", "Dell Curry")]
        assert (
            do.unlink_aliases() == [AliasPair("Wardell Curry", "Dell Curry")]
            and do.unlink_aliases() == [] == do.list_aliases()
        )
        assert _payloads(do.store) == before
        for wrong in (
            [("Dell Curry", "dell  curry")],
            [("Dell Curry",)],
            ["Dell Curry"],
            [("", "x")],
            [("Dell Curry", "\ud800")],
        ):
            for call in (do.link_aliases, do.unlink_aliases):
                with _raises(ArgumentError):
                    call(wrong)

    def test_aliases_are_found_by_facts(self, make_store: Any, mode: str) -> None:
        """An alias of two names is left out; nothing is written before it is linked."""
        do = self.drive(make_store(), mode)
        assert do.find_aliases() == do.link_aliases() == do.list_aliases() == do.unlink_aliases() == []
        facts = [
            ("Samuel Clemens", "is better known as", "Mark Twain"),
            ("Mark Twain", "is known as", "mark  twain"),
            ("Hanseatic Press", "“The Hanseatic Press (HP) is in Hannibal.”", "HP"),
            ("Henry Jones", "nicknamed", "Hal"),
            ("Prince Henry", "a.k.a.", "Hal"),
            ("Prince Henry", "is known in", "Hannibal"),
        ]
        do.add([passage(f"p{number}", "Text.", [fact]) for number, fact in enumerate(facts)])
        before = _payloads(do.store)
        found = do.find_aliases()
        assert found == [("Hanseatic Press", "HP"), ("Samuel Clemens", "Mark Twain")] and _payloads(do.store) == before
        do.add([passage("p", "Text.", [("HP", "bought", "Elbe News"), ("Mark Twain", "wrote", "Tom Sawyer")])])
        before = _payloads(do.store)
        assert do.link_aliases() == found == do.list_aliases() and do.find_aliases() == []
        assert do.unlink_aliases() == found and _payloads(do.store) == before

    def test_links_outlast_updates_and_end_with_their_names(self, make_store: Any, mode: str) -> None:
        """Rewritten triples keep their links, new ones get them, and no link outlasts the triples of a name."""
        do = self.drive(make_store(), mode)
        do.add(_aliased())
        do.link_aliases([("Dell Curry", "Wardell Curry")])
        linked = _payloads(do.store)
        do.add(_aliased())
        assert _payloads(do.store) == linked and do.check().ok
        do.add([passage("p-new", "New.", [_JOINED], document="d-new")])
        assert do.check().ok
        (answer,) = do.read().incident_flow([(["wardell curry"], [])], [10])
        assert Triple(*_JOINED).id("p-new") in {incidence.id for incidence in answer}
        client, triples = do.store.client, do.store.triple_collection_name
        (point,) = client.retrieve(triples, ids=[Triple(*_SON).id("p-son")], with_payload=True, with_vectors=True)
        payload = {**point.payload, "entities": list(Triple(*_SON).entities)}
        del payload["aliases"]
        client.upsert(triples, points=[models.PointStruct(id=point.id, payload=payload, vector=point.vector)])
        report = do.check()
        assert report.unlinked == ("p-son",) and not report.ok and "links" in str(report)
        assert do.repair().ok
        do.delete("d-new")
        assert _payloads(do.store) == linked
        do.delete("d-drafted")
        assert do.list_aliases() == [] and do.check().unlinked == ("p-son",)
        assert do.repair().ok and "wardell" not in str(_payloads(do.store))

    def test_filters_hide_what_is_linked(self, make_store: Any, mode: str) -> None:
        """A triple that a filter hides is not found through a link either."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_aliased())
        do.link_aliases([("Dell Curry", "Wardell Curry")])
        vector, son = _EMBED.get_query_embedding("Curry"), Triple(*_SON)
        for year, expected in ((1986, {Triple(*_DRAFTED).id("p-drafted")}), (2009, {son.id("p-son")})):
            filters = _and(_is("year", year))
            (answer,) = do.read(filters).neighbors_flow([son.entities], vector, [], 10)
            assert {candidate.id for candidate in answer} == expected
            (incidences,) = do.read(filters).incident_flow([(["dell curry"], [])], [10])
            assert {incidence.id for incidence in incidences} == expected

    def test_filters_hide_the_names_that_are_linked(self, make_store: Any, mode: str) -> None:
        """A link shows a name of other triples: nobody sees it who sees none of these."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(_aliased())
        do.link_aliases([("Dell Curry", "Wardell Curry"), ("Wardell Curry", "W. Curry")])
        vector, ids = _EMBED.get_query_embedding("Curry"), ["p-son", "p-drafted", "p-other"]
        facts = [Triple(*fact) for fact in (_SON, _DRAFTED, _OTHER_DELL)]
        requests: list[Any] = [
            methodcaller("link_flow", [fact.text for fact in facts], 3, vector),
            methodcaller("search_flow", [fact.text for fact in facts], 3),
            methodcaller("passage_triples_flow", ids, vector, None),
            methodcaller("incident_flow", [(["dell curry", "w curry"], ids)], [10]),
        ]
        both = {("dell curry", "wardell curry"), ("wardell curry", "dell curry")}
        every = both | {("wardell curry", "w curry"), ("w curry", "wardell curry")}
        for filters, expected in (
            (None, every),
            (_and(_is("year", 2009.5, _O.LTE)), every),
            (_and(_is("year", 2009, _O.LTE)), both),
            (_and(_is("year", 2009, _O.GTE)), set()),
            (_and(_is("year", 1986)), set()),
        ):
            for request in requests:
                answer = request(do.read(filters))
                found = [one for part in answer for one in (part if isinstance(part, list) else [part])]
                assert found and {link for one in found for link in one.aliases} == expected, (request, filters)
        son = facts[0].id("p-son")
        fetched = do.read(_and(_is("year", 2009, _O.GTE))).fetch_triples_flow([son])[son]
        assert fetched.aliases == () and fetched.entities == facts[0].entities
        assert do.read().fetch_triples_flow([son])[son].aliases == (("dell curry", "wardell curry"),)

    def test_tenants_have_links_of_their_own(self, make_store: Any, mode: str) -> None:
        """A link of one tenant is none of another, neither in what is stored nor in what is added."""
        store = make_store(tenant_field="who")
        do, one, other = (self.drive(some, mode) for some in (store, store.for_tenant("a"), store.for_tenant("b")))
        for tenant in (one, other):
            tenant.add(_aliased(prefix=tenant.store._tenancy.tenant or ""))
        for call in (do.link_aliases, do.unlink_aliases, do.list_aliases, do.find_aliases):
            with _raises(TenantError):
                call()
        before = _payloads(store)
        assert one.link_aliases([("Dell Curry", "Wardell Curry")]) == one.list_aliases() != other.list_aliases() == []
        do.add([passage(f"{who}-new", "New.", [_JOINED], metadata={"who": who}) for who in "ab"])
        assert do.check().ok and do.repair().ok
        found = []
        for tenant in (one, other):
            (answer,) = tenant.read().incident_flow([(["wardell curry"], [])], [10])
            found.append(len(answer))
        assert found == [3, 1] and other.unlink_aliases() == []
        one.unlink_aliases()
        after = _payloads(store)
        assert all(after[name][point] == payload for name in before for point, payload in before[name].items())

    def test_links_are_reported_as_they_are_stored(self, make_store: Any, mode: str) -> None:
        """Two names that stand together in all of their triples have nothing to link; an empty store has no names."""
        do = self.drive(make_store(), mode)
        pair = AliasPair("Wardell Curry", "Dell Curry")
        for _ in range(2):
            assert (
                do.link_aliases()
                == do.link_aliases([pair])
                == do.list_aliases()
                == do.unlink_aliases([pair])
                == do.unlink_aliases()
                == []
            )
            do.add([passage("p", "Text.", [("Dell Curry", "is also known as", "Wardell Curry")])])
            before = _payloads(do.store)
            assert do.link_aliases([pair]) == do.list_aliases() == do.link_aliases() == [] and do.check().ok
            assert _payloads(do.store) == before
            do.add([passage("q", "Text.", [_JOINED])])
            assert do.link_aliases([pair]) == [pair] == do.list_aliases() and do.link_aliases([pair]) == []
            assert do.unlink_aliases([pair]) == [pair] and do.list_aliases() == [] and do.check().ok
            do.clear()

    def test_a_copy_leaves_no_half_link(self, make_store: Any, mode: str) -> None:
        """A link stands in all triples of its names in the target, also in those that were there; undone, in none."""
        source, target = self.drive(make_store(), mode), self.drive(make_store(), mode)
        names, known = ("Dell Curry", "Wardell Curry"), AliasPair("Wardell Curry", "Dell Curry")
        source.add(_aliased())
        source.link_aliases([names])
        target.add([passage("own", "Text.", [_JOINED], document="d-own"), *_aliased("own-")])
        assert source.copy_to(target.store) == 3 and target.list_aliases() == [known] and target.check().ok
        own = [("W. Curry", "Steph"), ("Dell Curry", "W. Curry")]
        target.add([passage("steph", "Text.", [("Steph", "sings in", "Elon")])])
        assert len(target.link_aliases(own)) == 2
        source.unlink_aliases([names])
        assert source.copy_to(target.store, filters=_and(_is("year", 2009))) == 1
        assert target.list_aliases() == [AliasPair("W. Curry", "Steph")] and target.check().ok
        before = _payloads(target.store)
        assert target.repair().ok and _payloads(target.store) == before
        assert source.copy_to(target.store) == 3 and target.check().ok
        assert target.list_aliases() == [AliasPair("W. Curry", "Steph")]  # of names that the source has not both
        source.link_aliases([names])
        target.unlink_aliases()
        assert source.copy_to(target.store) == 3 and target.list_aliases() == [known] and target.check().ok

    def test_part_of_a_store_is_copied_without_links_to_the_rest(self, make_store: Any, mode: str) -> None:
        """No name comes along that only passages have that were not copied."""
        source, target = self.drive(make_store(), mode), self.drive(make_store(), mode)
        source.add(_aliased())
        source.link_aliases([("Dell Curry", "Wardell Curry")])
        for year, number in ((2009, 0), (1986, 1)):
            assert source.copy_to(target.store, filters=_and(_is("year", year))) == 1 and target.check().ok
            assert len(target.list_aliases()) == number
            assert ("wardell" in str(_payloads(target.store))) == bool(number)

    # -- looking after it ----------------------------------------------------------------------------------------

    def test_an_undisturbed_store_is_in_order(self, make_store: Any, mode: str) -> None:
        """`check` finds nothing after passages were added, replaced and deleted; `repair` changes nothing."""
        do = self.drive(make_store(), mode)
        assert do.check() == StoreReport() == do.repair()
        do.add(_curry())
        do.add([passage("p-joined", "New text.", [_SON, _PLAYS], document="d-9", metadata={"year": 7.0, "x": [None]})])
        report = do.check()
        assert report.ok and str(report) == "4 passages, 5 triples: in order"
        assert report.passage_agreement is not None and report.passage_agreement > 0.8  # embedded without metadata
        assert report.triple_agreement is None or report.triple_agreement > 0.999  # None: they have no vectors
        assert (do.check(sample_size=0).passage_agreement, do.check(sample_size=0).triple_agreement) == (None, None)
        before = contents(do.store)
        assert do.repair() == report
        assert contents(do.store) == before
        do.delete("d-9")
        report = do.check()
        assert (report.ok, report.passages, report.triples) == (True, 3, 3)
        with _raises(ArgumentError):
            do.check(sample_size=-1)

    def test_missing_outdated_and_orphaned_triples_are_found_and_mended(self, make_store: Any, mode: str) -> None:
        """Faults are reported by passage; only those passages are repaired."""
        do = self.drive(make_store(), mode)
        client, passages, triples = do.store.client, do.store.collection_name, do.store.triple_collection_name
        do.add(_curry())
        undisturbed = contents(do.store)
        client.delete(triples, points_selector=[Triple(*_JOINED).id("p-joined")])
        report = do.check()
        assert (report.incomplete, report.outdated, report.orphaned) == (("p-joined",), (), ())
        assert str(report) == "4 passages, 4 triples: 1 passage with missing triples (p-joined)"
        assert do.repair().ok
        assert contents(do.store) == undisturbed
        # A call that was to replace "p-joined" died before it wrote the passage; one deleted "p-son", and died then.
        before, _ = client.scroll(passages, limit=10, with_payload=True, with_vectors=True)
        do.add([passage("p-joined", "New.", [_SON, _PLAYS], document="d-2", metadata={"year": 7})])
        client.upsert(
            passages,
            points=[models.PointStruct(id=point.id, payload=point.payload, vector=point.vector) for point in before],
        )
        client.delete(passages, points_selector=[point_id_of("p-son")])
        report = do.check()
        assert (report.incomplete, report.outdated, report.orphaned) == (("p-joined",), ("p-joined",), ("p-son",))
        assert not report.ok
        assert do.repair().ok
        del undisturbed[passages][point_id_of("p-son")], undisturbed[triples][Triple(*_SON).id("p-son")]
        assert contents(do.store) == undisturbed
        client.delete_collection(passages)
        assert set(do.check().orphaned) == {"p-joined", "p-plays", "p-again"}
        assert do.repair() == StoreReport()

    def test_another_embedding_model_is_found_and_nothing_mixed(self, make_store: Any, mode: str) -> None:
        """`repair` refuses, or embeds everything again; it always refuses a model of another dimension."""
        do = self.drive(make_store(embed_triples=True), mode)
        nodes = _curry()
        for node in nodes:
            node.embedding = _EMBED.get_text_embedding(node.get_content(metadata_mode=MetadataMode.EMBED))
        do.add(nodes)
        before = contents(do.store)
        client, name = do.store.client, do.store.collection_name
        do.store.client.delete(do.store.triple_collection_name, points_selector=[Triple(*_JOINED).id("p-joined")])
        damaged = contents(do.store)
        other = self.drive(
            GeARVectorStore(client=client, collection_name=name, embed_model=_BackwardsEmbedding()), mode
        )
        report = other.check()
        assert report.wrong_embedder and not report.ok and "embedded by another model" in str(report)
        with _raises(EmbeddingError):
            other.repair()
        wider = self.drive(GeARVectorStore(name, client, embed_model=WordEmbedding(300)), mode)
        assert wider.check().wrong_embedder
        with _raises(EmbeddingError):
            wider.repair(reembed=True)
        assert contents(do.store) == damaged
        assert other.repair(reembed=True).ok
        assert do.check().wrong_embedder
        assert do.repair(reembed=True).ok
        assert contents(do.store) == before

    def test_more_passages_and_triples_than_a_page_are_checked(self, make_store: Any, mode: str) -> None:
        """All passages and triples are checked, with a progress bar too."""
        small = WordEmbedding(8)
        do = self.drive(make_store(embed_model=small, show_progress=True), mode)
        count = self.many_passages // 4  # a check reads 256 at a time
        do.add(
            [passage(f"n{n}", f"passage {n}", [(f"n{n}", "is", "in order")], embed_model=small) for n in range(count)]
        )
        assert (do.check().ok, do.check().passages, do.check().triples) == (True, count, count)
        gone = ["n7", f"n{count - 1}"]
        do.store.client.delete(do.store.collection_name, points_selector=[point_id_of(node_id) for node_id in gone])
        lost = [f"n{n}" for n in range(3, count, 100)]
        ids = [Triple(node_id, "is", "in order").id(node_id) for node_id in lost]
        do.store.client.delete(do.store.triple_collection_name, points_selector=ids)
        report = do.check(sample_size=3)
        assert (set(report.incomplete), set(report.orphaned), report.outdated) == (set(lost), set(gone), ())
        report = do.repair()
        assert (report.ok, report.passages, report.triples) == (True, count - 2, count - 2)

    # -- the average length of passages --------------------------------------------------------------------------

    def test_the_average_length_is_learned_and_kept(self, make_store: Any, mode: str) -> None:
        """The first passages teach it, another store object and later passages keep it, `clear` forgets it."""
        do = self.drive(make_store(), mode)
        do.add([_long("a", 200), _long("b", 240)])
        assert read_averages(do.store) == {"a": 220.0, "b": 220.0}
        for store in (do.store, GeARVectorStore(do.store.collection_name, do.store.client, embed_model=_EMBED)):
            again = self.drive(store, mode)
            again.add([_long("c", 30)])
            assert read_averages(store) == {"a": 220.0, "b": 220.0, "c": 220.0} and again.check().ok
        do.clear()
        do.add([_long("a", 10), _long("b", 12)])
        assert read_averages(do.store) == {"a": 60.0, "b": 60.0}

    def test_a_given_average_length_stands(self, make_store: Any, mode: str) -> None:
        """A store uses the number that it is given; one without a number reads it from the passages."""
        do = self.drive(make_store(collection_settings=CollectionSettings(bm25_avg_len=87.5)), mode)
        do.add([_long("a", 200)])
        other = self.drive(GeARVectorStore(do.store.collection_name, do.store.client, embed_model=_EMBED), mode)
        other.add([_long("b", 210)])
        assert read_averages(do.store) == {"a": 87.5, "b": 87.5}
        do.add([_long("c", 900)])
        assert do.check().ok

    def test_weights_of_another_average_length_are_found_and_mended(self, make_store: Any, mode: str) -> None:
        """`check` counts the passages whose weights differ from the others', and `repair` makes them anew."""
        do = self.drive(make_store(batch_size=3), mode)
        do.add([_long(f"p{number}", 100 + number, [_SON]) for number in range(12)])
        undisturbed = contents(do.store)
        assert do.check().ok and set(read_averages(do.store).values()) == {110.0}
        ids = sorted((f"p{number}" for number in range(12)), key=point_id_of)
        name = do.store.collection_name
        stray = self.drive(
            GeARVectorStore(
                name, do.store.client, embed_model=_EMBED, collection_settings=CollectionSettings(bm25_avg_len=130.0)
            ),
            mode,
        )
        stray.add(do.get_nodes(ids[-1:]))
        report = do.check(sample_size=200)
        assert report.bm25_drift == 1 and not report.ok
        assert str(report).endswith(": 1 sampled passage with BM25 weights of another average length")
        assert do.check(sample_size=0).bm25_drift == 0
        stray.add(do.get_nodes(ids[-4:]))
        assert do.check().bm25_drift and do.repair().ok and contents(do.store) == undisturbed

    def test_an_average_length_that_no_longer_fits_is_learned_anew(self, make_store: Any, mode: str) -> None:
        """If the passages became longer by half, `repair` weighs all of them with their own length."""
        do = self.drive(make_store(batch_size=3), mode)
        do.add([_long("short", 20, [_JOINED])])
        long = [_long(f"p{number}", 150, [_SON], document="d") for number in range(7)]
        do.add(long)
        report = do.check(sample_size=200)
        assert report.bm25_drift == 8 and set(read_averages(do.store).values()) == {60.0}
        assert do.repair().ok and set(read_averages(do.store).values()) == {130.0}
        do.add([_long("later", 10)])
        assert set(read_averages(do.store).values()) == {130.0} and do.check().ok
        fresh = self.drive(make_store(collection_settings=CollectionSettings(bm25_avg_len=130.0)), mode)
        fresh.add([*do.get_nodes()])
        assert list(contents(fresh.store).values()) == list(contents(do.store).values())

    def test_a_copy_has_the_target_s_average_length(self, make_store: Any, mode: str) -> None:
        """An empty target takes the source's; one with passages, or with a number, keeps its own."""
        do = self.drive(make_store(), mode)
        do.add([_long("a", 200), _long("b", 240)])
        empty, filled, given = (
            make_store(),
            make_store(),
            make_store(collection_settings=CollectionSettings(bm25_avg_len=75.0)),
        )
        self.drive(filled, mode).add([_long("c", 180)])
        for target in (empty, filled, given):
            assert do.copy_to(target) == 2 and target.check().ok
        assert read_averages(empty) == {"a": 220.0, "b": 220.0}
        assert read_averages(filled) == {"a": 180.0, "b": 180.0, "c": 180.0}
        assert read_averages(given) == {"a": 75.0, "b": 75.0}

    # -- copying -------------------------------------------------------------------------------------------------

    def test_a_copy_holds_the_same(self, make_store: Any, mode: str) -> None:
        """A copy has the same points, payloads and vectors, also when repeated; nothing is embedded."""
        source = make_store(batch_size=3)
        do, target = self.drive(source, mode), make_store(embed_model=_BackwardsEmbedding())
        assert do.copy_to(target) == 0
        do.add(_curry())
        do.add([passage("nothing said", "No triple.")])
        assert do.copy_to(target) == 5
        for _ in range(2):
            held = dict(
                zip((source.collection_name, source.triple_collection_name), contents(target).values(), strict=True)
            )
            assert held == contents(source)
            assert do.copy_to(target) == 5
        assert target.check(sample_size=0).ok

    def test_a_copy_replaces_what_both_have_and_leaves_the_rest(self, make_store: Any, mode: str) -> None:
        """Outdated triples of the target go; filters choose the passages."""
        source, target = make_store(), make_store()
        do, there = self.drive(source, mode), self.drive(target, mode)
        there.add([passage("p-joined", "Old.", [_PLAYS, _SON]), passage("own", "Its own.", [_PLAYS])])
        do.add(_curry())
        assert do.copy_to(target, filters=_and(_is("year", 1988))) == 1
        assert {node.node_id for node in there.get_nodes()} == {"p-son", "p-joined", "own"}
        assert _triples(there, ["p-joined"]) == {("p-joined", *_PLAYS), ("p-joined", *_SON)}
        assert do.copy_to(target) == 4
        assert _triples(there, ["p-joined"]) == {("p-joined", *_JOINED), ("p-joined", *_SON)}
        assert _triples(there, ["own"]) == {("own", *_PLAYS)}
        assert there.check().ok

    def test_a_copy_into_something_else_is_refused(self, make_store: Any, mode: str) -> None:
        """A target of another dimension or language, or the store itself, is refused before anything is written."""
        do = self.drive(make_store(), mode)
        do.add(_curry())
        narrow = make_store(embed_model=WordEmbedding(16))
        narrow.add([passage("n", "Narrow.", [_SON], embed_model=WordEmbedding(16))])
        before = contents(narrow)
        with _raises(EmbeddingError):
            do.copy_to(narrow)
        assert contents(narrow) == before
        for other in (make_store(language="french"), do.store):
            with _raises(ArgumentError):
                do.copy_to(other)

    # -- the layout ----------------------------------------------------------------------------------------------

    def test_layout(self, make_store: Any, mode: str) -> None:
        """The layout that other programs may rely on, and that "writing twice changes nothing" needs."""
        do = self.drive(make_store(embed_triples=True), mode)
        do.add(
            [passage("p", "Dell joined.", [_JOINED], document="d", metadata={"year": 1988, "who": {"name": "Dell"}})]
        )
        held = contents(do.store)
        assert set(held) == {do.store.collection_name, f"{do.store.collection_name}_triples"}
        for name in held:
            noted = {"gear_average_words": 60.0, "gear_embedded_triples": "all"}
            noted = noted if name == do.store.collection_name else {}
            assert do.store.client.get_collection(name).config.metadata == {"gear_format": 1, **noted}
        ((point_id, (payload, vectors)),) = held[do.store.triple_collection_name].items()
        assert point_id == Triple(*_JOINED).id("p")
        metadata = payload.pop("metadata")
        assert payload == {
            "passage_id": "p",
            "doc_id": "d",
            "subject": "Dell Curry",
            "predicate": "joined",
            "object": "Charlotte Hornets",
            "entities": ["dell curry", "charlotte hornets"],
        }
        assert (metadata["year"], metadata["who"]) == (1988, {"name": "Dell"})
        assert not {key for key in metadata if key.startswith("_")}  # lean: no node JSON
        assert set(vectors) == {"text-dense", "text-sparse-new"}
        np.testing.assert_allclose(
            list(vectors["text-dense"].values.values()),
            _EMBED.get_text_embedding("Dell Curry joined Charlotte Hornets"),
            atol=1e-5,
        )
        ((_, (payload, vectors)),) = held[do.store.collection_name].items()
        assert {"_node_content", "_node_type", "doc_id", "year"} <= set(payload)
        assert TRIPLES_KEY not in payload  # they are in the node's own JSON
        assert set(vectors) == {"text-dense", "text-sparse-new"}

    def test_a_store_of_a_later_format_is_refused(self, make_store: Any, mode: str) -> None:
        """A later version's store is neither read nor written by guess."""
        do = self.drive(make_store(), mode)
        dense = {"text-dense": models.VectorParams(size=_EMBED.dimension, distance=models.Distance.COSINE)}
        name = do.store.collection_name
        do.store.client.create_collection(name, vectors_config=dense, metadata={"gear_format": 2})
        for attempt in (lambda: do.query(_QUESTION, _DEFAULT), do.check, lambda: do.add([passage("p", "x", [_SON])])):
            with _raises(StoreError, "has format 2, and this version of llama_index_gear reads format 1"):
                attempt()
        assert not do.store.client.collection_exists(do.store.triple_collection_name)
        assert do.store.client.count(name).count == 0

    def test_a_plain_qdrant_vector_store_can_open_the_passages(self, make_store: Any, mode: str) -> None:
        """LlamaIndex's own store reads the same collection."""
        do = self.drive(make_store(), mode)
        do.add([passage(node_id, text, [_SON], metadata={"letter": node_id}) for node_id, text in _LETTERS])
        plain = QdrantVectorStore(collection_name=do.store.collection_name, client=do.store.client)
        vector = _EMBED.get_query_embedding(_QUESTION)
        result = plain.query(VectorStoreQuery(query_embedding=vector, similarity_top_k=3))
        ours = do.query(_QUESTION, _DEFAULT, similarity_top_k=3)
        assert [node.node_id for node in result.nodes or []] == ours.ids == ["B", "C", "D"]
        np.testing.assert_allclose(result.similarities or [], ours.similarities or [], atol=1e-6)
        filtered = plain.query(
            VectorStoreQuery(query_embedding=vector, similarity_top_k=3, filters=_and(_is("letter", "A")))
        )
        assert [node.node_id for node in filtered.nodes or []] == ["A"]
        assert {node.node_id for node in plain.get_nodes()} == {"A", "B", "C", "D", "E"}


def _long(
    node_id: str, words: int, triples: Iterable[tuple[str, str, str]] = (), document: str | None = None
) -> BaseNode:
    """Make a passage of so many words, none of them a stop word."""
    text = " ".join(f"{node_id}w{number % 97}" for number in range(words))
    return passage(node_id, text, triples, document=document)


def read_averages(store: GeARVectorStore) -> dict[str, float]:
    """Return the average length that each passage was weighed with, by its formula: BM25's, with k 1.2 and b 0.75."""
    averages = {}
    points, _ = store.client.scroll(store.collection_name, limit=1000, with_payload=True, with_vectors=True)
    for point in points:
        node = to_node(point)
        words = node.get_content().split()
        weights, length = point.vector["text-sparse-new"].values, len(words)
        count = max(map(words.count, set(words)))  # of the word that stands there most often
        norm = count * (2.2 - max(weights)) / max(weights)
        averages[node.node_id] = round(0.9 * length / (norm - 0.3), 1)
    return averages


def _triples(
    do: Driver, passage_ids: Sequence[str], filters: MetadataFilters | None = None
) -> set[tuple[str, str, str, str]]:
    found = do.read(filters).incident_flow([((), [passage_id]) for passage_id in passage_ids], [100] * len(passage_ids))
    triples = do.read(filters).fetch_triples_flow([triple.id for of_one in found for triple in of_one]).values()
    assert all(triple.id == triple.triple.id(triple.passage_id) for triple in triples)
    return {
        (triple.passage_id, triple.triple.subject, triple.triple.predicate, triple.triple.object) for triple in triples
    }


def _all_triples(do: Driver) -> set[tuple[str, str, str, str]]:
    points = contents(do.store).get(do.store.triple_collection_name, {})
    return {
        (payload["passage_id"], payload["subject"], payload["predicate"], payload["object"])
        for payload, _ in points.values()
    }


def _read(do: Driver, candidates: Sequence[Candidate]) -> list[StoredTriple]:
    facts: dict[str, StoredTriple] = do.read().fetch_triples_flow([candidate.id for candidate in candidates])
    return [replace(facts[candidate.id], score=candidate.score) for candidate in candidates]


def _check_scores(triples: Sequence[StoredTriple], query: Sequence[float]) -> None:
    """Check that scores are cosines with the query."""
    cosines = [float(np.dot(query, _EMBED.get_text_embedding(triple.triple.text))) for triple in triples]
    np.testing.assert_allclose([triple.score for triple in triples], cosines, atol=1e-5)
