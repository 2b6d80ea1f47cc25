"""The pool of a question: passages from several ranked lists, with what their words and triples have in common.

Everything is counted within the pool: how many of its passages have a word or name an entity. So neither a store nor an
embedding model is needed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.characters import unify_spelling
from llama_index_gear.nodes import LINKS, split_link
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.triple import Triple, contains_word, drop_parenthesis, entity_key

Float32s = NDArray[np.float32]

MAX_LINK_PASSAGES = 12
"""An entity, or a word, that more passages of the pool have is no link between two of them."""
_WORD = re.compile(r"\w+")
_ASCII_WORDS = bytes(ord(chr(code).lower()) if _WORD.match(chr(code)) else 32 for code in range(128)).ljust(256)
"""ASCII in small letters, with spaces for what is no part of a word."""
_PLURAL = re.compile("[A-Z]{2,}s")
"""Matches abbreviations in the plural."""
_SATURATION = 1.2
"""k of BM25: a word that a passage has f times counts f / (f + k)."""


class PoolPassage(NamedTuple):
    """A passage as the ranking sees it.

    Attributes:
        id: its node id.
        text: its text as it is searched, with its title.
        triples: the facts that it states.
        title: its title; "" if it has none.
        document: id of the document that it is a part of; "" if it is none's.

    """

    id: str
    text: str
    triples: Sequence[Triple]
    title: str = ""
    document: str = ""


class Content(NamedTuple):
    """The words and entities of a passage.

    Attributes:
        words: numbers of its words, as the encoder numbers them, each once.
        counts: how often it has each of these words.
        line: its text in small letters, words between single spaces.
        entities: keys of the entities that its triples name, in their order.
        topics: what the passage is about: entity key → as it is written. First its title, without a last parenthesis;
            then the most frequent subject of its triples, as it is written most often. Empty if it has neither.
        links: those of its triples that are made of a link to another document.

    """

    words: NDArray[np.int64]
    counts: Float32s
    line: str
    entities: tuple[str, ...]
    topics: dict[str, str]
    links: tuple[Triple, ...]


class Terms(NamedTuple):
    """The words of a pool's passages, each with BM25's weight in a passage, without a norm of length.

    Half of the words are a passage's own: no other one has them, nor has the question. Of these only sums are kept.

    Attributes:
        words: numbers of the other words.
        weights: of each of these in each passage, shape (passages, words).
        passages: number of passages that have the word, shape (words,).
        rarity: BM25's inverse document frequency of the word within the pool, shape (words,).
        asked: places of the question's words among the words.
        own: for each passage, the sum of the weights of its own words, shape (passages,).
        lengths: for each passage, the Euclidean length of the weights of all its words, shape (passages,).

    """

    words: NDArray[np.int64]
    weights: Float32s
    passages: Float32s
    rarity: Float32s
    asked: NDArray[np.intp]
    own: Float32s
    lengths: Float32s


@dataclass(frozen=True)
class Pool:
    """Passages of a question, and the lists that name them.

    Attributes:
        question: the question.
        passages: the passages, each once.
        lists: name of a list → ids of its passages, best first. Those that the pool doesn't have are passed over.
        encoder: splits texts into words, without stop words, stemmed.
        aliases: (entity key, key that is linked with it), both ways. Default: none.
        known: node id → the words and entities of a passage that has been read; kept up to date. Default: none.
        stated: node id → the neighboring words of the question that a passage has; kept up to date. Default: none.

    """

    question: str
    passages: Sequence[PoolPassage]
    lists: Mapping[str, Sequence[str]]
    encoder: WordEncoder
    aliases: Collection[tuple[str, str]] = ()
    known: dict[str, Content] = field(default_factory=dict, repr=False, compare=False)
    stated: dict[str, list[str]] = field(default_factory=dict, repr=False, compare=False)
    _found: dict[str | Triple, frozenset[int]] = field(default_factory=dict, repr=False, compare=False)

    def extend(
        self,
        passages: Iterable[PoolPassage],
        lists: Mapping[str, Sequence[str]],
        aliases: Collection[tuple[str, str]] = (),
    ) -> Pool:
        """Return a pool with further passages, lists and aliases."""
        both_ways = {*self.aliases, *aliases, *((alias, key) for key, alias in aliases)}
        return self._with_parts([*self.passages, *passages], {**self.lists, **lists}, both_ways)

    def select(self, lists: Mapping[str, Sequence[str]]) -> Pool:
        """Return a pool of these lists, with the passages that they name."""
        named = set(chain.from_iterable(lists.values()))
        passages = [passage for passage in self.passages if passage.id in named]
        return self._with_parts(passages, lists, self.aliases)

    def _with_parts(
        self,
        passages: Sequence[PoolPassage],
        lists: Mapping[str, Sequence[str]],
        aliases: Collection[tuple[str, str]],
    ) -> Pool:
        """Return a pool of the same question, which shares what is known of texts."""
        return Pool(self.question, passages, lists, self.encoder, aliases, self.known, self.stated, self._found)

    def names_of(self, entity: str) -> tuple[str, ...]:
        """Return the keys that mean an entity: its own, then those that are linked with it."""
        return (entity, *self._partners.get(entity, ()))

    @cached_property
    def _shares(self) -> dict[frozenset[int], float]:
        """Words of the question → the share of the question that they make up, of those that were asked for."""
        return {}

    @cached_property
    def _partners(self) -> dict[str, list[str]]:
        partners: dict[str, list[str]] = {}
        for key, alias in sorted(self.aliases):
            partners.setdefault(key, []).append(alias)
        return partners

    @cached_property
    def places(self) -> dict[str, int]:
        """Node id → the passage's place in `passages`."""
        return {passage.id: place for place, passage in enumerate(self.passages)}

    @cached_property
    def plain_lines(self) -> dict[int, str]:
        """Place of a passage → `signals.write_plain_line`, of those that were asked for."""
        return {}

    @cached_property
    def contents(self) -> list[Content]:
        """Words and entities of each passage."""
        for passage in self.passages:
            if passage.id not in self.known:
                self.known[passage.id] = read_content(passage, self.encoder)
        return [self.known[passage.id] for passage in self.passages]

    @cached_property
    def terms(self) -> Terms:
        """The words of all passages."""
        number = len(self.passages)
        rows = np.repeat(np.arange(number), [len(content.words) for content in self.contents])
        known, columns = np.unique(self._all_words, return_inverse=True)
        counts = np.concatenate([np.zeros(0, np.float32), *(content.counts for content in self.contents)])
        passages = np.bincount(columns, minlength=len(known)).astype(np.float32)
        rarity = np.log1p((number - passages + 0.5) / (passages + 0.5))
        of_words = rarity[columns] * counts / (counts + _SATURATION)
        is_asked = np.isin(known, [*self._question_words])
        is_kept = is_asked | (passages > 1)
        kept = is_kept[columns]
        weights = np.zeros((number, np.count_nonzero(is_kept)), np.float32)
        weights[rows[kept], (np.cumsum(is_kept) - 1)[columns[kept]]] = of_words[kept]
        own, squares = (
            np.bincount(rows, values, minlength=number).astype(np.float32)
            for values in (np.where(kept, 0.0, of_words), of_words * of_words)
        )
        asked = np.flatnonzero(is_asked[is_kept])
        return Terms(known[is_kept], weights, passages[is_kept], rarity[is_kept], asked, own, np.sqrt(squares))

    @cached_property
    def _all_words(self) -> NDArray[np.int64]:
        """Numbers of the words of each passage, one passage behind the other."""
        return np.concatenate([np.zeros(0, np.int64), *(content.words for content in self.contents)])

    @cached_property
    def _question_key(self) -> str:
        return entity_key(self.question)

    @cached_property
    def asked(self) -> list[list[str]]:
        """For each passage, the keys of what it is about whose words all stand in the question."""
        return [[key for key in content.topics if self.is_in_question(key)] for content in self.contents]

    def is_in_question(self, entity: str) -> bool:
        """Return True if all words of an entity's key stand in the question (`contains_word`)."""
        return _contains_words(self._question_key, entity)

    @cached_property
    def entity_passages(self) -> Counter[str]:
        """Entity key → number of passages that name the entity, under any of its names."""
        own = Counter(chain.from_iterable(content.entities for content in self.contents))
        having: dict[str, set[int]] = {}
        for place, content in enumerate(self.contents if self._partners else ()):
            for entity in content.entities:
                having.setdefault(entity, set()).add(place)
        for entity in self._partners.keys() & having.keys():
            own[entity] = len(set[int]().union(*(having.get(name, ()) for name in self.names_of(entity))))
        return own

    def group_facts(self, place: int) -> dict[str, list[Triple]]:
        """Return entity key → the triples of the passage at this place that name the entity."""
        facts: dict[str, list[Triple]] = {}
        for triple in self.passages[place].triples:
            for entity in triple.entities:
                facts.setdefault(entity, []).append(triple)
        return facts

    def are_of_one_document(self, place: int, other: int) -> bool:
        """Return True if two passages are the same, or parts of one document."""
        return place == other or self.passages[place].document == self.passages[other].document != ""

    def is_link(self, entity: str) -> bool:
        """Return True if few enough passages name the entity for it to say something about them."""
        return self.entity_passages[entity] <= MAX_LINK_PASSAGES

    def is_ordinary(self, name: str) -> bool:
        """Return True if a name is one word that is rather a common noun.

        Some passage writes it in small letters, or it is an abbreviation that has a plural: "PCs", or "PC" beside it.
        """
        if name not in self._ordinary:
            self._ordinary[name] = self._find_ordinary(name)
        return self._ordinary[name]

    @cached_property
    def _ordinary(self) -> dict[str, bool]:
        """Name → `is_ordinary`, of those that were asked for."""
        return {}

    def _find_ordinary(self, name: str) -> bool:
        small = name.lower()
        if not name.isalpha() or small == name.upper():  # a script without small letters
            return False
        if small == name or _PLURAL.fullmatch(name):
            return True
        forms = (small, f"{name}s") if len(name) > 1 and name.isupper() else (small,)
        return any(_has_word(self._text, form) for form in forms)

    @cached_property
    def _text(self) -> str:
        """The texts of all passages, one behind the other: far faster to search than each alone."""
        return "\n".join(passage.text for passage in self.passages)

    def coverage(self, *texts: str) -> float:
        """Return the share of the question that its words in texts make up (`weigh`)."""
        return self.weigh(frozenset[int]().union(*map(self._find, texts)))

    def fact_coverage(self, fact: Triple) -> float:
        """Return the `coverage` of a fact's text."""
        return self.weigh(self.find_words(fact))

    def find_words(self, fact: Triple) -> frozenset[int]:
        """Return the question's words that a fact has. Its parts are read once: names and sentences are shared."""
        found = self._found.get(fact)
        if found is None:
            parts = (fact.subject, fact.predicate, fact.object)
            found = self._found[fact] = frozenset[int]().union(*map(self._find, parts))
        return found

    def _find(self, text: str) -> frozenset[int]:
        """Return the question's words that a text has."""
        found = self._found.get(text)
        if found is None:
            found = self._found[text] = self._question_words.intersection(self.encoder.list_words(text))
        return found

    def weigh(self, words: frozenset[int]) -> float:
        """Return the share of the question that some of its words make up, from 0 to 1, rare words counting more.

        A word's weight is BM25's inverse document frequency within the pool.
        """
        if words not in self._shares:
            self._shares[words] = math.fsum(self.question_weights[word] for word in words)
        return self._shares[words]

    def weigh_new(self, words: frozenset[int], other: int) -> float:
        """Return the share of the question (`weigh`) that those of its words make up that a passage lacks."""
        return self.weigh(words - self.find_asked(other))

    def find_asked(self, place: int) -> frozenset[int]:
        """Return the question's words that a passage has."""
        if place not in self._asked_words:
            self._asked_words[place] = self._question_words.intersection(self.contents[place].words.tolist())
        return self._asked_words[place]

    @cached_property
    def _asked_words(self) -> dict[int, frozenset[int]]:
        """Place of a passage → the question's words that it has, of those that were asked for."""
        return {}

    @cached_property
    def having(self) -> dict[int, int]:
        """Number of a word of the question → number of passages that have it."""
        return {word: int(np.count_nonzero(self._all_words == word)) for word in self._question_words}

    @cached_property
    def question_line(self) -> list[tuple[str, frozenset[int]]]:
        """The words of the question in small letters, each with its number; without one if it is a stop word."""
        split = self.encoder.split_words
        return [(word, self._question_words & split(word)) for word in write_line(self.question).split()]

    @cached_property
    def question_weights(self) -> dict[int, float]:
        """Number of a word of the question → the share of the question that it makes up. All shares sum to 1."""
        number = len(self.passages)
        weights = {word: math.log1p((number - count + 0.5) / (count + 0.5)) for word, count in self.having.items()}
        total = math.fsum(weights.values())
        return {word: weight / total for word, weight in weights.items()}

    def is_speaker(self, names: Collection[str], number: float) -> bool:
        """Return True if in more than `number` passages a line begins with a name and a colon."""
        marks = [f"\n{name}:" for name in names]
        if sum(map(self._text.count, marks)) <= number - 1:  # no break stands before the first line of all
            return False
        return sum(any(mark in f"\n{passage.text}" for mark in marks) for passage in self.passages) > number

    def are_written_together(self, phrase: str) -> bool:
        """Return True if a passage has words in small letters side by side."""
        return any(f" {phrase} " in content.line for content in self.contents)

    @cached_property
    def _question_words(self) -> frozenset[int]:
        """The question's words, as the encoder numbers them."""
        return frozenset(self.encoder.split_words(self.question))


