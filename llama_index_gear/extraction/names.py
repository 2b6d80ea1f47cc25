"""Names in the sentences of a passage, found by their form alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import dropwhile, islice, pairwise, takewhile

from llama_index_gear.extraction import german
from llama_index_gear.extraction.identifiers import classify_word, has_common_part, is_code, is_sign, is_variable
from llama_index_gear.extraction.languages import (
    Speech,
    find_marked_names,
    find_recurring_quotations,
    is_caseless,
    strip_elision,
)
from llama_index_gear.extraction.linked_names import Name, find_linked, find_title, is_title
from llama_index_gear.extraction.sentences import Form, Sentence
from llama_index_gear.extraction.words import (
    ABBREVIATIONS,
    CALENDAR,
    COMMON_WORDS,
    CONNECTORS,
    DEMONYMS,
    ENGLISH_WORDS,
    FUNCTION_WORDS,
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
_CAPITALISED = frozenset("NBEX")
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
_PARTING = frozenset("-–—→>#")
"""Words that part what is said of a thing, or the entries of a menu, from what stands in front."""
_PARTICIPLE = re.compile("[a-z]{3,}(?:ed|ing)")
_MARK_IN_FRONT = re.compile(r"[(<]?(?:\d{1,3}|[A-Za-z])[.)>]|<\w[\w.-]*>|TODO|DOING|DONE|WAITING|LATER|NOW|CANCELL?ED")
"""Matches what stands in front of a sentence: the number of an item, the state of a task, or who says a line."""
_PLACES = frozenset(
    "section sections figure figures fig. table tables chapter appendix equation eq. algorithm cell col row theorem"
    " lemma definition corollary proposition proof abb. abb abbildung tabelle abschnitt kapitel satz clause".split()
)
"""Words that are no name alone or with a number: they point to another place of a document."""
_MEASURE = re.compile(r"\d+D|\d*(?:B|[KMGTP]i?B|[kKMG]?Hz)s?|[A-Z]_\w")
"""Matches dimensions, units and a letter with an index ("L_0"), which are no name alone ("a plot in 3D", "700 MB")."""
_GAP = " " * 4
_CLOSED = {"N": "E", "B": "X", "d": "D", "c": "-"}
"""Kinds of words, and those with punctuation behind them."""
_CONTRACTION = re.compile(r"(?:i|you|he|she|it|we|they|that|there|who|what|where|how|here)'\w{1,2}|\w+n't")
_BEHIND_PARTICIPLES = frozenset(
    "a an the in on at by to as from after for with into his her its their between under over during near".split()
)
_INSTALLING = frozenset(("install", "add", "upgrade", "uninstall", "remove"))
_INSTALLED = re.compile(
    r"\b(?:pip3?|npm|yarn|pnpm|brew|apt|apt-get|dnf|conda|cargo|poetry|uv|gem)[ \t]+"
    rf"(?:{'|'.join(sorted(_INSTALLING))})[ \t]+(?:-\S+[ \t]+){{0,5}}([a-z][\w.-]*\w)"
)
_IMPORTED = re.compile(
    r"^[ \t]*(?:>>>[ \t]*)?(?:from[ \t]+([a-z]\w+)[\w.]*[ \t]+import|import[ \t]+([a-z]\w+))\b", re.M
)
_SPEAKER = re.compile(
    r"^\[?(?:[\w./-]{6,11},?[ T])?\d{1,2}:\d\d(?::\d\d)?(?: ?[AP]M)?\]?[ \t]+(?:- )?"
    r"(?:\*[ \t]|(?=<?[\w-]+[>:]))<?([^\W\d_][\w-]{0,30})[>:]?(?=\s)",
    re.MULTILINE,
)
"""Matches who says a line of a chat, or does something in it ("[09:02] keeva: …", "[09:03] * keeva waves")."""
_UNSEEN = dict.fromkeys(map(ord, "\xad\u200b\u2060\ufeff"))
"""Characters inside of words that nobody sees: soft hyphens, and places where a line may break or not."""
_HOURS = frozenset(("AM", "PM"))
_PACKAGE_MANAGER = re.compile(r"\b(?:pip|PyPI|npm|conda|crates\.io|RubyGems|Maven)\b")
_PACKAGE = re.compile(
    r"\b(?:package|library)[ \t]+`?([a-z][\w-]{1,60})|\b([a-z][\w-]{1,60})`?[ \t]+(?:package|library)\b"
)


def find_names(
    text: str, title: str, sentences: Sequence[Sentence], speech: Speech, linked: Collection[str] = ()
) -> list[list[Name]]:
    """Find the names in each sentence of a passage.

    Args:
        text: the passage.
        title: its title; words of it may open a sentence as a name ("Open University").
        sentences: the passage's sentences.
        speech: the passage's language.
        linked: texts of links that the passage's metadata have; one in title case is a name, as that of other links is.

    """
    passage = _Passage(text, title, sentences, speech, [words for words in linked if is_title(words)])
    return [passage.find_names(sentence) for sentence in passage.sentences]


class _Encoded:
    """A sentence whose words have kinds, as letters of `_NAME`, and cores without the punctuation around them."""

    def __init__(self, sentence: Sentence, bold_text: str, titles: Sequence[str] = ()) -> None:
        """Take a sentence, the passage's text, or "" if nothing in it is bold, and titles that it may have."""
        self.words, self.form = sentence.words, sentence.form
        self.linked = list(find_linked(sentence)) if sentence.links else []
        self.linked += [(name, True) for title in titles for name in find_title(sentence.words, title)]
        seen = (word if word.isascii() else word.translate(_UNSEEN) for word in self.words)
        classified = [classify_word(word) for word in seen]
        self.kinds = [kind for kind, _ in classified]
        self.cores = [core for _, core in classified]
        for place in range(1, len(self.cores)):
            if self.cores[place] in _HOURS and self.cores[place - 1][-1:].isdecimal():
                self.kinds[place] = "-"
        self.page_starts = {name.start for name, is_page in self.linked if is_page}
        for name, is_page in self.linked:
            if is_page:
                self.kinds[name.start : name.end] = "-" * (name.end - name.start)
        self.kinds[: sentence.stamp] = "-" * sentence.stamp
        begins = (n for n, core in enumerate(self.cores) if core and n >= sentence.stamp)
        self.first = next((n for n in begins if not _MARK_IN_FRONT.fullmatch(self.words[n])), 0)
        self.bold = {
            place
            for place, (start, _) in enumerate(sentence.places if bold_text else ())
            if bold_text[start - 2 : start] == "**" and self.cores[place].lower() in IMPERATIVES
        }
        """Where bold text begins with an imperative, as the label of a button ("select **Open folder**")."""

    def is_opening(self, place: int) -> bool:
        """Return True at the start of a sentence, cell or label, and behind a colon, a semicolon or a mark."""
        before = self.words[place - 1]
        is_docstring = self.words[place].startswith(('"""', "'''"))
        if place <= self.first or place in self.bold or is_docstring or before[-1] in ":;|" or before in _PARTING:
            return True
        if self.ends_at(place - 1):
            return True
        return before[0] + before[-1] == "[]" or (place == self.first + 1 and before[0] + before[-1] == "()")

    def ends_at(self, place: int) -> bool:
        """Return True if a sentence ends with the word at this place: in a cell or a record they stand undivided."""
        if place < 0 or self.words[place][-1] not in ".!?":
            return False
        core = self.cores[place].removesuffix(".")
        return len(core) > 1 and "." not in core and core.lower() not in ABBREVIATIONS

    def begins_at(self, place: int) -> bool:
        """Return True behind the end of a sentence, and where a cell has one: "| The AI is applied |"."""
        is_of_cell = self.words[place - 1] == "|" and "".join(self.cores[place + 2 : place + 3]).islower()
        return is_of_cell or self.ends_at(place - 1)

    def list_choices(self, place: int) -> list[str]:
        """Return the values that the label in front of this place lists: "layoff/closure: Closure Permanent"."""
        is_listed = place > 2 and self.words[place - 1][-1] == ":" and self.words[place - 2] == "/"
        return [self.cores[place - 3], self.cores[place - 1]] if is_listed else []

    def is_label(self, place: int) -> bool:
        """Return True if a colon stands behind this word and up to four small ones ("Caso real: …")."""
        words = takewhile(lambda n: n == place or self.kinds[n] not in _CAPITALISED, range(place, len(self.words)))
        return any(self.words[n].rstrip("*_").endswith(":") for n in islice(words, 5))

    @cached_property
    def cores_with_gaps(self) -> list[str]:
        """The cores, with an empty one where a comma or a bracket divides a noun from what is before."""
        return [
            core if core and (word.endswith(core) or word[-1] == ".") else ""
            for word, core in zip(self.words, self.cores, strict=True)
        ]

    @property
    def is_title_case(self) -> bool:
        """True if all words that mean something have a capital letter: that of the first is no evidence, then."""
        return not any(
            core.isalpha() and core.islower() and core not in FUNCTION_WORDS and core not in CONNECTORS
            for core in self.cores
        )


