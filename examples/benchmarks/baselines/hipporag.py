"""HippoRAG 2's retrieval (Gutiérrez et al. 2025), to compare with: personalized PageRank over phrases and passages.

It is written from the paper. The graph's nodes are phrases and passages. An edge joins the two phrases of a triple, a
passage and each of its phrases, and two synonyms: phrases whose embeddings have a cosine of 0.8 or more. PageRank
(damping 0.5) starts at the phrases of the five facts most similar to the question, and at every passage. A phrase's
share is the mean score of its facts, divided by the number of its passages; a passage's share is 0.05 times its score.
The graph is python-igraph's, in memory, with all embeddings beside it. The recognition memory is a language model that
drops those of the five facts that don't help. If none is left, passages are ranked by their similarity to the question.

Differences from the authors' program:
- Facts are filtered, and synonyms joined, only if asked for. The filter's prompt has no examples. A reply without a
  list drops no fact.
- All phrases of the facts are seeds. A fact is embedded as "subject predicate object".
- A fact's edge weighs 1 for each passage that states it, as in the paper. The program counts a triple in both
  directions and adds both edges to an undirected graph, which makes 2 (`fact_weight`).
- A synonyms' edge weighs the cosine. The program writes these edges in both directions too, which doubles them.
- If two phrases share a fact and are synonyms, the edge keeps the fact's count. The program replaces it by the cosine.
- A phrase has all of its synonyms. The program keeps some hundred, and searches none for a phrase of two or fewer
  letters (A to Z) and digits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import igraph
import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from numpy.typing import NDArray

from llama_index_gear.nodes import read_triples
from llama_index_gear.triple import Triple, entity_key

Array = NDArray[np.float32]

DAMPING = 0.5
PASSAGE_WEIGHT = 0.05
SYNONYMS = 0.8
FILTER_PROMPT = PromptTemplate(
    """Facts from a knowledge graph, some of which may help to answer a question:

{facts}

Question: {question}