def read_content(passage: PoolPassage, encoder: WordEncoder) -> Content:
    """Read the words and entities of a passage; `encoder` numbers its words."""
    names = dict.fromkeys(chain.from_iterable((triple.subject, triple.object) for triple in passage.triples))
    entities = dict.fromkeys(map(entity_key, names))
    counts = encoder.count_words(passage.text)
    words = np.fromiter(counts, np.int64, len(counts))
    often = np.fromiter(counts.values(), np.float32, len(counts))
    links = tuple(triple for triple in passage.triples if split_link(triple.predicate)[1] == LINKS)
    return Content(words, often, write_line(passage.text), tuple(entities), _find_topics(passage), links)


@lru_cache(maxsize=1 << 12)  # a question is ranked twice
def _contains_words(text: str, entity: str) -> bool:
    words = entity.split()
    return bool(words) and all(contains_word(text, word) for word in words)


def _has_word(text: str, word: str) -> bool:
    """Return True if a word stands in a text, between other characters than those of words."""
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        if not (_WORD.match(text[start - 1 : start]) or _WORD.match(text[end : end + 1])):
            return True
        start = text.find(word, end)
    return False


def write_line(text: str) -> str:
    """Return the one spelling of a text in small letters, its words between single spaces."""
    if text.isascii():  # ten times as fast, and the same line
        return f" {' '.join(text.encode().translate(_ASCII_WORDS).decode().split())} "
    return f" {' '.join(_WORD.findall(unify_spelling(text).lower()))} "


def _find_topics(passage: PoolPassage) -> dict[str, str]:
    """Return what a passage is about (`Content.topics`). Subjects of one entity key are one subject."""
    title = drop_parenthesis(passage.title.strip())
    topics = {entity_key(title): title} if title else {}
    subjects = Counter(triple.subject for triple in passage.triples)
    written: dict[str, list[str]] = {}
    for subject in subjects:
        written.setdefault(entity_key(subject), []).append(subject)
    if written:
        key = max(written, key=lambda key: sum(map(subjects.__getitem__, written[key])))
        topics.setdefault(key, max(written[key], key=subjects.__getitem__))
    return topics
