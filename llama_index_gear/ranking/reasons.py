"""Nodes in the order of their pool's ranking, with the reasons for their places in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_gear.nodes import read_title, read_triples, with_explanation
from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.triple import Triple, entity_key, serialize_triples

_LEAST_SHARE = 0.05
"""A signal whose share of the weighted sum is smaller is no reason."""


def explain_place(pool: Pool, ranked: Ranked, ranks: dict[str, int]) -> list[dict[str, Any]]:
    """Return the lists and signals that placed a passage, largest share first.

    A list that doesn't have the passage, or a signal that is 0 for it, is no reason, though it has a share.

    Args:
        pool: the pool.
        ranked: the passage's place in the ranking.
        ranks: name of a list → the passage's rank in it, from 1.

    Returns:
        `{"signal": …, "share": …, "reason": …}`, with the share of `Ranked.shares` and the reason in words.

    """
    reasons = []
    for signal, share in sorted(ranked.shares.items(), key=lambda item: -item[1]):
        reason = f"rank {ranks[signal]} of {signal}" if signal in ranks else _describe(pool, ranked, signal)
        if reason and abs(share) >= _LEAST_SHARE:
            reasons.append({"signal": signal, "share": round(share, 3), "reason": reason})
    return reasons


def find_ranks(pool: Pool, passage_id: str) -> dict[str, int]:
    """Return the passage's rank, from 1, in each list that has it."""
    ranks: dict[str, int] = {}
    for name, places in pool.lists.items():
        for number, place in enumerate(places, start=1):
            if place.id == passage_id:
                ranks.setdefault(name, number)
    return ranks


def build_chain(pool: Pool, ranked: Ranked) -> list[list[str]]:
    """Return the triples that lead to a passage, as plain JSON: another passage's fact, then one of its own.

    The chain is empty if no passage that stands above it in the first ranking leads to it.
    """
    if ranked.lead is None:
        return []
    facts = pool.group_facts(pool.places[ranked.id])
    own = [fact for name in pool.names_of(ranked.lead.entity) for fact in facts.get(name, ())]
    best = sorted(own, key=pool.triple_coverage, reverse=True)[:1]  # none, if only the title names the entity
    return serialize_triples(dict.fromkeys([ranked.lead.triple, *best]))


def _describe(pool: Pool, ranked: Ranked, signal: str) -> str:
    """Say what a signal has seen; "" if it is 0 for the passage, or has seen a passage of the same topic."""
    if signal not in ranked.signals:
        return ""
    topics = pool.contents[pool.places[ranked.id]].topics
    named, linked = ranked.named_by, ranked.linked_by
    if signal == "new_words":
        return "has words of the question that the first two passages lack"
    if signal == "in_question":
        topic = next(topic for key, topic in topics.items() if pool.is_in_question(key))
        return f"is about “{topic}”, which the question names"
    if signal == "named" and named is not None:
        label = _label(pool, named.place)
        topic = next(topic for key, topic in topics.items() if named.entity in pool.names_of(key))
        return f"is about “{topic}”, which “{label}” names" if _differ(topic, label) else ""
    if signal == "named_likeness" and named is not None:
        return f"“{_label(pool, named.place)}” says of it: {_write(named.triple)}"
    if signal == "linked" and linked is not None:
        name = _surface(linked.triple, linked.entity)
        label = _label(pool, linked.place)
        other = f"as “{label}” does" if _differ(name, label) else "which another passage is about"
        return f"names “{name}”, {other}: {_write(linked.triple)}"
    return ""


def _label(pool: Pool, place: int) -> str:
    """Name a passage by its title, or by what most of its facts are about: without facts it would not be mentioned."""
    return next(iter(pool.contents[place].topics.values()))


def _differ(name: str, label: str) -> bool:
    """Return False if a passage would be said to name itself."""
    return entity_key(name) != entity_key(label)


def _write(triple: Triple) -> str:
    return f"{triple.subject} — {triple.predicate} — {triple.object}"


def _surface(triple: Triple, entity: str) -> str:
    """Return the entity as the triple writes it."""
    return triple.subject if entity_key(triple.subject) == entity else triple.object


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
