"""Nodes in the order of their pool's ranking, with the reasons for their places in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from llama_index_gear.characters import unify_spelling
from llama_index_gear.function_words import ENGLISH, GENERAL
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
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.signals import BEST, Link, read_plain, write_plain_line
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.triple import SPACELESS, Triple, drop_parenthesis, entity_key, serialize_triples

_LEAST_SHARE = 0.05
"""A signal whose share of the weighted sum is smaller is no reason."""
_LEAST_PART = 0.15
"""Nor is one whose share is a smaller part of the largest reason's. Parts of the question always tell something."""
_OF_WORDS = frozenset({"phrases", "new_words"})
_OF_LISTS = frozenset({"walk", "tied"})
_NAME = 80  # characters of a name
_FACT = 160  # characters of a fact
_MAX_WORDS = 5  # that are quoted
_FIRST = 10  # places of a list that speak for a passage
_LEAST_DIGITS = 3  # of a number that is quoted alone
_MOST_ASKED = 3  # words of the question that are quoted beside the place that they gave
_WORDS = re.compile(r"\w+")
_UNPARTED = r"[^\w.,;:!?()]+"  # what stands between words of one sentence
_SPACELESS = re.compile(f"[{SPACELESS}]")
_GOES_ON = re.compile(r"\w|\s*:")
_QUOTES = re.compile(r"[\"“”„«»()\[\]]")
_SPEAKER = re.compile(r"^[^\W\d][\w .'’-]{0,40}:\s", re.MULTILINE)
_LISTS = {"dense": "its meaning", "bm25": "its words", "pagerank": "the names in it", "base": "your retriever"}
"""List → what finds the passages in it."""


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
        if describe and share >= _LEAST_SHARE and signal in ranked.signals and (reason := describe(pool, ranked)):
            reasons.setdefault(reason, {"signal": signal, "share": round(share, 3), "reason": reason})
    said = {reason["signal"] for reason in reasons.values()}
    kept = [reason for reason in reasons.values() if not _is_said(pool, ranked, reason["signal"], said)]
    told = [
        reason for reason in kept if reason["signal"] == "phrases" or reason["share"] >= _LEAST_PART * kept[0]["share"]
    ]
    if {reason["signal"] for reason in kept} <= _OF_WORDS and (found := _describe_lists(pool, ranked)):
        told.append({"signal": "tied", "share": round(ranked.shares.get("tied", 0.0), 3), "reason": found})
    return sorted(told, key=lambda reason: -reason["share"])


def _is_said(pool: Pool, ranked: Ranked, signal: str, said: set[str]) -> bool:
    """Return True if another reason says what this signal has seen."""
    if signal == "in_question":
        return _is_part_of_name(pool, ranked, set(write_line(_find_asked(pool, pool.places[ranked.id])).split()))
    if signal == "named" and ranked.named_by is not None:
        return "in_question" in said and ranked.named_by.entity in pool.asked[pool.places[ranked.id]]
    if signal == "linked":
        is_asked = ranked.linked_by is not None and pool.is_in_question(ranked.linked_by.entity)
        return is_asked or ("named" in said and ranked.linked_by == ranked.named_by)
    is_found = bool(list_ranks(pool, ranked.id)) and (said <= _OF_WORDS or not _OF_LISTS.isdisjoint(said))
    return signal == "new_words" and is_found


def _split_question(pool: Pool, ranked: Ranked) -> set[str]:
    """Return the question's words in small letters, but for those of its phrases that the passage has."""
    return set(write_line(pool.question).split()).difference(*map(str.split, _list_whole(pool, ranked)))


def _list_asked(pool: Pool, ranked: Ranked) -> list[str]:
    """List what the question and a passage write alike: phrases, if they are no reason of their own, and rare words.

    Words that stand in addresses alone don't count.
    """
    phrases = _list_phrases(pool, ranked) if ranked.shares.get("phrases", 0.0) < _LEAST_SHARE else []
    written = set(write_plain_line(pool, pool.places[ranked.id]).split())
    asked = _split_question(pool, ranked) & written - _split_topics(pool, ranked)
    weights = {word: pool.coverage(word) for word in asked}
    rarest = sorted(weights, key=lambda word: (-weights[word], word))
    return [*phrases, *(word for word in rarest if weights[word] and _tells(pool, ranked, word))][:_MOST_ASKED]


