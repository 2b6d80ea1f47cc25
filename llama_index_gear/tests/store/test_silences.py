"""A search that would silently find nothing says so, once, in the log; ingestion is logged too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import MarkdownNodeParser
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import Document, TextNode, TransformComponent

from llama_index_gear import (
    GeARQueryEngine,
    GeARRetriever,
    GeARTripleExtractor,
    GeARVectorStore,
    GraphRetriever,
    MentionTripleExtractor,
    NaiveGERetriever,
    SyncGERetriever,
    T2RAGRetriever,
    passage_id,
)
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

EMBED = WordEmbedding(32)
NODES = [
    TextNode(id_="a", text="Ada Lovelace wrote to Charles Babbage.", metadata={"title": "Ada Lovelace"}),
    TextNode(id_="b", text="Charles Babbage was born in London.", metadata={"title": "Charles Babbage"}),
]
FACT = '{"triples": [["Ada Lovelace", "wrote to", "Charles Babbage"]]}'
SELECTION = '{"needed": [1], "facts": [], "answerable": true, "answer": "London"}'
RETRIEVERS: dict[str, Callable[[GeARVectorStore], BaseRetriever]] = {
    "GraphRetriever": GraphRetriever,
    "NaiveGE": NaiveGERetriever,
    "SyncGE": lambda store: SyncGERetriever(store, llm=ScriptedLLM(otherwise=lambda _: FACT)),
    "GeAR": lambda store: GeARRetriever(store, llm=ScriptedLLM(otherwise=lambda _: SELECTION)),
    "T2RAG": lambda store: T2RAGRetriever(store, llm=ScriptedLLM(otherwise=lambda _: FACT)),
}


def find_warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("llama_index_gear")
        and record.levelno == logging.WARNING
        and words in record.getMessage()
    ]


def ingest(store: GeARVectorStore, *, with_triples: bool) -> None:
    steps: list[TransformComponent] = [MentionTripleExtractor(), EMBED] if with_triples else [EMBED]
    IngestionPipeline(transformations=steps, vector_store=store).run(nodes=NODES)


@pytest.mark.parametrize("make", RETRIEVERS.values(), ids=RETRIEVERS.keys())
@pytest.mark.parametrize("with_triples", [True, False])
def test_a_graph_retriever_over_passages_without_triples_warns_once(
    make: Callable[[GeARVectorStore], BaseRetriever],
    with_triples: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with GeARVectorStore.from_path(tmp_path, embed_model=EMBED, embed_triples=True) as store:
        ingest(store, with_triples=with_triples)
        for _ in range(2):
            make(store).retrieve("Where was the correspondent of Ada Lovelace born?")
    expected = [] if with_triples else [f"the store in {tmp_path} has passages and no triples"]
    found = find_warnings(caplog, "no triples")
    assert [message.split(":")[0] for message in found] == expected
    assert all("MentionTripleExtractor()" in message for message in found)


def test_a_search_where_nothing_is_stored_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with GeARVectorStore.from_path(tmp_path / "mistyped", embed_model=EMBED) as store:
        assert GraphRetriever(store).retrieve("Who?") == []
        assert asyncio.run(VectorStoreIndex.from_vector_store(store, EMBED).as_retriever().aretrieve("Who?")) == []
        (message,) = find_warnings(caplog, "nothing is stored")
        assert f"in {tmp_path / 'mistyped'}: there is no collection 'gear'" in message
        assert not (tmp_path / "mistyped").exists()
        assert store.get_nodes() == [] and find_warnings(caplog, "triples") == []
    caplog.clear()
    with GeARVectorStore.from_path(tmp_path / "new", embed_model=EMBED) as store:
        ingest(store, with_triples=True)
        assert GraphRetriever(store).retrieve("Who was Babbage?")
    assert find_warnings(caplog, "") == []


def test_an_ingestion_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="llama_index_gear")
    with GeARVectorStore.from_path(tmp_path, embed_model=EMBED, embed_triples=True) as store:
        ingest(store, with_triples=True)
        triples = store.check().triples
        store.add([])
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("llama_index_gear")]
    found, stored = (line.rsplit(" in ", 1)[0] for line in lines)
    assert (found, stored) == (f"{triples} triples found in 2 passages", f"2 passages with {triples} triples stored")
    assert all(float(line.rsplit(" ", 2)[1]) >= 0 and line.endswith(" s") for line in lines)
    caplog.clear()
    GeARTripleExtractor(llm=ScriptedLLM(otherwise=lambda _: FACT))(NODES)
    assert "extraction: 2 passages (2 extracted; " in caplog.text


def test_a_cut_off_made_for_cosines_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with GeARVectorStore.from_path(tmp_path, embed_model=EMBED, embed_triples=True) as store:
        llm = ScriptedLLM()
        for cutoff, warns in ((0.7, 1), (0.0, 0)):
            caplog.clear()
            processors = [SimilarityPostprocessor(similarity_cutoff=cutoff)]
            GeARQueryEngine.from_vector_store(store, llm=llm, node_postprocessors=processors)
            assert len(find_warnings(caplog, "is made for cosines")) == warns


def test_passages_that_share_an_id_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """LlamaIndex's parser of Markdown numbers every section 0: with `passage_id` all of a document get one id."""
    document = Document(id_="handbook", text="# One\n\nFirst.\n\n# Two\n\nSecond.\n\n# Three\n\nThird.")
    sections = EMBED(MarkdownNodeParser(id_func=passage_id)([document]))
    with GeARVectorStore.from_path(tmp_path, embed_model=EMBED, embed_triples=True) as store:
        store.add([*EMBED(NODES), EMBED(NODES)[0]])
        assert not find_warnings(caplog, "not stored")  # the same passage twice loses nothing
        store.add(sections)
        assert [node.get_content() for node in store.get_nodes(["handbook-0"])] == ["# Three\n\nThird."]
    (told,) = find_warnings(caplog, "not stored")
    assert told.startswith("2 passages are not stored, 'handbook-0' first")
