"""LlamaIndex's nodes into a pool, and out of its ranking."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_gear.nodes import read_title, read_triples, with_explanation
from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.ranker import rank
from llama_index_gear.ranking.reasons import build_chain, explain_place, find_ranks
from llama_index_gear.ranking.weights import RankingWeights


def rank_nodes(pool: Pool, nodes: Mapping[str, BaseNode], weights: RankingWeights, top_k: int) -> list[NodeWithScore]:
    """Return the first nodes of a pool's ranking, with the chain, the ranks and the reasons in their metadata."""
    results = []
    for ranked in rank(pool, weights, top_k):
        ranks = find_ranks(pool, ranked.id)
        node = with_explanation(nodes[ranked.id], build_chain(pool, ranked), ranks, explain_place(pool, ranked, ranks))
        results.append(NodeWithScore(node=node, score=ranked.score))
    return results


def to_pool_passage(node: BaseNode) -> PoolPassage:
    """Read a node as the ranking sees it: its text as it is searched, its triples, and its title."""
    text = node.get_content(metadata_mode=MetadataMode.EMBED)
    return PoolPassage(node.node_id, text, read_triples(node), read_title(node))
