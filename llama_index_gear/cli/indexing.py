"""`index`: brings a store to what the files of a folder say now.

The store itself is compared with the files: each passage that a file has now, and the store has not or has with another
text, is written; each that its file no longer has is deleted; what was stored without a file stays, and a file that
would overwrite it fails. So nothing else must be remembered, and a run after one that was killed does what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click import ClickException
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from tqdm import tqdm

from llama_index_gear import GeARTripleExtractor, MentionTripleExtractor, attach_triples, passage_id, read_triples
from llama_index_gear.characters import count
from llama_index_gear.cli.dead_links import name_dead_links
from llama_index_gear.cli.store_folder import NotedStore
from llama_index_gear.extraction.accounting import ExtractionEstimate, ExtractionLedger
from llama_index_gear.extraction.link_extractor import LinkedPassages, relink_flow
from llama_index_gear.extraction.sentences import split_pieces
from llama_index_gear.flow import RunFunction, run
from llama_index_gear.ingestion.console import shorten_line, show_line
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.origins import read_file, refuse_meeting
from llama_index_gear.ingestion.reading_process import SECONDS
from llama_index_gear.ingestion.stated_links import place_links
from llama_index_gear.nodes import EXTRACTION_KEY, has_failed, must_stay, without_links
from llama_index_gear.store.schema import DENSE, match_lacking

PASSAGE_TOKENS = 224
"""Size of a passage. The default embedding model reads 256 tokens, of its own tokenizer."""
OVERLAP_TOKENS = 20
"""Tokens that a passage shares with the one before. LlamaIndex's default, 200, would start one at every sentence."""
_PHRASES = r"[^\n]+?(?:[,.;:](?=\s)|[。？！；，]|\n|\Z)\s*|\s+"
"""Matches parts of a sentence that is too long for a passage. No address is cut."""
_BATCH = 32  # passages between two states of the progress bar, and those that a kill can cost
_DELETED_AT_ONCE = 1_000
_OWN_PREFIX = "gear_"  # of the metadata that the extractor adds


@dataclass(frozen=True)
class IndexReport:
    """The result of a run.

    Attributes:
        files: number of files with text.
        passages: number of passages that these have.
        written: number of passages that were new or changed, or whose triples are. One that could not be extracted
            keeps the triples that it has, and does not count.
        deleted: number of stored passages that no file has any more.
        skipped: path of a file → why it has no text that can be read. What the store has of it is kept.
        failed: path of a file, or of a folder → why it could not be read. What the store has of it is kept.
        unread: number of files that an interrupt kept from being read. What the store has of them is kept.
        links: number of links from one file to another.
        dead_links: those that lead nowhere, as "file:line: target"; without a line, if the file was converted.
        triples: number of triples that the store has.
        embedded: number of those that have a vector.
        ledger: the account of a model's extraction; empty if rules extracted.

    """

    files: int
    passages: int
    written: int
    deleted: int
    skipped: dict[str, str]
    failed: dict[str, str]
    unread: int
    links: int
    dead_links: list[str]
    triples: int
    embedded: int
    ledger: ExtractionLedger


