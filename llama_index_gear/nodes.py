"""Triples in a node's metadata, and the record of their extraction: hidden from the embedding model and from LLMs.

Triples are read in two forms: this package's own (`gear_triples`, plain JSON, safe in every cache and store) and that
of LlamaIndex's property-graph extractors (`nodes` and `relations`, as objects, or as dicts where a cache made them so).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import product
from typing import Any, TypeVar

from llama_index.core.bridge.pydantic import BaseModel, ValidationError
from llama_index.core.graph_stores.types import KG_NODES_KEY, KG_RELATIONS_KEY, EntityNode, Relation
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.errors import TripleError, check_counts
from llama_index_gear.triple import Triple

TRIPLES_KEY = "gear_triples"
"""Metadata key: a list of `{"subject", "predicate", "object"}`."""
EXTRACTION_KEY = "gear_extraction"
"""Metadata key: the record of the passage's extraction (see `ExtractionRecord`)."""
SOURCE_KEY = "gear_source"
"""Metadata key: the point that the passage was taken from (see `ingestion.existing_collection`)."""
CHAIN_KEY = "gear_chain"
"""Metadata key of a returned passage: the triples that lead to it, `[[subject, predicate, object], …]`; [] if none."""
RANKS_KEY = "gear_ranks"
"""Metadata key of a returned passage: its rank, from 1, in each list that named it, `{"base": 3, "graph": 1}`."""
REASONS_KEY = "gear_reasons"
"""Metadata key of a passage that was ranked in a pool: what placed it, `[{"signal", "share", "reason"}, …]`."""
_EXPLANATION_KEYS = (CHAIN_KEY, RANKS_KEY, REASONS_KEY)
LINKS, MENTIONS, STATES = "links to", "mentions", "says its head, of"
"""Verbs of the predicates that are made of links and known names: “the sentence” links to."""
_WORD = re.compile(r"\w")
_MADE = re.compile(
    rf"“(?P<sentence>.*)” (?:(?P<verb>{LINKS}|{MENTIONS}|{STATES})|(?P<into>{LINKS}) “(?P<section>[^“”\n]+)” in)",
    re.DOTALL,
)
"""Matches these predicates, and no other extractor's; a link into a section names its heading."""
DOC_KEYS = ("doc_id", "document_id", "ref_doc_id")
"""Keys under which LlamaIndex's own vector stores write a passage's document ("None" if there is none)."""

ONE_NODE = "write [node] for one"
"""Hint for a single node in place of a list."""

Model = TypeVar("Model", bound=BaseModel)

_CUT = " …"
_LEAST = 10  # characters that a predicate is shortened to, at least
_BEGINNING = 50  # characters of a passage's text that stand for its title
_STRUCTURE = {
    "SOURCE",
    "PARENT",
    "PREVIOUS",
    "NEXT",
    "CHILD",
}  # ImplicitPathExtractor's: they join chunks, not entities


def read_title(node: BaseNode) -> str:
    """Return the title in a node's metadata (`"title"`); "" if it has none."""
    title = node.metadata.get("title")
    return "" if title is None else str(title)


def name_passage(node: BaseNode) -> str:
    """Return what a passage is called where it is shown: its title; without one, its file and how its text begins."""
    if title := read_title(node):
        return title
    beginning = shorten(node.get_content(), _BEGINNING)
    file = node.metadata.get("file_name")
    return f"{file}: {beginning}" if file else beginning


def shorten(text: str, length: int) -> str:
    """Return a text on one line of at most `length` characters; what is cut off leaves a "…".

    It is cut behind a word, or within one that takes half of the line: some languages have no spaces.
    """
    line = " ".join(text.split())
    return line if len(line) <= length else _take_first(line, length - len(_CUT)) + _CUT


