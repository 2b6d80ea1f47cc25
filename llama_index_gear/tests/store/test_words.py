"""BM25 of long texts and words: no text holds the engine up, and a question's length is bounded."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import (
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from qdrant_client.http.models import SparseVector
from qdrant_edge import Bm25, Bm25Config

from llama_index_gear.errors import MAX_QUESTION, ArgumentError
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch
from llama_index_gear.query_engines.gear import GeARQueryEngine
from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever, SyncGERetriever
from llama_index_gear.retrievers.paper_gear import ExternalGeARRetriever, PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store import bm25 as store_bm25
from llama_index_gear.store.bm25 import learn_average, make_encoder
from llama_index_gear.store.schema import to_node, to_sparse_vector
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import passage, read
from llama_index_gear.tests.test_characters import SPELLINGS
from llama_index_gear.triple import SPACELESS, Triple

EMBED = WordEmbedding(32)
LONGEST = 2_000
RUN = "y" * 300_000
WORDS = re.compile(r"[^\W_]+")
BETWEEN = re.compile(f"[{store_bm25._SEPARATORS}]")


def spell(text: str) -> str:
    """Return the one spelling of a text."""
    plain = "".join(mark for mark in text if unicodedata.category(mark) != "Cf")
    return unicodedata.normalize("NFKC", plain).replace("ß", "ss").replace("ẞ", "SS")


def pair(text: str) -> str:
    """Return a text of whose runs of letters without spaces every two neighbors are a word."""
    return re.sub(f"[{SPACELESS}]+", lambda run: f" {' '.join(map(''.join, pairwise(run[0]))) or run[0]} ", text)


def encode_plainly(text: str) -> tuple[Any, Any]:
    """Return Qdrant's own vectors of a text, or of the pairs of letters of a script without spaces."""
    text = pair(spell(text))
    bm25 = Bm25(Bm25Config(language="english", avg_len=60.0))
    found = bm25.embed_document(text), bm25.embed_query(text)
    return tuple((vector.indices, vector.values) for vector in found)  # type: ignore[return-value]


def encode(text: str) -> tuple[Any, Any]:
    bm25 = make_encoder("english", 60.0)
    found = bm25.embed_document(text), bm25.embed_query(text)
    return tuple((vector.indices, vector.values) for vector in found)  # type: ignore[return-value]


ORDINARY = {
    "english": "The quick brown foxes were jumping over lazy dogs. " * 200,
    "url": "https://example.org/" + "/".join(f"part-{n}_of.it?q={n}&r=%20" for n in range(500)),
    "base64": "data:image/png;base64," + "iVBORw0KGgo/AAAANSUhEUg+AAAAUA" * 400,
    "chinese": "我们在北京的大学里学习计算机科学。今天天气很好，我们去公园散步！" * 100,
    "japanese": "東京々は日本の首都である。人口は約千四百万人「世界最大級」の都市圏を形成する、と言われる。" * 100,
    "thai": ("ภาษาไทยเป็นภาษาที่เขียนติดกันโดยไม่มีการเว้นวรรคระหว่างคำ" * 20 + " ") * 5,
    "tibetan": "བོད་སྐད་ནི་བོད་ཀྱི་སྐད་ཡིག་ཡིན།" * 100,
    "the longest word": "z" * LONGEST + " end",
    "lines": "\n".join("word" for _ in range(5_000)),
    "marks": "".join(f"don{mark}t" for mark in map(chr, range(0x10000)) if BETWEEN.fullmatch(mark)) * 2,
}


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_texts_have_the_engine_s_own_vectors_to_the_digit(text: str) -> None:
    assert len(text) >= LONGEST and encode(text) == encode_plainly(text)