def _list_new_words(pool: Pool, ranked: Ranked) -> list[str]:
    """List the new words that the question writes as the passage does: “response” would not explain “responsive”."""
    asked = _split_question(pool, ranked)
    return [
        word for word in ranked.new_words if (word in asked and _tells(pool, ranked, word)) or _SPACELESS.search(word)
    ]


def _tells(pool: Pool, ranked: Ranked, word: str) -> bool:
    """Return True if a word of the question says something about a passage that has it.

    It is a name, or rather what the question is about (`Pool.is_topical`). Most of the pool lacks it, and it is no part
    of a longer word or name.
    """
    if _is_empty(pool, word) or pool.is_frequent(word) or _is_part(pool, ranked, word):
        return False
    return _is_name(pool, _spell(pool.question, word)) or pool.is_topical(word, pool.places[ranked.id])


def _is_name(pool: Pool, written: str) -> bool:
    """Return True if a word has a capital or a digit, and is no common noun."""
    has_mark = written != written.lower() or any(map(str.isdigit, written))
    return has_mark and not pool.is_ordinary(written)


def _is_part(pool: Pool, ranked: Ranked, word: str) -> bool:
    """Return True if the question has a word in a compound, or in a longer name.

    So is a word with a capital before a number. Beside another such word it is, if some passage has both side by side
    and the question is not rather about it: a family name stands alone.
    """
    words, spans = _find_words(pool.question)
    if word not in words or word.isdecimal():  # its letters have another spelling
        return False
    at = words.index(word)
    for one, other in ((at - 1, at), (at, at + 1)):
        if one < 0 or other == len(words):
            continue
        mark = pool.question[spans[one][1] : spans[other][0]]
        both = [pool.question[slice(*spans[place])] for place in (one, other)]
        is_name = mark == " " and all(part != part.lower() or part.isdecimal() for part in both)
        is_whole = is_name and pool.are_written_together(f"{words[one]} {words[other]}")
        is_alone = is_whole and pool.is_topical(word, pool.places[ranked.id])
        if mark == "-" or (is_name and both[1].isdecimal()) or (is_whole and not is_alone):
            return True
    return False


def _list_phrases(pool: Pool, ranked: Ranked) -> list[str]:
    """List the question's phrases that a passage writes, and that say something.

    Left out is what the passage is said to be about, what most of the pool has, and what stands in another phrase.
    """
    named = _split_topics(pool, ranked) if ranked.phrases else set()
    found = [
        phrase
        for phrase in _list_whole(pool, ranked)
        if not all(word in named or _is_empty(pool, word) for word in phrase.split()) and not pool.is_frequent(phrase)
    ]
    return [phrase for phrase in found if not any(f" {phrase} " in f" {other} " != f" {phrase} " for other in found)]


def _list_whole(pool: Pool, ranked: Ranked) -> Sequence[str]:
    """List the question's phrases that a passage writes without a mark between the words that parts sentences.

    Such a mark may stand there if the question has it, too.
    """
    text = pool.passages[pool.places[ranked.id]].text
    return _keep_whole(text, pool.question, tuple(ranked.phrases)) if ranked.phrases else ()


@lru_cache(maxsize=256)  # every reason of a passage asks for them
def _keep_whole(text: str, question: str, phrases: tuple[str, ...]) -> tuple[str, ...]:
    plain, asked = unify_spelling(read_plain(text)), unify_spelling(question)
    patterns = {phrase: rf"(?<!\w){_UNPARTED.join(map(re.escape, phrase.split()))}(?!\w)" for phrase in phrases}
    return tuple(
        phrase
        for phrase, pattern in patterns.items()
        if re.search(pattern, plain, re.IGNORECASE) or not re.search(pattern, asked, re.IGNORECASE)
    )


def _split_topics(pool: Pool, ranked: Ranked) -> set[str]:
    """Return the words of what a passage is about, if a reason says that the question names it."""
    least = max(_LEAST_SHARE, _LEAST_PART * max(ranked.shares.values(), default=0.0))
    is_said = "in_question" in ranked.signals and ranked.shares.get("in_question", 0.0) >= least
    named = set(write_line(_find_asked(pool, pool.places[ranked.id])).split()) if is_said else set()
    return set() if _is_part_of_name(pool, ranked, named) else named


def _is_part_of_name(pool: Pool, ranked: Ranked, words: set[str]) -> bool:
    """Return True if words are a part of a longer name of the question that a passage has, and not its title."""
    place = pool.places[ranked.id]
    longer = [phrase for phrase in ranked.phrases if words < set(phrase.split())]
    names = (_spell(pool.question, phrase).split() for phrase in longer)
    return not pool.passages[place].title.strip() and any(all(word != word.lower() for word in name) for name in names)


