"""The ranking of passages together as a node postprocessor: any retriever gains it, without a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializeAsAny, field_serializer
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, QueryType, TransformComponent
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.errors import ArgumentError, check_counts, check_question
from llama_index_gear.extraction.mentions import MentionTripleExtractor
from llama_index_gear.nodes import read_triples
from llama_index_gear.postprocessors.reranking import Report, list_each_once, report_reranking
from llama_index_gear.ranking.pool import Pool
from llama_index_gear.ranking.reasons import rank_nodes, to_pool_passage
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.store.bm25 import WordEncoder, make_encoder

dispatcher = get_dispatcher(__name__)


class PassageRanker(BaseNodePostprocessor):
    """Ranks the passages of any retriever together: no store, no LLM, no embedding.

    `index.as_query_engine(similarity_top_k=40, node_postprocessors=[PassageRanker(top_n=5)])`. One weighted
    sum orders them: a passage's words beside those of the question and of the five best passages, what the facts of
    these name (an entity of it, or what it is about: its title, in the metadata `title`, or the most frequent subject
    of its triples), and its place in the retriever's list. Results carry the metadata that `GraphRetriever`'s carry.

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
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Read a ranker from `to_dict`'s values. An extractor of another class than the default is to be given again.

        Args:
            data: what `to_dict` gave.
            **kwargs: arguments of the constructor that replace or complete these values.

        Raises:
            ArgumentError: `data` is no such dict, or `extractor` is missing.

        """
        values = {name: value for name, value in {**data, **kwargs}.items() if name != "class_name"}
        if unknown := sorted(map(str, values.keys() - cls.model_fields.keys())):
            raise ArgumentError(f"a {cls.__name__} has no {', '.join(unknown)}: pass what its to_dict gave")
        if isinstance(weights := values.get("weights"), dict):
            values["weights"] = RankingWeights.from_dict(weights)
        if isinstance(extractor := values.get("extractor"), dict):
            if extractor.get("class_name") != MentionTripleExtractor.class_name():
                raise ArgumentError(f"the ranker has a {extractor.get('class_name')}: give it again, extractor=…")
            values["extractor"] = MentionTripleExtractor.from_dict(extractor)
        return cls(**values)

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

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        bundle, given = self._require_question(query_bundle), list_each_once(nodes)
        bare = _find_bare(given)
        with self._report(bundle, nodes) as report:
            extracted = self.extractor(bare) if bare else []
            return report(self._rank(given, bundle.query_str, extracted))

    @dispatcher.span  # LlamaIndex does so itself for the sync path
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        bundle, given = self._require_question(query_bundle), list_each_once(nodes)
        bare = _find_bare(given)
        with self._report(bundle, nodes) as report:
            extracted = await self.extractor.acall(bare) if bare else []
            return report(await asyncio.to_thread(self._rank, given, bundle.query_str, extracted))

    def _require_question(self, query_bundle: QueryBundle | None) -> QueryBundle:
        if query_bundle is None:
            raise ArgumentError("ranking needs the question: pass query_bundle or query_str")
        check_question(query_bundle.query_str)
        return query_bundle

    def _report(self, bundle: QueryBundle, nodes: list[NodeWithScore]) -> AbstractContextManager[Report]:
        return report_reranking(bundle, nodes, self.top_n, self.class_name(), self.callback_manager)

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
