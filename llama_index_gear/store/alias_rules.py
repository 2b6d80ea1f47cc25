"""The rules by which two names mean the same, by their form alone. Pure functions: no store, no model.

A rule is strict where it can be wrong. Names with other numbers, other middle names or other generations are apart.
A name that leaves something out can mean several others; then it means none of them for sure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

from llama_index_gear.triple import Triple, entity_key

_TITLES = frozenset(
    "dr prof professor sir dame mr mrs ms miss lord lady king queen prince princess emperor pope president chancellor "
    "senator governor general colonel captain judge justice rev reverend frau herr".split()
)
_RANKS = frozenset("king queen prince princess emperor pope mr mrs ms miss lord lady sir dame frau herr".split())
"""Titles that a person does not share with another title as doctors, professors and presidents do."""
_NAMES_OF_THINGS = frozenset(
    "king queen prince princess emperor pope lord lady miss governor general colonel captain judge justice".split()
)
"""Titles that names of things begin with too: General Electric Company, Prince Edward Island."""
_LEGAL_FORMS = {
    **{
        form: form
        for form in "inc corp ltd llc llp plc gmbh ag sa sas se nv bv kg ohg oy ab asa spa srl pty co".split()
    },
    **{"incorporated": "inc", "corporation": "corp", "limited": "ltd", "company": "co"},
}
_WORDS = frozenset("se ab nv sa spa sas".split())
"""Legal forms that, without dots, may be a word of the name: iPhone SE, Grand Hotel Spa."""
_GENERATIONS = {"jr": "jr", "junior": "jr", "sr": "sr", "senior": "sr", "père": "sr", "fils": "jr"}
_SMALL_WORDS = frozenset("of and the for in on de la du des der die das und für von van y e &".split())
_ROMAN = re.compile(r"(?=[ivx])(x{0,3})(ix|iv|v?i{0,3})")
_BARE_LETTER = re.compile(r"(?<![\w'’])[A-Z](?![\w.'’])")
"""A letter without a dot may be no initial: Group B."""
_ORDINALS = frozenset(
    "first second third fourth fifth sixth seventh eighth ninth tenth north south east west northern southern eastern "
    "western upper lower old new".split()
)
"""Words that, like numbers, set a thing apart from its like."""
_GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_LETTERS = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ı": "i"})
_QUOTED = re.compile(r"\s+[\"“”„'‘]([^\"“”„()]{2,40})[\"“”'‘’](?=\s+\S)")
"""A nickname between first and last name; a title in quotes stands at the end."""
_KNOWN_AS = (
    r"(?:(?:also|better|best|commonly|otherwise|formerly|previously|usually|often|originally)\s+)+(?:known|called|named)"
    r"(?:\s+(?:as|simply))?|known\s+as|(?:also\s+)?nicknamed|abbreviated(?:\s+(?:as|to))?|shortened\s+to|short\s+for"
    r"|stands\s+for|a\.?k\.?a\.?|alias|(?:an?\s+|the\s+)?(?:acronym|abbreviation|nickname|pen\s+name|stage\s+name|alias"
    r"|short\s+form|synonym)\s+(?:of|for)"
)
_STATED = re.compile(rf"(?:(?:is|was|are|were|has\s+been|who\s+is)\s+)?(?:{_KNOWN_AS})", re.IGNORECASE)
_LONGEST_PREDICATE = 60  # characters; a longer one is a sentence


class Strength(IntEnum):
    """The strength of a form. Each says what is still needed before two names mean the same for sure."""

    DOUBTFUL = 0
    """Nothing is enough but a person's word."""
    PERSON = 1
    """Two facts that both names share, in different passages."""
    ABBREVIATION = 2
    """A passage or a fact that both names share, or embeddings that are near."""
    STATED = 3
    """No third name that a fact states to be the same."""
    STRONG = 4
    """No third name that is as near."""
    EQUAL = 5
    """Nothing: the names differ in spelling alone."""