def shorten_predicate(slots: Sequence[str], length: int) -> str:
    """Return the predicate of a fact on one line of at most `length` characters; what is cut off leaves a "…".

    A predicate may be a whole sentence. What stands between the fact's two names there is kept, and as much around it
    as there is room for. If that alone is too long, or the sentence has a name only outside, the words beside the names
    are kept. The verb of a link stays behind its sentence.

    Args:
        slots: subject, predicate, object.
        length: characters, ten or more.

    """
    line = " ".join(slots[1].split())
    if len(line) <= length:
        return line
    sentence, verb = split_link(line)
    if verb:
        room = length - len(verb) - len("“” ")
        return (
            f"“{shorten_predicate((slots[0], sentence, slots[2]), room)}” {verb}"
            if room >= _LEAST
            else shorten(verb, length)
        )
    start, end = _find_between(line, slots[0], slots[2])
    room = length - 2 * len(_CUT)
    between = line[start:end]
    if len(between) > room:
        last = _take_first(between[::-1], room // 2)[::-1]
        return f"{_take_first(between, room - len(last))}{_CUT} {last}".strip(" ,;")
    before = _take_words(line[:start][::-1], (room - len(between)) // 2)
    behind = _take_words(line[end:], room - len(between) - len(before))
    before = _take_words(line[:start][::-1], room - len(between) - len(behind))[::-1]
    kept = f"{before}{between}{behind}".strip(" ,;")
    opening, closing = before != line[:start], behind != line[end:]
    return f"{f'{_CUT} '.lstrip() * opening}{kept}{_CUT * closing}"


def _find_between(line: str, subject: str, object_: str) -> tuple[int, int]:
    """Return where the words between two names begin and end. A name that is missing stands at its end of the line."""
    subjects, objects = (list(_find_name(line, name)) for name in (subject, object_))
    pairs = [sorted(pair) for pair in product(subjects, objects)]
    apart = [(first[1], second[0]) for first, second in pairs if first[1] <= second[0]]
    if apart:
        return min(apart, key=lambda ends: ends[1] - ends[0])
    if objects:
        return 0, objects[0][0]
    return (subjects[0][1] if subjects else 0), len(line)


def _find_name(line: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield where a name begins and ends in a line, in any case; one in ASCII must match whole words."""
    name = " ".join(name.split())
    if name and name.isascii() and line.isascii():  # far faster than a pattern of its own, and the same places
        yield from _find_words(line.lower(), name.lower())
        return
    pattern = re.escape(name)
    matches = re.finditer(rf"(?<!\w){pattern}(?!\w)" if name.isascii() else pattern, line, re.IGNORECASE)
    yield from (match.span() for match in matches)


def _find_words(line: str, words: str) -> Iterator[tuple[int, int]]:
    start = line.find(words)
    while start >= 0:
        end = start + len(words)
        is_whole = not (_WORD.match(line[start - 1 : start]) or _WORD.match(line[end : end + 1]))
        if is_whole:
            yield start, end
        start = line.find(words, end if is_whole else start + 1)


def _take_words(text: str, room: int) -> str:
    """Return the first whole words of a text."""
    return text if len(text) <= room else text[: max(_find_cut(text, room), 0)]


def _take_first(line: str, room: int) -> str:
    """Return the beginning of a line: whole words, or a part of one that takes half of the room."""
    end = len(line) if len(line) <= room else _find_cut(line, room)
    return line[: end if end >= room // 2 else room].rstrip()


def _find_cut(line: str, room: int) -> int:
    """Return the last space of a line's beginning, forwards or backwards, that is not within a name; -1 if none is.

    Names are told by their capitals. Within one that begins in the first half the last space is taken.
    """
    last = end = line.rfind(" ", 0, room + 1)
    while end > 0 and line[end - 1].isalnum() and line[end + 1 : end + 2].isalnum():
        behind = line[end + 1 : end + 1 + room].partition(" ")[0]
        if not (_may_be_of_name(line[:end].rpartition(" ")[2]) and _may_be_of_name(behind)):
            break
        end = line.rfind(" ", 0, end)
    return end if end >= room // 2 else last


def _may_be_of_name(word: str) -> bool:
    return word != word.lower() or word.isdecimal()


def with_metadata(node: BaseNode, values: Mapping[str, Any], *, drop: Sequence[str] = ()) -> BaseNode:
    """Return a copy of `node` with `values` in its metadata, hidden from the embedding model and from LLMs.

    The node itself, with its lists and dicts, stays as it is. Metadata under the keys of `drop` is left out.
    """
    kept = {key: value for key, value in node.metadata.items() if key not in drop}
    return node.model_copy(
        update={
            "metadata": {**kept, **values},
            "excluded_embed_metadata_keys": [*dict.fromkeys([*node.excluded_embed_metadata_keys, *values])],
            "excluded_llm_metadata_keys": [*dict.fromkeys([*node.excluded_llm_metadata_keys, *values])],
        }
    )


_MARKS: dict[type[BaseModel], set[str]] = {
    EntityNode: {"label", "name", "properties"},
    Relation: {"label", "source_id", "target_id", "properties"},
}
"""Keys that a dict must have to be read as one of LlamaIndex's objects."""


class _ExplainedMetadata(dict[str, Any]):
    """Metadata whose `str` leaves the explanation out.

    LlamaIndex's fusion identifies a passage by its text and `str(metadata)`: a passage that was found in two ways must
    stay one passage.
    """

    def __repr__(self) -> str:
        return repr({key: value for key, value in self.items() if key not in _EXPLANATION_KEYS})


def with_explanation(
    node: BaseNode, chain: list[list[str]], ranks: dict[str, int], reasons: list[dict[str, Any]] | None = None
) -> BaseNode:
    """Return a copy of `node` that says why it was found. To models and to LlamaIndex's fusion it is the same node.

    An earlier explanation, that of a base retriever, is replaced.
    """
    values = {CHAIN_KEY: chain, RANKS_KEY: ranks, **({} if reasons is None else {REASONS_KEY: reasons})}
    copy = with_metadata(node, values, drop=_EXPLANATION_KEYS)
    return copy.model_copy(update={"metadata": _ExplainedMetadata(copy.metadata)})


def explain_selection(needed: int, is_shortened: bool, is_shown: bool) -> list[dict[str, Any]]:
    """Return the reasons that a reader's selection of passages gives, in the form of `REASONS_KEY`.

    Args:
        needed: the passage's rank among those that the reader named, from 1; 0 if it named others.
        is_shortened: True if the reader saw it shortened.
        is_shown: True if the reader saw it.

    """
    reasons: list[dict[str, Any]] = []
    if needed:
        ending = "th" if needed % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(needed % 10, "th")
        reasons.append({"signal": "needed", "share": 1.0, "reason": f"named {needed}{ending} by the reader"})
    if is_shortened:
        reasons.append({"signal": "shortened", "share": 0.0, "reason": "shown to the reader shortened"})
    if not is_shown:
        reasons.append({"signal": "not_shown", "share": 0.0, "reason": "not shown to the reader"})
    return reasons


def without_explanation(node: BaseNode) -> BaseNode:
    """Return the node without a retriever's explanation; the node itself if it has none."""
    hidden = _EXPLANATION_KEYS
    if not any(key in node.metadata for key in hidden):
        return node
    return node.model_copy(
        update={
            "metadata": {key: value for key, value in node.metadata.items() if key not in hidden},
            "excluded_embed_metadata_keys": [key for key in node.excluded_embed_metadata_keys if key not in hidden],
            "excluded_llm_metadata_keys": [key for key in node.excluded_llm_metadata_keys if key not in hidden],
        }
    )


def llm_texts(passages: Iterable[BaseNode]) -> list[str]:
    """Return the texts of passages as an LLM reads them."""
    return [node.get_content(metadata_mode=MetadataMode.LLM) for node in passages]


def attach_triples(node: BaseNode, triples: Iterable[Triple]) -> BaseNode:
    """Return a copy of `node` that carries these triples, without repetition, in place of those it had."""
    plain = [
        {"subject": triple.subject, "predicate": triple.predicate, "object": triple.object}
        for triple in dict.fromkeys(triples)
    ]
    return with_metadata(node, {TRIPLES_KEY: plain}, drop=triple_metadata_keys(node))


def triple_metadata_keys(node: BaseNode) -> list[str]:
    """Return the metadata keys under which LlamaIndex's extractors left triples, none of the user's own."""
    kinds: list[tuple[str, type[BaseModel]]] = [(KG_NODES_KEY, EntityNode), (KG_RELATIONS_KEY, Relation)]
    return [key for key, kind in kinds if _read_objects(node, key, kind)]


def read_triples(node: BaseNode) -> list[Triple]:
    """Return the triples that `node` carries, ours or a property graph's, without repetition; empty if none.

    Raises:
        TripleError: `gear_triples` is not a list of subject, predicate, object, or a slot is empty.

    """
    return list(dict.fromkeys([*_read_own_triples(node), *_read_property_graph(node)]))


def is_link(triple: Triple) -> bool:
    """Return True if a triple is made of a link or a known name."""
    return bool(split_link(triple.predicate)[1])


def split_link(predicate: str) -> tuple[str, str]:
    """Split the predicate of a link or a known name into its sentence and its verb; of others the verb is ""."""
    made = _MADE.fullmatch(predicate)
    return (made["sentence"], made["verb"] or made["into"]) if made else (predicate, "")


def read_section(predicate: str) -> str:
    """Return the heading of the section that a link leads into; "" if the predicate is of another kind."""
    made = _MADE.fullmatch(predicate)
    return (made["section"] or "") if made else ""


def without_links(triples: Iterable[Triple]) -> list[Triple]:
    """Return the triples that are not made of links and known names."""
    return [triple for triple in triples if not is_link(triple)]


def _read_own_triples(node: BaseNode) -> list[Triple]:
    entries = node.metadata.get(TRIPLES_KEY) or []
    if not isinstance(entries, list | tuple):
        entries = [entries]
    triples = []
    for entry in entries:
        try:
            triples.append(Triple(entry["subject"], entry["predicate"], entry["object"]))
        except TripleError as error:
            raise TripleError(f"{error} (in metadata {TRIPLES_KEY!r} of node {node.node_id!r})") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise TripleError(
                f"metadata {TRIPLES_KEY!r} of node {node.node_id!r} must be a list of "
                f'{{"subject": …, "predicate": …, "object": …}} with text in each, found {entry!r}'
            ) from error
    return triples


def _read_property_graph(node: BaseNode) -> list[Triple]:
    names = {entity.id: entity.name for entity in _read_objects(node, KG_NODES_KEY, EntityNode)}
    triples = []
    for relation in _read_objects(node, KG_RELATIONS_KEY, Relation):
        if relation.label in _STRUCTURE and not {relation.source_id, relation.target_id} <= set(names):
            continue
        ends = [names.get(end, end) for end in (relation.source_id, relation.target_id)]
        if all(text.strip() for text in (*ends, relation.label)):
            triples.append(Triple(ends[0], relation.label, ends[1]))
    return triples


def _read_objects(node: BaseNode, key: str, kind: type[Model]) -> list[Model]:
    """Return the objects of this kind under `key`. Such keys are common words: any other value there is the user's."""
    values = node.metadata.get(key)
    objects = []
    for value in values if isinstance(values, list) else []:
        try:
            if isinstance(value, kind):
                objects.append(value)
            elif isinstance(value, dict) and _MARKS[kind] <= set(value):
                objects.append(kind.model_validate(value))
        except ValidationError:
            continue
    return objects


def passage_id(number: int, document: BaseNode) -> str:
    """Return the id of a document's passage by its place, as `id_func` of LlamaIndex's splitters.

    The splitters' default ids are random. With them, a run that is repeated after a kill, or with a document store that
    was not persisted, stores every passage a second time.

        SentenceSplitter(chunk_size=224, chunk_overlap=20, id_func=passage_id)

    Not for `MarkdownNodeParser`, which numbers every section of a document from 0.

    Args:
        number: place of the passage in the document, from 0.
        document: the split document. Its id must be unique, across tenants too.

    Raises:
        ArgumentError: `number` is no whole number.

    """
    check_counts(least=0, number=number)
    return f"{document.node_id}-{number}"


class Outcome(Enum):
    """The outcome of a passage's extraction. All but the first three are failures: the next run extracts it again."""

    EXTRACTED = "extracted"
    NO_FACTS = "no facts"
    BLANK = "blank"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    TRUNCATED = "truncated"
    OVER_BUDGET = "over budget"
    OUT_OF_QUOTA = "out of quota"
    FAILED = "failed"

    @property
    def failure(self) -> bool:
        """True if the passage should be extracted again."""
        return self not in (Outcome.EXTRACTED, Outcome.NO_FACTS, Outcome.BLANK)

    @property
    def is_left_out(self) -> bool:
        """True if no call was made for the passage: a ceiling, or a quota that is used up, had ended them."""
        return self in (Outcome.OVER_BUDGET, Outcome.OUT_OF_QUOTA)

    @property
    def paid(self) -> bool:
        """True if a model was paid for the triples that the passage has, or for saying that it has none."""
        return self in (Outcome.EXTRACTED, Outcome.NO_FACTS)


@dataclass(frozen=True)
class ExtractionRecord:
    """The record of one passage's extraction, stored in its node's metadata as `gear_extraction`.

    Attributes:
        outcome: the outcome.
        problem: what went wrong, in words; empty if nothing did.
        calls: LLM calls in this run, retries included.
        prompt_tokens: tokens sent, as the LLM's client counts them, else by LlamaIndex's tokenizer.
        completion_tokens: tokens received, counted likewise.
        reused: True if the triples come from an earlier run: from the node itself or from the extractor's cache.
        key: fingerprint of the extraction's input: model, prompt, title, text and tenant.
        refused: number of triples that the extractor's schema refused.

    """

    outcome: Outcome
    problem: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reused: bool = False
    key: str = ""
    refused: int = 0


def record_of(node: BaseNode) -> ExtractionRecord | None:
    """Return the record that a node carries; None if it was never extracted."""
    plain: Any = node.metadata.get(EXTRACTION_KEY)
    try:
        return ExtractionRecord(**{**plain, "outcome": Outcome(plain["outcome"])})
    except (TypeError, KeyError, ValueError):  # no record, or one of another program or version
        return None


def has_failed(node: BaseNode) -> bool:
    """Return True if a passage's extraction failed."""
    record = record_of(node)
    return record is not None and record.outcome.failure


def with_record(node: BaseNode, triples: Sequence[Triple], record: ExtractionRecord) -> BaseNode:
    """Return a copy of `node` that carries these triples and this record."""
    plain = {**asdict(record), "outcome": record.outcome.value}
    if not record.refused:  # without a schema a record is what it was before there were schemas
        del plain["refused"]
    return with_metadata(attach_triples(node, triples), {EXTRACTION_KEY: plain})


def must_stay(stored: BaseNode, node: BaseNode) -> bool:
    """Return True if a new extraction may not replace the stored one: its triples were paid for.

    An extraction that failed replaces one of the same text only if it has triples itself, or the stored one has none;
    those of links don't count. Where no call was made any more, nothing is replaced.
    """
    record = record_of(node)
    is_same = stored.get_content(MetadataMode.NONE) == node.get_content(MetadataMode.NONE)
    if record is None or not record.outcome.failure or not is_same:
        return False
    paid, new = without_links(read_triples(stored)), without_links(read_triples(node))
    return record.outcome.is_left_out or bool(paid and not new)
