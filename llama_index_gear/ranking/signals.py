"""The signals of a ranking: numbers that a passage has beside the question and the best passages of the lists."""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import accumulate, islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from llama_index_gear.nodes import read_section
from llama_index_gear.ranking.pool import MAX_LINK_PASSAGES, Pool, write_line
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.triple import Triple, entity_key

Floats = NDArray[np.float64]

BEST = 5
"""Passages that every passage is compared with: the first of all lists together."""
_READ_FIRST = 2
"""Of these, the passages whose words of the question count as covered."""
_LEAST = 1e-3
"""Added to a fact's likeness to the question: a fact without a word of the question still joins passages."""
_STEPS = 12
"""Steps of the walk: half of what is left of it after these is below a thousandth."""
_FREQUENT = 0.3
"""What a word counts in the walk that too many passages have."""
_FLOOR = 1e-4
"""Added to a share of the best before its logarithm is taken."""
_NEAR = 61.0
"""A passage of rank r, from 0, in the first list is tied to the question by 61 / (61 + r)."""
_COUNTS = 1 / np.arange(2, 2 + BEST)
"""Weights of a word that is shared with the first of these, the second, …"""
_MOST_PARTS, _LONGEST_PART = 5, 32
"""Parts of the question that are named, and words of one, at most."""
_ADDRESS = re.compile(
    r"(?:(?<![a-z0-9])[a-z][a-z0-9+.-]{0,20}://|(?<![\w.+-])[\w.+-]{0,64}@|(?<!\w)www\.)"
    r"(?:[^\s()\[\]<>\"“”]|\([^\s()]{0,200}\)){1,2000}",
    re.IGNORECASE,
)
"""Matches an address: from its scheme, its mailbox or "www." on, and not into brackets or quotes around it."""
_EMPHASIS = re.compile(r"(?<!\w)_(?=[^\W_])([^_\n]{0,200}[^\W_])_(?!\w)")
_ADDRESS_MARKS = ("://", "@", "www.")
"""A text without any of these has no address."""
_HEADING = re.compile(r"(?m)^ {0,3}#{1,6}[ \t]{1,20}(\S[^\n]{0,300})$")
_FIRST_LISTS = ("dense", "base", "bm25")
_STRONG = 3.0
"""A link of a third or more of the question ties a passage to it as its own words would."""
_FOLLOWED = 20
"""Passages, the first by all other signals, whose links to pages count, and the links to whose pages do."""
_LEAST_SAID = 0.02
"""Added to the share of the question that a link says: one without a word of the question is a link all the same."""


class Link(NamedTuple):
    """A fact of one of the best passages that leads to another passage.

    Attributes:
        place: the place, in the pool, of the best passage that states the fact.
        triple: the fact.
        entity: key of the entity that both passages name.
        likeness: the fact's likeness to the question; of a link between pages, its strength (`Company.page_links`).

    """

    place: int
    triple: Triple
    entity: str
    likeness: float

    @property
    def name(self) -> str:
        """The entity as the fact writes it."""
        return self.triple.subject if entity_key(self.triple.subject) == self.entity else self.triple.object


# -- lists -------------------------------------------------------------------------------------------------------


def find_ranks(ranked: Sequence[str], places: Mapping[str, int]) -> Floats:
    """Return the rank of each passage in a list, from 0; that of a passage that it lacks is the length of the list.

    Args:
        ranked: ids of the list's passages, best first.
        places: node id → place of the passage in the pool.

    """
    first: dict[str, int] = {}
    for rank, passage_id in enumerate(ranked):
        first.setdefault(passage_id, rank)
    return np.array([first.get(passage_id, len(ranked)) for passage_id in places], dtype=np.float64)


def score_by_lists(ranks: Iterable[Floats], number: int) -> Floats:
    """Return the first score of each passage: −Σ ln(1 + rank) over the lists. Without a list all are equal.

    It is the logarithm of a product of whole numbers, so that the same ranks in other lists are the same score.
    """
    return -np.log(reduce(np.multiply, (1 + of_list for of_list in ranks), np.ones(number)))


# -- company -----------------------------------------------------------------------------------------------------