class Likeness(NamedTuple):
    """Why two names may mean the same."""

    strength: Strength
    reason: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name, taken apart.

    Attributes:
        text: the name as written.
        key: its entity key.
        spellings: the words of its core, without article, title, legal form and generation; several if letters with
            accents or a nickname in quotes can be read in several ways.
        titles: the titles that were left out of the core.
        legal_form: its legal form, "inc" say; "" if it has none.
        generation: "jr", "sr" or "".
        numbers: numbers and other words that set it apart from its like.
        initials: its initials, all of them, and those of its capitalized words.
        letters: its letters, if it may be an abbreviation; else "".
        is_proper: True if all words but small ones begin with a capital letter.

    """

    text: str
    key: str
    spellings: tuple[tuple[str, ...], ...]
    titles: frozenset[str]
    legal_form: str
    generation: str
    numbers: frozenset[str]
    initials: frozenset[str]
    letters: str
    is_proper: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the core, in the first spelling."""
        return self.spellings[0]


@lru_cache(maxsize=1 << 14)
def parse_name(text: str) -> Name:
    """Take a name apart."""
    plain = _QUOTED.sub("", text)
    whole = plain if entity_key(plain) and len(plain.split()) > 1 else text
    whole, generation = _invert(whole)
    words = _split(whole)
    titles, legal_form = set[str](), ""
    if len(words) > 1 and words[0] == "the":
        words = words[1:]
    while len(words) > 2 and words[0] in _TITLES:
        titles.add(words[0])
        words = words[1:]
    words = _join_legal_form(words)
    while len(words) > 1 and (found := _GENERATIONS.get(words[-1]) or _LEGAL_FORMS.get(words[-1])):
        if words[-1] in _GENERATIONS:
            generation = found
        elif found == "co":  # part of the name, as in "East India Company"
            words = [*words[:-1], "co"]
            break
        else:
            legal_form = found
        words = words[:-1]
    readings = [words]
    if whole is not text and (quoted := _QUOTED.search(text)) and len(words) > 1:
        readings.append([*_split(quoted[1]), words[-1]])
    spellings = dict.fromkeys(tuple(_fold(word, table) for word in words) for words in readings for table in (0, 1))
    surface = [word for word in re.split(r"[\s/]+", whole) if any(map(str.isalnum, word))]
    capitals = [word for word in surface if word.casefold().strip(".") not in _SMALL_WORDS]
    short = re.sub(r"^[Tt]he\s+", "", text)
    letters = short.replace(".", "").replace(" ", "") if re.fullmatch(r"(\w\.? ?){2,8}", short) else ""
    return Name(
        text,
        entity_key(text),
        tuple(spellings),
        frozenset(titles),
        legal_form,
        generation,
        frozenset(word for word in _split(text) if _is_number(word)),
        frozenset(_initials(some) for some in (surface, capitals) if len(some) > 1),
        letters if sum(map(str.isupper, letters)) >= max(2, len(letters) - 1) else "",
        bool(capitals) and all(next(filter(str.isalnum, word)).isupper() for word in capitals),
    )


def _initials(words: list[str]) -> str:
    return "".join(map(_initial, words)).casefold()


def _initial(word: str) -> str:
    """Return a word's first letter; of a number all of it, since "WWI" is not World War II."""
    bare = "".join(filter(str.isalnum, word))
    if any(map(str.isdigit, bare)):
        digits = re.match(r"\d+", bare)
        return digits[0] if digits else bare
    return bare if bare.isupper() and _ROMAN.fullmatch(bare.casefold()) else bare[0]


def _invert(text: str) -> tuple[str, str]:
    """Turn "Morrison, Toni" round; return also the generation that stands behind a comma."""
    parts = [part.strip() for part in text.split(",")]
    tail = entity_key(parts[-1]) if parts[-1] else ""
    if len(parts) > 1 and tail in _GENERATIONS:
        return ", ".join(parts[:-1]), _GENERATIONS[tail]
    if len(parts) == 2 and all(parts) and len(parts[0].split()) == 1 and tail.replace(" ", "") not in _LEGAL_FORMS:
        return f"{parts[1]} {parts[0]}", ""
    return text, ""


