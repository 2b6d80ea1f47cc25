"""The words of a question that a reason quotes: those that a passage has too, the most telling first."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest

from llama_index_gear.characters import unify_spelling
from llama_index_gear.function_words import ENGLISH, GENERAL
from llama_index_gear.nodes import shorten
from llama_index_gear.ranking.pool import MAX_LINK_PASSAGES, Pool
from llama_index_gear.ranking.ranker import Ranked
from llama_index_gear.ranking.signals import read_plain, write_plain_line
from llama_index_gear.triple import SPACELESS

_WORDS = re.compile(r"\w+")
_UNPARTED = r"[^\w.,;:!?()]+"  # what stands between words of one sentence
_LEAST_DIGITS = 3  # of a number that is quoted alone
_MOST_WORDS = 5  # that are quoted
_MOST_READ = 64  # that a passage is searched for: a question may be as long as a passage
_LEAST_WORDS = 2  # of those that tell nothing
_NEARLY_ALL = 5 / 6  # of the pool
_LEAST_PART = 1 / 3  # of the most telling word's weight
_LEAST_WEIGHT = 0.05  # of a word that most of the pool has
_LONGEST = 160  # characters of what is quoted
_QUOTES = re.compile(r"[\"“”„«»()\[\]]")
_BEFORE, _BEHIND = re.compile(r"(\w+) \Z"), re.compile(r" (\w+)")
_ENDING = re.compile(r"(?<=\w{3})(?:ies|y|es|e|s|ed|d|ing)\Z")
_HAS_NO_SPACES = re.compile(f"[{SPACELESS}]")


class QuestionWords:
    """The words of a question, and how telling they are of a passage.

    A word weighs rate · ln(rate / share): the rate of passages that have it among the first ten of the ranking and this
    one, and the share of the pool that has it. So what the question is about comes first, though it fills the pool, and
    not a word that fits any subject, though it is rarer there.

    Args:
        pool: the pool.
        first: places of the first ten passages of the ranking (`Ranked.first`).

    """

    def __init__(self, pool: Pool, first: Sequence[int]) -> None:
        self._pool = pool
        self._first = first
        self._numbers = {
            word: sorted(numbers, key=lambda number: (pool.having[number], number))
            for word, numbers in pool.question_line
            if not _is_empty(pool, word)
        }
        self._above = {
            number: {place for place in first if number in pool.find_asked(place)}
            for number in {number for numbers in self._numbers.values() for number in numbers}
        }
        self._counts: dict[str, int] = {}
        self._written: dict[str, str] = {}
        self._everywhere: dict[str, bool] = {}
        self._parts: dict[str, tuple[bool, list[tuple[str, bool]]]] = {}

    def describe(self, ranked: Ranked, said: Collection[str], *, must: bool) -> str:
        """Say which words of the question a passage has, phrases whole, the most telling first, at most five.

        The others weigh a third of it or more, or are names or rare. What nearly all of the pool has is left out, and
        who speaks in most of it. A word that the passage only has in another form weighs half, and that is quoted.

        Args:
            ranked: the passage.
            said: words in small letters that another reason says.
            must: if nothing tells anything, quote the best all the same.

        Returns:
            `has “…” and “…” (for “…”) of the question`; "" if there is nothing to say.

        """
        place = self._pool.places[ranked.id]
        has = self._pool.find_asked(place)
        weights = {
            word: self._weigh(place, rarest)
            for word, numbers in self._numbers.items()
            if word not in said and (rarest := next((number for number in numbers if number in has), None)) is not None
        }
        if not weights:
            return ""
        weights = {word: weights[word] for word in nlargest(_MOST_READ, weights, key=weights.__getitem__)}
        phrases = {phrase: words for phrase, words in self._list_phrases(ranked) if weights.keys() & words}
        telling = {phrase: max(weights.get(word, -1.0) for word in words) for phrase, words in phrases.items()}
        whole = {word for words in phrases.values() for word in words}
        written = set(write_plain_line(self._pool, place).replace("_", " ").split())
        forms = dict[str, str]()
        for word, weight in weights.items():
            if word in whole:
                continue
            if word in written or _HAS_NO_SPACES.search(word):
                if not self._is_part(place, word):
                    telling[word] = weight
            elif form := self._find_form(word, written):
                telling[word], forms[word] = weight / 2, form
        told = self._choose(telling, must=must)
        if any(map(_HAS_NO_SPACES.search, told)):  # a part of a word may be meant
            return "has words of the question"
        quoted = [f"“{forms[text]}” (for {self._quote(text)})" if text in forms else self._quote(text) for text in told]
        return f"has {join(quoted)} of the question" if quoted else ""

    def _find_form(self, word: str, written: Iterable[str]) -> str | None:
        """Return the first word, by letters, that differs from a word in its ending alone: “parties” for “party”.

        For BM25 both are one word. So “police” is no form of “policy”, nor “plan” of “planes”.
        """
        stem, split = _ENDING.sub("", word), self._pool.encoder.split_words
        alike = (one for one in written if one.startswith(stem) and _ENDING.sub("", one) == stem)
        return min((one for one in alike if not split(one).isdisjoint(self._numbers[word])), default=None)

    def are_in(self, words: Collection[str]) -> bool:
        """Return True if one of some words, in small letters, is a word of the question that half of the pool lacks."""
        return any(word in words and not self._is_frequent(word) for word in self._numbers)

    def _weigh(self, place: int, number: int) -> float:
        others = len(self._first) - (place in self._first)
        rate = (1 + len(self._above[number] - {place})) / (1 + others)
        return rate * math.log(rate * len(self._pool.passages) / self._pool.having[number])

    def _choose(self, weights: Mapping[str, float], *, must: bool) -> list[str]:
        """Choose words and phrases: what tells anything, else two that most of the pool lacks, else any."""
        ordered = sorted(weights, key=lambda text: (-weights[text], self._count(text)))
        open_ones = [text for text in ordered if not self._is_everywhere(text)]
        best = max((weights[text] for text in open_ones), default=0.0)
        told = [text for text in open_ones if self._is_telling(text, weights[text], best)][:_MOST_WORDS]
        rare = [text for text in open_ones if not self._is_frequent(text)]
        return told or rare[:_LEAST_WORDS] or (ordered[:_LEAST_WORDS] if must else [])

    def _is_telling(self, text: str, weight: float, best: float) -> bool:
        """Return True for a phrase, and a word that weighs enough, is a name, or rare and not less frequent above."""
        if " " in text:
            return True
        is_near = weight >= min(best, _LEAST_PART * best)
        if self._is_frequent(text):
            return is_near and weight >= _LEAST_WEIGHT
        return is_near or self._is_name(text) or (weight > 0 and self._count(text) <= MAX_LINK_PASSAGES)

    def _count(self, text: str) -> int:
        """Return the number of passages that have the rarest word of a text."""
        if text not in self._counts:
            rarest = [numbers[0] for word in text.split() if (numbers := self._numbers.get(word))]
            self._counts[text] = min(map(self._pool.having.__getitem__, rarest), default=0)
        return self._counts[text]

    def _is_frequent(self, text: str) -> bool:
        """Return True if more than half of the pool, and more than twelve passages, have a word."""
        return self._count(text) > max(MAX_LINK_PASSAGES, len(self._pool.passages) / 2)

    def _is_name(self, word: str) -> bool:
        """Return True if the question writes a word with a capital, and it is no common noun."""
        written = self._spell(word)
        return written != word and not self._pool.is_ordinary(written)

    def _is_everywhere(self, text: str) -> bool:
        """Return True for a word that nearly all of a large pool has, and for who speaks in more than half of it."""
        if text not in self._everywhere:
            written, number = self._spell(text), len(self._pool.passages)
            is_common = " " not in text and self._count(text) > max(MAX_LINK_PASSAGES, _NEARLY_ALL * number)
            names, least = {written, written.replace(" ", "")}, max(MAX_LINK_PASSAGES, number / 2)
            self._everywhere[text] = is_common or (written != text and self._pool.is_speaker(names, least))
        return self._everywhere[text]

    def _spell(self, text: str) -> str:
        if text not in self._written:
            self._written[text] = spell(self._pool.question, text)
        return self._written[text]

    def _is_part(self, place: int, word: str) -> bool:
        """Return True if the question has a word in a compound, in a date, or in a longer name.

        A name of several words is one that some passage writes so. A part of it that stands alone in this passage, as a
        family name does, beside no other word with a capital, is quoted.
        """
        if word not in self._parts:
            self._parts[word] = self._find_wholes(word)
        is_bound, names = self._parts[word]
        text = self._pool.passages[place].text
        return is_bound or not all(self._stands_alone(text, name, is_last=is_last) for name, is_last in names)

    def _find_wholes(self, word: str) -> tuple[bool, list[tuple[str, bool]]]:
        """Return True if a word is part of a compound or a date; and the word for each longer name.

        With it goes True if the other word of the name stands before it.
        """
        question, names = self._pool.question, list[tuple[str, bool]]()
        words, spans, starts = _find_words(question)
        if word not in starts:  # its letters have another spelling
            return False, names
        at = starts[word][0]
        for one, other in ((at - 1, at), (at, at + 1)):
            if one < 0 or other == len(words):
                continue
            mark = question[spans[one][1] : spans[other][0]]
            both = [question[slice(*spans[number])] for number in (one, other)]
            is_opener = one == 0 and _is_empty(self._pool, words[0])
            is_name = mark == " " and not is_opener and all(part != part.lower() or part.isdecimal() for part in both)
            if mark == "-" or (is_name and any(map(str.isdecimal, both))):
                return True, names
            if is_name and self._pool.are_written_together(f"{words[one]} {words[other]}"):
                names.append((both[other == at], other == at))
        return False, names

    def _stands_alone(self, text: str, name: str, *, is_last: bool) -> bool:
        """Return True if a name stands somewhere with no other name before it, or else behind it."""
        for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            start = max(0, match.start() - _LONGEST)
            beside = _BEFORE.search(text[start : match.start()]) if is_last else _BEHIND.match(text, match.end())
            other = beside[1] if beside else ""
            if other == other.lower() or _is_empty(self._pool, other.lower()) or self._pool.is_ordinary(other):
                return True
        return False

    def _quote(self, text: str) -> str:
        return f"“{shorten(self._spell(text), _LONGEST)}”"

    def _list_phrases(self, ranked: Ranked) -> list[tuple[str, list[str]]]:
        """List phrases of the question, with their words, that a passage writes without a mark that parts sentences.

        Such a mark may stand there if the question has it, too. Of its words two or more say something, are numbers, or
        have a capital, but for compounds. What stands in another phrase is left out, and scripts without spaces.
        """
        if not ranked.phrases:
            return []
        plain = unify_spelling(read_plain(self._pool.passages[self._pool.places[ranked.id]].text))
        asked, found = unify_spelling(self._pool.question), dict[str, list[str]]()
        for phrase in ranked.phrases:
            words = phrase.split()
            says = [one for one in words if one in self._numbers or one.isdecimal() or self._spell(one) != one]
            pattern = rf"(?<!\w){_UNPARTED.join(map(re.escape, words))}(?!\w)"
            if (len(says) > 1 or "-" in self._spell(phrase)) and not _HAS_NO_SPACES.search(phrase):
                if re.search(pattern, plain, re.IGNORECASE) or not re.search(pattern, asked, re.IGNORECASE):
                    found[phrase] = words
        return [
            one for one in found.items() if not any(f" {one[0]} " in f" {other} " != f" {one[0]} " for other in found)
        ]


def join(parts: Sequence[str]) -> str:
    """Join parts of a sentence by commas and "and"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def spell(text: str, phrase: str) -> str:
    """Return some words of a line as a text writes them, with its capitals and marks, but for quotes and brackets."""
    if text.isascii() and phrase.isascii():  # far faster than a pattern of its own, and the same words
        written, spans, starts = _find_words(text)
        wanted = phrase.lower().split()
        for place in starts.get(wanted[0], ()):
            if written[place : place + len(wanted)] == wanted:
                return _QUOTES.sub("", text[spans[place][0] : spans[place + len(wanted) - 1][1]])
        return phrase
    words = r"\W+".join(map(re.escape, phrase.split()))
    matched = re.search(rf"\b{words}\b", text, re.IGNORECASE)
    return _QUOTES.sub("", matched[0]) if matched else phrase


@lru_cache(maxsize=8)  # the question's, for each of its words
def _find_words(text: str) -> tuple[list[str], list[tuple[int, int]], dict[str, list[int]]]:
    """Return the words of a text, in small letters; where each begins and ends; and the places of each word."""
    found = [*_WORDS.finditer(text)]
    words = [match[0].lower() for match in found]
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    return words, [match.span() for match in found], places


def _is_empty(pool: Pool, word: str) -> bool:
    """Return True for a word that says nothing: a stop word, another that fits any subject, or a short number."""
    is_general = pool.encoder.language == "english" and (word in ENGLISH or word in GENERAL)
    return is_general or (word.isdecimal() and len(word) < _LEAST_DIGITS) or not pool.encoder.split_words(word)
