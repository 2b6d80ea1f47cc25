"""Nodes in the order of their pool's ranking, with the reasons for their places in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from llama_index_gear.ranking.question_words import (
    HAS_NO_SPACES,
    LEAST_PART,
    LEAST_SHARE,
    find_asked_topic,
    is_part_of_name,
    is_telling_word,
    list_asked_words,
    list_new_words,
    list_phrases,
    spell,
)
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.signals import BEST, Link
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.triple import Triple, drop_parenthesis, entity_key, serialize_triples

_OF_WORDS = frozenset({"phrases", "new_words"})
_OF_LISTS = frozenset({"walk", "tied"})
_NAME = 80  # characters of a name
_FACT = 160  # characters of a fact
_MAX_WORDS = 5  # that are quoted
_FIRST = 10  # places of a list that speak for a passage
_GOES_ON = re.compile(r"\w|\s*:")
_SPEAKER = re.compile(r"^[^\W\d][\w .'’-]{0,40}:\s", re.MULTILINE)
_LISTS = {"dense": "its meaning", "bm25": "its words", "base": "your retriever"}
"""List → what finds the passages in it. Facts and shared names find those of PageRank's."""


def explain_place(pool: Pool, ranked: Ranked) -> list[dict[str, Any]]:
    """Return the signals that placed a passage, largest share first.

    A signal that has seen nothing in the passage is no reason, though it has a share. Nor is what holds the passage
    back, what moved it little, what another reason says, nor that it shares words with other passages, which tells a
    reader nothing. A link, or words, that tie the passage to the question are said by their own signals. Where words at
    most are left, the lists that have the passage are said, too.

    Args:
        pool: the pool.
        ranked: the passage's place in the ranking.

    Returns:
        `{"signal": …, "share": …, "reason": …}`, with the share of `Ranked.shares` and the reason in words.

    """
    reasons: dict[str, dict[str, Any]] = {}
    for signal, share in sorted(ranked.shares.items(), key=lambda item: -item[1]):
        describe = _DESCRIBED.get(signal)
        if describe and _counts(ranked, signal) and (reason := describe(pool, ranked)):
            reasons.setdefault(reason, {"signal": signal, "share": round(share, 3), "reason": reason})
    said = {reason["signal"] for reason in reasons.values()}
    kept = [reason for reason in reasons.values() if not _is_said(pool, ranked, reason["signal"], said)]
    told = [
        reason for reason in kept if reason["signal"] == "phrases" or reason["share"] >= LEAST_PART * kept[0]["share"]
    ]
    if {reason["signal"] for reason in kept} <= _OF_WORDS and (found := _describe_lists(pool, ranked)):
        told.append({"signal": "tied", "share": round(ranked.shares.get("tied", 0.0), 3), "reason": found})
    return sorted(told, key=lambda reason: -reason["share"])


def _counts(ranked: Ranked, signal: str) -> bool:
    """Return True if a signal moved a passage, and has seen something in it."""
    return ranked.shares.get(signal, 0.0) >= LEAST_SHARE and signal in ranked.signals


def _is_said(pool: Pool, ranked: Ranked, signal: str, said: set[str]) -> bool:
    """Return True if another reason says what this signal has seen."""
    if signal == "in_question":
        return is_part_of_name(pool, ranked, set(write_line(find_asked_topic(pool, pool.places[ranked.id])).split()))
    if signal == "named" and ranked.named_by is not None:
        return "in_question" in said and ranked.named_by.entity in pool.asked[pool.places[ranked.id]]
    if signal == "linked":
        is_asked = ranked.linked_by is not None and pool.is_in_question(ranked.linked_by.entity)
        return is_asked or ("named" in said and ranked.linked_by == ranked.named_by)
    is_found = bool(list_ranks(pool, ranked.id)) and (said <= _OF_WORDS or not _OF_LISTS.isdisjoint(said))
    return signal == "new_words" and is_found


def list_ranks(pool: Pool, passage_id: str) -> dict[str, int]:
    """Return the passage's rank, from 1, in each list that has it."""
    return {name: ids.index(passage_id) + 1 for name, ids in pool.lists.items() if passage_id in ids}


