"""Nodes in the order of their pool's ranking, with the reasons for their places in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_gear.nodes import (
    LINKS,
    is_link,
    read_title,
    read_triples,
    shorten,
    shorten_predicate,
    split_link,
    with_explanation,
)
from llama_index_gear.ranking.pool import Pool, PoolPassage, write_line
from llama_index_gear.ranking.question_words import QuestionWords, join
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.signals import Link
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.triple import Triple, drop_parenthesis, entity_key, serialize_triples

_OF_LISTS = ("walk", "tied", "phrases", "new_words")
"""Signals of a passage's places in the lists, and of its words."""
_LEAST_SHARE = 0.05
"""A signal whose share of the weighted sum is smaller is no reason."""
_LEAST_PART = 0.15
"""Nor is one whose share is a smaller part of the largest reason's."""
_NAME = 80  # characters of a name
_FACT = 160  # characters of a fact
_SAID = 30  # characters beside a name that two passages share by no chance
_FIRST = 10  # places of a list that speak for a passage
_MOST_SHARED = 2  # names that are told
_GOES_ON = re.compile(r"\w|\s*:")
_SPEAKER = re.compile(r"^[^\W\d][\w .'’-]{0,40}:\s", re.MULTILINE)
_LISTS = {
    "dense": "its meaning",
    "bm25": "its words",
    "base": "your retriever",
    "pagerank": "names that other passages share",
}
"""List → what finds the passages in it."""


def explain_place(
    pool: Pool, ranked: Ranked, words: QuestionWords, chain: Sequence[Sequence[str]]
) -> list[dict[str, Any]]:
    """Return what placed a passage, largest share first.

    Said are always the lists that found it, with the words of the question that it has; then its title, if the question
    names it, and the fact or link that joins it with a passage that stands high. A signal that has seen nothing in the
    passage is no reason, though it has a share, nor what holds the passage back or moved it little.

    Args:
        pool: the pool.
        ranked: the passage's place in the ranking.
        words: of the pool's question.
        chain: the triples that lead to the passage (`build_chain`).

    Returns:
        `{"signal": …, "share": …, "reason": …}`, with the share of `Ranked.shares` and the reason in words.

    """
    title = _find_asked_title(pool, ranked)
    of_lists = max(_OF_LISTS, key=lambda signal: ranked.shares.get(signal, -math.inf))
    told = {_describe_found(pool, ranked, words, title, is_led=bool(chain)): of_lists}
    if title:
        told[f"is about “{shorten(title, _NAME)}”, which the question names"] = "in_question"
    for signal, link in (("named", ranked.named_by), ("linked", ranked.linked_by)):
        if link is not None and _counts(ranked, signal):
            told.setdefault(_describe_link(pool, ranked, words, link, signal), signal)
    if ranked.page_link is not None and _counts(ranked, "page_links"):
        told[_describe_page_link(pool, ranked, ranked.page_link)] = "page_links"
    told.pop("", None)
    shares = {signal: ranked.shares.get(signal, 0.0) for signal in told.values()}
    least = _LEAST_PART * max(shares.values(), default=0.0)
    reasons = [
        {"signal": signal, "share": round(shares[signal], 3), "reason": reason}
        for reason, signal in told.items()
        if signal == of_lists or shares[signal] >= least
    ]
    return sorted(reasons, key=lambda reason: -reason["share"])


def _counts(ranked: Ranked, signal: str) -> bool:
    """Return True if a signal moved a passage, and has seen something in it."""
    return ranked.shares.get(signal, 0.0) >= _LEAST_SHARE and signal in ranked.signals


def _find_asked_title(pool: Pool, ranked: Ranked) -> str:
    """Return the title of a passage if the question names it and that moved the passage; else ""."""
    place = pool.places[ranked.id]
    is_asked = _counts(ranked, "in_question") and any(_is_title(pool, place, key) for key in pool.asked[place])
    return next(iter(pool.contents[place].topics.values())) if is_asked else ""


def list_ranks(pool: Pool, passage_id: str) -> dict[str, int]:
    """Return the passage's rank, from 1, in each list that has it."""
    return {name: ids.index(passage_id) + 1 for name, ids in pool.lists.items() if passage_id in ids}


def build_chain(pool: Pool, ranked: Ranked) -> list[list[str]]:
    """Return the triples that lead to a passage, as plain JSON: another passage's fact, then one of its own.

    The chain is empty if no passage of another document that stands above it in the lists leads to it. It ends with the
    other's fact if the passage's own ones lead nowhere: back, or to a common noun.
    """
    place = pool.places[ranked.id]
    others = (link for link in ranked.leads if not pool.are_of_one_document(place, link.place))
    lead = next((link for link in others if _leads(pool, place, link)), None)
    if lead is None:
        return []
    facts, names = pool.group_facts(place), pool.names_of(lead.entity)
    known = {*lead.triple.entities, *names}
    own = [fact for name in names for fact in facts.get(name, ())]
    own.sort(key=pool.fact_coverage, reverse=True)
    best = (fact for fact in own if _has_subject(pool, place, fact) and _leads_on(pool, fact, known))
    return serialize_triples([lead.triple, *islice(best, 1)])


