"""The pool of a question: passages from several ranked lists, with what their words and triples have in common.

Everything is counted within the pool: how many of its passages have a word or name an entity. So neither a store nor an
embedding model is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.triple import Triple, contains_word, drop_parenthesis, entity_key

MAX_LINK_PASSAGES = 12
"""An entity that more passages of the pool name is no link between two of them."""


class PoolPassage(NamedTuple):
    """A passage as the ranking sees it.

    Attributes:
        id: its node id.
        text: its text as it is searched, with its title.
        triples: the facts that it states.
        title: its title; "" if it has none.

    """

    id: str
    text: str
    triples: Sequence[Triple]
    title: str = ""


class RankedPassage(NamedTuple):
    """A place in a ranked list: the passage's id, and its score if the list has scores."""

    id: str
    score: float | None = None


class Content(NamedTuple):
    """The words and entities of a passage.

    Attributes:
        words: the question's words in its text, as a bit mask.
        entities: keys of the entities that its triples name, in their order.
        topics: what the passage is about: entity key → as it is written. First its title, without a last parenthesis;
            then the most frequent subject of its triples, as it is written most often. Empty if it has neither.

    """

    words: int
    entities: tuple[str, ...]
    topics: dict[str, str]


@dataclass(frozen=True)
class Pool:
    """Passages of a question, and the lists that name them.

    Attributes:
        question: the question.
        passages: the passages, each once.
        lists: name of a list → its places, best first. Passages that the pool doesn't have are passed over.
        encoder: splits texts into words, without stop words, stemmed.
        aliases: (entity key, key that is linked with it), both ways. Default: none.

    """

    question: str
    passages: Sequence[PoolPassage]
    lists: Mapping[str, Sequence[RankedPassage]]
    encoder: WordEncoder
    aliases: Collection[tuple[str, str]] = ()
    _known: dict[str, Content] = field(default_factory=dict, repr=False, compare=False)
    _masks: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    _coverages: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def extend(
        self,
        passages: Iterable[PoolPassage],
        lists: Mapping[str, Sequence[RankedPassage]],
        aliases: Collection[tuple[str, str]] = (),
    ) -> Pool:
        """Return a pool with further passages, lists and aliases."""
        both_ways = {*self.aliases, *aliases, *((alias, key) for key, alias in aliases)}
        return self._with_parts([*self.passages, *passages], {**self.lists, **lists}, both_ways)

    def select(self, lists: Mapping[str, Sequence[RankedPassage]]) -> Pool:
        """Return a pool of these lists, with the passages that they name."""
        named = {place.id for places in lists.values() for place in places}
        passages = [passage for passage in self.passages if passage.id in named]
        return self._with_parts(passages, lists, self.aliases)

    def _with_parts(
        self,
        passages: Sequence[PoolPassage],
        lists: Mapping[str, Sequence[RankedPassage]],
        aliases: Collection[tuple[str, str]],
    ) -> Pool:
        """Return a pool of the same question, which shares what is known of texts."""
        return Pool(self.question, passages, lists, self.encoder, aliases, self._known, self._masks)

    def names_of(self, entity: str) -> tuple[str, ...]:
        """Return the keys that mean an entity: its own, then those that are linked with it."""
        return (entity, *self._partners.get(entity, ()))

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
    def contents(self) -> list[Content]:
        """Words and entities of each passage."""
        for passage in self.passages:
            if passage.id not in self._known:
                self._known[passage.id] = self._read(passage)
        return [self._known[passage.id] for passage in self.passages]

    @cached_property
    def _question_key(self) -> str:
        return entity_key(self.question)

    def is_in_question(self, entity: str) -> bool:
        """Return True if all words of an entity's key stand in the question (`contains_word`)."""
        words = entity.split()
        return bool(words) and all(contains_word(self._question_key, word) for word in words)

    @cached_property
    def entity_passages(self) -> Counter[str]:
        """Entity key → number of passages that name the entity, under any of its names."""
        own = Counter(chain.from_iterable(content.entities for content in self.contents))
        for entity in [key for key in self._partners if key in own]:
            names = self.names_of(entity)
            own[entity] = sum(any(name in content.entities for name in names) for content in self.contents)
        return own

    def group_facts(self, place: int) -> dict[str, list[Triple]]:
        """Return entity key → the triples of the passage at this place that name the entity."""
        facts: dict[str, list[Triple]] = {}
        for triple in self.passages[place].triples:
            for entity in triple.entities:
                facts.setdefault(entity, []).append(triple)
        return facts

    def is_link(self, entity: str) -> bool:
        """Return True if few enough passages name the entity for it to say something about them."""
        return self.entity_passages[entity] <= MAX_LINK_PASSAGES

    def find_words(self, text: str) -> int:
        """Return the question's words in a text, as a bit mask."""
        mask = self._masks.get(text)
        if mask is None:
            mask = 0
            for word in self.encoder.split_words(text) & self._question_bits.keys():
                mask |= self._question_bits[word]
            self._masks[text] = mask
        return mask

    def triple_coverage(self, triple: Triple) -> float:
        """Return the share of the question that the words of a triple make up (`coverage`)."""
        return self.coverage(self.find_words(triple.text))

    def coverage(self, words: int) -> float:
        """Return the share of the question that these of its words make up, from 0 to 1, rare words counting more.

        A word's weight is BM25's inverse document frequency within the pool.
        """
        known = self._coverages.get(words)
        if known is None:
            known = self._coverages[words] = math.fsum(weight for bit, weight in self._word_weights if words & bit)
        return known

    @cached_property
    def _word_weights(self) -> list[tuple[int, float]]:
        number, weights = len(self.passages), []
        for bit in self._question_bits.values():
            having = sum(1 for content in self.contents if content.words & bit)
            weights.append((bit, math.log(1 + (number - having + 0.5) / (having + 0.5))))
        total = math.fsum(weight for _, weight in weights)
        return [(bit, weight / total) for bit, weight in weights]

    @cached_property
    def _question_bits(self) -> dict[int, int]:
        """The question's words, as the encoder numbers them → their bit."""
        return {word: 1 << bit for bit, word in enumerate(sorted(self.encoder.split_words(self.question)))}

    def _read(self, passage: PoolPassage) -> Content:
        entities = dict.fromkeys(chain.from_iterable(triple.entities for triple in passage.triples))
        return Content(self.find_words(passage.text), tuple(entities), _find_topics(passage))


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
