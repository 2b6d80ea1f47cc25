"""`MentionTripleExtractor`: triples without an LLM, from the names in each sentence."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent
from llama_index.core.utils import get_tqdm_iterable

from llama_index_gear.errors import check_kind, check_kinds
from llama_index_gear.nodes import ONE_NODE, attach_triples
from llama_index_gear.triple import Triple, entity_key

_MAX_PREDICATE_WORDS = 40  # words of a sentence in one triple
_MAX_SENTENCE_WORDS = 200  # a longer sentence is cut
_MAX_WORD_LETTERS = 200  # a longer word is cut
_OPENING = "\"'“‘«([{"
_CLOSING = "\"'”’»)]}"
_ENDING = tuple(".!?…。！？।؟")

_BLANK_LINE = re.compile(r"\n\s*\n")
_SPACED = re.compile("([–—/])|(?<=[。！？])")
"""Word boundaries without a space."""
_NAME = re.compile("[NB](?:c{0,2}N|d){0,7}(?:c{0,2}E|D)?|[EX]")
"""Matches names in a sentence that is encoded as one letter a word: N a capitalized word, E one with punctuation behind
it, B before it, X both; c a connector; d a number, D one with punctuation behind it; - anything else."""
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st ste sr jr gen col lt capt sgt maj adm rev hon gov sen rep pres mt ft inc ltd co corp bros vs"
    " no nos vol ed fig al approx ca jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_CONNECTORS = frozenset(
    "of for the & de del della der den di da do dos das des du la le las los el van von zu bin".split()
)
_COMMON_WORDS = frozenset(
    "a about above according after again all along also although among an and another any are as at be because before"
    " being below besides between both but by can currently despite did do does during each early either even every few"
    " finally first following for former formerly from had has have he her here hers his how however i if in including"
    " inside instead is it its itself just later like many may meanwhile more moreover most much my near neither"
    " nevertheless nor not now of off often on once one only or other others our out outside over part people per"
    " perhaps prior rather several she should since so some soon sometimes still such than that the their them then"
    " there therefore these they this those though three through throughout thus to today together two under unlike"
    " until up upon us using was we were what when where whereas whether which while who whom whose why will with"
    " within without would yes yet you your".split()
)
"""Words that are no name when a sentence starts with them, in spite of their capital letter."""
_DEMONYMS = frozenset(
    "african american arab argentine asian australian austrian belgian brazilian british buddhist bulgarian canadian"
    " catholic chilean chinese christian colombian croatian cuban czech danish democratic dutch egyptian english"
    " ethiopian european filipino finnish french german greek hindu hungarian icelandic indian indonesian iranian iraqi"
    " irish islamic israeli italian japanese jewish kenyan korean latin malaysian mexican muslim nigerian norwegian"
    " pakistani persian peruvian polish portuguese protestant republican roman romanian russian scottish serbian soviet"
    " spanish swedish swiss thai turkish ukrainian vietnamese welsh".split()
)
"""Adjectives with a capital letter: alone they are no names, and would join unrelated passages."""
_NO_NAMES = _COMMON_WORDS | _CONNECTORS | _DEMONYMS
"""Words that are no name alone."""


class MentionTripleExtractor(TransformComponent):
    """Extracts triples with regular expressions alone: no LLM, no download, no network.

    There is one triple per sentence and name in it: (the passage's title, the sentence's own words, the name). A name
    is a run of capitalized words ("Republic of Austria", "J. K. Rowling", "Boeing 747"), but not the adjective of a
    nation or faith alone ("British"). The last parenthesis of a title is dropped ("Song of Solomon (novel)" becomes
    "Song of Solomon"). A sentence without a name has the title at both ends. A passage without a title takes its first
    name as title.

    Limits: no relation is understood, no pronoun resolved, and "Curry" and "Stephen Curry" are two entities. The
    extractor is made for English. It takes every German noun for a name. It finds no names in scripts without capital
    letters (Arabic, Chinese, …): there, only passages with the same title are neighbors.

    Recall in percent of NaiveGE on the 100 questions and 1,890 passages of `musique_train`, base hybrid, embeddings of
    all-MiniLM-L6-v2 (95 % intervals of R@10 are about ± 5.8 points):

    =======================  =====  =====  =====  ====================
    Triples                  R@5    R@10   R@15   Triples per passage
    =======================  =====  =====  =====  ====================
    none: the base alone     63.5   71.8   73.2    0
    written by GPT-3.5       66.6   77.8   79.9    9.1
    … adjectives as names    69.6   77.9   82.4   10.4
    this extractor           69.6   79.4   84.1    9.9
    =======================  =====  =====  =====  ====================
    """

    title_key: str = Field(default="title", description="Metadata key of the passage's title.")
    max_triples_per_passage: int = Field(default=64, ge=1, description="Triples kept per passage, first ones first.")
    show_progress: bool = Field(default=False, exclude=True, description="Show a progress bar.")

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the component is serialized."""
        return "MentionTripleExtractor"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes that carry their triples, in place of those they had."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes)
        show = bool(kwargs.get("show_progress", self.show_progress))
        extracted = []
        for node in get_tqdm_iterable(nodes, show, "Extracting mentions"):
            title = node.metadata.get(self.title_key)
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            extracted.append(attach_triples(node, self.extract(text, None if title is None else str(title))))
        return extracted

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Extract in a thread, without blocking the event loop."""
        return await asyncio.to_thread(self.__call__, nodes, **kwargs)

    def extract(self, text: str, title: str | None) -> list[Triple]:
        """Return the triples of one passage, in the order of its text, without repetition.

        Args:
            text: the passage.
            title: what it is about, the subject of its triples; without one, the first mention in the text is.

        Raises:
            ArgumentError: one of them is no text.

        """
        check_kind(str, text=text)
        check_kind(str, optional=True, title=title)
        triples: dict[Triple, None] = {}
        for triple in self._triples(text, _strip_parenthesis((title or "").strip())):
            triples[triple] = None
            if len(triples) == self.max_triples_per_passage:
                break
        return list(triples)

    def _triples(self, text: str, subject: str) -> Iterator[Triple]:
        lower = {word for word in text.split() if word.islower()}
        for words in _split_sentences(text):
            names = _find_names(words, lower)
            if not subject:
                if not names:
                    continue
                subject = names[0][2]
            own = entity_key(subject)
            others = [name for name in names if entity_key(name[2]) != own]
            for start, end, name in others or [(0, 1, subject)]:
                yield Triple(subject, _cut_window(words, start, end), name)


def _strip_parenthesis(title: str) -> str:
    """Drop a title's last parenthesis: `"Song of Solomon (novel)"` becomes `"Song of Solomon"`."""
    return title[: title.rfind("(")].strip() or title if title.endswith(")") else title