def _is_telling(pool: Pool, place: int, link: Link) -> bool:
    """Return False if a reader learns nothing of the passage at `place`.

    So it is if a common noun or a web address joins passages, if a fact joins a thing with itself, if its sentence is a
    name alone or stands in both passages, or if neither the fact nor the title of its passage has the name.
    """
    fact = link.triple
    if len(fact.entities) < 2 or "://" in link.name or not (_has_name(link) or _is_titled(pool, link)):
        return False
    if pool.is_ordinary(link.name) or _is_repeated(pool.passages[place].text, fact.predicate, link.name):
        return False
    return not set(write_line(fact.predicate).split()) <= set(write_line(f"{fact.subject} {fact.object}").split())


def _is_repeated(text: str, sentence: str, name: str) -> bool:
    """Return True if a text has a name of a sentence with the same thirty characters before or behind it."""
    start = sentence.find(name)
    end, length = start + len(name), len(name) + _SAID
    around = (sentence[max(0, start - _SAID) : end], sentence[start : end + _SAID]) if start >= 0 else ()
    return any(len(said) == length and said in text for said in around)


def _leads(pool: Pool, place: int, link: Link) -> bool:
    """Return True if a fact tells a reader why it leads on: it has the name, or stands in a passage with that title."""
    tells = _has_name(link) and _has_subject(pool, link.place, link.triple)
    return _is_telling(pool, place, link) and (tells or _is_titled(pool, link))


def _has_subject(pool: Pool, place: int, fact: Triple) -> bool:
    """Return False if a fact is a sentence that does not speak of its subject.

    It speaks of what it names and, without that, of the title. In a conversation of several people it may be anybody's.
    """
    sentence, passage = fact.predicate.casefold(), pool.passages[place]
    if fact.object.casefold() not in sentence or fact.subject.casefold() in sentence:
        return True
    is_title = entity_key(fact.subject) == entity_key(drop_parenthesis(passage.title.strip()))
    return is_title or (_names(passage.text, fact.subject) and not _SPEAKER.search(passage.text))


def _names(text: str, name: str) -> bool:
    """Return True if a text has a name that neither goes on nor stands before a colon, as a speaker's does."""
    start = text.find(name)
    while start >= 0 and _GOES_ON.match(text, start + len(name)):
        start = text.find(name, start + 1)
    return start >= 0


def _has_name(link: Link) -> bool:
    """Return False if a fact is a sentence, which has its object, and lacks the name that joins the passages."""
    sentence = link.triple.predicate.casefold()
    return link.triple.object.casefold() not in sentence or link.name.casefold() in sentence


def _is_titled(pool: Pool, link: Link) -> bool:
    """Return True if the passage that states a fact has the joining name as its title."""
    title = pool.passages[link.place].title.strip()
    return bool(title) and next(iter(pool.contents[link.place].topics)) in pool.names_of(link.entity)


def _leads_on(pool: Pool, fact: Triple, known: Iterable[str]) -> bool:
    """Return True if a fact names something new that is no common noun."""
    return any(entity_key(end) not in known and not pool.is_ordinary(end) for end in (fact.subject, fact.object))


def _describe_found(pool: Pool, ranked: Ranked, words: QuestionWords, title: str, *, is_led: bool) -> str:
    """Say what finds a passage among the first ten, or at all, at which place, and by which words of the question."""
    ranks = list_ranks(pool, ranked.id)
    near = {name: rank for name, rank in ranks.items() if rank <= _FIRST} or ranks
    told = words.describe(ranked, set(write_line(title).split()), must="bm25" in near)
    shared = "the facts that lead to it" if is_led else _LISTS["pagerank"]
    if "pagerank" in near and not is_led and (names := _list_shared_names(pool, ranked)):
        shared = f"{shared}: {join([f'“{shorten(name, _NAME)}”' for name in names])}"
    finders = {**_LISTS, "pagerank": shared}
    near = {name: rank for name, rank in near.items() if told or name != "bm25"} or near
    places = [f"{finders.get(name, name)} (place {rank})" for name, rank in near.items()]
    return "; ".join(filter(None, (f"found by {join(places)}" if places else "", told)))