def _split(text: str) -> list[str]:
    """Split a name into the words of its key; "&" is "and", "St." at the start is "Saint"."""
    words = entity_key(re.sub(r"[&+]", " and ", text)).split()
    if len(words) > 1 and re.match(r"\s*St\b\.?\s", text):
        words[0] = "saint"
    return words


def _join_legal_form(words: list[str]) -> list[str]:
    """Join the letters of a legal form at the end of a name, as in "Nestlé S.A."."""
    for size in (4, 3, 2):
        letters = words[-size:]
        if len(words) > size and all(len(letter) == 1 for letter in letters) and "".join(letters) in _LEGAL_FORMS:
            return [*words[:-size], "".join(letters)]
    return words


def _fold(word: str, table: int) -> str:
    """Return a word without accents: "ü" as "u" (table 0) or as "ue" (table 1)."""
    word = unicodedata.normalize("NFC", word).translate(_GERMAN) if table else word
    bare = "".join(letter for letter in unicodedata.normalize("NFKD", word) if not unicodedata.combining(letter))
    return bare.translate(_LETTERS)


def _is_number(word: str) -> bool:
    return any(map(str.isdigit, word)) or word in _ORDINALS or (len(word) > 0 and bool(_ROMAN.fullmatch(word)))


def list_blocks(name: Name) -> Iterator[tuple[str, ...]]:
    """List the keys under which a name is compared: names that share none cannot be alike."""
    for words in name.spellings:
        yield ("core", *words)
        if len(words) > 1 and name.is_proper:
            for part in {words[0][:1], words[0][:3], words[0][-3:]}:
                yield ("person", words[-1], part)
    for initials in name.initials:
        yield ("initials", initials)
    if name.letters:
        yield ("core", name.letters.casefold())
        yield ("initials", name.letters.casefold())
    if "university" in name.words:
        yield ("university", *sorted(set(name.words) - _SMALL_WORDS))


def compare_names(one: Name, other: Name) -> Likeness | None:
    """Return why two names may mean the same; None if nothing of their form says so."""
    if one.key == other.key:
        return None
    if _is_abbreviation(one, other) or _is_abbreviation(other, one):
        return Likeness(Strength.ABBREVIATION, "initials")
    if one.letters and one.letters.casefold() == other.letters.casefold():  # "I.B.M." and "IBM"
        return Likeness(Strength.EQUAL, "spelling")
    if _are_apart(one, other):
        return None
    if set(one.spellings) & set(other.spellings):
        return _compare_additions(one, other)
    if one.legal_form or other.legal_form:
        return None
    if one.is_proper and other.is_proper:
        found = [_compare_persons(*pair) for pair in product(one.spellings, other.spellings)]
        if likeness := max(filter(None, found), default=None):
            is_sure = one.generation == other.generation and not _BARE_LETTER.search(f"{one.text} {other.text}")
            return likeness if is_sure else Likeness(min(likeness.strength, Strength.PERSON), likeness.reason)
    if "university" in one.words and set(one.words) - _SMALL_WORDS == set(other.words) - _SMALL_WORDS:
        return Likeness(Strength.DOUBTFUL, "the same words in another order")
    return None


def _are_apart(one: Name, other: Name) -> bool:
    """Return True if the names have other numbers, two legal forms or two generations."""
    has_two_forms = one.legal_form and other.legal_form and one.legal_form != other.legal_form
    has_two_generations = one.generation and other.generation and one.generation != other.generation
    return bool(has_two_forms or has_two_generations) or _distinguish(one) != _distinguish(other)