@given(st.text(max_size=200), st.sampled_from([" ", "\n", "。", "-", "/"]))
def test_texts_of_short_words_do_to_the_digit(text: str, between: str) -> None:
    repeated = between.join([text] * (LONGEST // max(1, len(text)) + 2))
    assert encode(repeated) == encode_plainly(repeated)


@pytest.mark.parametrize("run", ["y" * 5_000, "ł" * 5_000, "ك" * 5_000, "ab1" * 2_000])
def test_an_overlong_word_counts_as_its_pieces_and_is_found_by_itself(run: str) -> None:
    pieces = [run[start : start + LONGEST] for start in range(0, len(run), LONGEST)]
    assert encode(f"see {run}, there") == encode_plainly(f"see {' '.join(pieces)}, there")
    asked, stored = (
        make_encoder("english", 60.0).embed_query(run),
        make_encoder("english", 60.0).embed_document(f"x {run} y"),
    )
    assert set(asked.indices) <= set(stored.indices)


@pytest.mark.parametrize("average", [1.0, 8.0, 60.0, 87.5, 4_000.0])
@pytest.mark.parametrize("text", ["fox", "fox dog " * 700, *ORDINARY.values()])
def test_weights_tell_whether_they_were_made_with_an_average_length(text: str, average: float) -> None:
    stored = to_sparse_vector(Bm25(Bm25Config(language="english", avg_len=average)).embed_document(pair(spell(text))))
    assert make_encoder("english", average).fits(text, stored)
    assert make_encoder("english", 60.0).fits(text, stored) is (average == 60.0)


def test_weights_of_other_words_are_another_programs() -> None:
    encoder = make_encoder("english", 60.0)
    assert encoder.fits("the quick fox", None) and encoder.fits("the quick fox", encoder.embed_document("fox"))
    assert not encoder.has_words("the quick fox", encoder.embed_document("fox"))
    assert encoder.measure("The fox met a fox, and foxes.") == 4


@pytest.mark.parametrize(("words", "average"), [(1, 60.0), (63, 60.0), (66, 70.0), (1_234, 1_230.0)])
def test_a_learned_average_length_is_a_multiple_of_ten_and_no_less_than_sixty(words: int, average: float) -> None:
    encoder = make_encoder("english", 60.0)
    lengths = [encoder.measure(text) for text in ("fox the " * (words - 1), "a dog " * (words + 1))]
    assert lengths == [words - 1, words + 1] and learn_average(lengths) == average
    assert learn_average([]) == 60.0


class Heard:
    """Qdrant's BM25 that records the longest word it was given."""

    longest = 0

    def __init__(self, config: Bm25Config) -> None:
        self._bm25 = Bm25(config)

    def _hear(self, text: str) -> str:
        Heard.longest = max([Heard.longest, *map(len, WORDS.findall(text))])
        return text

    def embed_document(self, text: str) -> Any:
        return self._bm25.embed_document(self._hear(text))

    def embed_query(self, text: str) -> Any:
        return self._bm25.embed_query(self._hear(text))


def test_no_overlong_word_reaches_the_engine_whatever_text_it_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heard, "longest", 0)
    monkeypatch.setattr(store_bm25, "Bm25", Heard)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED, embed_triples=True)
    question = RUN[:MAX_QUESTION]
    store.add([passage("p", f"a {RUN} b", [(RUN, "is", f"the {RUN}")], embed_model=EMBED)])
    for mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID):
        found = store.query(VectorStoreQuery(query_str=question, mode=mode, similarity_top_k=1))
        assert found.ids == ["p"]
    ((aligned,),) = read(store).align_flow([RUN], 1)
    assert aligned.node.node_id == "p"
    graph = ExternalTripleStore.from_path(tmp_path / "graph", embed_model=EMBED)
    graph.load([Triple(RUN, "is", "x"), Triple("y", "is", "x")])
    query = EMBED.get_query_embedding("x")
    ((linked,),) = read(graph).link_flow([f"{RUN} is"], 1, query, [RUN])
    assert linked.triple.subject == RUN
    read(graph).neighbors_flow([("x",)], query, [], 1, question)
    assert 0 < Heard.longest <= LONGEST


# -- questions -----------------------------------------------------------------------------------------------------