def _list_shared_names(pool: Pool, ranked: Ranked) -> list[str]:
    """Return two names, at most, that a passage shares with the first of other documents, the rarest first.

    None is a common noun, an address, a part of another one, or stands in the question, whose words are told beside.
    """
    place = pool.places[ranked.id]
    others = [pool.contents[other].entities for other in ranked.first if not pool.are_of_one_document(place, other)]
    written: dict[str, str] = {}
    for fact in pool.passages[place].triples:
        for name in (fact.subject, fact.object):
            written.setdefault(entity_key(name), name)
    shared = [key for key in written if any(key in entities for entities in others)]
    names: list[str] = []
    for key in sorted(shared, key=pool.entity_passages.__getitem__):
        name = written[key]
        is_said = any(name in other or other in name for other in names)
        if not (is_said or "://" in name or pool.is_in_question(key) or pool.is_ordinary(name)) and pool.is_link(key):
            names.append(name)
    return names[:_MOST_SHARED]


def _describe_link(pool: Pool, ranked: Ranked, words: QuestionWords, link: Link, signal: str) -> str:
    """Say which name a passage shares with one that stands high, and the fact, if that has the name.

    "" if a reader learns nothing by it: the question has the name, or the fact no word of the question beside it, and
    neither passage has the name as its title.
    """
    place = pool.places[ranked.id]
    if (
        pool.are_of_one_document(place, link.place)
        or pool.is_in_question(link.entity)
        or not _is_telling(pool, place, link)
    ):
        return ""
    name, is_title = link.name, False
    if signal == "named":
        topic = next(key for key in pool.contents[place].topics if link.entity in pool.names_of(key))
        name, is_title = pool.contents[place].topics[topic], _is_title(pool, place, topic)
    fact = _write(link.triple) if _has_name(link) else ""
    beside = set(write_line(fact).split()).difference(write_line(link.name).split())
    is_titled = _is_titled(pool, link)
    if not (is_title or is_titled or words.are_in(beside)):
        return ""
    title = pool.passages[link.place].title.strip()
    who = f"“{shorten(title, _NAME)}”" if title else "another passage"
    verb = LINKS if split_link(link.triple.predicate)[1] == LINKS else "names"
    clause = f"which {who} {verb}" if is_title or verb == LINKS else f"as {who} does"
    if is_titled:
        clause = "which another passage is about"
    said = f"{'is about' if is_title else 'names'} “{shorten(name, _NAME)}”, {clause}"
    return f"{said}: {fact}" if fact else said


def _describe_page_link(pool: Pool, ranked: Ranked, link: Link) -> str:
    said = f"“{shorten(split_link(link.triple.predicate)[0], _FACT)}”"
    place = pool.places[ranked.id]
    if pool.are_of_one_document(link.place, place):
        page = f"{LINKS} “{shorten(link.triple.object, _NAME)}”, a page that stands high without its links: {said}"
        return page if link.place == place else f"another passage of its page {page}"
    title = pool.passages[link.place].title.strip()
    passage = f"“{shorten(title, _NAME)}”" if title else "a passage"
    return f"{passage}, which stands high without its links, {LINKS} its page: {said}"


def _is_title(pool: Pool, place: int, key: str) -> bool:
    return bool(pool.passages[place].title.strip()) and key == next(iter(pool.contents[place].topics))


def _write(fact: Triple) -> str:
    """Return a fact in a line: the sentence that states it, if it has the object and room, else the fact's parts.

    A link is the sentence around it, and where it leads. The subject is left out where the sentence lacks it.
    """
    if is_link(fact):
        line = shorten_predicate((fact.subject, fact.predicate, fact.object), _FACT)
        return f"{line} {shorten(fact.object, _NAME)}"
    sentence = fact.predicate.casefold()
    is_sentence = fact.object.casefold() in sentence
    if is_sentence and len(fact.predicate) <= _FACT:
        return f"“{fact.predicate}”"
    predicate = shorten_predicate((fact.subject, fact.predicate, fact.object), _FACT)
    has_subject = not is_sentence or fact.subject.casefold() in sentence
    if not has_subject and fact.object.casefold() in predicate.casefold():
        return f"“{predicate}”"
    said = f"{predicate} — {shorten(fact.object, _NAME)}"
    return f"{shorten(fact.subject, _NAME)} — {said}" if has_subject else said


def rank_nodes(pool: Pool, nodes: Mapping[str, BaseNode], weights: RankingWeights, top_k: int) -> list[NodeWithScore]:
    """Return the first nodes of a pool's ranking, with the chain, the ranks and the reasons in their metadata."""
    results, ranking = [], rank(pool, weights, top_k)
    words = QuestionWords(pool, ranking[0].first if ranking else ())
    for ranked in ranking:
        chain = build_chain(pool, ranked)
        why = explain_place(pool, ranked, words, chain)
        node = with_explanation(nodes[ranked.id], chain, list_ranks(pool, ranked.id), why)
        results.append(NodeWithScore(node=node, score=ranked.score))
    return results


def to_pool_passage(node: BaseNode) -> PoolPassage:
    """Read a node as the ranking sees it: its text as it is searched, its triples, its title, its document."""
    text = node.get_content(metadata_mode=MetadataMode.EMBED)
    return PoolPassage(node.node_id, text, tuple(read_triples(node)), read_title(node), node.ref_doc_id or "")