def _find_asked(pool: Pool, place: int) -> str:
    """Return the key of what a passage is about that makes up most of the question."""
    return max(pool.asked[place], key=pool.coverage)


def _is_empty(pool: Pool, word: str) -> bool:
    """Return True for a word that says nothing: a stop word, another that fits any subject, or a short number."""
    is_general = pool.encoder.language == "english" and (word in ENGLISH or word in GENERAL)
    return is_general or (word.isdecimal() and len(word) < _LEAST_DIGITS) or not pool.encoder.split_words(word)


def list_ranks(pool: Pool, passage_id: str) -> dict[str, int]:
    """Return the passage's rank, from 1, in each list that has it."""
    return {name: ids.index(passage_id) + 1 for name, ids in pool.lists.items() if passage_id in ids}


def build_chain(pool: Pool, ranked: Ranked) -> list[list[str]]:
    """Return the triples that lead to a passage, as plain JSON: another passage's fact, then one of its own.

    The chain is empty if no passage of another document that stands above it in the lists leads to it. It ends with the
    other's fact if the passage's own ones lead nowhere: back, or to a common noun.
    """
    place = pool.places[ranked.id]
    others = [link for link in ranked.leads if not pool.are_of_one_document(place, link.place)]
    lead = next((link for link in others if _leads(pool, link)), None)
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
    ranks, asked = list_ranks(pool, ranked.id), _list_asked(pool, ranked)
    most = max(_FIRST, min(ranks.values(), default=0))
    places = [f"{_LISTS.get(name, name)} (place {number})" for name, number in ranks.items() if number <= most]
    words = f"; has {_quote(_spell(pool.question, word) for word in asked)} of the question" if asked else ""
    return f"found by {_join(places)}{words}" if places else ""


def _describe_phrases(pool: Pool, ranked: Ranked) -> str:
    phrases = [_spell(pool.question, phrase) for phrase in _list_phrases(pool, ranked)]
    return f"has {_quote(phrases)} of the question" if phrases else ""


def _spell(text: str, phrase: str) -> str:
    """Return some words of a line as a text writes them, with its capitals and marks, but for quotes and brackets."""
    if text.isascii() and phrase.isascii():  # far faster than a pattern of its own, and the same words
        written, spans = _find_words(text)
        wanted = phrase.lower().split()
        for place in range(len(written) - len(wanted) + 1):
            if written[place : place + len(wanted)] == wanted:
                return _QUOTES.sub("", text[spans[place][0] : spans[place + len(wanted) - 1][1]])
        return phrase
    words = r"\W+".join(map(re.escape, phrase.split()))
    matched = re.search(rf"\b{words}\b", text, re.IGNORECASE)
    return _QUOTES.sub("", matched[0]) if matched else phrase


@lru_cache(maxsize=8)  # the question's, for each of its words
def _find_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the words of a text, in small letters, and where each begins and ends."""
    found = [*_WORDS.finditer(text)]
    return [match[0].lower() for match in found], [match.span() for match in found]


def _describe_new_words(pool: Pool, ranked: Ranked) -> str:
    words = [_spell(pool.question, word) for word in _list_new_words(pool, ranked)]
    return f"has {_quote(words)} of the question" if words else ""


def _describe_in_question(pool: Pool, ranked: Ranked) -> str:
    passage = pool.places[ranked.id]
    key = _find_asked(pool, passage)
    is_title = _is_title(pool, passage, key)
    return (
        f"{_say_topic(pool, passage, key)}, which the question names" if is_title or not pool.is_frequent(key) else ""
    )


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
    beside = f"which stands beside {_quote(_spell(pool.question, word) for word in words)} of the question in {{}}"
    said = _name_passage(pool, pool.places[ranked.id], link, beside)
    return f"names “{shorten(link.name, _NAME)}”, {said}"


def _list_beside(pool: Pool, ranked: Ranked, link: Link) -> list[str]:
    """List the question's telling words that stand, where a fact is quoted, beside the name that joins passages."""
    stated = write_line(_write(link.triple)).split() if _has_name(link) else []
    beside = set(stated).difference(write_line(link.name).split())
    words = dict.fromkeys(write_line(pool.question).split())
    return [word for word in words if word in beside and _tells(pool, ranked, word)]


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
        [f"“{shorten(word, _FACT)}”" for word in words if not _SPACELESS.search(word)][:_MAX_WORDS] or ["words"]
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
