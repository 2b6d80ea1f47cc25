"""Graph expansion as a node postprocessor: any existing query engine gains it."""

from __future__ import annotations

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import LLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.errors import ArgumentError, check_counts
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch, Scorer
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.expansion.pipeline import GraphExpansion
from llama_index_gear.expansion.reader import READ_PROMPT
from llama_index_gear.store.connection import BoundToProcess
from llama_index_gear.store.vector_store import GeARVectorStore

dispatcher = get_dispatcher(__name__)


class DiverseTripleBeamSearch(BoundToProcess, BaseNodePostprocessor):
    """Adds passages that the graph leads to, and ranks them with those that came in (GeAR §4).

    `index.as_query_engine(node_postprocessors=[DiverseTripleBeamSearch(vector_store=store)])`. What comes in is
    matched to the store's passages by node id; nodes that the store doesn't know stay in the list, with the score of
    their place in it alone.

    Args:
        vector_store: the store that holds the triples.
        llm: a reader: the search starts from the facts that it notes (SyncGE). Default None: it starts from all
            triples of what came in (NaiveGE).
        top_n: nodes to return. Default 10.
        beam_size: beams kept. Default 10 (GeAR App. B.2).
        beam_length: triples a beam grows to. Default 2 (GeAR App. B.2).
        neighbors: candidates that a beam considers when it grows. Default 100 (GeAR App. B.2).
        gamma: γ of the diversity penalty. Default: twice `beam_size` (GeAR App. B.2).
        diversity: False for plain beam search. Default True.
        scorer: "novelty" (default), "composed", "additive", "exact" (the paper's), or a callable; see `BeamSearch`.
        pagerank: rank by PageRank besides; see `NaiveGERetriever`. Default None.
        link_top_k: stored triples that each noted fact is linked to. Default 1 (GeAR Eq. 2).
        rrf_k: constant of the fusion. Default 60.
        filters: bind triples and passages; what came in and doesn't match is dropped. A postprocessor doesn't see the
            filters of the query engine or retriever before it: give it the same ones, or it adds passages that they
            forbid.
        read_prompt: the reader's prompt, with the variables `question` and `passages`.
        callback_manager: LlamaIndex's.

    Raises:
        ArgumentError: a number outside its range, a prompt without its variables; (from `postprocess_nodes`) no
            question.

    """

    _walk: GraphExpansion = PrivateAttr()

    def __init__(
        self,
        vector_store: GeARVectorStore,
        *,
        llm: LLM | None = None,
        top_n: int = 10,
        beam_size: int = 10,
        beam_length: int = 2,
        neighbors: int = 100,
        gamma: float | None = None,
        diversity: bool = True,
        scorer: Scorer = "novelty",
        pagerank: LocalPageRank | None = None,
        link_top_k: int = 1,
        rrf_k: int = 60,
        filters: MetadataFilters | None = None,
        read_prompt: BasePromptTemplate = READ_PROMPT,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(top_n=top_n)
        super().__init__(callback_manager=callback_manager or CallbackManager([]))
        self._walk = GraphExpansion(
            Backends(vector_store, filters=filters, llm=llm),
            BeamSearch(beam_size, beam_length, neighbors, gamma, diversity, scorer),
            similarity_top_k=top_n,
            rrf_k=rrf_k,
            link_top_k=link_top_k,
            pagerank=pagerank,
        )
        self._walk.read_prompt = read_prompt

    @classmethod
    def class_name(cls) -> str:
        """Name under which LlamaIndex knows the component."""
        return "DiverseTripleBeamSearch"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        bundle = self._begin(nodes, query_bundle)
        return self._end(self._walk.expand(bundle, nodes))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        bundle = self._begin(nodes, query_bundle)
        return self._end(await self._walk.aexpand(bundle, nodes))

    def _begin(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None) -> QueryBundle:
        if query_bundle is None:
            raise ArgumentError("graph expansion needs the question: pass query_bundle or query_str")
        dispatcher.event(
            ReRankStartEvent(
                query=query_bundle, nodes=nodes, top_n=self._walk.similarity_top_k, model_name=self.class_name()
            )
        )
        return query_bundle

    def _end(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        dispatcher.event(ReRankEndEvent(nodes=nodes))
        return nodes