class Company:
    """The best passages of a pool's lists: every passage is compared with them, and never with itself.

    A fact's likeness is the share of the question that its words make up (`Pool.coverage`), and a thousandth. Entities
    that more than twelve passages of the pool name are no links. What two passages are both about is no link between
    these two.

    Args:
        pool: the pool.
        weights: signal → weight, for the order in which links between pages are followed. Default: those that come with
            the package.

    Attributes:
        order: places of all passages by the lists together, best first (`score_by_lists`).
        best: places of the best passages, the first five of these.
        first_places: 61 / (61 + rank) of each passage in the list whose places tie passages to the question, or 0:
            dense search's list, else another retriever's, else BM25's.
        named: for each passage, the most similar fact of the other best passages that names what it is about; None if
            no fact does.
        linked: for each passage, the strongest fact of the other best passages that names any entity of it
            (`compare`); None if no fact does.

    """

    def __init__(self, pool: Pool, weights: Mapping[str, float] | None = None) -> None:
        self._pool = pool
        self._weights = weights
        ranks = {name: find_ranks(ranked, pool.places) for name, ranked in pool.lists.items()}
        self._first = score_by_lists(ranks.values(), len(pool.passages))
        self.order = order(self._first)
        self.best = self.order[:BEST]
        first_list = next((name for name in _FIRST_LISTS if name in ranks), None)
        self.first_places = np.zeros(len(pool.passages))
        if first_list is not None:
            rank = ranks[first_list]
            self.first_places = np.where(rank < len(pool.lists[first_list]), _NEAR / (_NEAR + rank), 0.0)
        self._links: dict[str, list[Link]] = {}
        for place in self.best:
            strongest: dict[str, Link] = {}
            for fact in pool.passages[place].triples:
                likeness = pool.fact_coverage(fact) + _LEAST
                for entity in fact.entities:
                    if entity not in strongest or likeness > strongest[entity].likeness:
                        strongest[entity] = Link(place, fact, entity, likeness)
            for entity, link in strongest.items():
                if pool.is_link(entity):
                    for name in pool.names_of(entity):
                        self._links.setdefault(name, []).append(link)
        places = range(len(pool.passages))
        self.named = [self._find_naming(place) for place in places]
        linking = [self._find_linking(place) for place in places]
        self.linked = [link for link, _, _ in linking]
        self._strengths = np.array([strength for _, strength, _ in linking])
        self._likest = np.array([likest for _, _, likest in linking])

    def compare(self) -> dict[str, Floats]:
        """Return the signals of all passages by name, each of shape (passages,).

        Of words, each as BM25 weighs it within the pool:

        - `shared_words`: cosine of its words with those of the best passages, the better ones counting more; only words
          count that at most twelve passages have, and the question lacks (Rocchio's feedback).
        - `walk`: ln(share of the best + 10⁻⁴) of random walks between passages and their words, from the passages as
          the lists rank them and from the words of the question.
        - `phrases`: the share of the question's neighboring words that stand side by side in it too.
        - `new_words`: the share of the question whose words it has and the two best passages lack.

        Of facts:

        - `linked`: of the facts of the best passages that name any entity of it, the highest √((said + 0.02) · (new +
          0.02) / log₂(1 + place)) / log₂(1 + passages that name the entity). What is said is the fact's likeness. What
          is new is the share of the question that a fact of its own about the entity has, and the best passage lacks.
          The place is that of the best passage, from 1.
        - `named`: the likeness of the most similar fact of the best passages that names what it is about.
        - `in_question`: the share of the question that the name of what it is about makes up, if all of it is there.

        Of both:

        - `tied`: how well anything ties it to the question: its place in the first list, its words, or a fact.

        Of links that people made:

        - `page_links`: the strength of the strongest link between its page and one of the first by all of these.

        """
        strengths = np.array([link.likeness if link else 0.0 for link in self.page_links])
        return {**self._signals, "page_links": strengths}

    @cached_property
    def _signals(self) -> dict[str, Floats]:
        named = np.array([link.likeness if link else 0.0 for link in self.named])
        return {
            "shared_words": self._compare_words(),
            "walk": self._walk(),
            "phrases": self._find_phrases(),
            "new_words": self._find_new_words(),
            "linked": self._strengths,
            "named": named,
            "in_question": np.array([max(map(self._pool.coverage, keys), default=0.0) for keys in self._pool.asked]),
            "tied": np.maximum.reduce(
                [self.first_places, np.minimum(1.0, _STRONG * self._likest), named > 0, self._cover()]
            ),
        }

    def _compare_words(self) -> Floats:
        terms = self._pool.terms
        weights, lengths = terms.weights, np.where(terms.lengths == 0, np.float32(1), terms.lengths)[:, None]
        is_link = terms.passages <= MAX_LINK_PASSAGES
        is_link[terms.asked] = False
        best = weights[self.best] / lengths[self.best] * is_link
        is_other = np.arange(len(weights))[:, None] != np.array(self.best)
        shared: Floats = (weights @ best.T / lengths * is_other) @ _COUNTS[: len(self.best)]
        return shared

    def _walk(self) -> Floats:
        """Walk between passages and words; half of each step returns to the start."""
        _, weights, passages, rarity, asked, own, _ = self._pool.terms
        counts = np.where(passages > MAX_LINK_PASSAGES, _FREQUENT, 1.0).astype(np.float32)
        of_passages, of_words = weights @ counts + own, weights.sum(axis=0)
        of_passages[of_passages == 0] = 1.0
        powers = np.exp(self._first - self._first.max()).astype(np.float32)
        passage_start = powers / powers.sum()
        word_start = np.zeros(len(passages), np.float32)
        word_start[asked] = rarity[asked] / passages[asked]
        word_start /= word_start.sum() or 1.0
        at_passages, at_words, at_own = passage_start / 2, word_start / 2, np.zeros_like(passage_start)
        for _ in range(_STEPS):
            going = at_passages / of_passages / 2
            at_passages, at_words, at_own = (
                passage_start / 4 + (weights @ (at_words / of_words) + at_own) / 2,
                word_start / 4 + going @ weights * counts,
                going * own,
            )
        shares: Floats = at_passages.astype(np.float64) / at_passages.max()
        return np.log(shares + _FLOOR)

    def _cover(self) -> Floats:
        weights, words = self._question_table
        return words @ weights

    @cached_property
    def _question_table(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The shares of the question that its words make up, and which passages have them."""
        terms = self._pool.terms
        shares = [self._pool.question_weights[number] for number in terms.words[terms.asked].tolist()]
        return np.array(shares), terms.weights[:, terms.asked] > 0

    def _find_new_words(self) -> Floats:
        weights, words = self._question_table
        first = self.best[:_READ_FIRST]
        new: Floats = (words & ~words[first].any(axis=0)) @ weights
        for place in first:
            others = [other for other in first if other != place]
            new[place] = (words[place] & ~words[others].any(axis=0)) @ weights
        return new

    def _find_phrases(self) -> Floats:
        phrases, known = self._phrases, self._pool.stated
        unread = [place for place, passage in enumerate(self._pool.passages) if passage.id not in known]
        lines = [self._pool.contents[place].line for place in unread]
        text, ends = "".join(lines), list(accumulate(map(len, lines)))  # far faster than each line alone
        stated: list[list[str]] = [[] for _ in unread]
        for phrase in phrases:
            start = text.find(phrase)
            while start >= 0:
                number = bisect(ends, start)
                stated[number].append(phrase)
                start = text.find(phrase, ends[number])
        known.update(zip((self._pool.passages[place].id for place in unread), stated, strict=True))
        return np.array([sum(map(phrases.__getitem__, known[passage.id])) for passage in self._pool.passages], float)

    def list_phrases(self, place: int) -> list[str]:
        """Return the parts of the question, of two words or more, that the signal `phrases` has seen in a passage.

        Stop words don't count, and are left out at both ends. Of a longer part its pieces are listed, and no more than
        five parts. What stands in addresses alone is left out.
        """
        passage = self._pool.passages[place]
        if self._pool.stated.get(passage.id) == [] and "_" not in passage.text:  # no two neighboring words are in it
            return []
        words, line = self._question_words, write_plain_line(self._pool, place)
        parts, start = dict[str, None](), 0
        while start < len(words) - 1 and len(parts) < _MOST_PARTS:
            if not self._pool.question_line[start][1]:
                start += 1
                continue
            end = start + 1
            while end < min(len(words), start + _LONGEST_PART) and f" {' '.join(words[start : end + 1])} " in line:
                end += 1
            telling = [at for at in range(start, end) if self._pool.question_line[at][1]] if end > start + 1 else []
            if len(telling) > 1:
                parts[" ".join(words[start : telling[-1] + 1])] = None
            start = max(start + 1, end - 1)
        return [*parts]

    @cached_property
    def _phrases(self) -> dict[str, float]:
        """Neighboring words of the question → the share of all of these that they make up, rare words counting more."""
        shares, weights = self._pool.question_weights, dict[str, float]()
        for (one, numbers), (other, further) in pairwise(self._pool.question_line):
            phrase = f" {one} {other} "
            weight = math.fsum(shares[number] for number in numbers | further)
            weights[phrase] = weights.get(phrase, 0.0) + weight
        total = math.fsum(weights.values())
        return {phrase: weight / total for phrase, weight in weights.items() if weight}

    @cached_property
    def _question_words(self) -> list[str]:
        return [word for word, _ in self._pool.question_line]

    # -- facts ---------------------------------------------------------------------------------------------------

    def _find_naming(self, place: int) -> Link | None:
        named = [key for key in self._pool.contents[place].topics if key in self._links]
        links = [link for key in named for link in self._links_of_others(key, place)]
        return max(links, key=lambda link: link.likeness, default=None)

    def _find_linking(self, place: int) -> tuple[Link | None, float, float]:
        """Return the strongest fact that names an entity of a passage, its strength, and the highest likeness · rarity.

        They are facts of the other best passages; the strength is `linked` (`compare`).
        """
        strongest, most, likest = None, 0.0, 0.0
        pool = self._pool
        linking = {
            entity: links
            for entity in pool.contents[place].entities
            if entity in self._links and (links := self._links_of_others(entity, place))
        }
        own: dict[str, set[frozenset[int]]] = {entity: set() for entity in linking}
        for fact in pool.passages[place].triples if linking else ():
            for entity in linking.keys() & fact.entities:
                own[entity].add(pool.find_words(fact))
        for entity, links in linking.items():
            for link in links:
                rarity = 1 / math.log2(1 + pool.entity_passages[link.entity])
                new = max(pool.weigh_new(words, link.place) for words in own[entity])
                both = (link.likeness + _LEAST_SAID) * (new + _LEAST_SAID) / math.log2(2 + self.best.index(link.place))
                strength = math.sqrt(both) * rarity
                if strength > most:
                    strongest, most = link, strength
                likest = max(likest, link.likeness * rarity)
        return strongest, most, likest

    def _links_of_others(self, entity: str, place: int) -> list[Link]:
        """Return the facts of the other best passages that name an entity, under any of its names.

        If such a passage and this one are both about the entity, that is no link: chunks of one document share a title.
        """
        links = [link for link in self._links.get(entity, ()) if link.place != place]
        contents, names = self._pool.contents, self._pool.names_of(entity)
        if not links or contents[place].topics.keys().isdisjoint(names):
            return links
        return [link for link in links if contents[link.place].topics.keys().isdisjoint(names)]

    # -- links between pages ---------------------------------------------------------------------------------------

    @cached_property
    def page_links(self) -> list[Link | None]:
        """For each passage, the strongest link between its page and one of the first twenty passages by other signals.

        If the page that a link leads to is among these, the link counts for the passage that has it, and for the best
        passage of that one's page. If the passage that has it is among these, it counts for the passage that it leads
        to, the one with the heading that it names, and for the best passage of that one's page.

        Its strength is √(share of the question + 0.02) / √(place of the other end, from 1). The share is the mean of
        what the link's sentence and names make up, and what the passage has and the other end lacks.
        """
        found: list[Link | None] = [None] * len(self._pool.passages)
        contents = self._pool.contents
        if not any(content.links for content in contents):
            return found
        weights = RankingWeights.default().signals if self._weights is None else self._weights
        scores = sum((weights.get(name, 0.0) * values for name, values in self._signals.items()), np.zeros(len(found)))
        standing = {place: number for number, place in enumerate(order(scores), start=1)}
        about: dict[str, list[int]] = {}
        best: dict[str, int] = {}
        for place in standing:
            best.setdefault(self._name_page(place), place)
            for key in contents[place].topics:
                about.setdefault(key, []).append(place)
        known: dict[tuple[str, ...], list[list[int]]] = {}
        for place, content in enumerate(contents):
            for triple in content.links:
                pages, headed = self._find_pages(place, triple, about, standing, known)
                ends = [(end, place) for end in pages + headed]
                ends += [(end, other) for other in pages for end in (place, best[self._name_page(place)])]
                self._note(found, place, triple, [(end, other, standing[other]) for end, other in ends])
        return found

    def _find_pages(
        self,
        place: int,
        triple: Triple,
        about: Mapping[str, Sequence[int]],
        standing: Mapping[int, int],
        known: dict[tuple[str, ...], list[list[int]]],
    ) -> list[list[int]]:
        """Return the best passage of the page that a link leads to, and the best one with the heading that it names.

        Each is a list of one, or empty. The page that has the link has none. `known` keeps what is found, since many
        links may lead to one page.
        """
        entity, document = entity_key(triple.object), self._pool.passages[place].document
        key = (entity, document, section := read_section(triple.predicate))
        if key not in known:
            if (entity,) not in known:
                found = {other for name in self._pool.names_of(entity) for other in about.get(name, ())}
                known[entity,] = [sorted(found, key=standing.__getitem__)]
            passages = self._pool.passages
            pages = [
                (other for other in known[entity,][0] if not document or passages[other].document != document)
                for _ in range(2)
            ]
            found_pages = pages[0], self._find_headed(pages[1], section)
            known[key] = [[*islice(some, 2)] for some in found_pages]  # one may be the passage with the link
        return [[other for other in some if other != place][:1] for some in known[key]]

    def _note(self, found: list[Link | None], place: int, triple: Triple, ends: Sequence[tuple[int, int, int]]) -> None:
        """Note a link where it is the strongest: at ends whose other end stands, from 1, among the first."""
        followed = [end for end in ends if end[2] <= _FOLLOWED]
        said = self._pool.fact_coverage(triple) if followed else 0.0
        for end, other, number in followed:
            new = self._pool.weigh_new(self._pool.find_asked(end), other)
            strength = math.sqrt((said + new) / 2 + _LEAST_SAID) / math.sqrt(number)
            strongest = found[end]
            if strongest is None or strength > strongest.likeness:
                found[end] = Link(place, triple, entity_key(triple.object), strength)

    def _name_page(self, place: int) -> str:
        """Return the document of a passage; its own id if it is none's."""
        return self._pool.passages[place].document or self._pool.passages[place].id

    def _find_headed(self, pages: Iterable[int], section: str) -> Iterator[int]:
        """Yield the passages that have the heading of the section that a link leads to; none if it leads to none."""
        heading = write_line(section)
        for place in pages if section else ():
            if heading in self._pool.contents[place].line and _has_heading(self._pool.passages[place].text, heading):
                yield place


def read_plain(text: str) -> str:
    """Return a text without web and mail addresses and underscores around words; the text itself if it has none."""
    if any(mark in text for mark in _ADDRESS_MARKS):
        text = _ADDRESS.sub(" ", text)
    return _EMPHASIS.sub(r"\1", text) if "_" in text else text


def write_plain_line(pool: Pool, place: int) -> str:
    """Return the line of a passage (`Content.line`) as `read_plain` reads it."""
    if place not in pool.plain_lines:
        text = pool.passages[place].text
        plain = read_plain(text)
        pool.plain_lines[place] = pool.contents[place].line if plain is text else write_line(plain)
    return pool.plain_lines[place]


def _has_heading(text: str, heading: str) -> bool:
    return any(write_line(match[1]).startswith(heading) for match in _HEADING.finditer(text))


def order(scores: Floats) -> list[int]:
    """Return the places of the scores, highest first; equal ones in their order."""
    places: list[int] = np.argsort(-scores, kind="stable").tolist()
    return places
