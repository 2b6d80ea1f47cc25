"""Words told by their form: kinds of numbers, states, and verbs that a passage has as infinitives too."""

from __future__ import annotations

import re
from collections.abc import Collection

_STAGES = frozenset("alpha beta build nightly patch preview rc release snapshot stable version".split())
_NUMBER = re.compile(r"v?\d+(?:\.\d+)+\S*|\d+")
_IDENTIFIERS = frozenset("DOI ISBN ISSN JSTOR LCCN OCLC PMC PMID S2CID".split())
_STATE = re.compile(r"\w{3,}(?:[aeiu][dt][oa]s?|iv[oa]s?|[aei]nt[ei]s?|éa?|ée?s?)")
_INFINITIVES = ("are", "ere", "ire", "ar", "er", "ir", "re", "en", "n")


def names_number(core: str, following: str) -> bool:
    """Return True for the kind of the number behind it: "Beta 0.8.15", "ISBN 978-0-415-08009-5"."""
    return _NUMBER.match(following) is not None and (core.lower() in _STAGES or core in _IDENTIFIERS)


def may_be_state(word: str) -> bool:
    """Return True for a word that ends as participles and adjectives of Spanish, Portuguese, Italian or French do."""
    return _STATE.fullmatch(word) is not None


def has_infinitive(word: str, small_words: Collection[str]) -> bool:
    """Return True for a word of which small words have an infinitive ("apri", "aprire"; "wähle", "wählen")."""
    stems = (word, word.removesuffix("ez"), word[:-1])
    return len(word) > 3 and any(f"{stem}{ending}" in small_words for stem in stems for ending in _INFINITIVES)
