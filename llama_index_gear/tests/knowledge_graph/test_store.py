"""An external graph: loaded once, resumed, searched by words or by meaning, shared; on both local engines."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.settings import Settings
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, EmbeddingError, StoreError
from llama_index_gear.knowledge_graph import store as graph_store
from llama_index_gear.knowledge_graph.store import ExternalTripleStore, LoadResult
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import aread, passage, read
from llama_index_gear.triple import GraphTriple, StoredTriple, Triple

EMBED = WordEmbedding()
QUESTION = "where was the director born"
TRIPLES = [
    GraphTriple(Triple("Jaws", "director", "Steven Spielberg"), ("Q1", "Q2")),
    GraphTriple(Triple("Steven Spielberg", "born in", "Cincinnati"), ("Q2", "Q3")),
    GraphTriple(Triple("Steven Spielberg", "spouse", "Kate Capshaw"), ("Q2", "Q4")),
    GraphTriple(Triple("Cincinnati", "river", "Ohio"), ("Q3", "Q5")),
    GraphTriple(Triple("Steven Spielberg", "alias", "Spielberg"), ("Q2",), is_name=True),
    GraphTriple(Triple("Steven Spielberg", "plays", "football"), ("Q9", "Q8")),  # another of this name
]
DIRECTOR, BORN, SPOUSE, RIVER, ALIAS, NAMESAKE = TRIPLES

Make = Callable[..., ExternalTripleStore]


@pytest.fixture(params=["edge", "memory", "native"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[ExternalTripleStore] = []
    clients: dict[str, Any] = {}
    if request.param == "edge":
        clients["client"] = EdgeClient(tmp_path / "graph")
    elif request.param == "memory":
        clients["client"] = QdrantClient(":memory:")
    else:
        clients["aclient"] = AsyncQdrantClient(":memory:")

    def make(**arguments: Any) -> ExternalTripleStore:
        made.append(ExternalTripleStore(**clients, **{"embed_model": EMBED, **arguments}))
        return made[-1]

    yield make
    if "client" in clients:
        clients["client"].close()


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest, make: Make) -> str:
    if "native" in request.node.name and request.param == "sync":
        pytest.skip("an async client alone")
    return str(request.param)


async def call(mode: str, graph: ExternalTripleStore, method: str, *arguments: Any, **options: Any) -> Any:
    if mode == "sync":
        return getattr(graph, method)(*arguments, **options)
    return await getattr(graph, f"a{method}")(*arguments, **options)


async def ask(mode: str, graph: ExternalTripleStore, request: Callable[[Any], Any]) -> Any:
    return request(read(graph)) if mode == "sync" else await request(aread(graph))


def embed(text: str) -> list[float]:
    return EMBED.get_query_embedding(text)


def compute_cosine(one: str, two: str) -> float:
    return float(np.dot(embed(one), embed(two)))


async def test_load_link_and_walk(make: Make, mode: str) -> None:
    graph = make()
    assert await call(mode, graph, "count") == 0
    assert await call(mode, graph, "load", iter(TRIPLES)) == LoadResult(read=6, written=6)
    assert await call(mode, graph, "count") == 6
    texts = ["Spielberg is the director of Jaws", "The river of Cincinnati"]
    linked = await ask(mode, graph, methodcaller("link_flow", texts, 1, embed(QUESTION)))
    assert [[triple.triple for triple in answer] for answer in linked] == [[DIRECTOR.triple], [RIVER.triple]]
    names = ["Jaws Steven Spielberg", "Cincinnati river"]
    assert await ask(mode, graph, methodcaller("link_flow", texts, 1, embed(QUESTION), names)) == linked
    (start,), _ = linked
    assert (start.id, start.entities, start.passage_id) == (DIRECTOR.id, ("Q1", "Q2"), "")
    assert start.score == pytest.approx(compute_cosine(QUESTION, DIRECTOR.triple.text), abs=1e-5)

    request = methodcaller(
        "neighbors_flow", [start.entities, RIVER.entities], embed(QUESTION), [start.id], 10, QUESTION
    )
    near, of_river = await ask(mode, graph, request)
    assert {triple.id for triple in near} == {BORN.id, SPOUSE.id}  # no alias, and not the one of the same name
    (alias,) = (await ask(mode, graph, methodcaller("link_flow", ["alias Spielberg"], 1, embed(QUESTION))))[0]
    assert (alias.id, alias.entities) == (ALIAS.id, ("Q2",))
    assert {triple.id for triple in of_river} == {BORN.id, RIVER.id}
    for found in (near, of_river):
        texts_of = {triple.id: triple.triple.text for triple in TRIPLES}
        expected = [compute_cosine(QUESTION, texts_of[triple.id]) for triple in found]
        assert [triple.score for triple in found] == pytest.approx(expected, abs=1e-5)
        assert expected == sorted(expected, reverse=True)
    assert near[0].id == BORN.id

    facts = await ask(
        mode, graph, methodcaller("fetch_triples_flow", [BORN.id, "00000000-0000-0000-0000-000000000000"])
    )
    assert facts == {BORN.id: StoredTriple(BORN.id, BORN.triple, "", 0.0, BORN.entities)}
    pairs = [([start.id], [BORN.id, SPOUSE.id]), ([start.id, BORN.id], [RIVER.id]), ([RIVER.id], [])]
    products = await ask(mode, graph, methodcaller("similarities_flow", pairs))
    assert [list(map(float, row)) for row in products] == [
        pytest.approx(
            [compute_cosine(DIRECTOR.triple.text, triple.triple.text) for triple in (BORN, SPOUSE)], abs=1e-5
        ),
        pytest.approx(
            [
                compute_cosine(DIRECTOR.triple.text, RIVER.triple.text)
                + compute_cosine(BORN.triple.text, RIVER.triple.text)
            ],
            abs=1e-5,
        ),
        [],
    ]


async def test_a_load_that_was_killed_goes_on(make: Make, mode: str) -> None:
    """After a kill at any triple, a load writes nothing twice, and the graph equals that of an undisturbed load."""
    graph = make(batch_size=2)

    def die(after: int) -> Iterator[GraphTriple]:
        yield from TRIPLES[:after]
        raise KeyboardInterrupt

    written = 0
    for after in range(len(TRIPLES)):
        with pytest.raises(KeyboardInterrupt):
            await call(mode, graph, "load", die(after))
        assert await call(mode, graph, "count") == after // 2 * 2
    written = await call(mode, graph, "count")
    assert await call(mode, graph, "load", TRIPLES) == LoadResult(read=6, written=6 - written)
    assert await call(mode, graph, "load", [*TRIPLES, *TRIPLES]) == LoadResult(read=12, written=0)


async def test_triples_of_ones_own_are_neighbours_by_name(make: Make, mode: str) -> None:
    graph = make()
    await call(
        mode, graph, "load", [Triple("Jaws", "director", "S. Spielberg"), Triple("s spielberg", "born in", "Ohio")]
    )
    (near,) = await ask(mode, graph, methodcaller("neighbors_flow", [("s spielberg",)], embed("x"), [], 5, "x"))
    assert len(near) == 2


async def test_what_shares_no_word_with_the_question_is_a_neighbour_too(make: Make, mode: str) -> None:
    """Neighbors that share words come first; others fill the limit."""
    graph = make()
    hub = [GraphTriple(Triple("Hub", f"p{n}", f"thing{n}"), ("Q0", f"Q{n + 1}")) for n in range(30)]
    await call(mode, graph, "load", [*hub, GraphTriple(Triple("Hub", "born", "Rome"), ("Q0", "Q99"))])
    (near,) = await ask(mode, graph, methodcaller("neighbors_flow", [("Q0",)], embed(QUESTION), [], 10, QUESTION))
    facts = await ask(mode, graph, methodcaller("fetch_triples_flow", [triple.id for triple in near]))
    assert len(near) == 10 and facts[near[0].id].triple.predicate == "born"


async def test_names_say_where_to_look(make: Make, mode: str) -> None:
    """A link is the best by all words of the triples that share a name, or of all triples if none does."""
    graph = make()
    await call(mode, graph, "load", TRIPLES)
    for names, expected in (((), RIVER), (("Steven Spielberg",), SPOUSE), (("Zzz",), RIVER)):
        ((linked,),) = await ask(mode, graph, methodcaller("link_flow", ["river Ohio spouse"], 1, embed("x"), names))
        assert linked.triple == expected.triple


async def test_a_graph_that_is_not_there(make: Make, mode: str) -> None:
    with pytest.raises(StoreError, match="no graph 'graph' yet: load triples into it first"):
        await ask(mode, make(), methodcaller("link_flow", ["x"], 1, embed("x")))
    await call(mode, make(), "clear")  # nothing to do
    assert await call(mode, make(), "load", []) == LoadResult()


async def test_a_graph_that_was_cleared_is_gone(make: Make, mode: str) -> None:
    graph = make()
    await call(mode, graph, "load", TRIPLES)
    await call(mode, graph, "clear")
    with pytest.raises(StoreError, match="no graph"):
        await ask(mode, graph, methodcaller("link_flow", ["x"], 1, embed("x")))


async def test_another_embedding_model_is_refused(make: Make, mode: str) -> None:
    graph = make()
    await call(mode, graph, "load", TRIPLES)
    with pytest.raises(EmbeddingError, match="give the graph the embedding model of the passages"):
        await ask(mode, graph, methodcaller("link_flow", ["Jaws"], 1, [1.0, 0.0]))


async def test_texts_without_words_link_to_nothing(make: Make, mode: str) -> None:
    graph = make()
    await call(mode, graph, "load", TRIPLES)
    assert await ask(mode, graph, methodcaller("link_flow", ["", "the", "中"], 3, embed("x"))) == [[], [], []]
    assert await ask(mode, graph, methodcaller("link_flow", [], 3, embed("x"))) == []
    assert await ask(mode, graph, methodcaller("neighbors_flow", [], embed("x"), [], 3, "")) == []
    assert await ask(mode, graph, methodcaller("similarities_flow", [])) == []


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="batch_size"):
        ExternalTripleStore.from_path(tmp_path, batch_size=0)
    with pytest.raises(ArgumentError, match="BM25 cannot be set up"):
        ExternalTripleStore.from_path(tmp_path, language="klingon")
    with pytest.raises(ArgumentError, match="from_path"):
        ExternalTripleStore()
    graph = ExternalTripleStore.from_path(tmp_path / "graph", embed_model=EMBED)
    graph.load(TRIPLES)
    for request in (
        methodcaller("link_flow", ["x"], 0, embed("x")),
        methodcaller("neighbors_flow", [("Q1",)], embed("x"), [], 0, "x"),
    ):
        with pytest.raises(ArgumentError, match="1 or more"):
            request(read(graph))
    graph.close()
    other = EdgeClient(tmp_path / "other")
    other.create_collection("graph", models.VectorParams(size=3, distance=models.Distance.COSINE))
    with pytest.raises(StoreError, match="holds no graph"):
        read(ExternalTripleStore(client=other, embed_model=EMBED)).fetch_triples_flow(["x"])
    other.close()


def test_a_store_of_passages_is_no_graph(tmp_path: Path) -> None:
    """A graph neither reads, writes nor clears a store's collections."""
    client = EdgeClient(tmp_path)
    store = GeARVectorStore(client=client, embed_model=EMBED)
    store.add([passage("p", "It is a film.", [("It", "is", "film")])])
    for name in (store.collection_name, store.triple_collection_name):
        graph = ExternalTripleStore(client=client, collection_name=name, embed_model=EMBED)
        for attempt in (
            lambda graph=graph: read(graph).fetch_triples_flow(["x"]),
            lambda graph=graph: graph.load(TRIPLES),
            graph.clear,
        ):
            with pytest.raises(StoreError, match="holds no graph"):
                attempt()
    assert [node.node_id for node in store.get_nodes()] == ["p"]
    store.close()


