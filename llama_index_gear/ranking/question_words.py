"""The words of a question that a reason quotes: those that say something about a passage that has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from llama_index_gear.characters import unify_spelling
from llama_index_gear.function_words import ENGLISH, GENERAL
from llama_index_gear.ranking.pool import Pool, write_line
from llama_index_gear.ranking.ranker import Ranked
from llama_index_gear.ranking.signals import read_plain, write_plain_line
from llama_index_gear.triple import SPACELESS

LEAST_SHARE = 0.05
"""A signal whose share of the weighted sum is smaller is no reason."""
LEAST_PART = 0.15
"""Nor is one whose share is a smaller part of the largest reason's. Parts of the question always tell something."""
_WORDS = re.compile(r"\w+")
_UNPARTED = r"[^\w.,;:!?()]+"  # what stands between words of one sentence
_LEAST_DIGITS = 3  # of a number that is quoted alone
_MOST_ASKED = 3  # words of the question that are quoted beside the place that they gave
_QUOTES = re.compile(r"[\"“”„«»()\[\]]")
HAS_NO_SPACES = re.compile(f"[{SPACELESS}]")
"""Matches a letter of a script that writes no spaces between words."""


def _split_question(pool: Pool, ranked: Ranked) -> set[str]:
    """Return the question's words in small letters, but for those of its phrases that the passage has."""
    return set(write_line(pool.question).split()).difference(*map(str.split, _list_whole(pool, ranked)))


def list_asked_words(pool: Pool, ranked: Ranked) -> list[str]:
    """List what the question and a passage write alike: phrases, and rare words that don't stand in addresses alone.

    Where no word is telling, the rarest are listed that most of the pool lacks and that are no part of a longer one:
    BM25 has found the passage by such words.
    """
    of, words = pool.asked_words.get(ranked.id, (None, []))
    if of is not ranked:  # several reasons ask for them
        words = _find_asked_words(pool, ranked)
        pool.asked_words[ranked.id] = ranked, words
    return words


def _find_asked_words(pool: Pool, ranked: Ranked) -> list[str]:
    phrases = list_phrases(pool, ranked)
    written = set(write_plain_line(pool, pool.places[ranked.id]).split())
    asked = _split_question(pool, ranked) & written - _split_topics(pool, ranked)
    weights = {word: pool.coverage(word) for word in asked}
    rarest = sorted(weights, key=lambda word: (-weights[word], word))
    words = [word for word in rarest if weights[word] and _is_own(pool, ranked, word)]
    telling = [word for word in words if _is_of_subject(pool, ranked, word)]
    return [*phrases, *(telling or ([] if phrases else words))][:_MOST_ASKED]


def list_new_words(pool: Pool, ranked: Ranked) -> list[str]:
    """List the new words that the question writes as the passage does: “response” would not explain “responsive”."""
    asked = _split_question(pool, ranked)
    return [
        word
        for word in ranked.new_words
        if (word in asked and is_telling_word(pool, ranked, word)) or HAS_NO_SPACES.search(word)
    ]


def is_telling_word(pool: Pool, ranked: Ranked, word: str) -> bool:
    """Return True if a word of the question says something about a passage that has it.

    It is a name, or rather what the question is about (`Pool.is_topical`). Most of the pool lacks it, and it is no part
    of a longer word or name.
    """
    return _is_own(pool, ranked, word) and _is_of_subject(pool, ranked, word)


def _is_own(pool: Pool, ranked: Ranked, word: str) -> bool:
    return not (_is_empty(pool, word) or pool.is_frequent(word) or _is_part(pool, ranked, word))


def _is_of_subject(pool: Pool, ranked: Ranked, word: str) -> bool:
    return _is_name(pool, spell(pool.question, word)) or pool.is_topical(word, pool.places[ranked.id])


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


def list_phrases(pool: Pool, ranked: Ranked) -> list[str]:
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
    least = max(LEAST_SHARE, LEAST_PART * max(ranked.shares.values(), default=0.0))
    is_said = "in_question" in ranked.signals and ranked.shares.get("in_question", 0.0) >= least
    named = set(write_line(find_asked_topic(pool, pool.places[ranked.id])).split()) if is_said else set()
    return set() if is_part_of_name(pool, ranked, named) else named


def is_part_of_name(pool: Pool, ranked: Ranked, words: set[str]) -> bool:
    """Return True if words are a part of a longer name of the question that a passage has, and not its title."""
    place = pool.places[ranked.id]
    longer = [phrase for phrase in ranked.phrases if words < set(phrase.split())]
    names = (spell(pool.question, phrase).split() for phrase in longer)
    return not pool.passages[place].title.strip() and any(all(word != word.lower() for word in name) for name in names)


def find_asked_topic(pool: Pool, place: int) -> str:
    """Return the key of what a passage is about that makes up most of the question."""
    return max(pool.asked[place], key=pool.coverage)


def _is_empty(pool: Pool, word: str) -> bool:
    """Return True for a word that says nothing: a stop word, another that fits any subject, or a short number."""
    is_general = pool.encoder.language == "english" and (word in ENGLISH or word in GENERAL)
    return is_general or (word.isdecimal() and len(word) < _LEAST_DIGITS) or not pool.encoder.split_words(word)


def spell(text: str, phrase: str) -> str:
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
