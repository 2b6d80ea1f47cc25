"""IRCoT (Trivedi et al. 2023), to compare with: a chain of thought whose last sentence is the next query.

It is written from the paper. The first query is the question. Then the model reads all passages so far and adds one
sentence to its thoughts, and that sentence is the next query. This ends when a sentence says "the answer is", or when
the steps are used up.

Differences from the authors' program:
- The prompt has no examples, since the program's are from the data set.
- The lists of the steps are fused by reciprocal rank fusion, also for the prompt. The program takes passages in the
  order in which they come, up to 15. HippoRAG's version sorts by score, but a hybrid base's scores can't be compared
  between queries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.node_parser.text.utils import split_by_sentence_tokenizer
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index_gear.store.fusion import reciprocal_rank_fusion

THOUGHT_PROMPT = PromptTemplate(
    """Here are passages that were found for a question.

{passages}

Question: {question}

Work towards the answer one sentence at a time, by what the passages say. If they give the answer, write a sentence
that ends in "the answer is:" and the answer. If they don't give it yet, write what the next fact is, or what has to be
looked up next. Write one sentence, and nothing else.

Thoughts so far: {thoughts}
Next sentence:"""
)
MAX_PASSAGES = 15  # in the prompt (IRCoT §4)
_ANSWER = re.compile(r"\bthe answer is\b", re.IGNORECASE)


class IRCoTRetriever(BaseRetriever):
    """Retriever that searches and reasons in turn.

    Args:
        base: the retriever that is asked at every step.
        llm: the model that writes the thoughts.
        max_steps: maximum of searches. Default 4 (GeAR App. B.1).
        similarity_top_k: number of passages to return. Default 10.

    """

    def __init__(self, base: BaseRetriever, llm: LLM, *, max_steps: int = 4, similarity_top_k: int = 10) -> None:
        super().__init__()
        self._base = base
        self._llm = llm
        self._max_steps = max_steps
        self._top_k = similarity_top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        lists = [self._base.retrieve(query_bundle)]
        thoughts: list[str] = []
        while len(lists) < self._max_steps:
            texts = [passage.node.get_content(MetadataMode.LLM) for passage in _fuse(lists)[:MAX_PASSAGES]]
            thought = take_first_sentence(
                self._llm.predict(
                    THOUGHT_PROMPT,
                    passages="\n\n".join(texts),
                    question=query_bundle.query_str,
                    thoughts=" ".join(thoughts) or "none",
                )
            )
            if not thought or thought in thoughts or _ANSWER.search(thought):
                break
            thoughts.append(thought)
            lists.append(self._base.retrieve(thought))
        return _fuse(lists)[: self._top_k]


def _fuse(lists: Sequence[Sequence[NodeWithScore]]) -> list[NodeWithScore]:
    nodes = {passage.node_id: passage.node for passages in lists for passage in passages}
    ranked = reciprocal_rank_fusion([[passage.node_id for passage in passages] for passages in lists])
    return [NodeWithScore(node=nodes[node_id], score=score) for node_id, score in ranked]


def take_first_sentence(text: str) -> str:
    """Return the first sentence of a reply's first line."""
    lines = text.strip().splitlines()
    return split_by_sentence_tokenizer()(lines[0])[0].strip() if lines else ""