def _cut_window(words: Sequence[str], start: int, end: int) -> str:
    """Return up to `_MAX_PREDICATE_WORDS` words of the sentence, around the name from `start` to `end`."""
    first = max(0, min((start + end - _MAX_PREDICATE_WORDS + 1) // 2, len(words) - _MAX_PREDICATE_WORDS))
    return " ".join(words[first : first + _MAX_PREDICATE_WORDS])


def _split_sentences(text: str) -> Iterator[list[str]]:
    """Split text into sentences, as lists of words with their punctuation. A blank line ends a sentence, too."""
    for paragraph in _BLANK_LINE.split(text):
        words = [word[:_MAX_WORD_LETTERS] for word in _SPACED.sub(r" \1 ", paragraph).split()]
        start = 0
        for n, word in enumerate(words, 1):
            if n == len(words) or n - start == _MAX_SENTENCE_WORDS or _ends_sentence(word, words[n]):
                yield words[start:n]
                start = n


def _ends_sentence(word: str, following: str) -> bool:
    core = word.rstrip(_CLOSING)
    following = following.lstrip(_OPENING)
    if not core.endswith(_ENDING) or following[:1].islower():
        return False
    stem = core[:-1].lstrip(_OPENING)
    is_abbreviation = word[-1] == "." and (len(stem) == 1 or "." in stem or stem.lower() in _ABBREVIATIONS)
    return not is_abbreviation or following.lower() in _COMMON_WORDS


def _find_names(words: Sequence[str], lower: set[str]) -> list[tuple[int, int, str]]:
    """Find the names in a sentence: (index of the first word, index behind the last word, name)."""
    kinds = [_classify_word(word, first=n == 0) for n, word in enumerate(words)]
    names = []
    for match in _NAME.finditer("".join(kind for kind, _ in kinds)):
        start, end = match.span()
        name = " ".join(core for _, core in kinds[start:end])
        is_common = name.lower() in _NO_NAMES or (start == 0 and name.lower() in lower)
        if end - start == 1 and (len(name) == 1 or is_common):
            continue
        # A single full stop may end the sentence ("World War I."); an abbreviation with several keeps them ("U.S.").
        names.append((start, end, name if name.count(".") != 1 else name.removesuffix(".")))
    return names


def _classify_word(word: str, *, first: bool) -> tuple[str, str]:
    """Return a word's kind, as a letter of `_NAME`, and the word without the punctuation around it."""
    if word in _CONNECTORS:
        return "c", word
    if word.isalpha() and word.islower():
        return "-", word
    start, end = 0, len(word)
    while start < end and not word[start].isalnum():
        start += 1
    while end > start and not word[end - 1].isalnum() and unicodedata.category(word[end - 1])[0] != "M":
        end -= 1
    core = word[start:end]
    opens, closes = start > 0, end < len(word)
    if core.isdecimal():
        return "-" if opens else "D" if closes else "d", core
    if core == core.lower() or (first and core.lower() in _COMMON_WORDS):
        return "-", core
    if core.endswith(("'s", "’s")):
        core, closes = core[:-2], True
    elif word[end : end + 1] == "." and (len(core) == 1 or "." in core or core.lower() in _ABBREVIATIONS):
        core, closes = core + ".", end + 1 < len(word)
    return ("X" if closes else "B") if opens else ("E" if closes else "N"), core