LONG = "why " * (MAX_QUESTION // 4) + "?"


@pytest.fixture
def store(tmp_path: Path) -> GeARVectorStore:
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED, embed_triples=True)
    store.add([passage("p", "Ada knows Bob.", [("Ada", "knows", "Bob")], embed_model=EMBED)])
    return store


def make_retrievers(store: GeARVectorStore, folder: Path) -> list[BaseRetriever]:
    graph = ExternalTripleStore.from_path(folder / "graph", embed_model=EMBED)
    llm = ScriptedLLM()  # a call would be an AssertionError
    return [
        NaiveGERetriever(store),
        NaiveGERetriever(store, graph=graph),
        SyncGERetriever(store, llm=llm),
        PaperGeARRetriever(SyncGERetriever(store, llm=llm)),
        T2RAGRetriever(store, llm=llm),
        ExternalGeARRetriever(SyncGERetriever(store, llm=llm, graph=graph)),
        RankBM25Retriever(store.get_nodes()),
    ]


@pytest.mark.parametrize("number", range(7))
async def test_no_retriever_reads_a_question_beyond_the_limit(
    store: GeARVectorStore, tmp_path: Path, number: int
) -> None:
    retriever = make_retrievers(store, tmp_path)[number]
    with pytest.raises(ArgumentError, match=r"the question has 100,001 characters.*100,000"):
        retriever.retrieve(LONG)
    with pytest.raises(ArgumentError, match="100,001 characters"):
        await retriever.aretrieve(LONG)


async def test_no_engine_no_postprocessor_and_no_store_does(store: GeARVectorStore) -> None:
    llm = ScriptedLLM()
    for engine in (
        GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm))),
        T2RAGQueryEngine(T2RAGRetriever(store, llm=llm)),
    ):
        with pytest.raises(ArgumentError, match="100,001 characters"):
            engine.query(LONG)
        with pytest.raises(ArgumentError, match="100,001 characters"):
            await engine.aquery(LONG)
    with pytest.raises(ArgumentError, match="100,001 characters"):
        DiverseTripleBeamSearch(store, llm=llm).postprocess_nodes([], QueryBundle(LONG))
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID):
        with pytest.raises(ArgumentError, match="100,001 characters"):
            store.query(VectorStoreQuery(query_str=LONG, mode=mode))


def test_a_question_at_the_limit_is_one(store: GeARVectorStore) -> None:
    (found,) = NaiveGERetriever(store).retrieve(f"{'Ada ':<{MAX_QUESTION - 1}}?")
    assert found.node.node_id == "p"


@pytest.mark.parametrize(
    ("text", "question", "other"),
    [
        ("陈国强是一位工程师，出生于青田镇。", "谁出生在青田镇？", "山顶的气象站测量风和雪。"),
        ("レオ・トルストイはロシアの作家である。", "ロシアの作家は誰か", "人口は多い。"),
        ("เขาอาศัยอยู่ในกรุงเทพ", "กรุงเทพ", "แม่น้ำยาวมาก"),
    ],
)
@pytest.mark.parametrize("language", ["english", "chinese"])
def test_texts_without_spaces_between_words_share_pairs_of_letters(
    language: str, text: str, question: str, other: str
) -> None:
    encoder = make_encoder(language, 60.0)
    asked = encoder.split_words(question)
    assert len(asked & encoder.split_words(text)) > len(asked & encoder.split_words(other))
    assert set(encoder.embed_document(text).indices) >= asked & encoder.split_words(text)
    assert encoder.fits(text, encoder.embed_document(text)) and encoder.measure(text) > 10


# -- one spelling ------------------------------------------------------------------------------------------------------


def is_found(store: GeARVectorStore, question: str) -> bool:
    """Return True if BM25 finds the passage "p" for a question."""
    return "p" in (store.query(VectorStoreQuery(query_str=question, mode=VectorStoreQueryMode.SPARSE)).ids or ())


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_a_word_is_found_however_question_and_passage_spell_it(tmp_path: Path, one: str, other: str) -> None:
    for number, (written, asked) in enumerate([(one, other), (other, one)]):
        store = GeARVectorStore.from_path(tmp_path / f"s{number}", embed_model=EMBED)
        store.add([passage("p", f"It says {written} here.", [], embed_model=EMBED)])
        assert is_found(store, asked) and store.check().ok
        assert [found.node.node_id for found in RankBM25Retriever(store.get_nodes()).retrieve(asked)] == ["p"]
        store.close()