def _compare_additions(one: Name, other: Name) -> Likeness:
    """Compare what stands around the same core."""
    if one.generation != other.generation:
        return Likeness(Strength.PERSON, "Jr. or Sr. left out")
    if one.legal_form != other.legal_form:
        whole, short = (one, other) if one.legal_form else (other, one)
        if len(short.words) == 1 and whole.is_proper and not short.is_proper:  # "Gap Inc." is a firm, "gap" is not
            return Likeness(Strength.DOUBTFUL, "a name and a word")
        is_sure = whole.legal_form not in _WORDS or "." in whole.text
        return Likeness(Strength.STRONG if is_sure else Strength.PERSON, "legal form left out")
    if bool(one.titles) != bool(other.titles):
        is_person = (one.titles | other.titles).isdisjoint(_NAMES_OF_THINGS)
        is_person = is_person and " of the " not in one.key  # Dame Commander of the Order
        is_sure = is_person or bool(_ROMAN.fullmatch(one.words[-1]))  # King George V
        return Likeness(Strength.STRONG if is_sure else Strength.PERSON, "title left out")
    if one.titles.isdisjoint(other.titles) and (one.titles | other.titles) & _RANKS:
        return Likeness(Strength.PERSON, "another title")  # Pope Alexander III was no king
    if len(one.words) == 1 and one.is_proper != other.is_proper:  # "The Practice" is a series, "practice" is not
        return Likeness(Strength.DOUBTFUL, "a name and a word")
    if bool(one.letters) != bool(other.letters) and one.key.removeprefix("the ") == other.key.removeprefix("the "):
        return Likeness(Strength.DOUBTFUL, "a name and an abbreviation")  # "The Who" is a band, "WHO" is not
    return Likeness(Strength.EQUAL, "spelling")


def _distinguish(name: Name) -> frozenset[str]:
    """Return a name's numbers, without initials that only look like one."""
    return frozenset(word for word in name.numbers if len(word) > 1 or word.isdigit() or name.words[-1] == word)


def _is_abbreviation(short: Name, long: Name) -> bool:
    return bool(short.letters) and not long.letters and short.letters.casefold() in long.initials


def _compare_persons(one: tuple[str, ...], other: tuple[str, ...]) -> Likeness | None:
    """Compare first, middle and last names."""
    short, long = sorted((one, other), key=len)
    if len(short) < 2 or short[-1] != long[-1]:
        return None
    if not _agree(short[0], long[0]):
        less, more = sorted((short[0], long[0]), key=len)
        is_nickname = len(less) > 2 and (more.startswith(less) or more.endswith(less))
        if is_nickname and _is_part(short[1:-1], long[1:-1]):
            return Likeness(Strength.PERSON, "short first name")
        return None
    if len(short) == len(long):
        if not all(map(_agree, short, long)):
            return None
        is_strong = len(short) > 2
        return Likeness(Strength.STRONG if is_strong else Strength.PERSON, "initials of first names")
    return Likeness(Strength.PERSON, "middle name left out") if _is_part(short[1:-1], long[1:-1]) else None


def _agree(one: str, other: str) -> bool:
    """Return True if two first names are the same, or one is the other's initial."""
    return one == other or (min(len(one), len(other)) == 1 and one[0] == other[0])


