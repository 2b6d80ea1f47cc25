"""A node postprocessor's work as a reranking, as LlamaIndex's instrumentation and callbacks report it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.errors import ArgumentError
from llama_index_gear.flow import Flow, arun, run

dispatcher = get_dispatcher(__name__)


class Reranker(BaseNodePostprocessor):
    """Base class of the postprocessors: a flow ranks the nodes, for sync and async."""

    _what: ClassVar[str]
    """The work that needs the question, for an error."""

    @abstractmethod
    def _rerank_flow(self, bundle: QueryBundle, nodes: list[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        """Return the best nodes, best first."""

    @property
    def _limit(self) -> int:
        """Nodes to return."""
        return int(getattr(self, "top_n"))  # noqa: B009 - a field of those that have no limit of their own

    @property
    def _model_name(self) -> str:
        """The name of the model that ranks, for callbacks."""
        return self.class_name()

    def _answer(self, request: Any) -> Any:
        """Answer a request of the flow."""
        return request.answer()

    async def _aanswer(self, request: Any) -> Any:
        """`_answer`, without blocking the event loop."""
        return await request.aanswer()

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return run(self._reported_flow(query_bundle, nodes), self._answer)

    @dispatcher.span  # LlamaIndex does so itself for the sync path
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await arun(self._reported_flow(query_bundle, nodes), self._aanswer)

    def _reported_flow(self, bundle: QueryBundle | None, nodes: list[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        """Rank the nodes, and report it as LlamaIndex's own rerankers do.

        Raises:
            ArgumentError: there is no question.

        """
        if bundle is None:
            raise ArgumentError(f"{self._what} needs the question: pass query_bundle or query_str")
        top_n, model_name = self._limit, self._model_name
        dispatcher.event(ReRankStartEvent(query=bundle, nodes=nodes, top_n=top_n, model_name=model_name))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: model_name,
            EventPayload.QUERY_STR: bundle.query_str,
            EventPayload.TOP_K: top_n,
        }
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            ranked = yield from self._rerank_flow(bundle, nodes)
            dispatcher.event(ReRankEndEvent(nodes=ranked))
            event.on_end(payload={EventPayload.NODES: ranked})
            return ranked


def list_each_once(nodes: Sequence[NodeWithScore]) -> list[NodeWithScore]:
    """Return the nodes in their order; of several with one id the first."""
    known: dict[str, NodeWithScore] = {}
    for result in nodes:
        known.setdefault(result.node.node_id, result)
    return list(known.values())
