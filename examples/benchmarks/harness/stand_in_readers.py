"""Stand-ins for the reader of SyncGE and GeAR: facts that are given for each question."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from harness.data import Dataset
from harness.usage import spend
from llama_index_gear import GeARVectorStore, Triple

OWN_FACTS = 5


class StandIn(CustomLLM):
    """Answers the reader's prompt with facts that are given for each question, once and for all."""

    replies: dict[str, str]

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex wants to know of a model."""
        return LLMMetadata(model_name="stand-in")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The given reply to the question that the prompt asks."""
        said = prompt.rpartition("\nQuestion: ")[2]
        question = next(each for each in sorted(self.replies, key=len, reverse=True) if said.startswith(each))
        spend(calls=1)
        return CompletionResponse(text=self.replies[question])

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The same, in one piece."""
        yield self.complete(prompt)


def recorded_reader(dataset: Dataset, _: GeARVectorStore) -> StandIn:
    """What a strong model noted in the ten passages that hybrid retrieval (MiniLM) found, whatever the base is now."""
    facts = {each.question.strip(): dataset.reader.get(each.id, []) for each in dataset.questions}
    return StandIn(replies={question: json.dumps({"triples": noted}) for question, noted in facts.items()})


def own_reader(dataset: Dataset, store: GeARVectorStore) -> StandIn:
    """Notes, of the triples of the first ten passages by hybrid retrieval, those most similar to the question."""
    facts = {each.question.strip(): _choose_facts(dataset, store, each.question) for each in dataset.questions}
    return StandIn(replies={question: json.dumps({"triples": noted}) for question, noted in facts.items()})


READERS = {"recorded": recorded_reader, "own": own_reader}


def _choose_facts(dataset: Dataset, store: GeARVectorStore, question: str) -> list[list[str]]:
    embedding = store.embed_model.get_query_embedding(question)
    found = store.query(
        VectorStoreQuery(
            query_str=question, query_embedding=embedding, similarity_top_k=10, mode=VectorStoreQueryMode.HYBRID
        )
    )
    triples = list(dict.fromkeys(Triple(*s) for node_id in found.ids or [] for s in dataset.triples.get(node_id, ())))
    if not triples:
        return []
    vectors = np.asarray(store.embed_model.get_text_embedding_batch([triple.text for triple in triples]))
    best = np.argsort(-vectors @ np.asarray(embedding), kind="stable")[:OWN_FACTS]
    return [[triples[n].subject, triples[n].predicate, triples[n].object] for n in best]