def _is_part(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """Return True if the middle names of one stand among those of the other, in order."""
    rest = iter(long)
    return all(any(_agree(name, other) for other in rest) for name in short)


def states_alias(triple: Triple) -> bool:
    """Return True if a fact says that its two ends are names of the same.

    The predicate says so ("is also known as"). Or it is a sentence, which writes one name in brackets behind the other
    or says "known as" between them.
    """
    if len(triple.predicate) <= _LONGEST_PREDICATE and _STATED.fullmatch(triple.predicate.strip(" ,.;:")):
        return True
    subject, object_ = re.escape(triple.subject), re.escape(triple.object)
    between = rf"(?:\s*\(\s*|,?\s+(?:\(|who\s+|which\s+)?(?:is\s+|was\s+)?(?:{_KNOWN_AS})\s+(?:the\s+)?[\"“]?)"
    return any(
        re.search(rf"(?<!\w){one}{between}{other}(?!\w)", triple.predicate)
        for one, other in ((subject, object_), (object_, subject))
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two names that may mean the same, by their form or by a fact that says so.

    Attributes:
        name: the name that says more.
        alias: the name that says less.
        likeness: why.

    """

    name: Name
    alias: Name
    likeness: Likeness

    @property
    def lesser_keys(self) -> tuple[str, ...]:
        """Keys of the names that say less: the alias's, and the name's if it is no longer."""
        one, other = self.alias.key, self.name.key
        return (one, other) if len(one) == len(other) else (one,)


def find_candidates(texts: Iterable[str], stated: Iterable[tuple[str, str]]) -> list[Candidate]:
    """Find the names that may mean the same, among names of different keys; ordered by key.

    Args:
        texts: the names.
        stated: pairs of names that facts say to be the same.

    """
    blocks: dict[tuple[str, ...], list[Name]] = {}
    for name in map(parse_name, texts):
        for block in set(list_blocks(name)):
            blocks.setdefault(block, []).append(name)
    found: dict[tuple[str, str], Candidate] = {}
    for block, names in blocks.items():
        for one, other in _pair(names, abbreviations=block[0] == "initials"):
            keys = (min(one.key, other.key), max(one.key, other.key))
            if keys not in found and (likeness := compare_names(one, other)):
                found[keys] = _order(one, other, likeness)
    for one_text, other_text in stated:
        one, other = parse_name(one_text), parse_name(other_text)
        if one.key != other.key:
            keys = (min(one.key, other.key), max(one.key, other.key))
            found[keys] = _order(one, other, Likeness(Strength.STATED, "a fact says so"))
    return [found[keys] for keys in sorted(found)]


def _pair(names: Sequence[Name], *, abbreviations: bool) -> Iterable[tuple[Name, Name]]:
    """Pair the names of a block; of names with the same initials, abbreviations with the others."""
    if not abbreviations:
        return combinations(names, 2)
    return product([name for name in names if name.letters], [name for name in names if not name.letters])


def _order(one: Name, other: Name, likeness: Likeness) -> Candidate:
    alias, name = sorted((one, other), key=lambda name: (len(name.key), name.key))
    return Candidate(name, alias, likeness)


def find_unambiguous(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates whose alias means no other name by a rule of the same strength or more.

    Names that differ in spelling, title, legal form or initials are one name here.
    """
    parents: dict[str, str] = {}

    def find_root(key: str) -> str:
        while (parent := parents.get(key, key)) != key:
            key = parent
        return key

    clear: list[Candidate] = []
    for strength in sorted(Strength, reverse=True):
        partners: dict[str, set[str]] = {}
        for candidate in candidates:
            if candidate.likeness.strength >= strength:
                name, alias = candidate.name.key, candidate.alias.key
                for key in candidate.lesser_keys:
                    partners.setdefault(key, set()).add(find_root(name if key == alias else alias))
        found = [
            candidate
            for candidate in candidates
            if candidate.likeness.strength == strength
            and all(len(partners[key] - {find_root(key)}) <= 1 for key in candidate.lesser_keys)
        ]
        clear += found
        for candidate in found if strength > Strength.STATED else ():
            parents[find_root(candidate.alias.key)] = find_root(candidate.name.key)
    return clear


_MAX_LINKS = 50
"""Facts of an entity that says little: names that share it may still be two."""


class Evidence:
    """Facts about the candidates' names: the passages that hold them, and the entities they share.

    Args:
        keys: entity keys of the names.

    """

    def __init__(self, keys: Collection[str]) -> None:
        self._passages: dict[str, set[str]] = {key: set() for key in keys}
        self._neighbors: dict[str, set[str]] = {key: set() for key in keys}

    def add(self, triple: Triple, passage_id: str, links: Mapping[str, int]) -> None:
        """Add a fact; `links` holds the number of facts of each entity."""
        for key in triple.entities:
            if key in self._passages:
                self._passages[key].add(passage_id)
                self._neighbors[key].update(
                    other for other in triple.entities if other != key and links.get(other, 0) <= _MAX_LINKS
                )

    def supports(self, candidate: Candidate, *, is_near: bool) -> bool:
        """Return True if facts, or embeddings (`is_near`: the names' are near), say enough for such a likeness."""
        one, other, strength = candidate.name.key, candidate.alias.key, candidate.likeness.strength
        if strength >= Strength.STATED or strength == Strength.DOUBTFUL:
            return strength >= Strength.STATED
        shared = self._neighbors[one] & self._neighbors[other]
        is_together = bool(self._passages[one] & self._passages[other])
        if strength == Strength.ABBREVIATION:
            return is_near or is_together or bool(shared)
        return len(shared) > 1 and not is_together  # whoever writes both names in one passage tells them apart
