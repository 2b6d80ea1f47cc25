"""Triples: a fact's text and id, and the key under which two mentions are the same entity."""

from __future__ import annotations

import json
import re
import unicodedata
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from llama_index_gear.characters import normalize, unify_spelling
from llama_index_gear.errors import TripleError, check_kind, is_whole

NAMESPACE = uuid.UUID("7b1d5f0a-8c0e-5d5c-9b1e-6f2f3d3a9c41")
"""Namespace of every UUIDv5 that this package makes; changing it would orphan what is stored."""

_ASCII_SPACES = {
    code: " "
    for code in range(128)
    if unicodedata.category(chr(code))[0] in "PZ" or unicodedata.category(chr(code)) == "Cc"
}
"""Characters of ASCII that become spaces in an entity's key."""
SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Letters of scripts without spaces between words, for a regular expression: Thai, Lao, Tibetan, Burmese, Khmer, kana,
and Chinese characters."""
_SPACELESS_LETTER = re.compile(f"[{SPACELESS}]")


@dataclass(frozen=True, slots=True)
class Triple:
    """A fact `(subject, predicate, object)` as the extractor wrote it, with white space collapsed (GeAR §3).

    Raises:
        TripleError: a slot is empty, or no text.

    """

    subject: str
    predicate: str
    object: str

    def __post_init__(self) -> None:
        if type(self.subject) is type(self.predicate) is type(self.object) is str:
            text = f"{self.subject} {self.predicate} {self.object}"
            if text.isprintable() and "  " not in text and text[0] != " " != text[-1]:
                return  # nearly all triples: no slot is empty, or has other white space, which isn't printable
        for slot in ("subject", "predicate", "object"):
            given = getattr(self, slot)
            if not isinstance(given, str):
                raise TripleError(f"the {slot} of a triple must be text, got {given!r}")
            value = " ".join(given.split())
            if not value:
                raise TripleError(f"the {slot} of a triple is empty: {(self.subject, self.predicate, self.object)!r}")
            if value != given:
                object.__setattr__(self, slot, value)

    @property
    def text(self) -> str:
        """`"subject predicate object"`, the text that is embedded and shown."""
        return f"{self.subject} {self.predicate} {self.object}"

    @property
    def entities(self) -> tuple[str, ...]:
        """Entity keys of subject and object, without repetition."""
        subject, object_ = entity_key(self.subject), entity_key(self.object)
        return (subject,) if subject == object_ else (subject, object_)

    def id(self, passage_id: str) -> str:
        """Return the UUIDv5 of (passage id, subject, predicate, object). Writing a fact twice so changes nothing."""
        return str(uuid.uuid5(NAMESPACE, json.dumps([passage_id, self.subject, self.predicate, self.object])))


@dataclass(frozen=True, slots=True)
class GraphTriple:
    """A fact of an external graph, as a reader yields it.

    Raises:
        TripleError: it holds half a character (a lone surrogate), which cannot be stored, or an entity is no text.
        ArgumentError: `entities` is no tuple.

    Attributes:
        triple: the fact, in words.
        entities: identifiers of its ends, where the graph has some (Wikidata's "Q42"). Triples that share one are
            neighbors. Default: the triple's own entity keys.
        is_name: True for a triple that only states another name of its subject. Facts are linked to it; walks don't
            go over it.

    """

    triple: Triple
    entities: tuple[str, ...] = ()
    is_name: bool = False

    def __post_init__(self) -> None:
        check_kind((tuple, list), hint="write a tuple of texts, ('Q42', 'Q5')", entities=self.entities)
        if not all(isinstance(entity, str) for entity in self.entities):
            raise TripleError(f"the entities of a triple must be texts, got {self.entities!r}")
        if not self.entities:
            object.__setattr__(self, "entities", self.triple.entities)
        if not is_whole("".join((self.triple.text, *self.entities))):
            raise TripleError(f"a triple holds a lone surrogate, which is no character: {self.triple!r}")

    @property
    def id(self) -> str:
        """UUIDv5 of the fact and its identifiers. Loading a fact twice so changes nothing."""
        fact = [self.triple.subject, self.triple.predicate, self.triple.object, *self.entities]
        return str(uuid.uuid5(NAMESPACE, json.dumps(fact)))


@dataclass(frozen=True, slots=True)
class StoredTriple:
    """A triple as the store returns it.

    Attributes:
        id: UUID of the triple's point.
        triple: the fact.
        passage_id: node id of the one passage that states it (GeAR §3); empty in an external graph.
        score: cosine of the query's embedding and the triple's, from -1 to 1; BM25's score, if it was found by words.
        entities: keys of its two ends, or an external graph's identifiers. Triples that share one are neighbors.
            Default: the triple's own keys.
        aliases: links of its ends: (key of an end, key that means the same). Default: none.

    """

    id: str
    triple: Triple
    passage_id: str
    score: float
    entities: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.entities:
            object.__setattr__(self, "entities", self.triple.entities)


class Candidate(NamedTuple):
    """A triple that may extend a beam; its text is not fetched yet."""

    id: str
    score: float
    """Cosine of the query's embedding and the triple's."""


class Incidence(NamedTuple):
    """The entities and the passage that a triple joins, and the links of the entities: (entity, its alias)."""

    id: str
    entities: tuple[str, ...]
    passage_id: str
    aliases: tuple[tuple[str, str], ...] = ()


def chain_text(chain: Sequence[Triple]) -> str:
    """Join the texts of a chain of triples for a scorer that reads text (GeAR Alg. 1 line 13, `concat`)."""
    return ". ".join(triple.text for triple in chain)


def serialize_triples(triples: Iterable[Triple]) -> list[list[str]]:
    """Return triples as plain JSON: `[[subject, predicate, object], …]`."""
    return [[triple.subject, triple.predicate, triple.object] for triple in triples]


def fact_key(slots: Iterable[str]) -> tuple[str, ...]:
    """Return what two facts share that are the same up to case, punctuation and white space."""
    return tuple(map(entity_key, slots))


@lru_cache(maxsize=1 << 16)  # passages are ranked again and again, and their triples name the same entities
def entity_key(mention: str) -> str:
    """Return the normal form of a mention. Two mentions with the same key are one entity of the graph.

    The mention has its one spelling (`unify_spelling`), case-folded. Punctuation and white space become single spaces.
    A mention of nothing but punctuation is only case-folded, so that no key is
    empty.
    """
    if mention.isascii():  # nearly all mentions; ten times as fast, and the same key
        folded = mention.lower()
        return " ".join(folded.translate(_ASCII_SPACES).split()) or " ".join(folded.split()) or mention
    folded = unify_spelling(mention).casefold()
    for _ in range(2):  # case folding can undo NFKC, and the reverse; three rounds reach a fixed point
        folded = normalize(folded).casefold()
    spaced = (
        " " if category[0] in "PZ" or category == "Cc" else character
        for character in folded
        for category in (unicodedata.category(character),)
    )
    return " ".join("".join(spaced).split()) or " ".join(folded.split()) or mention


def drop_parenthesis(title: str) -> str:
    """Drop a title's last parenthesis, since facts leave it out: `"Titanic (1997 film)"` becomes `"Titanic"`."""
    return title[: title.rfind("(")].strip() or title if title.endswith(")") else title


def contains_entity(text: str, entity: str) -> bool:
    """Return True if the text holds the entity (both are entity keys); an ASCII entity must match whole words."""
    return f" {entity} " in f" {text} " if entity.isascii() else entity in text


def contains_word(text: str, word: str) -> bool:
    """Return True if the text holds the word (both as in entity keys), between spaces or as its script writes it.

    A word of a script without spaces, of two or more characters, may stand anywhere. Another word may also stand
    beside a letter of such a script.
    """
    if not text.isascii():
        if not _SPACELESS_LETTER.search(word):
            text = _SPACELESS_LETTER.sub(" ", text)  # nothing of a word without such letters is lost
        elif len(word) > 1:
            return word in text
    return f" {word} " in f" {text} "
