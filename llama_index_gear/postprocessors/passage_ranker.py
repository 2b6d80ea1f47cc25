"""The ranking of passages together as a node postprocessor: any retriever gains it, without a store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializeAsAny, field_serializer
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, QueryType, TransformComponent

from llama_index_gear.errors import check_counts, check_question
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.nodes import read_triples
from llama_index_gear.postprocessors.base import Reranker, list_each_once
from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.reasons import rank_nodes, to_pool_passage
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.store.bm25 import WordEncoder, make_encoder


class PassageRanker(Reranker):
    """Ranks the passages of any retriever together: no store, no LLM, no embedding.

    `index.as_query_engine(similarity_top_k=40, node_postprocessors=[PassageRanker(top_n=5)])`. One weighted
    sum orders them, of words that a passage shares with the question and with the five best passages, facts of these
    that name one of its entities or its subject (its title, in the metadata `title`, or the most frequent subject of
    its triples), and its rank in the retriever's list. Results carry the metadata that `GraphRetriever`'s carry.

    Give it a wide list: it can only bring up what it is shown.

    Args:
        top_n: nodes to return. Default 10.
        weights: weights of the ranking. Default: those that come with the package.
        extractor: writes the triples of nodes that carry none. Default: `MentionTripleExtractor()`, without an LLM.
        language: language of the texts, as Qdrant's BM25 names it. Default "english".
        callback_manager: LlamaIndex's callback manager.

    Raises:
        ArgumentError: a number outside its range; (from `postprocess_nodes`) no question, or one that is too long.
        TripleError: (from `postprocess_nodes`) a node has malformed `gear_triples`.
        Exception: (from `postprocess_nodes`) any exception of the extractor.

    """

    top_n: int = Field(default=10, description="Nodes to return.")
    weights: RankingWeights = Field(description="Weights of the ranking.")
    extractor: SerializeAsAny[TransformComponent] = Field(description="Writes the triples of nodes without any.")
    language: str = Field(default="english", description="Language of the texts.")

    _what: ClassVar[str] = "ranking"
    _encoder: WordEncoder = PrivateAttr()

    def __init__(
        self,
        *,
        top_n: int = 10,
        weights: RankingWeights | None = None,
        extractor: TransformComponent | None = None,
        language: str = "english",
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_counts(top_n=top_n)
        encoder = make_encoder(language, 1.0)  # of any length: texts are only split into words
        super().__init__(  # type: ignore[call-arg]  # pydantic's plugin is not at work
            top_n=top_n,
            weights=RankingWeights.default() if weights is None else weights,
            extractor=MentionTripleExtractor() if extractor is None else extractor,
            language=language,
            callback_manager=callback_manager or CallbackManager([]),
        )
        self._encoder = encoder

    @field_serializer("weights")
    def _serialize_weights(self, weights: RankingWeights) -> dict[str, float]:
        return weights.to_dict()

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex knows the component."""
        return "PassageRanker"

    def gather_pool(self, nodes: Sequence[NodeWithScore], query: QueryType) -> Pool:
        """Return the pool of these nodes, unranked, as `fit_ranking` learns from it."""
        given = list_each_once(nodes)
        question = query.query_str if isinstance(query, QueryBundle) else query
        check_question(question)
        bare = _find_bare(given)
        return self._build_pool(given, question, self.extractor(bare) if bare else [])

    def _rerank_flow(self, bundle: QueryBundle, nodes: list[NodeWithScore]) -> Flow[list[NodeWithScore]]:
        check_question(bundle.query_str)
        given = list_each_once(nodes)
        bare, extracted = _find_bare(given), []
        if bare:
            extract: Any = self.extractor
            extracted = yield from ask(RunFunction(partial(extract, bare), partial(extract.acall, bare)))
        return (yield from ask(RunFunction(partial(self._rank, given, bundle.query_str, extracted))))

    def _build_pool(self, nodes: Sequence[NodeWithScore], question: str, extracted: Sequence[BaseNode]) -> Pool:
        with_triples = {node.node_id: node for node in extracted}
        by_id = {result.node.node_id: with_triples.get(result.node.node_id, result.node) for result in nodes}
        return Pool(question, [*map(to_pool_passage, by_id.values())], {"base": list(by_id)}, self._encoder)

    def _rank(self, nodes: list[NodeWithScore], question: str, extracted: Sequence[BaseNode]) -> list[NodeWithScore]:
        pool = self._build_pool(nodes, question, extracted)
        return rank_nodes(pool, {result.node.node_id: result.node for result in nodes}, self.weights, self.top_n)


def _find_bare(nodes: Sequence[NodeWithScore]) -> list[BaseNode]:
    """Return the nodes that carry no triples."""
    return [result.node for result in nodes if not read_triples(result.node)]