def build_chain(pool: Pool, ranked: Ranked) -> list[list[str]]:
    """Return the triples that lead to a passage, as plain JSON: another passage's fact, then one of its own.

    The chain is empty if no passage of another document that stands above it in the lists leads to it. It ends with the
    other's fact if the passage's own ones lead nowhere: back, or to a common noun.
    """
    place, lead = pool.places[ranked.id], _find_lead(pool, ranked)
    if lead is None:
        return []
    facts, names = pool.group_facts(place), pool.names_of(lead.entity)
    known = {*lead.triple.entities, *names}
    own = [
        fact
        for name in names
        for fact in facts.get(name, ())
        if _leads_on(pool, fact, known) and _has_subject(pool, place, fact)
    ]
    best = sorted(own, key=pool.fact_coverage, reverse=True)[:1]
    return serialize_triples([lead.triple, *best])


def _find_lead(pool: Pool, ranked: Ranked) -> Link | None:
    place = pool.places[ranked.id]
    others = (link for link in ranked.leads if not pool.are_of_one_document(place, link.place))
    return next((link for link in others if _leads(pool, link)), None)


def _is_telling(pool: Pool, link: Link) -> bool:
    """Return False if a reader learns nothing.

    So it is if a common noun or a web address joins passages, if a fact joins a thing with itself, if its sentence is a
    name alone, or if neither the fact nor the title of its passage has the name.
    """
    fact = link.triple
    says_more = set(write_line(fact.predicate).split()) - set(write_line(f"{fact.subject} {fact.object}").split())
    is_name = not pool.is_ordinary(link.name) and "://" not in link.name
    return len(fact.entities) == 2 and bool(says_more) and is_name and (_has_name(link) or _is_titled(pool, link))


def _leads(pool: Pool, link: Link) -> bool:
    """Return True if a fact tells a reader why it leads on: it has the name, or stands in a passage with that title."""
    tells = _has_name(link) and _has_subject(pool, link.place, link.triple)
    return _is_telling(pool, link) and (tells or _is_titled(pool, link))


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


def _describe_walk(pool: Pool, ranked: Ranked) -> str:
    """Say how the passages are found where the walk starts. It comes to others by words, which are their own reason."""
    return _describe_lists(pool, ranked) if ranked.first_rank <= BEST else ""


def _describe_tied(pool: Pool, ranked: Ranked) -> str:
    return "" if ranked.tied_by is None else _describe_lists(pool, ranked)


def _describe_lists(pool: Pool, ranked: Ranked) -> str:
    """Say what finds a passage among the first ten, and at which place; else, where it stands highest."""
    ranks = list_ranks(pool, ranked.id)
    asked = [] if _describe_phrases(pool, ranked) and _counts(ranked, "phrases") else list_asked_words(pool, ranked)
    most = max(_FIRST, min(ranks.values(), default=0))
    places = [f"{_name_list(pool, ranked, name)} (place {number})" for name, number in ranks.items() if number <= most]
    words = f"; has {_quote(spell(pool.question, word) for word in asked)} of the question" if asked else ""
    return f"found by {_join(places)}{words}" if places else ""


def _name_list(pool: Pool, ranked: Ranked, name: str) -> str:
    """Say what finds the passages of a list."""
    if name == "pagerank":
        return "the facts that lead to it" if _find_lead(pool, ranked) else "names that other passages share"
    return _LISTS.get(name, name)


def _describe_phrases(pool: Pool, ranked: Ranked) -> str:
    words = [spell(pool.question, phrase) for phrase in list_asked_words(pool, ranked)]
    return f"has {_quote(words)} of the question" if list_phrases(pool, ranked) else ""


def _describe_new_words(pool: Pool, ranked: Ranked) -> str:
    words = [spell(pool.question, word) for word in list_new_words(pool, ranked)]
    return f"has {_quote(words)} of the question" if words else ""


def _describe_in_question(pool: Pool, ranked: Ranked) -> str:
    passage = pool.places[ranked.id]
    key = find_asked_topic(pool, passage)
    if _is_title(pool, passage, key):
        return f"{_say_topic(pool, passage, key)}, which the question names"
    name = shorten(pool.contents[passage].topics[key], _NAME)
    return "" if pool.is_frequent(key) else f"names “{name}”, as the question does"


def _describe_named(pool: Pool, ranked: Ranked) -> str:
    link, passage = ranked.named_by, pool.places[ranked.id]
    if link is None or not _is_telling(pool, link):
        return ""
    topic = next(key for key in pool.contents[passage].topics if link.entity in pool.names_of(key))
    if not (_is_title(pool, passage, topic) or _list_beside(pool, ranked, link)):
        return ""
    verb = LINKS if split_link(link.triple.predicate)[1] == LINKS else "names"
    return f"{_say_topic(pool, passage, topic)}, {_name_passage(pool, passage, link, f'which {{}} {verb}')}"


