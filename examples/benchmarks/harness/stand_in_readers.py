"""Stand-ins for the reader of SyncGE and GeAR, with given facts for each question."""

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
    """Model that answers the reader's prompt with the given facts of the question.

    Attributes:
        replies: question → reply.

    """

    replies: dict[str, str]

    @property
    def metadata(self) -> LLMMetadata:
        """The model's description for LlamaIndex."""
        return LLMMetadata(model_name="stand-in")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the given reply to the question that the prompt asks."""
        ending = prompt.rpartition("\nQuestion: ")[2]
        longest_first = sorted(self.replies, key=len, reverse=True)
        question = next(question for question in longest_first if ending.startswith(question))
        spend(calls=1)
        return CompletionResponse(text=self.replies[question])

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Yield the reply in one piece."""
        yield self.complete(prompt)


def recorded_reader(dataset: Dataset, _: GeARVectorStore) -> StandIn:
    """Return a reader with the notes of a strong model on ten passages of hybrid retrieval (MiniLM), for any base."""
    facts = {question.question.strip(): dataset.reader.get(question.id, []) for question in dataset.questions}
    return StandIn(replies={question: json.dumps({"triples": triples}) for question, triples in facts.items()})


def own_reader(dataset: Dataset, store: GeARVectorStore) -> StandIn:
    """Return a reader that notes the five triples most similar to the question, out of hybrid's first ten passages."""
    facts = {
        question.question.strip(): _choose_facts(dataset, store, question.question) for question in dataset.questions
    }
    return StandIn(replies={question: json.dumps({"triples": triples}) for question, triples in facts.items()})


READERS = {"recorded": recorded_reader, "own": own_reader}


def _choose_facts(dataset: Dataset, store: GeARVectorStore, question: str) -> list[list[str]]:
    embedding = store.embed_model.get_query_embedding(question)
    result = store.query(
        VectorStoreQuery(
            query_str=question, query_embedding=embedding, similarity_top_k=10, mode=VectorStoreQueryMode.HYBRID
        )
    )
    facts = [fact for node_id in result.ids or [] for fact in dataset.triples.get(node_id, ())]
    triples = list(dict.fromkeys(Triple(*fact) for fact in facts))
    if not triples:
        return []
    vectors = np.asarray(store.embed_model.get_text_embedding_batch([triple.text for triple in triples]))
    best = np.argsort(-vectors @ np.asarray(embedding), kind="stable")[:OWN_FACTS]
    return [[triple.subject, triple.predicate, triple.object] for triple in (triples[number] for number in best)]
