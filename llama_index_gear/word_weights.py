"""Weights of the words of a question: those that stand in few texts find what an answer stands in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from llama_index_gear.triple import entity_key


def weigh_words(matter: str, texts: Sequence[str]) -> dict[str, float]:
    """Weigh the words of `matter` that stand in these texts: one that stands in n of them weighs 1/n."""
    having = Counter(word for text in texts for word in _words(text))
    return {word: 1 / having[word] for word in _words(matter) if word in having}


def sum_weights(text: str, weights: Mapping[str, float]) -> float:
    """Add the weights of a text's words, each once."""
    return math.fsum(weights.get(word, 0.0) for word in _words(text))  # exact: a set's order changes with the process


def _words(text: str) -> set[str]:
    return set(entity_key(text).split())