# -- words of passages that are gone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["delete", "replace", "delete documents", "by filter"])
async def test_words_of_passages_that_are_gone_no_longer_count(tmp_path: Path, how: str) -> None:
    """The order and the scores of an answer do not depend on what the store held before."""

    def make(number: int, text: str) -> Any:
        return passage(f"{number:03}", text, [(f"N{number}", "of", text)], document=f"d{number}", embed_model=EMBED)

    gone = [make(n, f"kiwi harvest report {n}") for n in range(60)]
    kept = [make(100, "kiwi bird of the island"), *(make(101 + n, f"plum jam recipe {n}") for n in range(9))]
    replaced = [make(n, f"engine manual {n}") for n in range(60)] if how == "replace" else []
    store = GeARVectorStore.from_path(
        tmp_path / "store", embed_model=EMBED, collection_settings=CollectionSettings(bm25_avg_len=60.0)
    )
    store.add([*gone, *kept])
    if how == "delete":
        store.delete_nodes([node.node_id for node in gone])
    elif how == "replace":
        await store.async_add(replaced)
    elif how == "delete documents":
        for node in gone:
            await store.adelete(node.ref_doc_id or "")
    else:
        words = MetadataFilter(key="doc_id", value=[f"d{n}" for n in range(60)], operator=FilterOperator.IN)
        store.delete_nodes(filters=MetadataFilters(filters=[words]))
    fresh = GeARVectorStore.from_path(
        tmp_path / "fresh", embed_model=EMBED, collection_settings=CollectionSettings(bm25_avg_len=60.0)
    )
    fresh.add([*replaced, *kept])
    asked = VectorStoreQuery(query_str="plum or kiwi?", mode=VectorStoreQueryMode.SPARSE, similarity_top_k=20)
    found, expected = store.query(asked), fresh.query(asked)
    assert found.ids and found.ids == expected.ids and found.ids[0] == "100"
    assert found.similarities == pytest.approx(expected.similarities)
    assert (await store.aquery(asked)).similarities == found.similarities
    vector = EMBED.get_query_embedding("kiwi")
    for request in (
        methodcaller("align_flow", ["plum or kiwi?"], 20),
        methodcaller("lists_flow", "plum or kiwi?", vector, [VectorStoreQueryMode.SPARSE], 20),
    ):
        (lists,) = request(read(store))
        nodes = [scored.node if isinstance(scored, NodeWithScore) else to_node(scored) for scored in lists]
        assert [node.node_id for node in nodes] == expected.ids
    store.close()
    assert store.query(asked).ids == found.ids, "opened anew"


def test_words_of_facts_that_are_gone_no_longer_count(tmp_path: Path) -> None:
    store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED, embed_triples=True)
    store.add([passage(f"p{n}", "x", [(f"Kiwi {n}", "of", "farm")], embed_model=EMBED) for n in range(60)])
    store.add([passage(f"q{n}", "x", [(f"Plum {n}", "of", "farm")], embed_model=EMBED) for n in range(9)])
    store.add([passage("r", "x", [("Kiwi bird", "of", "island")], embed_model=EMBED)])
    store.delete_nodes([f"p{n}" for n in range(60)])
    before = store.client.query_points(store.triple_collection_name, _ask("plum kiwi"), using="text-sparse-new").points
    store.close()
    after = store.client.query_points(store.triple_collection_name, _ask("plum kiwi"), using="text-sparse-new").points
    assert [(point.id, round(point.score, 4)) for point in before] == [(p.id, round(p.score, 4)) for p in after]


def _ask(text: str) -> SparseVector:
    return make_encoder("english", 8.0).embed_query(text)
