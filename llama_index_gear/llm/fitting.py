"""Passages cut to a prompt: as many as fit, and long ones shortened around the words that matter."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate

from llama_index_gear.llm.client_responses import count_tokens
from llama_index_gear.triple import entity_key

_NUMBER_TOKENS = 6  # of a passage's number and the blank line before it
_LEAST_TOKENS = 30  # a passage that is shortened further says nothing
_MAX_PIECE = 300  # characters; a longer sentence is cut
_GAP = " … "
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")


@dataclass(frozen=True)
class FittedPassages:
    """The passages of a prompt.

    Attributes:
        texts: of the passages that fit, in order.
        shortened: positions, from 0, of those that are shortened.
        left_out: number of passages that did not fit; they are the last ones.

    """

    texts: list[str]
    shortened: list[int]
    left_out: int = 0


def count_room(llm: LLM, prompt: BasePromptTemplate, texts: Sequence[str], most: int) -> int:
    """Return the tokens that the passages of a prompt may have.

    Args:
        llm: its metadata holds its context window and its longest reply.
        prompt: the template.
        texts: what else stands in the prompt.
        most: tokens that the passages have at most, however large the window is.

    """
    window = PromptHelper.from_llm_metadata(llm.metadata)
    taken = sum(map(count_tokens, [str(prompt.get_template(llm)), *texts]))
    return max(0, min(most, window.context_window - window.num_output - taken))


def fit_passages(passages: Sequence[str], matter: str, room: int) -> FittedPassages:
    """Shorten the longest passages, and leave out the last ones, until all of them fit.

    Every passage gets the same share of the room; what short ones don't need, longer ones get. A shortened passage
    keeps its first sentence, and those sentences that share the rarest words with `matter`, with what stands around
    them. "…" stands where something is missing. One passage is always shown.

    Args:
        passages: their texts, best first.
        matter: the question, and what else is known.
        room: tokens for all of them.

    """
    texts = list(passages[: max(1, room // (_LEAST_TOKENS + _NUMBER_TOKENS))])
    sizes = [count_tokens(text) for text in texts]
    share = max(_LEAST_TOKENS, _find_share(sizes, room - _NUMBER_TOKENS * len(texts)))
    weights = weigh_words(matter, texts)
    shortened = [position for position, size in enumerate(sizes) if size > share]
    for position in shortened:
        length = len(texts[position]) * share // sizes[position]
        texts[position] = _shorten(texts[position], length, weights)
    return FittedPassages(texts, shortened, len(passages) - len(texts))


def _find_share(sizes: Sequence[int], room: int) -> int:
    """Return the size down to which the largest are cut, so that all sizes together are at most `room`."""
    left = room
    for number, size in enumerate(ordered := sorted(sizes)):
        share = left // (len(ordered) - number)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def _shorten(text: str, length: int, weights: dict[str, float]) -> str:
    """Return the pieces of a text that weigh most, in order, with at most `length` characters or one piece."""
    pieces = [
        sentence[start : start + _MAX_PIECE]
        for sentence in _SENTENCE.split(text)
        for start in range(0, len(sentence), _MAX_PIECE)
    ]
    own = [sum_weights(piece, weights) for piece in pieces]
    beside = [max(own[max(0, place - 1) : place + 2]) for place in range(len(pieces))]
    best = own.index(max(own))
    order = sorted(range(1, len(pieces)), key=lambda place: (-own[place] - beside[place] / 2, abs(place - best)))
    kept: list[int] = []
    left = length
    for place in [0, *order]:
        cost = len(pieces[place]) + len(_GAP)
        if cost <= left:
            kept.append(place)
            left -= cost
    if not kept:
        return pieces[0][:length] + _GAP.rstrip()
    parts, following = [], 0
    for place in sorted(kept):
        parts.append((" " if place == following else _GAP) + pieces[place])
        following = place + 1
    return "".join(parts).strip() + ("" if following == len(pieces) else _GAP.rstrip())


def weigh_words(matter: str, texts: Sequence[str]) -> dict[str, float]:
    """Weigh the words of `matter` that stand in these texts: one that stands in n of them weighs 1/n."""
    having = Counter(word for text in texts for word in _words(text))
    return {word: 1 / having[word] for word in _words(matter) if word in having}


def sum_weights(text: str, weights: Mapping[str, float]) -> float:
    """Add the weights of a text's words, each once."""
    return math.fsum(weights.get(word, 0.0) for word in _words(text))  # exact: a set's order changes with the process


def _words(text: str) -> set[str]:
    return set(entity_key(text).split())
