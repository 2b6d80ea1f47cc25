"""BM25 over nodes in memory, by `rank-bm25`: for small corpora, and as a yardstick for the store's own BM25."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from rank_bm25 import BM25Okapi

from llama_index_gear.characters import unify_spelling
from llama_index_gear.errors import check_counts, check_question

dispatcher = get_dispatcher(__name__)


def words(text: str) -> list[str]:
    """Split text, in its one spelling, into lower-case runs of letters, digits and underscores."""
    return re.findall(r"\w+", unify_spelling(text).lower())


class RankBM25Retriever(BaseRetriever):
    """BM25 (Okapi) over a fixed list of nodes. For a growing corpus, or filters, search the store in SPARSE mode.

    A passage is returned only if it holds a word of the question. It is returned even if Okapi's inverse document
    frequency of that word is 0, because half of the passages hold it. Where most words are in most passages, Okapi's
    would be negative, and each further match would lower a score: Lucene's, which is never negative, is used there.

    Args:
        nodes: the passages. The text that the embedding model would read is indexed. The time of a query grows with
            their number: milliseconds for a few thousand.
        similarity_top_k: passages to return. Default 10.

    Raises:
        ArgumentError: a number outside its range; (from `retrieve`) a question that is too long.

    """

    def __init__(self, nodes: Sequence[BaseNode], *, similarity_top_k: int = 10) -> None:
        super().__init__()
        check_counts(similarity_top_k=similarity_top_k)
        self.similarity_top_k = similarity_top_k
        self._nodes = list(nodes)
        corpus = [words(node.get_content(metadata_mode=MetadataMode.EMBED)) for node in self._nodes]
        # rank-bm25 divides by the number of words.
        self._bm25 = BM25Okapi(corpus) if any(corpus) else None
        if self._bm25 is not None and self._bm25.average_idf <= 0:
            having = Counter(word for counts in self._bm25.doc_freqs for word in counts)
            self._bm25.idf = {
                word: math.log(1 + (len(corpus) - count + 0.5) / (count + 0.5)) for word, count in having.items()
            }

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        check_question(query_bundle.query_str)
        if self._bm25 is None:
            return []
        query = words(query_bundle.query_str)
        scores = self._bm25.get_scores(query)
        matches = (n for n, counts in enumerate(self._bm25.doc_freqs) if any(word in counts for word in query))
        best = sorted(matches, key=lambda n: -scores[n])
        return [NodeWithScore(node=self._nodes[n], score=float(scores[n])) for n in best[: self.similarity_top_k]]

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