async def test_what_is_no_triple_is_refused(make: Make, mode: str) -> None:
    for wrong in ([("a", "b", "c")], "graph.tsv"):
        with pytest.raises(ArgumentError, match="load takes triples, got"):
            await call(mode, make(), "load", wrong)


def test_a_load_that_was_killed_before_the_index_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    graph = ExternalTripleStore.from_path(tmp_path, embed_model=EMBED)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(EdgeClient, "create_payload_index", die)
        graph.load(TRIPLES)
    graph.close()
    graph = ExternalTripleStore.from_path(tmp_path, embed_model=EMBED)
    assert graph.load(TRIPLES).written == 6
    assert set(graph.client.get_collection("graph").payload_schema) == {"entities"}
    graph.close()


async def test_two_loads_at_once(make: Make) -> None:
    graph, other = make(batch_size=2), make(batch_size=2)
    await asyncio.gather(graph.aload(TRIPLES), other.aload(TRIPLES))
    assert await graph.acount() == 6


def test_the_model_of_settings_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "_embed_model", EMBED)
    graph = ExternalTripleStore.from_path(tmp_path)
    graph.load(TRIPLES, show_progress=True)
    assert read(graph).link_flow(["Jaws"], 1, embed("x"))[0][0].triple == DIRECTOR.triple
    graph.close()
    again = ExternalTripleStore.from_path(tmp_path)  # it is on the disk
    assert again.count() == 6
    again.close()


