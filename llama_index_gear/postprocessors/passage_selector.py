"""The selection of the needed passages by one LLM call, as a node postprocessor behind any retriever."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptMixin
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.settings import Settings

from llama_index_gear.errors import ArgumentError, check_counts, check_question
from llama_index_gear.flow import CallLLM, Flow, RunFunction, ask
from llama_index_gear.llm.client import aask_llm, ask_llm
from llama_index_gear.llm.fitting import FittedPassages, count_room, fit_passages
from llama_index_gear.llm.prompting import HasPrompts, ParsedReply, Prompts
from llama_index_gear.llm.selection import SELECT_PROMPT, SHOW_TOKENS, select_flow
from llama_index_gear.nodes import CHAIN_KEY, RANKS_KEY, REASONS_KEY, explain_selection, llm_texts, with_explanation
from llama_index_gear.postprocessors.base import Reranker, list_each_once

logger = logging.getLogger(__name__)

PROMPTS = {"select": SELECT_PROMPT}
"""The selector's prompt, by name."""


class PassageSelector(HasPrompts, Reranker, PromptMixin):
    """Puts the passages first that the way to the answer needs: one LLM call reads the nodes of any retriever.

    `index.as_query_engine(similarity_top_k=40, node_postprocessors=[PassageSelector(llm=llm, top_n=5)])`. The model is
    shown numbered passages, and answers with the numbers of those that the steps to the answer need. These come first,
    most needed first; the others follow in the order given. A reply that can't be read is asked for once more; after
    that the order given stands, and a warning is logged.

    Give it a wide list, such as `GraphRetriever`'s or `PassageRanker`'s: it can only bring up what it is shown.

    Each result says why it stands where it does, in metadata that no model sees: `gear_ranks` (its rank in the order
    given, "pool", and among the named ones, "needed") and `gear_reasons` (named, not shown, or shown shortened), before
    the reasons that it came with. Its score is 1 / rank.

    Args:
        llm: the reader. Default: LlamaIndex's `Settings.llm`.
        top_n: nodes to return. Default 10.
        show_top_k: nodes that the model is shown. Default 40. Of `GraphRetriever`'s first 10, 20, 40, 60 and 90
            passages a strong reader brought R@5 71.2, 73.1, 78.3, 79.8 and 81.9 (40 questions of MuSiQue), each time
            at least 96 % of the recall of what it was shown. Tokens grow in proportion.
        show_tokens: tokens that the shown passages have at most, together; fewer if the model's context window is
            small. Long passages are shortened around the sentences that share words with the question; if that is not
            enough, the last ones are not shown. Default 8,000.
        prompts: your own prompt, `{"select": …}`, with the variables `passages` and `question`. Also reachable through
            `get_prompts` / `update_prompts`.
        callback_manager: LlamaIndex's callback manager.

    Raises:
        ArgumentError: a number outside its range, or a prompt without its variables;
            (from `postprocess_nodes`) no question, or one that is too long.
        Exception: (from `postprocess_nodes`) any exception of the LLM's client.

    """

    llm: LLM = Field(description="The reader.", exclude=True)
    top_n: int = Field(default=10, description="Nodes to return.")
    show_top_k: int = Field(default=40, description="Nodes that the model is shown.")
    show_tokens: int = Field(default=SHOW_TOKENS, description="Tokens that the shown passages have at most.")

    _what: ClassVar[str] = "a selection"
    _prompts: Prompts = PrivateAttr()

    def __init__(
        self,
        *,
        llm: LLM | None = None,
        top_n: int = 10,
        show_top_k: int = 40,
        show_tokens: int = SHOW_TOKENS,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(top_n=top_n, show_top_k=show_top_k, show_tokens=show_tokens)
        own = Prompts(PROMPTS, prompts)
        super().__init__(  # type: ignore[call-arg]  # pydantic's plugin is not at work
            llm=Settings.llm if llm is None else llm,
            top_n=top_n,
            show_top_k=show_top_k,
            show_tokens=show_tokens,
            callback_manager=callback_manager or CallbackManager([]),
        )
        self._prompts = own

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the component."""
        return "PassageSelector"

    def _rerank_flow(self, bundle: QueryBundle, nodes: list[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        check_question(bundle.query_str)
        if not bundle.query_str.strip():
            raise ArgumentError("a selection needs the question, got an empty one")
        given = list_each_once(nodes)
        if not given:
            return given
        fitted = yield from ask(RunFunction(partial(self._fit, given, bundle.query_str)))
        parsed = yield from select_flow(bundle.query_str, fitted.texts, self._prompts["select"])
        return self._order(given, fitted, parsed)

    @property
    def _model_name(self) -> str:
        return self.llm.metadata.model_name

    def _fit(self, nodes: Sequence[NodeWithScore], question: str) -> FittedPassages:
        shown = nodes[: self.show_top_k]
        room = count_room(self.llm, self._prompts["select"], [question], self.show_tokens)
        return fit_passages(llm_texts(result.node for result in shown), question, room)

    def _answer(self, request: Any) -> Any:
        if isinstance(request, CallLLM):
            return ask_llm(self.llm, request)
        return super()._answer(request)

    async def _aanswer(self, request: Any) -> Any:
        if isinstance(request, CallLLM):
            return await aask_llm(self.llm, request)
        return await super()._aanswer(request)

    def _order(
        self, nodes: Sequence[NodeWithScore], fitted: FittedPassages, parsed: ParsedReply
    ) -> list[NodeWithScore]:
        """Return the named nodes, then the others, each with its ranks and reasons."""
        if parsed.value is None:
            logger.warning("no selection of passages could be read in the model's replies: the order given stands")
            logger.debug("no selection could be read: %s", parsed.problem)
        named: list[int] = parsed.value or []
        order = dict.fromkeys([*named, *range(len(nodes))])
        results = []
        for rank, place in enumerate(list(order)[: self.top_n], start=1):
            node = nodes[place].node
            needed = named.index(place) + 1 if place in named else 0
            ranks: dict[str, Any] = {**node.metadata.get(RANKS_KEY, {}), "pool": place + 1}
            reasons = explain_selection(needed, place in fitted.shortened, place < len(fitted.texts))
            node = with_explanation(
                node,
                node.metadata.get(CHAIN_KEY, []),
                {**ranks, "needed": needed} if needed else ranks,
                [*reasons, *node.metadata.get(REASONS_KEY, [])],
            )
            results.append(NodeWithScore(node=node, score=1 / rank))
        return results