def _describe_linked(pool: Pool, ranked: Ranked) -> str:
    link = ranked.linked_by
    if link is None or not _is_telling(pool, link):
        return ""
    words = _list_beside(pool, ranked, link)
    if not (words or _is_titled(pool, link)):
        return ""
    beside = f"which stands beside {_quote(spell(pool.question, word) for word in words)} of the question in {{}}"
    said = _name_passage(pool, pool.places[ranked.id], link, beside)
    return f"names “{shorten(link.name, _NAME)}”, {said}"


def _list_beside(pool: Pool, ranked: Ranked, link: Link) -> list[str]:
    """List the question's telling words that stand, where a fact is quoted, beside the name that joins passages."""
    stated = write_line(_write(link.triple)).split() if _has_name(link) else []
    beside = set(stated).difference(write_line(link.name).split())
    words = dict.fromkeys(write_line(pool.question).split())
    return [word for word in words if word in beside and is_telling_word(pool, ranked, word)]


def _describe_page_links(pool: Pool, ranked: Ranked) -> str:
    link = ranked.page_link
    if link is None:
        return ""
    said = f"“{shorten(split_link(link.triple.predicate)[0], _FACT)}”"
    place = pool.places[ranked.id]
    if pool.are_of_one_document(link.place, place):
        page = f"{LINKS} “{shorten(link.triple.object, _NAME)}”, a page that stands high without its links: {said}"
        return page if link.place == place else f"another passage of its page {page}"
    title = pool.passages[link.place].title.strip()
    passage = f"“{shorten(title, _NAME)}”" if title else "a passage"
    return f"{passage}, which stands high without its links, {LINKS} its page: {said}"


_DESCRIBED: dict[str, Callable[[Pool, Ranked], str]] = {
    "walk": _describe_walk,
    "phrases": _describe_phrases,
    "new_words": _describe_new_words,
    "in_question": _describe_in_question,
    "named": _describe_named,
    "linked": _describe_linked,
    "tied": _describe_tied,
    "page_links": _describe_page_links,
}


def _quote(words: Iterable[str]) -> str:
    """Quote some words, but for those of scripts without spaces: there a part of one may be meant."""
    return _join(
        [f"“{shorten(word, _FACT)}”" for word in words if not HAS_NO_SPACES.search(word)][:_MAX_WORDS] or ["words"]
    )


def _join(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _say_topic(pool: Pool, place: int, key: str) -> str:
    """Say that a passage is about its title. The most frequent subject of its triples is what it speaks of."""
    verb = "is about" if _is_title(pool, place, key) else "speaks of"
    return f"{verb} “{shorten(pool.contents[place].topics[key], _NAME)}”"


def _is_title(pool: Pool, place: int, key: str) -> bool:
    return bool(pool.passages[place].title.strip()) and key == next(iter(pool.contents[place].topics))


def _name_passage(pool: Pool, place: int, link: Link, clause: str) -> str:
    """Complete a clause with the title of the passage that states a fact, and the fact, if that has the shared name.

    It says so if that passage is about what both share.
    """
    title = pool.passages[link.place].title.strip()
    who = f"“{shorten(title, _NAME)}”" if title else "another passage"
    if pool.are_of_one_document(place, link.place):
        who = "another part of the document"
    elif _is_titled(pool, link):
        clause, who = "which {} is about", "another passage"
    return clause.format(who) + (f": {_write(link.triple)}" if _has_name(link) else "")


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
    results = []
    for ranked in rank(pool, weights, top_k):
        ranks = list_ranks(pool, ranked.id)
        node = with_explanation(nodes[ranked.id], build_chain(pool, ranked), ranks, explain_place(pool, ranked))
        results.append(NodeWithScore(node=node, score=ranked.score))
    return results


def to_pool_passage(node: BaseNode) -> PoolPassage:
    """Read a node as the ranking sees it: its text as it is searched, its triples, its title, its document."""
    text = node.get_content(metadata_mode=MetadataMode.EMBED)
    return PoolPassage(node.node_id, text, tuple(read_triples(node)), read_title(node), node.ref_doc_id or "")
