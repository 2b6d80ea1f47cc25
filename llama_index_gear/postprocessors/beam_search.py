"""Graph expansion as a node postprocessor: any existing query engine gains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptMixin
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_gear.errors import check_counts
from llama_index_gear.expansion.alignment import build_expansion
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.flow import Flow
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.llm.prompting import HasPrompts, Prompts
from llama_index_gear.postprocessors.base import Reranker
from llama_index_gear.resources import BoundToProcess
from llama_index_gear.store.vector_store import GeARVectorStore


class DiverseTripleBeamSearch(BoundToProcess, HasPrompts, Reranker, PromptMixin):
    """Adds passages that the graph leads to, and ranks them together with the incoming ones (GeAR §4).

    `index.as_query_engine(node_postprocessors=[DiverseTripleBeamSearch(vector_store=store)])`. Incoming nodes are
    matched to the store's passages by node id. Nodes that the store doesn't know stay in the list; their score comes
    from their rank in it alone.

    Args:
        vector_store: the store that holds the triples, which need vectors (`embed_triples`) unless `graph` is given.
        llm: the reader. The search starts from the facts that it notes (SyncGE). Default None: it starts from all
            triples of the incoming passages (NaiveGE), as it does, with a warning, if no fact can be read.
        graph: a knowledge graph to walk, in place of the passages' own triples; see `NaiveGERetriever`. Default None.
        top_n: nodes to return. Default 10.
        filters: metadata filters that bind triples and passages; incoming nodes that don't match are dropped. A
            postprocessor doesn't see the filters of the query engine or retriever before it: give it the same ones, or
            it adds passages that they forbid.
        beam_search: settings of the beam search. Default `BeamSearch()`.
        pagerank: see `NaiveGERetriever`. Default None.
        prompts: the reader's, if there is one; see `SyncGERetriever`.
        callback_manager: LlamaIndex's callback manager.

    Raises:
        ArgumentError: as for `SyncGERetriever`; (from `postprocess_nodes`) there is no question.

    """

    _what: ClassVar[str] = "graph expansion"
    _expansion: GraphExpansion = PrivateAttr()
    _prompts: Prompts = PrivateAttr()

    def __init__(
        self,
        vector_store: GeARVectorStore,
        *,
        llm: LLM | None = None,
        graph: ExternalTripleStore | None = None,
        top_n: int = 10,
        filters: MetadataFilters | None = None,
        beam_search: BeamSearch | None = None,
        pagerank: LocalPageRank | None = None,
        prompts: Mapping[str, BasePromptTemplate] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(top_n=top_n)
        super().__init__(callback_manager=callback_manager or CallbackManager([]))
        self._prompts = Prompts({} if llm is None else {"read": READ_PROMPT}, prompts)
        self._expansion = build_expansion(
            Backends(vector_store, filters=filters, llm=llm, graph=graph),
            beam_search,
            similarity_top_k=top_n,
            pagerank=pagerank,
            prompts=self._prompts,
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the component."""
        return "DiverseTripleBeamSearch"

    @property
    def _limit(self) -> int:
        return self._expansion.similarity_top_k

    def _answer(self, request: Any) -> Any:
        return self._expansion.backends.answer(request)

    async def _aanswer(self, request: Any) -> Any:
        return await self._expansion.backends.aanswer(request)

    def _rerank_flow(self, bundle: QueryBundle, nodes: list[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        return self._expansion.expand_flow(bundle, nodes)
