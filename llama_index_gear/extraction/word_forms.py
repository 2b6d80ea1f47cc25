"""What a word's form tells of it: kinds of numbers, states, and verbs that a passage has as infinitives too."""

from __future__ import annotations

import re
from collections.abc import Collection

from llama_index_gear.extraction.words import DEMONYMS

_STAGES = frozenset("alpha beta build nightly patch preview rc release snapshot stable version".split())
_NUMBER = re.compile(r"v?\d+(?:\.\d+)+\S*|\d+")
_IDENTIFIERS = frozenset("DOI ISBN ISSN JSTOR LCCN OCLC PMC PMID S2CID".split())
_STATE = re.compile(r"\w{3,}(?:[aeiu][dt][oa]s?|iv[oa]s?|[aei]nt[ei]s?|éa?|ée?s?)")
_INFINITIVES = ("are", "ere", "ire", "ar", "er", "ir", "re", "en")
_OF_IMPERATIVES = "aeiz"


def names_number(core: str, following: str) -> bool:
    """Return True for the kind of the number behind it: "Beta 0.8.15", "ISBN 978-0-415-08009-5"."""
    return _NUMBER.match(following) is not None and (core.lower() in _STAGES or core in _IDENTIFIERS)


def may_be_state(word: str) -> bool:
    """Return True for a word that ends as participles and adjectives of Spanish, Portuguese, Italian or French do."""
    return _STATE.fullmatch(word) is not None


def may_be_imperative(word: str) -> bool:
    """Return True for a word that ends as imperatives do that a label follows ("seleziona", "wähle", "cliquez")."""
    return word[-1:] in _OF_IMPERATIVES


def has_infinitive(word: str, small_words: Collection[str]) -> bool:
    """Return True for a word of which small words have an infinitive ("apri", "aprire"; "wähle", "wählen").

    A word that ends as no imperative does is none ("Marco", though "marcar" stands there; "Roma" and "roman").
    """
    if len(word) < 4:
        return False
    infinitives = {f"{stem}{ending}" for stem in (word, word.removesuffix("ez")) for ending in _INFINITIVES}
    infinitives |= {f"{word}n"} if word[-1] == "e" else set()
    shorter = _INFINITIVES if may_be_imperative(word) else ("re",)  # "prends", "prendre"
    infinitives |= {f"{word[:-1]}{ending}" for ending in shorter}
    return not infinitives.isdisjoint(small_words)


def is_demonym(core: str, word: str) -> bool:
    """Return True for an adjective of a nation or faith with a small word in front ("non-Hispanic")."""
    return core[0].islower() and word.rpartition("-")[2] in DEMONYMS


def list_bases(participle: str) -> list[str]:
    """Return the verbs that a word may be a participle of ("archived", "planning")."""
    stem = participle.removesuffix("ed").removesuffix("ing")
    return [stem, f"{stem}e", *([stem[:-1]] if stem[-1:] == stem[-2:-1] else [])]
