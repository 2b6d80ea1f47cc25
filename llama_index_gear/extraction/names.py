"""Names in the sentences of a passage, found by their form alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import dropwhile
from string import punctuation

from llama_index_gear.extraction import german
from llama_index_gear.extraction.encoded_sentences import CAPITALISED, GAP, EncodedSentence, divide_at, divide_at_gaps
from llama_index_gear.extraction.identifiers import has_common_part, is_code, is_sign, is_variable
from llama_index_gear.extraction.languages import (
    EMPHASISED,
    Speech,
    find_marked_names,
    find_recurring_quotations,
    is_caseless,
    list_frequent_words,
    strip_elision,
)
from llama_index_gear.extraction.linked_names import Name, is_title, stands_above_smaller
from llama_index_gear.extraction.sentences import Form, Sentence
from llama_index_gear.extraction.small_names import find_packages, find_speakers
from llama_index_gear.extraction.word_forms import (
    has_infinitive,
    is_demonym,
    is_english,
    list_bases,
    may_be_imperative,
    may_be_state,
    names_number,
)
from llama_index_gear.extraction.words import (
    CALENDAR,
    COMMON_WORDS,
    CONNECTORS,
    DEMONYMS,
    ENGLISH_WORDS,
    FUNCTION_WORDS,
    HEADING_WORDS,
    IMPERATIVES,
    LEGAL_FORMS,
    LITERALS,
    OFFICE_WORDS,
    OPENERS,
    OTHER_LANGUAGES,
    list_stems,
)

_NAME = re.compile("[NB](?:c{0,2}N|d){0,7}(?:c{0,2}E|D)?|[EXT]")
"""Matches names in a sentence that is encoded as one letter a word: N a capitalized word, E one with punctuation behind
it, B before it, X both; c a connector; d a number, D one with punctuation behind it; T an identifier; h a small word
with hyphens; - anything else."""
_NO_NAMES = FUNCTION_WORDS | CONNECTORS | DEMONYMS | CALENDAR | LEGAL_FORMS | LITERALS | {"e.g", "i.e"}
"""Words that are no name alone."""
_NO_OPENINGS = OPENERS | COMMON_WORDS | OFFICE_WORDS | OTHER_LANGUAGES
"""Words that are no name alone at the start of a sentence, if the passage has them nowhere else with a capital."""
_DROPPED = OPENERS | frozenset("dear hello hey hi regards cc re fwd notwithstanding congratulations sorry".split())
"""Words that begin no name at the start of a sentence, either ("Hi Tom")."""
_CHANGES = frozenset(
    "added adds bumped bumps deprecated deprecates fixed fixes improved improves introduced introduces moved refactored"
    " refactors removed removes renamed renames replaced replaces reverted reverts updated updates upgraded upgrades"
    " welcome".split()
)
"""Verbs of change logs, and others, that begin no name in front of a word that is no English one ("Fixes Osthafen")."""
_ORDINARY = _NO_OPENINGS | _NO_NAMES
_ASKING = frozenset("am are can could did do does had has have is should was were would".split())
"""Verbs that begin no name behind a colon, either ("Paul Kern: Is the crane here?")."""
_VERBS = IMPERATIVES | COMMON_WORDS
_PARTICIPLE = re.compile("[a-z]{3,}(?:ed|ing)")
_PLACES = frozenset(
    "section sections figure figures fig. table tables chapter appendix equation eq. algorithm cell col row theorem"
    " lemma definition corollary proposition proof ref ref. ch ch. abb."
    " abb abbildung tabelle abschnitt kapitel satz clause".split()
)
"""Words that are no name alone or with a number: they point to another place of a document."""
_MEASURE = re.compile(r"\d+D|\d*(?:B|[KMGTP]i?B|[kKMG]?Hz)s?|[A-Z]_\w")
"""Matches dimensions, units and a letter with an index ("L_0"), which are no name alone ("a plot in 3D", "700 MB")."""
_LEAST_STATES = 3  # cells of a passage that have a status alone
_CONTRACTION = re.compile(r"(?:i|you|he|she|it|we|they|that|there|who|what|where|how|here)'\w{1,2}|\w+n't")
_BEHIND_PARTICIPLES = frozenset(
    "a an the in on at by to as from after for with into his her its their between under over during near".split()
)
_NUMBER = re.compile(r"[A-Z]?\d+(?:\.\d+)*(?!\w)")
_SMALL_INITIAL = re.compile(r"[a-z]\.")
_ROMAN = re.compile("[IVX]{2,}|[IV]")


def find_names(
    text: str,
    title: str,
    sentences: Sequence[Sentence],
    speech: Speech,
    linked: Collection[str] = (),
    *,
    is_code: bool = False,
) -> list[list[Name]]:
    """Find the names in each sentence of a passage.

    Args:
        text: the passage.
        title: its title; words of it may open a sentence as a name ("Open University").
        sentences: the passage's sentences.
        speech: the passage's language.
        linked: texts of links that the passage's metadata have; one in title case is a name, as that of other links is.
        is_code: True if the passage is known to be code.

    """
    passage = _Passage(text, title, sentences, speech, [words for words in linked if is_title(words)], is_code=is_code)
    return [passage.find_names(sentence) for sentence in passage.sentences]


class _Passage:
    """The evidence that a passage's sentences give about each other's words."""

    def __init__(
        self,
        text: str,
        title: str,
        sentences: Sequence[Sentence],
        speech: Speech,
        titles: Sequence[str],
        *,
        is_code: bool,
    ) -> None:
        self.text = text
        self.title = title
        self.is_code = is_code
        self.title_words = set(title.lower().split())
        self.small, self.foreign, self.is_german, self.language = speech
        self.is_english = speech.is_english
        self.is_caseless = is_caseless(text)
        self.function_words: Collection[str] = FUNCTION_WORDS
        if self.is_german or self.language is not None:
            self.function_words = german.FUNCTION_WORDS if self.language is None else self.language.openers
        bold_text = text if "**" in text else ""
        self.sentences = [EncodedSentence(sentence, bold_text, titles, is_code=is_code) for sentence in sentences]
        if GAP in text:
            for sentence, own in zip(self.sentences, sentences, strict=True):
                divide_at_gaps(text, sentence, own.places)
        for sentence in self.sentences:
            if sentence.form is Form.CODE:
                sentence.kinds = [
                    kind if kind in "Th" and core[:1] != "@" else "-"  # "@property" is no person
                    for kind, core in zip(sentence.kinds, sentence.cores, strict=True)
                ]
            elif self.is_german:
                german.divide_at_articles(sentence.cores, sentence.kinds)
            elif self.language is not None:
                divide_at(sentence, self.language.dividers)
        for sentence in self.sentences:
            if self.language is not None and self.language.has_elision and sentence.form is not Form.CODE:
                self._strip_elisions(sentence)
            self._drop_opening(sentence)
        self._mark_small_names()

    def find_names(self, sentence: EncodedSentence) -> list[Name]:
        """Find the names in a sentence of the passage."""
        names = [name for name, is_page in sentence.linked if not (is_page and self._heads_items(sentence, name))]
        for match in _NAME.finditer("".join(sentence.kinds)):
            start, end = match.span()
            if sentence.kinds[start] == "T":
                if sentence.cores[start].lower() not in LITERALS:
                    names.append(Name(start, end, sentence.cores[start]))
            elif name := self._name_of(sentence, start, end):
                names.append(Name(start, end, name))
        if self.is_caseless and sentence.form is not Form.CODE:
            whole = " ".join(sentence.words)
            for place, name in find_marked_names(whole, self._recurring_quotations):
                index = whole.count(" ", 0, place)
                names.append(Name(index, index + 1, name))
        return sorted(names)

    def _heads_items(self, sentence: EncodedSentence, name: Name) -> bool:
        """Return True for a page's name of common words, alone in an item above smaller ones ("- [[Thanks]]")."""
        words = name.text.lower().split()
        if len(words) < len(sentence.words) or not all(word in _ORDINARY or word in HEADING_WORDS for word in words):
            return False
        return stands_above_smaller(self.text, sentence.end)

    def _drop_opening(self, sentence: EncodedSentence) -> None:
        """Take a word for small if only the start of a sentence, or a colon, gives it its capital letter."""
        for place, kind in enumerate(sentence.kinds):
            if kind not in CAPITALISED or not sentence.is_opening(place):
                continue
            word = sentence.cores[place].lower()
            # Behind a colon, "The" may begin a title.
            begins = place == sentence.first or sentence.begins_at(place) or word in _ASKING
            is_host = not begins and "." in "".join(sentence.cores[place + 1 : place + 2])[:-1]  # "From Yard.example"
            is_small = word in self.function_words and (begins or is_host or self.is_german)
            is_known = word in self._meant or word in self.title_words
            may_point = place + 1 in sentence.page_starts or (not self.is_english and may_be_imperative(word))
            points = place == sentence.first and may_point and sentence.is_marked(place + 1)  # "Ver [[Osthafen]]"
            begins_none = points or word in _DROPPED or self._begins_no_name(sentence, place, word)
            if is_small or (not is_known and begins_none):
                sentence.kinds[place] = "-"

    def _is_frequent(self, word: str) -> bool:
        """Return True for a frequent word of a language without rules, or one that the passage writes small too."""
        return word in self.small or word in list_frequent_words(self.foreign)

    def _begins_no_name(self, sentence: EncodedSentence, place: int, word: str) -> bool:
        """Return True for a word with a capital letter for its place alone, in front of a name."""
        behind = place + 2 if sentence.words[place + 1 : place + 2] == ["the"] else place + 1
        if sentence.kinds[place] not in "NB" or len(sentence.kinds) <= behind or sentence.kinds[behind] not in "NE":
            return False
        following = sentence.cores[behind].lower()
        if self.foreign:  # "Igår Nora Blum": Nora stands elsewhere, too, or "igår" does
            is_long = "".join(sentence.kinds[behind : behind + 2]) in ("NN", "NE")  # "Potem Nora Blum", once
            return is_long or self._is_frequent(word) or self._meant[following] > 1
        is_verb = word in IMPERATIVES or word in _CHANGES or (behind > place + 1 and word in COMMON_WORDS)
        is_name = following not in ENGLISH_WORDS and (behind == place + 1 or following not in _ORDINARY)
        return self.is_english and is_verb and is_name

    def _strip_elisions(self, sentence: EncodedSentence) -> None:
        """Drop "l'" and "dell'" in front of names, but not of "Jeanne d'Arc", nor of a "L'Oréal" inside a sentence."""
        for place, (kind, core) in enumerate(zip(sentence.kinds, sentence.cores, strict=True)):
            if kind not in CAPITALISED or (name := strip_elision(core)) == core:
                continue
            is_own = core[0].isupper() and (not sentence.is_opening(place) or core in self._inner_words)
            if is_own or (core[0] == "d" and place > 0 and sentence.kinds[place - 1] in "NB"):
                continue
            sentence.cores[place] = name
            sentence.kinds[place] = "-" if name.islower() else "B" if kind in "NB" else "X"

    @cached_property
    def _plain(self) -> set[str]:
        """The passage's words without capital letters, without punctuation around them."""
        return {word.strip(punctuation) for word in self.small}

    @cached_property
    def _inner_words(self) -> set[str]:
        """Words of the title, and those that stand inside a sentence."""
        inner = {core for one in self.sentences for place, core in enumerate(one.cores) if not one.is_opening(place)}
        return inner.union(self.title.split())

    def _name_of(self, sentence: EncodedSentence, start: int, end: int) -> str:
        """Return the name that a run of capitalized words is, or nothing if it is none."""
        cores = sentence.cores[start:end]
        if (
            sentence.form is Form.HEADING
            and sentence.is_title_case
            and not all(core.lower() in self._meant for core in cores)
        ):
            return ""
        if self.is_german:
            cores = self._german_name(sentence, start, self._strip_variable(sentence, start, cores))
        letters = [*cores[:-1], *(core.removesuffix(".") for core in cores[-1:])]
        if self.is_formal and all(is_variable(core) or (core.isdecimal() and len(core) == 1) for core in letters):
            return ""
        is_numbered = bool(self.foreign) and all(map(str.isdecimal, cores[1:]))
        is_single = len(cores) == 1 or (is_numbered and self._is_frequent(cores[0].lower()))  # "W 1920"
        if cores and is_single and self._is_no_name(sentence, start, cores[0]):
            return ""
        if cores and cores[0].lower() in sentence.list_choices(start):
            return ""
        behind = sentence.words[end] if end < len(sentence.words) else ""
        if all(core[1:] == "." for core in cores) and _SMALL_INITIAL.match(behind):
            return ""  # "O. B. d. A."
        if cores and self._is_place(cores, behind) or self._is_phrase(sentence, cores):
            return ""
        name = " ".join(cores)
        is_whole = all(name.count(opening) == name.count(closing) for opening, closing in ("()", "[]", "{}"))
        if not is_whole:
            return ""  # a piece of code: "Sequence[str"
        # A single full stop may end the sentence ("World War I."); an abbreviation with several keeps them ("U.S.").
        return name if name.count(".") != 1 else name.removesuffix(".")

    @staticmethod
    def _strip_variable(sentence: EncodedSentence, start: int, cores: list[str]) -> list[str]:
        """Return a run without the variable behind a common noun ("Raum X", "Klasse Ck")."""
        if len(cores) != 2 or not is_variable(cores[1]) or _ROMAN.fullmatch(cores[1]):
            return cores
        is_determined = cores[0].istitle() and german.is_determined(sentence.cores_with_gaps, start)
        return cores[:1] if is_determined or german.is_common_noun(cores[0]) else cores

    def _is_place(self, cores: Sequence[str], behind: str) -> bool:
        """Return True for a run that points to another place of a document: "Table 3", "Supplementary Figure 2.1"."""
        if _PLACES.isdisjoint((cores[-1].lower(), cores[max(len(cores) - 2, 0)].lower())):
            return False
        *kinds, last = [core.lower() for core in cores if not core.isdecimal()] or [""]
        if last not in _PLACES - self.title_words or (cores[-1].isdecimal() and len(kinds) + 2 < len(cores)):
            return False
        is_numbered = cores[-1].isdecimal() or _NUMBER.match(behind) is not None
        return not kinds or (is_numbered and all(kind in ENGLISH_WORDS or kind in _ORDINARY for kind in kinds))

    def _is_phrase(self, sentence: EncodedSentence, cores: Sequence[str]) -> bool:
        """Return True for words of a cell that the passage writes small elsewhere ("| Use Cases | What use cases")."""
        return sentence.form is Form.ROW and len(cores) > 1 and f" {' '.join(cores).lower()}" in self.text

    def _is_no_name(self, sentence: EncodedSentence, start: int, core: str) -> bool:
        """Return True for a single capitalized word that is no name: for its meaning, or for its place."""
        word = core.lower().replace("’", "'").removesuffix(".")
        if (
            len(word) == 1
            or word in _NO_NAMES
            or is_demonym(core, word)
            or _CONTRACTION.fullmatch(word)
            or _MEASURE.fullmatch(core)
        ):
            return True
        behind = sentence.words[start + 1] if start + 1 < len(sentence.words) else ""
        is_state = self.language is not None and may_be_state(word) and self._cells[word] >= _LEAST_STATES
        if is_state or names_number(core, behind):
            return True
        is_shouted = word in EMPHASISED or (word in self.function_words and word in self.small)
        if self.language is not None and core.isupper() and is_shouted:
            return word not in self.title_words
        if sentence.words[start].startswith(f"({core}") and word in self.small and not core.isupper():
            return True
        if not sentence.is_opening(start):
            has_auxiliary = self.is_english and sentence.cores[start - 1] in _ASKING
            return has_auxiliary and _PARTICIPLE.fullmatch(word) is not None and is_english(core)  # "has Posted"
        if start <= sentence.first and (word in self.small or sentence.form is Form.HEADING):
            return True
        following = sentence.cores[start + 1] if start + 1 < len(sentence.cores) else ""
        is_label = sentence.words[start].rstrip("*_")[-1:] == ":" and sentence.words[start][0] not in "(["
        if self.language is not None and word in self.function_words:
            return word not in self.title_words
        is_ordinary = self._is_ordinary(sentence, core, word)
        if self.foreign:
            is_verb = word not in self.title_words
        elif self.language is not None:
            is_label = is_label or sentence.is_label(start)
            is_close = sentence.kinds[start] in "NB"
            second = sentence.cores[start + 2] if start + 2 < len(sentence.cores) else ""
            opener = self.language.is_opener(word, following if is_close else "", second, self.small)
            is_verb = (opener or has_infinitive(word, self._plain)) and word not in self.title_words
        else:
            is_participle = _PARTICIPLE.fullmatch(word) is not None
            is_of_noun = following.islower() and following not in FUNCTION_WORDS  # "Nested items", not "Jared is"
            is_described = following[:1].isdecimal() or (
                len(word) > 5 and word[-2:] == "ed" and (is_of_noun or behind[:1] == "(")
            )
            is_verb = (
                (is_participle and is_described and not ENGLISH_WORDS.isdisjoint(list_bases(word)))
                or following in _BEHIND_PARTICIPLES
                and (is_participle or (word, following) == ("nice", "to") or not _VERBS.isdisjoint(list_stems(word)))
            )
        is_alone = (
            sentence.form is Form.PROSE
            and len(sentence.cores) == 1
            and (sentence.words[0].endswith((".", "!", "?")) or sentence.words[0][0] in "[(")
        )
        is_kind = self.is_english and following == "that"  # "Models that …"
        is_meant = 4 * self._meant[word] > self._openings[word] if word in IMPERATIVES else word in self._meant
        is_button = start in sentence.bold and (
            not self.is_english or not (ENGLISH_WORDS | HEADING_WORDS).isdisjoint(list_stems(word))
        )
        return (is_label or is_verb or is_button or is_kind or is_alone or is_ordinary) and not is_meant

    def _is_ordinary(self, sentence: EncodedSentence, core: str, word: str) -> bool:
        """Return True for a word that says nothing by its capital letter: in code, the plural of an English one too."""
        if word in _NO_OPENINGS or (self.is_code and self._is_of_comments(core, word)):
            return True
        return self.is_english and (
            is_english(core) or (core.isupper() and word in ENGLISH_WORDS and sentence.is_shouted)
        )

    @staticmethod
    def _is_of_comments(core: str, word: str) -> bool:
        return word in HEADING_WORDS or is_english(core.removesuffix("s"))

    def _german_name(self, sentence: EncodedSentence, start: int, cores: list[str]) -> list[str]:
        """Return the part of a run of capitalized German words that is a name."""
        name = list(german.strip_class_noun(cores))
        if len(cores) > 1 and german.is_determined(sentence.cores_with_gaps, start):  # "ein Neustart von Kafka"
            name = name[max((place + 1 for place, core in enumerate(name) if core in ("von", "zu")), default=0) :]
            name = list(dropwhile(str.islower, name))  # "ein Bild von den Alpen"
        if len(cores) > 1:
            return cores if len(name) == 1 and german.is_common_noun(name[0]) else name
        word = name[0]
        following = sentence.cores[start + 1] if start + 1 < len(sentence.cores) else ""
        behind, small = (*sentence.cores_with_gaps, "")[start + 1] if sentence.is_opening(start) else "", word.lower()
        if german.FUNCTION_WORDS & {small} or german.is_participle(word, following, behind):
            return []
        if sentence.is_opening(start) and small not in self._meant and small[-1] == "e":
            has_reader = not german.READERS.isdisjoint(self.small)
            is_addressed = sentence.words[start][-1] == ","  # "Silke, du …"
            if has_infinitive(small, self._plain) or (
                has_reader and not is_addressed and german.follows_imperative(following)
            ):
                return []
        if german.is_acronym(word) or small in self._german_parts:
            return name
        if self.is_formal or small in self._german_nouns or german.is_common_noun(word):
            return []
        return [] if german.is_determined(sentence.cores_with_gaps, start) else name

    @cached_property
    def _german_nouns(self) -> set[str]:
        """Words that an article, a numeral or an adjective makes a common noun somewhere in the passage."""
        return {
            sentence.cores[place].lower()
            for sentence in self.sentences
            for place, kind in enumerate(sentence.kinds)
            if kind in CAPITALISED and german.is_determined(sentence.cores_with_gaps, place)
        }

    @cached_property
    def _german_parts(self) -> set[str]:
        """Words of the title, and of names of several words."""
        parts = set(self.title_words)
        for sentence in self.sentences:
            for match in _NAME.finditer("".join(sentence.kinds)):
                run = german.strip_class_noun(sentence.cores[slice(*match.span())])
                if len(run) > 1 and not all(map(is_variable, run[1:])):
                    parts.update(word.lower() for word in run if not german.is_common_noun(word))
        return parts - CALENDAR

    @cached_property
    def _meant(self) -> Counter[str]:
        """Words that have their capital letter inside a sentence too, and how often."""
        return Counter(
            sentence.cores[place].lower()
            for sentence in self.sentences
            if sentence.form is Form.PROSE
            for place, kind in enumerate(sentence.kinds)
            if kind in CAPITALISED and not sentence.is_opening(place)
            if not (sentence.cores[place].isupper() and sentence.cores[place].lower() in ENGLISH_WORDS)  # it is shouted
        )

    @cached_property
    def _openings(self) -> Counter[str]:
        """Words that open sentences with a capital letter, and how often."""
        return Counter(
            sentence.cores[place].lower()
            for sentence in self.sentences
            for place, kind in enumerate(sentence.kinds)
            if kind in CAPITALISED and sentence.is_opening(place)
        )

    @cached_property
    def _cells(self) -> Counter[str]:
        """Words that are the last cell of a table's row, alone, and in how many rows."""
        return Counter(
            sentence.cores[-1].lower()
            for sentence in self.sentences
            if len(sentence.words) > 1 and sentence.words[-2][-1] in ";:|"
        )

    @cached_property
    def is_formal(self) -> bool:
        """True if more than a word of 16 is a single large letter, or "=" and the like; of 40 if two are of these."""
        words = [word for sentence in self.sentences for word in sentence.words]
        signs = list(filter(is_sign, words))
        has_relations = sum(not any(map(str.isalpha, sign)) for sign in signs) > 1
        return len(signs) * (40 if has_relations else 16) > len(words)

    @cached_property
    def _recurring_quotations(self) -> Collection[str]:
        return find_recurring_quotations(self.text)

    def _mark_small_names(self) -> None:
        """Give the kind of an identifier to small words that are names in this passage."""
        known = set(self._known_names())
        hyphens = Counter(
            core
            for sentence in self.sentences
            if "h" in sentence.kinds
            for kind, core in zip(sentence.kinds, sentence.cores, strict=True)
            if kind == "h"
        )
        known.update(find_speakers(self.text))
        if not known and not hyphens:
            return
        is_technical = any(sentence.form is Form.CODE or "T" in sentence.kinds for sentence in self.sentences)
        if not is_technical:
            hyphens = Counter({core: count for core, count in hyphens.items() if not has_common_part(core)})
        known |= {core for core, count in hyphens.items() if is_technical or count > 1}
        for sentence in self.sentences:
            for place, (kind, core) in enumerate(zip(sentence.kinds, sentence.cores, strict=True)):
                opens = kind == "h" and place == sentence.first and core in hyphens
                if kind in "-h" and (opens or core in known):
                    sentence.kinds[place] = "T"

    def _known_names(self) -> Iterator[str]:
        """Small words that are names wherever they stand: marked as code, alone in a heading, or packages."""
        for sentence in self.sentences:
            if "T" in sentence.kinds:
                for word, kind, core in zip(sentence.words, sentence.kinds, sentence.cores, strict=True):
                    if kind == "T" and core.islower() and core not in _ORDINARY and is_code(word):
                        yield core
            if sentence.form is Form.HEADING and len(sentence.words) == 1 and sentence.cores[0].islower():
                yield from {sentence.cores[0]} - (_NO_OPENINGS if sentence.level else _NO_OPENINGS | ENGLISH_WORDS)
        has_code = any(sentence.form is Form.CODE for sentence in self.sentences)
        packages = find_packages(self.text, self.small, has_code=has_code)
        if packages:
            counts = Counter(core for sentence in self.sentences for core in sentence.cores)
            yield from (word for word, is_sure in packages if is_sure or (word not in _ORDINARY and counts[word] > 1))
