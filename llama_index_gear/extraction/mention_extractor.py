"""`MentionTripleExtractor`: triples without an LLM, from the names in each sentence."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict, Field, PrivateAttr, field_validator
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent
from llama_index.core.utils import get_tqdm_iterable

from llama_index_gear.errors import ArgumentError, format_value
from llama_index_gear.extraction.blocks import tell_markdown
from llama_index_gear.extraction.headings import Sections
from llama_index_gear.extraction.languages import Speech, is_caseless, tell_language
from llama_index_gear.extraction.linked_names import Name
from llama_index_gear.extraction.names import find_names
from llama_index_gear.extraction.sentences import Sentence, split_sentences
from llama_index_gear.extraction.serialization import check_nothing_lost
from llama_index_gear.nodes import attach_triples
from llama_index_gear.triple import Triple, drop_parenthesis, entity_key

_RETURNS = "return the names as the passage writes them, (start, end) pairs of its characters, or an object with .ents"


def describe_recognizer(recognizer: Callable[[str], Any]) -> str:
    """Return a text that differs for different recognizers: a function's name, or an object's class and model."""
    named = recognizer if hasattr(recognizer, "__qualname__") else type(recognizer)
    meta = getattr(recognizer, "meta", None)
    model = (
        "-".join(str(meta[key]) for key in ("lang", "name", "version") if key in meta) if isinstance(meta, dict) else ""
    )
    return f"{named.__module__}.{named.__qualname__} {model}".strip()


def recognize_names(recognizer: Callable[[str], Any], text: str, sentences: Sequence[Sentence]) -> list[list[Name]]:
    """Ask a recognizer for a passage's names, and find the sentences that they stand in.

    Raises:
        ArgumentError: it returned something else than names or places of the text.

    """
    found: list[list[Name]] = [[] for _ in sentences]
    places = [(number, index) for number, sentence in enumerate(sentences) for index in range(len(sentence.words))]
    starts = [start for sentence in sentences for start, _ in sentence.places]
    for start, end in sorted(set(_spans(recognizer(text), text))):
        first, last = (max(0, bisect_right(starts, place) - 1) for place in (start, end - 1))
        name = text[start:end].strip()
        if not name or not places:
            continue
        number, index = places[first]
        length = last - first + 1 if places[last][0] == number else 1
        found[number].append(Name(index, index + length, name))
    return found


def _spans(returned: Any, text: str) -> Iterator[tuple[int, int]]:
    entries = getattr(returned, "ents", returned)
    if isinstance(entries, str | bytes) or not isinstance(entries, Iterable):
        raise ArgumentError(f"the recognizer returned {format_value(returned)}: {_RETURNS}")
    names: set[str] = set()
    for entry in entries:
        if isinstance(entry, str):
            if entry not in names:
                yield from _occurrences(entry, text)
            names.add(entry)
            continue
        start, end = _ends_of(entry)
        if not 0 <= start < end <= len(text):
            raise ArgumentError(
                f"the recognizer returned the place {(start, end)!r} in a passage of {len(text)} characters: {_RETURNS}"
            )
        yield start, end


def _ends_of(entry: Any) -> tuple[int, int]:
    """Return the start and end of a pair, of a dict with both, or of an entity with `start_char` and `end_char`."""
    if isinstance(entry, Mapping):
        entry = (entry.get("start"), entry.get("end"))
    elif hasattr(entry, "start_char") and hasattr(entry, "end_char"):
        entry = (entry.start_char, entry.end_char)
    if not isinstance(entry, tuple | list) or len(entry) != 2 or not all(type(place) is int for place in entry):
        raise ArgumentError(f"the recognizer returned {format_value(entry)} among the names: {_RETURNS}")
    return entry[0], entry[1]


def _occurrences(name: str, text: str) -> list[tuple[int, int]]:
    """Find a name in its passage: as a word, or within words if it stands nowhere as one, as in Chinese."""
    name = name.strip()
    inside = re.escape(name)
    for pattern in (rf"(?<!\w){inside}(?!\w)", inside):
        if name and (spans := [match.span() for match in re.finditer(pattern, text)]):
            return spans
    raise ArgumentError(
        f"the recognizer returned {format_value(name)}, which does not stand in the passage: {_RETURNS}"
    )


logger = logging.getLogger(__name__)

_PATH_KEY = "header_path"  # LlamaIndex's MarkdownNodeParser: the headings above the node's own, "/Handbook/Servers/"
_LINKS_KEY = "links"  # [words, target] of each link that the text has lost, as `index` writes them
_MAX_PREDICATE_WORDS = 40  # words of a sentence in one triple


class MentionTripleExtractor(TransformComponent):
    """Extracts triples by rules of form alone: no LLM, no download, no network.

    There is one triple per sentence and name in it: (the passage's title, the sentence's own words, the name). A
    sentence without a name other than the title has none. The last parenthesis of a title is dropped ("Song of Solomon
    (novel)" becomes "Song of Solomon"). A passage without a title takes its first name as title. A name is

    - a run of capitalized words ("Republic of Austria", "J. K. Rowling", "Boeing 747"). A single word is no name
      if it is the adjective of a nation or faith ("British"), a month or a day. Nor is the first word of a sentence
      that English writes in lower case, unless the passage has it elsewhere with a capital letter ("Ten", "Press"). An
      adverb or imperative at the start of a sentence is no part of the name behind it ("Recently Nora Blum").
    - an identifier, as it is written: an address (URL, e-mail, IP), a host, a file or path, a ticket (`OPS-1432`), a
      version (`v2.3.1`), a word with underscores, and inline code of at most six words.
    - a small word with hyphens (`ledger-sync`) that English does not make of its parts, if it opens a sentence, recurs,
      or the passage has code or an identifier. A small word alone (`certifi`) counts wherever it stands if the passage
      shows it as inline code or as a heading, installs it (`pip install certifi`), or repeats it, calls it a package
      and speaks of a package manager.

    A heading that names something ("Deployment of Atlas", but not "Getting Started") is the subject of its section's
    sentences, in place of the title. So is, above the first heading, the last such part of `header_path`, which
    LlamaIndex's `MarkdownNodeParser` writes.

    Markdown is read as such: a list's items and a table's rows are sentences. A block of code is one sentence, in which
    only identifiers are names. A heading or the head of a table in title case is no evidence for a name. A wikilink
    names its page ("[[people/nora-blum|Nora Blum]]"), and the text of another link is one name, if it is a title of
    several parts ("In Depth: Random Forests"). The lines of letters, chats and logs are sentences. If the metadata
    don't say by a file's name or type that a passage is Markdown, a "#" in front of settings or code is a comment, and
    a line above a rule is a heading only if it looks like a title.

    In German passages (recognized by function words) a single noun is a name only if no article, numeral or adjective
    precedes it, and neither its ending nor a list of frequent nouns marks it as common; or if it has two capital
    letters ("SPD"), or is part of the title or of a name of several words. Places with an article ("die Schweiz") are
    lost.

    In scripts without capital letters (Arabic, Chinese, Hebrew, Japanese, …) names are found only where something marks
    them: titles of works (《…》, 『…』), quoted words that recur, Katakana with a dot ("レオ・トルストイ"), Latin
    letters, identifiers. Such passages are counted in `caseless_passages`, and a warning says so once.

    Limits: no relation is understood, no pronoun resolved, and "Curry" and "Stephen Curry" are two entities. The rules
    are made for English. In French, Spanish, Portuguese, Italian, Dutch and Russian they know the function words that
    open sentences. Other languages are told by their frequent words, or by words that English has not, and named in a
    warning: there, what opens a sentence is a name, or begins one of three words, only if the passage has it inside a
    sentence too. Names stay inflected ("Москве" is not "Москва"). For other languages, or better names, pass a
    `recognizer`:

        nlp = spacy.load("de_core_news_sm")
        extractor = MentionTripleExtractor(recognizer=nlp)
        known = ["华为", "深圳"]  # or a list of your own: titles, products, people
        extractor = MentionTripleExtractor(recognizer=lambda text: [name for name in known if name in text])

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

    model_config = ConfigDict(extra="forbid")

    title_key: str = Field(default="title", description="Metadata key of the passage's title.")
    max_triples_per_passage: int = Field(default=256, ge=1, description="Triples kept per passage, first ones first.")
    show_progress: bool = Field(default=False, exclude=True, description="Show a progress bar.")
    recognizer: Any = Field(
        default=None,
        exclude=True,
        description="Finds the names in place of the rules: a function of the passage's text that returns its names, "
        "(start, end) pairs of its characters or dicts with start and end; or a spaCy pipeline (any object that "
        "returns an object with .ents, each with start_char and end_char). A name of several sentences counts in the "
        "first. The pipeline's cache knows a function by its name: clear it when the function changes.",
    )
    _caseless_passages: int = PrivateAttr(default=0)
    _has_warned: bool = PrivateAttr(default=False)
    _foreign_passages: Counter[str] = PrivateAttr(default_factory=Counter)
    _has_named_languages: bool = PrivateAttr(default=False)

    @field_validator("recognizer")
    @classmethod
    def _check_recognizer(cls, recognizer: Any) -> Any:
        if recognizer is not None and (not callable(recognizer) or isinstance(recognizer, type)):
            raise ArgumentError(
                f"recognizer must be a function that takes a text, a spaCy pipeline or None, got "
                f"{format_value(recognizer)}"
            )
        return recognizer

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the component is serialized."""
        return "MentionTripleExtractor"

    @property
    def caseless_passages(self) -> int:
        """Number of passages so far in this process, in scripts without capital letters, that the rules were put to."""
        return self._caseless_passages

    @property
    def foreign_passages(self) -> dict[str, int]:
        """Number of passages so far in this process that the rules were put to, by language, if they know none of it.

        A word that opens a sentence is a name there only if it has its capital letter inside a sentence too.
        """
        return dict(self._foreign_passages)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the serialized form; of a recognizer it holds only the name, for the pipeline's cache."""
        form: dict[str, Any] = super().to_dict(**kwargs)
        return form if self.recognizer is None else {**form, "recognizer": describe_recognizer(self.recognizer)}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle; refuse if the recognizer can't be pickled."""
        settings = dict(self.__dict__)
        state: dict[str, Any] = super().__getstate__()
        check_nothing_lost(self, settings, "pass a function of a module, or let the pipeline run in one process")
        return state

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes that carry their triples, in place of those they had."""
        show = bool(kwargs.get("show_progress", self.show_progress))
        start_time = time.perf_counter()
        extracted, count = [], 0
        for node in get_tqdm_iterable(nodes, show, "Extracting mentions"):
            title = node.metadata.get(self.title_key)
            path = node.metadata.get(_PATH_KEY)
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            headings = list(filter(None, path.split("/"))) if isinstance(path, str) else []
            kind, links = tell_markdown(node.metadata), node.metadata.get(_LINKS_KEY)
            linked = [link[0] for link in links if _is_link(link)] if isinstance(links, list) else []
            triples = self._extract(text, "" if title is None else str(title), headings, kind, linked)
            extracted.append(attach_triples(node, triples))
            count += len(triples)
        seconds = time.perf_counter() - start_time
        logger.info("%d triples found in %d passages in %.1f s", count, len(extracted), seconds)
        self._warn()
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
            ArgumentError: the recognizer returned something else than names or places of it.

        """
        triples = self._extract(text, title or "", [])
        self._warn()
        return triples

    def _warn(self) -> None:
        if self._foreign_passages and not self._has_named_languages:
            self._has_named_languages = True
            logger.warning(
                "passages in %s: %s so far. The rules know no word of it, and miss names that open a sentence: pass "
                "recognizer=…, a function that returns a text's names or a spaCy pipeline, or extract with a model",
                " and ".join(self._foreign_passages),
                self._foreign_passages.total(),
            )
        if self._caseless_passages and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "passages in a script without capital letters: %s so far. Only marked names are found in them: pass "
                "recognizer=…, a function that returns a text's names or a spaCy pipeline, or extract with a model",
                self._caseless_passages,
            )

    def _extract(
        self,
        text: str,
        title: str,
        path: Sequence[str],
        is_markdown: bool | None = None,
        linked: Sequence[str] = (),
    ) -> list[Triple]:
        triples: dict[Triple, None] = {}
        for triple in self._triples(text, drop_parenthesis(title.strip()), path, is_markdown, linked):
            triples[triple] = None
            if len(triples) == self.max_triples_per_passage:
                break
        return list(triples)

    def _triples(
        self, text: str, title: str, path: Sequence[str], is_markdown: bool | None, linked: Sequence[str]
    ) -> Iterator[Triple]:
        speech = tell_language(text)
        if self.recognizer is None:
            self._count_passage(text, speech.foreign)
        sections = Sections(title, path, has_case_evidence=not speech.is_german)
        first = ""
        for sentence, names in self._find_names(text, title, is_markdown, speech, linked):
            first = first or (names[0].text if names else "")
            sections.close(sentence.level)
            subject = sections.subject or first  # of a heading itself: that of the section around it
            sections.open(sentence, is_named=bool(names))
            own = entity_key(subject)
            is_short = len(sentence.words) <= _MAX_PREDICATE_WORDS
            said = sentence.join(0, len(sentence.words)) if names and is_short else ""
            for start, end, name in names:
                if entity_key(name) != own:
                    yield Triple(subject, said or sentence.window(start, end, _MAX_PREDICATE_WORDS), name)

    def _count_passage(self, text: str, foreign: str) -> None:
        """Count a passage for which there are no rules."""
        if is_caseless(text):
            self._caseless_passages += 1
        elif foreign:
            self._foreign_passages[foreign] += 1

    def _find_names(
        self, text: str, title: str, is_markdown: bool | None, speech: Speech, linked: Sequence[str]
    ) -> Iterator[tuple[Sentence, list[Name]]]:
        """Find the names in each sentence of a passage: by the recognizer if there is one, else by their form."""
        sentences = list(split_sentences(text, is_markdown=is_markdown))
        if self.recognizer is not None:
            names = recognize_names(self.recognizer, text, sentences)
        else:
            names = find_names(text, title, sentences, speech, linked, is_code=is_markdown is False)
        return zip(sentences, names, strict=True)


def _is_link(link: Any) -> bool:
    return isinstance(link, list | tuple) and len(link) == 2 and isinstance(link[0], str)