class Counting(WordEmbedding):
    """An embedding model that counts the texts that it embedded."""

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        EMBEDDED.append(len(texts))
        return super()._get_text_embeddings(texts)


EMBEDDED: list[int] = []


def test_triples_are_embedded_when_they_are_met_and_then_remembered(tmp_path: Path) -> None:
    graph = ExternalTripleStore.from_path(tmp_path, embed_model=Counting())
    EMBEDDED.clear()
    graph.load(TRIPLES)
    assert sum(EMBEDDED) == 0
    request = methodcaller("neighbors_flow", [("Q2",)], embed(QUESTION), [], 10, QUESTION)
    first = request(read(graph))
    assert sum(EMBEDDED) == len(first[0]) == 3
    assert request(read(graph)) == first and sum(EMBEDDED) == 3
    graph._graph._vectors.clear()  # forgotten between two requests of one question
    products = read(graph).similarities_flow([([DIRECTOR.id], [BORN.id])])
    assert products == [[pytest.approx(compute_cosine(DIRECTOR.triple.text, BORN.triple.text), abs=1e-5)]]
    assert read(graph).similarities_flow([(["00000000-0000-0000-0000-000000000000"], [BORN.id])]) == [[0.0]]
    graph.close()


def test_vectors_are_forgotten_before_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_store, "_MAX_VECTORS", 4)
    with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as graph:
        graph.load(TRIPLES)
        request = methodcaller("neighbors_flow", [("Q2",)], embed(QUESTION), [], 10, QUESTION)
        first = request(read(graph))
        read(graph).link_flow(["river Ohio", "plays football"], 1, embed(QUESTION))
        assert len(graph._graph._vectors) == 2 and request(read(graph)) == first


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_are_those_of_a_search_through_all(tmp_path: Path, seed: int) -> None:
    """They are all, as long as no entity has more triples than the limit."""
    chance = random.Random(seed)
    words = "red green blue film city river king war song book".split()
    triples = [
        GraphTriple(
            Triple(f"{chance.choice(words)} {s}", chance.choice(words), f"{chance.choice(words)} {o}"),
            (f"Q{s}", f"Q{o}"),
        )
        for s, o in ((chance.randrange(20), chance.randrange(20, 40)) for _ in range(150))
    ]
    unique = {triple.id: triple for triple in triples}
    query = "red river of the king"
    asked = [tuple(triple.entities) for triple in chance.sample(triples, 5)]
    exclude = [triple.id for triple in chance.sample(triples, 10)]
    with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as graph:
        assert graph.load(triples) == LoadResult(150, len(unique))
        found = read(graph).neighbors_flow(asked, embed(query), exclude, 100, query)
    for entities, near in zip(asked, found, strict=True):
        expected = {
            triple_id: compute_cosine(query, triple.triple.text)
            for triple_id, triple in unique.items()
            if set(triple.entities) & set(entities) and triple_id not in exclude
        }
        assert {triple.id: triple.score for triple in near} == pytest.approx(expected, abs=1e-5)


def test_ids_tell_namesakes_apart() -> None:
    triple = Triple("A", "b", "C")
    ids = [GraphTriple(triple, entities).id for entities in (("Q1", "Q2"), ("Q1", "Q3"), ("Q2", "Q1"), ())]
    assert len(set(ids)) == 4 and all(one != two for one, two in itertools.pairwise(ids))
