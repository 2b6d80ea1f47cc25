"""Short answers from passages. Every method answers in the same way, so that only its passages make a difference.

Retrievers, GeAR, IRCoT and the bounds: one call of the model with the first five passages (GeAR §6.2), or with the
question alone if there are none. Three agents answer from more than passages, and so through their own query engine,
with the same instructions: T²RAG from the triples that it resolved; an external graph's agent from the kept passages,
numbered, and the gist; `GeARRetriever` in its last call, or if that gave no answer, from the passages and
the gist. The prompt only says what to do: a small model that is told what not to write, or is offered
"yes" and "no", writes just that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index_gear import ExternalGeARRetriever, GeARQueryEngine, GeARRetriever, T2RAGQueryEngine, T2RAGRetriever
from llama_index_gear.trace.trace import Trace

TOP_K = 5
ANSWER_PROMPT = PromptTemplate(
    """Here is what was found for a question.

{context_str}

Question: {query_str}
Reply with the shortest answer to the question, such as a name, a place, a date or a number. If you are not sure, \
reply with your best guess.
Shortest answer:"""
)
CLOSED_BOOK_PROMPT = PromptTemplate(
    """Question: {query_str}
Reply with the shortest answer to the question, such as a name, a place, a date or a number. If you are not sure, \
reply with your best guess.
Shortest answer:"""
)
_MARKS = re.compile(r"\[\d+\]")
_LABEL = re.compile(r"^\s*(?:(?:final|shortest)\s+)?answer\s*:\s*", re.IGNORECASE)

Agent = GeARRetriever | ExternalGeARRetriever | T2RAGRetriever


def answers_itself(retriever: BaseRetriever) -> bool:
    """Say if a method's own engine writes its answers; those of the others are written from five passages."""
    return isinstance(retriever, GeARRetriever | ExternalGeARRetriever | T2RAGRetriever)


def answer_from_passages(llm: LLM, question: str, passages: Sequence[NodeWithScore]) -> str:
    """Ask the model for an answer from the first five passages, or without passages if there are none."""
    if not passages:
        return clean_answer(llm.predict(CLOSED_BOOK_PROMPT, query_str=question))
    texts = [passage.node.get_content(MetadataMode.LLM) for passage in passages[:TOP_K]]
    return clean_answer(llm.predict(ANSWER_PROMPT, context_str="\n\n".join(texts), query_str=question))


def answer_with_agent(
    llm: LLM, agent: Agent, bundle: QueryBundle, when_found: Callable[[], None]
) -> tuple[str, list[NodeWithScore], Trace]:
    """Return the answer of the agent's own engine, the passages, and the trace.

    Args:
        llm: the model that answers from nothing if the agent finds no passage.
        agent: the agent that is asked.
        bundle: the question, with its embedding.
        when_found: called when the passages are found, before the answer is written.

    """
    kind = T2RAGQueryEngine if isinstance(agent, T2RAGRetriever) else GeARQueryEngine
    engine: Any = kind(agent, node_postprocessors=[FoundSignal(when_found)])
    engine.update_prompts({"response_synthesizer:text_qa_template": ANSWER_PROMPT})
    response, trace = engine.query_with_trace(bundle)
    if not response.source_nodes:  # the engine writes no answer without passages
        return answer_from_passages(llm, bundle.query_str, []), [], trace
    return clean_answer(str(response)), response.source_nodes, trace


class FoundSignal(BaseNodePostprocessor):
    """Postprocessor that calls a function when the passages are found, and leaves them as they are."""

    _when_found: Callable[[], None] = PrivateAttr()

    def __init__(self, when_found: Callable[[], None]) -> None:
        super().__init__()
        self._when_found = when_found

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self._when_found()
        return nodes


def clean_answer(reply: str) -> str:
    """Return a reply's first line, without its label, the numbers of passages, and surrounding quotation marks."""
    lines = [line for line in _LABEL.sub("", reply).splitlines() if line.strip()]
    return _MARKS.sub("", lines[0]).strip().strip("\"'“”*").strip() if lines else ""