class _Passage:
    """The evidence that a passage's sentences give about each other's words."""

    def __init__(
        self, text: str, title: str, sentences: Sequence[Sentence], speech: Speech, titles: Sequence[str]
    ) -> None:
        self.text = text
        self.title = title
        self.title_words = set(title.lower().split())
        self.small, self.foreign, self.is_german, self.language = speech
        self.is_english = speech.is_english
        self.is_caseless = is_caseless(text)
        self.function_words: Collection[str] = FUNCTION_WORDS
        if self.is_german or self.language is not None:
            self.function_words = german.FUNCTION_WORDS if self.language is None else self.language.openers
        bold_text = text if "**" in text else ""
        self.sentences = [_Encoded(sentence, bold_text, titles) for sentence in sentences]
        if _GAP in text:
            for sentence, own in zip(self.sentences, sentences, strict=True):
                _divide_at_gaps(text, sentence, own.places)
        for sentence in self.sentences:
            if sentence.form is Form.CODE:
                sentence.kinds = [
                    kind if kind in "Th" and core[:1] != "@" else "-"  # "@property" is no person
                    for kind, core in zip(sentence.kinds, sentence.cores, strict=True)
                ]
            elif self.is_german:
                german.divide_at_articles(sentence.cores, sentence.kinds)
            elif self.language is not None:
                _divide_at(sentence, self.language.dividers)
        for sentence in self.sentences:
            if self.language is not None and self.language.has_elision and sentence.form is not Form.CODE:
                self._strip_elisions(sentence)
            self._drop_opening(sentence)
        self._mark_small_names()

    def find_names(self, sentence: _Encoded) -> list[Name]:
        """Find the names in a sentence of the passage."""
        names = [name for name, _ in sentence.linked]
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

    def _drop_opening(self, sentence: _Encoded) -> None:
        """Take a word for small if only the start of a sentence, or a colon, gives it its capital letter."""
        for place, kind in enumerate(sentence.kinds):
            if kind not in _CAPITALISED or not sentence.is_opening(place):
                continue
            word = sentence.cores[place].lower()
            # Behind a colon, "The" may begin a title.
            begins = place == sentence.first or sentence.begins_at(place) or word in _ASKING
            is_small = word in self.function_words and (begins or self.is_german)
            is_known = word in self._meant or word in self.title_words
            points = place == sentence.first and place + 1 in sentence.page_starts  # "Ver [[Osthafen]]"
            begins_none = points or word in _DROPPED or self._begins_no_name(sentence, place, word)
            if is_small or (not is_known and begins_none):
                sentence.kinds[place] = "-"

    def _begins_no_name(self, sentence: _Encoded, place: int, word: str) -> bool:
        """Return True for a word with a capital letter for its place alone, in front of a name."""
        kinds, cores = sentence.kinds[place : place + 2], sentence.cores[place : place + 2]
        if kinds[0] not in "NB" or len(kinds) < 2 or kinds[1] not in "NE":
            return False
        following = cores[1].lower()
        if self.foreign:  # "Igår Nora Blum": Nora stands elsewhere, too, or "igår" does
            return word in self.small or self._meant[following] > 1
        return self.is_english and (word in IMPERATIVES or word in _CHANGES) and following not in ENGLISH_WORDS

    def _strip_elisions(self, sentence: _Encoded) -> None:
        """Drop "l'" and "dell'" in front of names, but not of "Jeanne d'Arc", nor of a "L'Oréal" inside a sentence."""
        for place, (kind, core) in enumerate(zip(sentence.kinds, sentence.cores, strict=True)):
            if kind not in _CAPITALISED or (name := strip_elision(core)) == core:
                continue
            is_own = core[0].isupper() and (not sentence.is_opening(place) or core in self._inner_words)
            if is_own or (core[0] == "d" and place > 0 and sentence.kinds[place - 1] in "NB"):
                continue
            sentence.cores[place] = name
            sentence.kinds[place] = "-" if name.islower() else "B" if kind in "NB" else "X"

    @cached_property
    def _inner_words(self) -> set[str]:
        """Words of the title, and those that stand inside a sentence."""
        inner = {core for one in self.sentences for place, core in enumerate(one.cores) if not one.is_opening(place)}
        return inner.union(self.title.split())

    def _name_of(self, sentence: _Encoded, start: int, end: int) -> str:
        """Return the name that a run of capitalized words is, or nothing if it is none."""
        cores = sentence.cores[start:end]
        if (
            sentence.form is Form.HEADING
            and sentence.is_title_case
            and not all(core.lower() in self._meant for core in cores)
        ):
            return ""
        if self.is_german:
            cores = self._german_name(sentence, start, cores)
        if len(cores) == 1 and self._is_no_name(sentence, start, cores[0]):
            return ""
        if (self.is_formal and all(map(is_variable, cores))) or (
            cores and cores[0].lower() in sentence.list_choices(start)
        ):
            return ""
        if cores and cores[0].lower() in _PLACES - self.title_words and all(core.isdecimal() for core in cores[1:]):
            return ""
        name = " ".join(cores)
        is_whole = all(name.count(opening) == name.count(closing) for opening, closing in ("()", "[]", "{}"))
        if not is_whole:
            return ""  # a piece of code: "Sequence[str"
        # A single full stop may end the sentence ("World War I."); an abbreviation with several keeps them ("U.S.").
        return name if name.count(".") != 1 else name.removesuffix(".")

    def _is_no_name(self, sentence: _Encoded, start: int, core: str) -> bool:
        """Return True for a single capitalized word that is no name: for its meaning, or for its place."""
        word = core.lower().replace("’", "'").removesuffix(".")
        if len(word) == 1 or word in _NO_NAMES or _CONTRACTION.fullmatch(word) or _MEASURE.fullmatch(core):
            return True
        is_shouted = core.isupper() and word in self.function_words and word in self.small  # "NO"
        if self.language is not None and is_shouted:
            return word not in self.title_words
        if not sentence.is_opening(start):
            has_auxiliary = self.is_english and sentence.cores[start - 1] in _ASKING
            return has_auxiliary and _PARTICIPLE.fullmatch(word) is not None and _is_english(core)  # "has Posted"
        if start <= sentence.first and (word in self.small or sentence.form is Form.HEADING):
            return True
        following = sentence.cores[start + 1] if start + 1 < len(sentence.cores) else ""
        is_label = sentence.words[start].rstrip("*_").endswith(":")
        if self.language is not None and word in self.function_words:
            return word not in self.title_words
        is_ordinary = word in _NO_OPENINGS or (self.is_english and _is_english(core))
        if self.foreign:
            is_verb = word not in self.title_words
        elif self.language is not None:
            is_label = is_label or sentence.is_label(start)
            is_close = sentence.kinds[start] in "NB"
            opener = self.language.is_opener(word, following if is_close else "", self.small)
            is_verb = opener and word not in self.title_words
        else:
            is_verb = following in _BEHIND_PARTICIPLES and (
                _PARTICIPLE.fullmatch(word) is not None
                or (word, following) == ("nice", "to")
                or not _VERBS.isdisjoint(list_stems(word))
            )
        is_alone = (
            sentence.form is Form.PROSE
            and len(sentence.cores) == 1
            and (sentence.words[0].endswith((".", "!", "?")) or sentence.words[0][0] in "[(")
        )
        is_kind = self.is_english and following == "that"  # "Models that …"
        is_meant = 4 * self._meant[word] > self._openings[word] if word in IMPERATIVES else word in self._meant
        return (is_label or is_verb or is_kind or is_alone or is_ordinary) and not is_meant

    def _german_name(self, sentence: _Encoded, start: int, cores: list[str]) -> list[str]:
        """Return the part of a run of capitalized German words that is a name."""
        name = list(german.strip_class_noun(cores))
        if len(cores) > 1 and german.is_determined(sentence.cores_with_gaps, start):  # "ein Neustart von Kafka"
            name = name[max((place + 1 for place, core in enumerate(name) if core in ("von", "zu")), default=0) :]
            name = list(dropwhile(str.islower, name))  # "ein Bild von den Alpen"
        if len(cores) > 1:
            return cores if len(name) == 1 and german.is_common_noun(name[0]) else name
        word = name[0]
        following = sentence.cores[start + 1] if start + 1 < len(sentence.cores) else ""
        behind = (*sentence.cores_with_gaps, "")[start + 1] if sentence.is_opening(start) else ""
        if german.FUNCTION_WORDS & {word.lower()} or german.is_participle(word, following, behind):
            return []
        if german.is_acronym(word) or word.lower() in self._german_parts:
            return name
        if self.is_formal or word.lower() in self._german_nouns or german.is_common_noun(word):
            return []
        return [] if german.is_determined(sentence.cores_with_gaps, start) else name

    @cached_property
    def _german_nouns(self) -> set[str]:
        """Words that an article, a numeral or an adjective makes a common noun somewhere in the passage."""
        return {
            sentence.cores[place].lower()
            for sentence in self.sentences
            for place, kind in enumerate(sentence.kinds)
            if kind in _CAPITALISED and german.is_determined(sentence.cores_with_gaps, place)
        }

    @cached_property
    def _german_parts(self) -> set[str]:
        """Words of the title, and of names of several words."""
        parts = set(self.title_words)
        for sentence in self.sentences:
            for match in _NAME.finditer("".join(sentence.kinds)):
                run = german.strip_class_noun(sentence.cores[slice(*match.span())])
                if len(run) > 1:
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
            if kind in _CAPITALISED and not sentence.is_opening(place)
            if not (sentence.cores[place].isupper() and sentence.cores[place].lower() in ENGLISH_WORDS)  # it is shouted
        )

    @cached_property
    def _openings(self) -> Counter[str]:
        """Words that open sentences with a capital letter, and how often."""
        return Counter(
            sentence.cores[place].lower()
            for sentence in self.sentences
            for place, kind in enumerate(sentence.kinds)
            if kind in _CAPITALISED and sentence.is_opening(place)
        )

    @cached_property
    def is_formal(self) -> bool:
        """True if more than one word of 16 is a single large letter, or "=" and the like, as in proofs."""
        words = [word for sentence in self.sentences for word in sentence.words]
        return sum(map(is_sign, words)) * 16 > len(words)

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
        known.update(match[1] for match in _SPEAKER.finditer(self.text) if match[1].islower())
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
                yield from {sentence.cores[0]} - _NO_OPENINGS
        yield from self._packages()

    def _packages(self) -> Iterator[str]:
        """Packages that the passage installs or imports, or calls so."""
        if not _INSTALLING.isdisjoint(self.small):
            yield from (match[1] for match in _INSTALLED.finditer(self.text))
        if "import" in self.text and any(sentence.form is Form.CODE for sentence in self.sentences):
            yield from (match[match.lastindex or 0] for match in _IMPORTED.finditer(self.text))
        if ("package" in self.text or "library" in self.text) and _PACKAGE_MANAGER.search(self.text):
            counts = Counter(core for sentence in self.sentences for core in sentence.cores)
            for match in _PACKAGE.finditer(self.text):
                word = match[match.lastindex or 0]
                if word not in _ORDINARY and counts[word] > 1:
                    yield word


def _divide_at_gaps(text: str, sentence: _Encoded, places: Sequence[tuple[int, int]]) -> None:
    """Let a gap inside a line divide names: columns stand beside each other there, or the ends of a running head."""
    for number, (left, right) in enumerate(pairwise(places)):
        between = text[left[1] : right[0]]
        if between.startswith(_GAP) and between.isspace() and "\n" not in between:
            sentence.kinds[number] = _CLOSED.get(sentence.kinds[number], sentence.kinds[number])


def _is_english(core: str) -> bool:
    """Return True for a word, or several with hyphens, that English writes small inside a sentence."""
    word = core.lower()
    return not core.isupper() and (word in ENGLISH_WORDS or ("-" in word and ENGLISH_WORDS.issuperset(word.split("-"))))


def _divide_at(sentence: _Encoded, dividers: Collection[str]) -> None:
    """Let small words divide names that they would join elsewhere ("a Torino da Giovanni Agnelli")."""
    for place, core in enumerate(sentence.cores):
        if core in dividers:
            sentence.kinds[place] = "-"