Which of them help, directly or as a step on the way? Answer with their numbers in brackets, as in [1, 3], or with [] \
if none does, and nothing else."""
)
_NUMBERS = re.compile(r"\[[\d\s,]*\]")
_ROWS = 1024  # phrases compared with all others at a time


class HippoRAGRetriever(BaseRetriever):
    """Retriever by PageRank over all of a corpus's phrases and passages.

    Args:
        nodes: the passages, with triples attached.
        embed_model: the model that embeds facts, passages and phrases.
        similarity_top_k: number of passages to return. Default 10.
        facts: number of facts that a question is linked to. Default 5.
        synonyms: join phrases whose cosine is 0.8 or more. Default False, since all phrases have to be embedded for it.
        llm: the model that drops facts that don't help, with one call a question. Default None: all are kept.
        fact_weight: weight of the edge between a fact's two phrases, for each passage that states it. Default 1.0.

    """

    def __init__(
        self,
        nodes: Sequence[BaseNode],
        embed_model: BaseEmbedding,
        *,
        similarity_top_k: int = 10,
        facts: int = 5,
        synonyms: bool = False,
        llm: LLM | None = None,
        fact_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self._llm = llm
        self._fact_weight = fact_weight
        self.similarity_top_k = similarity_top_k
        self._nodes = list(nodes)
        self._max_facts = facts
        self._embed_model = embed_model
        triples = {number: read_triples(node) for number, node in enumerate(self._nodes)}
        self._facts = list(dict.fromkeys(fact for facts_of_passage in triples.values() for fact in facts_of_passage))
        self._phrases: dict[str, int] = {}
        for fact in self._facts:
            for name in fact.entities:
                self._phrases.setdefault(name, len(self._nodes) + len(self._phrases))
        self._mentions: dict[int, set[int]] = defaultdict(set)
        weights = self._weigh_edges(triples)
        self._fact_vectors = _normalize(embed_model.get_text_embedding_batch([fact.text for fact in self._facts]))
        texts = [node.get_content(MetadataMode.EMBED) for node in self._nodes]
        self._passage_vectors = _normalize(embed_model.get_text_embedding_batch(texts))
        if synonyms:
            for pair, likeness in self._find_synonyms().items():
                weights.setdefault(pair, likeness)
        self.graph = igraph.Graph(n=len(self._nodes) + len(self._phrases), edges=list(weights))
        self._weights = list(weights.values())

    def _weigh_edges(self, triples: Mapping[int, Sequence[Triple]]) -> dict[tuple[int, int], float]:
        weights: dict[tuple[int, int], float] = defaultdict(float)
        for passage, facts in triples.items():
            for triple in facts:
                one, other = (self._phrases[entity_key(name)] for name in (triple.subject, triple.object))
                if one != other:
                    weights[min(one, other), max(one, other)] += self._fact_weight
                for phrase in (one, other):
                    weights[passage, phrase] = 1
                    self._mentions[phrase].add(passage)
        return dict(weights)

    def _find_synonyms(self) -> dict[tuple[int, int], float]:
        numbers = np.fromiter(self._phrases.values(), dtype=np.int64)
        vectors = _normalize(self._embed_model.get_text_embedding_batch(list(self._phrases)))
        pairs: dict[tuple[int, int], float] = {}
        for start in range(0, len(vectors), _ROWS):
            cosines = vectors[start : start + _ROWS] @ vectors.T
            for row, column in zip(*np.nonzero(cosines >= SYNONYMS), strict=True):
                if start + row < column:
                    pairs[int(numbers[start + row]), int(numbers[column])] = float(cosines[row, column])
        return pairs

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding or self._embed_model.get_query_embedding(query_bundle.query_str)
        query = np.asarray(embedding, dtype=np.float32)
        scores = _scale(self._fact_vectors @ query)
        best = [int(number) for number in np.argsort(-scores, kind="stable")[: self._max_facts]]
        facts = best if self._llm is None else self._filter_facts(self._llm, query_bundle.query_str, best)
        passages = self._passage_vectors @ query
        if facts:
            shares: Any = self.graph.personalized_pagerank(
                damping=DAMPING,
                directed=False,
                weights=self._weights,
                reset=self._weigh_seeds(passages, {number: float(scores[number]) for number in facts}),
                implementation="prpack",
            )
            passages = np.asarray(shares[: len(self._nodes)])
        best_passages = np.argsort(-passages, kind="stable")[: self.similarity_top_k]
        return [NodeWithScore(node=self._nodes[number], score=float(passages[number])) for number in best_passages]

    def _filter_facts(self, llm: LLM, question: str, facts: Sequence[int]) -> list[int]:
        lines = (f"{place}. {self._facts[number].text}" for place, number in enumerate(facts, start=1))
        numbers = _NUMBERS.search(llm.predict(FILTER_PROMPT, facts="\n".join(lines), question=question))
        if numbers is None:
            return list(facts)
        places = set(map(int, re.findall(r"\d+", numbers[0])))
        return [number for place, number in enumerate(facts, start=1) if place in places]

    def _weigh_seeds(self, passages: Array, facts: Mapping[int, float]) -> list[float]:
        reset = np.zeros(self.graph.vcount())
        reset[: len(self._nodes)] = PASSAGE_WEIGHT * _scale(passages)
        shares: dict[int, list[float]] = defaultdict(list)
        for number, score in facts.items():
            for name in self._facts[number].entities:
                phrase = self._phrases[name]
                shares[phrase].append(score / len(self._mentions[phrase]))
        for phrase, scores in shares.items():
            reset[phrase] = sum(scores) / len(scores)
        return list(reset)


def _normalize(embeddings: Sequence[Sequence[float]]) -> Array:
    vectors = np.asarray(embeddings, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _scale(scores: Array) -> Array:
    """Scale scores to 0 … 1; equal scores are all 1."""
    width = scores.max() - scores.min()
    return np.asarray((scores - scores.min()) / width if width else np.ones_like(scores), dtype=np.float32)