@dataclass
class IndexPlan:
    """The work of a run.

    Attributes:
        store: the store.
        extractor: extracts the triples.
        reader: the files, read.
        wanted: id → passage of all passages that the files have.
        kept: id → stored passage of those of them that the files did not change.
        candidates: the passages to extract. A `GeARTripleExtractor` leaves those alone that it had extracted before.
        gone: ids of the stored passages that no file has any more.
        others: the stored passages that are of no file that was read; only their links change.
        linked: the links between all that the store will have.
        dead_links: those that lead nowhere, as "file:line: target".

    """

    store: NotedStore
    extractor: MentionTripleExtractor | GeARTripleExtractor
    reader: FolderReader
    wanted: dict[str, BaseNode]
    kept: dict[str, BaseNode]
    candidates: list[BaseNode]
    gone: list[str]
    others: list[BaseNode]
    linked: LinkedPassages
    dead_links: list[str]

    @property
    def estimate(self) -> ExtractionEstimate | None:
        """The expected cost of the model; None if rules extract."""
        extractor = self.extractor
        return extractor.estimate(self.candidates) if isinstance(extractor, GeARTripleExtractor) else None

    def run(self) -> IndexReport:
        """Do it: finish what a killed run left, delete, extract, embed and store, a batch at a time."""
        self.store.finish_writes()
        for start in range(0, len(self.gone), _DELETED_AT_ONCE):
            self.store.delete_nodes(self.gone[start : start + _DELETED_AT_ONCE])
        written, ledger = 0, ExtractionLedger()
        unchanged = self.kept.keys() - {node.node_id for node in self.candidates}
        relinked = self._relink([*(self.kept[id_] for id_ in sorted(unchanged)), *self.others])
        total = len(self.candidates) + len(relinked)
        with tqdm(total=total, desc="Storing passages", unit="passage", disable=not total) as bar:
            turns = self.store.turns
            for start in range(0, len(self.candidates), _BATCH):
                nodes = self.candidates[start : start + _BATCH]
                if start:
                    self.store.pass_turn()
                extracted = self.extractor(self._leave_out_refused(nodes))
                if self.store.turns != turns:
                    turns = self.store.turns
                    self._look_again(extracted)
                    extracted = self._leave_out_refused(extracted)
                ledger += ExtractionLedger.of([node for node in extracted if _read_record(node)])
                stored = [self.kept[node.node_id] for node in extracted if self._may_stay(node)]
                again = self._relink(stored)
                relinked += again
                ids = {node.node_id for node in stored}
                changed = [self.linked.attach(node) for node in extracted if node.node_id not in ids]
                if changed:
                    self.store.add(self.store.embed_model(changed))
                written += len(changed)
                bar.update(len(nodes) - len(again))
            for start in range(0, len(relinked), _BATCH):
                batch = relinked[start : start + _BATCH]
                self.store.pass_turn()
                written += run(relink_flow(self.store, batch), RunFunction.answer)
                bar.update(len(batch))
        files = {node.metadata["file"] for node in self.wanted.values()}
        skipped, failed = self.reader.skipped, self.reader.failed
        counts = len(files), len(self.wanted), written, len(self.gone), skipped, failed, len(self.reader.unread)
        return IndexReport(*counts, self.linked.number, self.dead_links, *self._count_triples(), ledger)

    def _relink(self, stored: Sequence[BaseNode]) -> list[tuple[BaseNode, BaseNode]]:
        """Return those of stored passages whose links lead elsewhere now, each beside what it is to be."""
        linked = [(node, self.linked.attach(node)) for node in stored]
        return [(old, new) for old, new in linked if new is not old]

    def _count_triples(self) -> tuple[int, int]:
        """Count the triples of the store, and those that have a vector."""
        name = self.store.triple_collection_name
        if not self.store.client.collection_exists(name):
            return 0, 0
        lacking = self.store.client.count(name, match_lacking(DENSE)).count
        triples = self.store.client.count(name).count
        return triples, triples - lacking

    def _leave_out_refused(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        return [node for node in nodes if node.node_id in self.wanted]

    def _look_again(self, nodes: Sequence[BaseNode]) -> None:
        """Compare passages with what others have stored since the store was read: they had the folder meanwhile."""
        batch = {node.node_id: self.wanted[node.node_id] for node in nodes}
        names = {name for node in batch.values() for name in (node.ref_doc_id, node.metadata["file"]) if name}
        of_documents = MetadataFilters(
            filters=[MetadataFilter(key="doc_id", value=sorted(names), operator=FilterOperator.IN)]
        )
        found = [
            *self.store.get_nodes(list(batch), with_embeddings=False),
            *self.store.get_nodes(filters=of_documents, with_embeddings=False),
        ]
        files = {node.metadata["file"] for node in self.wanted.values()}
        refused = refuse_meeting(batch, found, lambda file: file in files or self.reader.keeps(file))
        self.reader.failed |= refused
        self.wanted = {id_: node for id_, node in self.wanted.items() if node.metadata["file"] not in refused}
        stored = {node.node_id: node for node in found}
        for id_, node in batch.items():
            self.kept.pop(id_, None)
            if _read_content(node) == _read_content(stored.get(id_)):
                self.kept[id_] = stored[id_]

    def _may_stay(self, node: BaseNode) -> bool:
        """Return True if the store has a passage with these triples, or with others that must stay."""
        stored = self.kept.get(node.node_id)
        if stored is None:
            return False
        is_same = without_links(read_triples(stored)) == without_links(read_triples(node))
        return (has_failed(node) and is_same) or bool(_read_record(node).get("reused")) or must_stay(stored, node)


def plan_index(
    store: NotedStore,
    folder: Path,
    store_folder: Path,
    extractor: MentionTripleExtractor | GeARTripleExtractor,
    seconds: float = SECONDS,
    check: Callable[[], object] = lambda: None,
) -> IndexPlan:
    """Compare a store with what a folder's files say now.

    An interrupt while files are read ends the reading: the plan is of those that were read. If a model is to extract,
    which costs money, it ends the call.

    Args:
        store: the store.
        folder: the folder of files.
        store_folder: the store's folder, which is left out of the files.
        extractor: extracts the triples. Passages that another one extracted are extracted anew, but for those that
            rules extracted, by rules.
        seconds: how long a file may take that is not plain text. Default 60.
        check: is called when the files are read, and refuses what the store holds. Default: it refuses nothing.

    Raises:
        ClickException: there is no text in the folder; nothing is changed.

    """
    reader = FolderReader(folder, store_folder, seconds)
    is_model = isinstance(extractor, GeARTripleExtractor)
    paths = reader.list_files()
    with store.leave_folder(), closing(reader):  # to read them may take long
        wanted = _read_passages(reader, paths, is_stoppable=not is_model)
    if not paths and not reader.failed:
        raise ClickException(
            f"there is no file in {folder}: put texts, Markdown or PDFs into it, or name another folder; hidden files "
            "do not count"
        )
    if not wanted:
        first = next((f" ({name}: {reason})" for name, reason in {**reader.skipped, **reader.failed}.items()), "")
        number = count(len(paths), "file")
        raise ClickException(f"no text in the {number} of {folder}{first}: the store was left as it is")
    check()
    stored = {node.node_id: node for node in store.get_nodes(with_embeddings=False)}
    refused = refuse_meeting(wanted, stored.values(), reader.keeps)
    reader.failed |= refused
    wanted = {id_: node for id_, node in wanted.items() if node.metadata["file"] not in refused}
    kept = {id_: stored[id_] for id_, node in wanted.items() if _read_content(node) == _read_content(stored.get(id_))}
    candidates = [
        _drop_links(kept[id_]) if id_ in kept and _read_record(kept[id_]) and is_model else node
        for id_, node in wanted.items()
        if is_model or id_ not in kept or _read_record(kept[id_])
    ]
    gone = [
        id_
        for id_, node in stored.items()
        if id_ not in wanted and (file := read_file(node)) is not None and not reader.keeps(file)
    ]
    is_of_files = {*wanted, *gone}
    others = [node for id_, node in stored.items() if id_ not in is_of_files]
    linked = LinkedPassages([*wanted.values(), *others])
    dead_links = name_dead_links(linked.dead, wanted, reader)
    return IndexPlan(store, extractor, reader, wanted, kept, candidates, gone, others, linked, dead_links)


def make_splitter() -> SentenceSplitter:
    """Make what cuts files into passages."""
    return SentenceSplitter(
        chunk_size=PASSAGE_TOKENS,
        chunk_overlap=OVERLAP_TOKENS,
        chunking_tokenizer_fn=split_pieces,
        secondary_chunking_regex=_PHRASES,
        id_func=passage_id,
    )


def _read_passages(reader: FolderReader, paths: Sequence[Path], *, is_stoppable: bool) -> dict[str, BaseNode]:
    """Read the passages of files, by id; note the files that can't be read.

    Args:
        reader: of the folder.
        paths: of the files.
        is_stoppable: an interrupt leaves the other files unread, if there are passages.

    """
    passages: dict[str, BaseNode] = {}
    splitter = make_splitter()
    read = 0
    try:
        with tqdm(paths, desc="Reading files", unit="file", disable=not paths) as bar:
            for path in bar:
                documents = reader.read(path)
                try:
                    nodes = splitter.get_nodes_from_documents(documents)
                except Exception as error:  # noqa: BLE001 - nltk's and the tokenizer's, of any kind, end no run
                    reason = shorten_line(f"{type(error).__name__}: {error}")
                    name = documents[0].metadata["file"]
                    reader.fail(name, f"no text of sentences: it can't be cut into passages ({reason})")
                else:
                    _take(passages, place_links(nodes), reader)
                read += 1
    except KeyboardInterrupt:
        if not (is_stoppable and passages):
            raise
        reader.leave(paths[read:])
        left = count(len(reader.unread), "file")
        show_line(f"stopped: {left} not read; what was read is stored now. Ctrl-C once more ends that too")
    return passages


def _take(passages: dict[str, BaseNode], nodes: list[BaseNode], reader: FolderReader) -> None:
    """Take the passages of a file, unless another has one of the same id: "a.pdf#1" is the first page of "a.pdf"."""
    taken = next((passages[node.node_id] for node in nodes if node.node_id in passages), None)
    if taken is None:
        passages.update((node.node_id, node) for node in nodes)
    else:
        reader.fail(
            nodes[0].metadata["file"],
            f"its passages have ids of {taken.metadata['file']!r}: rename one of the two files",
        )


def _drop_links(node: BaseNode) -> BaseNode:
    """Return a passage with what a model extracted alone, as the account of its extraction counts it."""
    return attach_triples(node, without_links(read_triples(node)))


def _read_record(node: BaseNode) -> dict[str, Any]:
    """Return the record that a model's extraction leaves in a passage; empty if rules extracted it."""
    record = node.metadata.get(EXTRACTION_KEY)
    return record if isinstance(record, dict) else {}


def _read_content(node: BaseNode | None) -> tuple[str, dict[str, Any]] | None:
    """Return what a file says in a passage: its text, and the metadata that no extractor added."""
    if node is None:
        return None
    kept = {key: value for key, value in node.metadata.items() if not key.startswith(_OWN_PREFIX)}
    return node.get_content(), kept
