"""TEXT_MATCH on a server: by words with a plain text index, refused without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import UnsupportedFilter
from llama_index_gear.store.filters import list_word_fields
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import aread, passage, read

EMBED = WordEmbedding(64)
TEXT = [{"field_name": "title", "field_schema": "text"}]
Index = dict[tuple[str, str], models.PayloadIndexInfo]


class Served:
    """Qdrant in memory that knows its payload indexes, as a server does; the store takes it for one."""

    def __init__(self) -> None:
        self.inner = QdrantClient(":memory:")
        self.indexes: Index = {}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self.inner, name)

    def query_batch_points(self, **arguments: Any) -> Any:
        return self.inner.query_batch_points(**arguments)

    def create_payload_index(self, collection_name: str, field_name: str, field_schema: Any, **options: Any) -> None:
        kind, params = field_schema, None
        if isinstance(field_schema, models.TextIndexParams | models.KeywordIndexParams):
            kind, params = field_schema.type.value, field_schema
        info = models.PayloadIndexInfo(data_type=models.PayloadSchemaType(kind), params=params, points=1)
        self.indexes[collection_name, field_name] = info

    def get_collection(self, collection_name: str) -> models.CollectionInfo:
        self.asked.append("get_collection")
        info = self.inner.get_collection(collection_name)
        schema = {field: index for (name, field), index in self.indexes.items() if name == collection_name}
        return info.model_copy(update={"payload_schema": schema})


def make_store(client: Any, **arguments: Any) -> GeARVectorStore:
    return GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True, **arguments)


def add_two(store: GeARVectorStore) -> None:
    for name, title in (("p", "red house by the sea"), ("q", "bar")):
        node = passage(name, title, [(name, "is", "Hub")], metadata={"title": title}, embed_model=EMBED)
        store.add([node])


def match_words(text: str, key: str = "title", operator: FilterOperator = FilterOperator.TEXT_MATCH) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=text, operator=operator)])


def list_calls(store: GeARVectorStore, filters: MetadataFilters) -> dict[str, Callable[[], Any]]:
    query = VectorStoreQuery(query_str="red", similarity_top_k=3, filters=filters)
    requests = (
        methodcaller("get_flow", ["p", "q"], vectors=False),
        methodcaller("search_flow", ["Hub"], 9),
        methodcaller("ids_flow"),
        methodcaller("passage_triples_flow", ["p"], [], 9),
    )
    return {
        "get_nodes": lambda: store.get_nodes(filters=filters),
        "query": lambda: store.query(query),
        "delete_nodes": lambda: store.delete_nodes(filters=filters),
        "copy_to": lambda: store.copy_to(make_store(QdrantClient(":memory:")), filters=filters),
        **{str(request): partial(request, read(store, filters)) for request in requests},
    }


def find(store: GeARVectorStore, filters: MetadataFilters) -> set[str]:
    found = {node.node_id for node in store.get_nodes(filters=filters)}
    assert {triple.passage_id for triple in read(store, filters).search_flow(["Hub"], 9)} == found
    return found


@pytest.mark.parametrize("operator", [FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_every_call_refuses_words_without_an_index(operator: FilterOperator, depth: int) -> None:
    store = make_store(Served())
    add_two(store)
    filters = match_words("red", operator=operator)
    for _ in range(depth):
        year = MetadataFilter(key="year", value=1)
        filters = MetadataFilters(filters=[year, filters], condition=FilterCondition.NOT)
    for name, call in list_calls(store, filters).items():
        with pytest.raises(UnsupportedFilter, match=r"text index of 'title' in 'gear'.*payload_indexes=.*repair\(\)"):
            call()
        assert len(store.get_nodes()) == 2, name


async def test_async_calls_refuse_them_too() -> None:
    store = make_store(Served())
    add_two(store)
    filters = match_words("red")
    query = VectorStoreQuery(query_str="red", similarity_top_k=3, filters=filters)
    for call in (
        lambda: store.aget_nodes(filters=filters),
        lambda: store.aquery(query),
        lambda: store.adelete_nodes(filters=filters),
        lambda: store.acopy_to(make_store(QdrantClient(":memory:")), filters=filters),
        lambda: aread(store, filters).get_flow(["p"], vectors=False),
    ):
        with pytest.raises(UnsupportedFilter, match="payload_indexes"):
            await call()


@pytest.mark.parametrize("heal", ["repair", "add"])
def test_an_index_is_made_for_a_store_that_had_none(heal: str) -> None:
    client = Served()
    add_two(make_store(client))
    store = make_store(client, collection_settings=CollectionSettings(payload_indexes=TEXT))
    with pytest.raises(UnsupportedFilter):
        store.get_nodes(filters=match_words("sea red"))
    if heal == "repair":
        assert store.repair().ok
    else:
        add_two(store)
    assert find(store, match_words("sea red")) == {"p"} and find(store, match_words("a")) == set()
    assert find(make_store(client), match_words("sea red")) == {"p"}  # whoever reads needn't name the index


def test_both_collections_need_the_index() -> None:
    client = Served()
    store = make_store(client, collection_settings=CollectionSettings(payload_indexes=TEXT))
    add_two(store)
    assert find(store, match_words("red")) == {"p"}
    del client.indexes["gear_triples", "metadata.title"]
    with pytest.raises(
        UnsupportedFilter, match="text index of 'metadata.title' in 'gear_triples'.*'field_name': 'title'"
    ):
        make_store(client).get_nodes(filters=match_words("red"))


def test_a_key_with_two_readings_needs_the_index_of_both() -> None:
    client = Served()
    store = make_store(
        client, collection_settings=CollectionSettings(payload_indexes=[{"field_name": "a.b", "field_schema": "text"}])
    )
    add_two(store)
    assert find(store, match_words("red", "a.b")) == set()
    del client.indexes["gear", '"a.b"']
    with pytest.raises(UnsupportedFilter, match="payload_indexes"):
        make_store(client).get_nodes(filters=match_words("red", "a.b"))


def make_params(**rules: Any) -> models.TextIndexParams:
    return models.TextIndexParams.model_validate({"type": "text", **rules})


RULES: list[tuple[Any, str]] = [
    ("keyword", "one index at most, here of type 'keyword': delete it with .*delete_payload_index"),
    (make_params(tokenizer="prefix"), "rules of its own.*prefix.*qdrant_filters"),
    (make_params(lowercase=False), "rules of its own.*lowercase"),
    (make_params(min_token_len=3), "rules of its own.*min_token_len"),
    (make_params(stopwords="english"), "rules of its own.*stopwords"),
]


@pytest.mark.parametrize(("schema", "words"), RULES, ids=lambda value: str(value)[:40])
def test_an_index_that_compares_otherwise_is_refused(schema: Any, words: str) -> None:
    store = make_store(
        Served(),
        collection_settings=CollectionSettings(payload_indexes=[{"field_name": "title", "field_schema": schema}]),
    )
    add_two(store)
    with pytest.raises(UnsupportedFilter, match=words):
        store.get_nodes(filters=match_words("red"))
    native = models.Filter(must=[models.FieldCondition(key="title", match=models.MatchText(text="red"))])
    query = VectorStoreQuery(query_str="red", similarity_top_k=3)
    assert store.query(query, qdrant_filters=native).ids == ["p"]


def test_an_index_with_plain_rules_in_so_many_words_is_taken() -> None:
    plain = make_params(tokenizer="word", lowercase=True, ascii_folding=False, on_disk=True, phrase_matching=True)
    store = make_store(
        Served(),
        collection_settings=CollectionSettings(payload_indexes=[{"field_name": "title", "field_schema": plain}]),
    )
    add_two(store)
    assert find(store, match_words("red sea")) == {"p"}


def test_indexes_are_looked_up_once_and_again_after_a_clear() -> None:
    client = Served()
    store = make_store(client, collection_settings=CollectionSettings(payload_indexes=TEXT))
    add_two(store)
    store.get_nodes(filters=match_words("red"))
    client.asked.clear()
    store.get_nodes(filters=match_words("red"))
    store.get_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="title", value="bar")]))
    assert "get_collection" not in client.asked
    make_store(client).clear()
    client.indexes.clear()
    add_two(make_store(client))
    with pytest.raises(UnsupportedFilter):
        store.get_nodes(filters=match_words("red"))


def test_engines_of_this_process_compare_words_without_an_index(tmp_path: Path) -> None:
    for store in (
        make_store(QdrantClient(":memory:")),
        GeARVectorStore.from_path(tmp_path / "plain", embed_model=EMBED, embed_triples=True),
        GeARVectorStore.from_path(
            tmp_path / "indexed",
            embed_model=EMBED,
            embed_triples=True,
            collection_settings=CollectionSettings(payload_indexes=TEXT),
        ),
    ):
        assert store.get_nodes(filters=match_words("red")) == []
        add_two(store)
        assert find(store, match_words("sea red")) == {"p"} and find(store, match_words("a")) == set()
        store.close()


def test_a_server_without_a_store_has_nothing_to_refuse() -> None:
    assert make_store(Served()).get_nodes(filters=match_words("red")) == []


def test_fields_are_found_wherever_words_are_compared() -> None:
    inner = match_words("x", "a.b")
    both = MetadataFilters(filters=[MetadataFilter(key="year", value=1), inner, *match_words("y", "c").filters])
    assert list_word_fields(both) == ['"a.b"', "a.b", "c"] and list_word_fields(None) == []
