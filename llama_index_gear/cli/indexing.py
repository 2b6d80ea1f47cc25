"""`index`: brings a store to what the files of a folder say now.

The store itself is compared with the files: each passage that a file has now, and the store has not or has with another
text, is written; each that its file no longer has is deleted; what was stored without a file stays. So nothing else
must be remembered, and a run after one that was killed does what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click import ClickException
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode
from tqdm import tqdm

from llama_index_gear import (
    ExtractionEstimate,
    ExtractionLedger,
    GeARTripleExtractor,
    GeARVectorStore,
    MentionTripleExtractor,
    passage_id,
    read_triples,
)
from llama_index_gear.cli.files import FolderReader
from llama_index_gear.counts import count
from llama_index_gear.extraction.sentences import split_pieces
from llama_index_gear.nodes import EXTRACTION_KEY
from llama_index_gear.records import has_failed, must_stay

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
        ledger: the account of a model's extraction; empty if rules extracted.

    """

    files: int
    passages: int
    written: int
    deleted: int
    skipped: dict[str, str]
    failed: dict[str, str]
    ledger: ExtractionLedger


@dataclass
class IndexPlan:
    """What a run has to do.

    Attributes:
        store: the store.
        extractor: extracts the triples.
        reader: the files, read.
        wanted: id → passage of all passages that the files have.
        kept: id → stored passage of those of them that the files did not change.
        candidates: the passages to extract. A `GeARTripleExtractor` leaves those alone that it had extracted before.
        gone: ids of the stored passages that no file has any more.

    """

    store: GeARVectorStore
    extractor: MentionTripleExtractor | GeARTripleExtractor
    reader: FolderReader
    wanted: dict[str, BaseNode]
    kept: dict[str, BaseNode]
    candidates: list[BaseNode]
    gone: list[str]

    @property
    def estimate(self) -> ExtractionEstimate | None:
        """What the model is expected to cost; None if rules extract."""
        extractor = self.extractor
        return extractor.estimate(self.candidates) if isinstance(extractor, GeARTripleExtractor) else None

    def run(self) -> IndexReport:
        """Do it: delete, extract, embed and store, a batch at a time."""
        for start in range(0, len(self.gone), _DELETED_AT_ONCE):
            self.store.delete_nodes(self.gone[start : start + _DELETED_AT_ONCE])
        written, ledger = 0, ExtractionLedger()
        with tqdm(
            total=len(self.candidates), desc="Storing passages", unit="passage", disable=not self.candidates
        ) as bar:
            for start in range(0, len(self.candidates), _BATCH):
                nodes = self.candidates[start : start + _BATCH]
                extracted = self.extractor(nodes)
                ledger += ExtractionLedger.of([node for node in extracted if _read_record(node)])
                changed = [node for node in extracted if not self._may_stay(node)]
                if changed:
                    self.store.add(self.store.embed_model(changed))
                written += len(changed)
                bar.update(len(nodes))
        files = {node.metadata["file"] for node in self.wanted.values()}
        skipped, failed = self.reader.skipped, self.reader.failed
        return IndexReport(len(files), len(self.wanted), written, len(self.gone), skipped, failed, ledger)

    def _may_stay(self, node: BaseNode) -> bool:
        """Return True if the store has a passage with these triples, or with others that must stay."""
        stored = self.kept.get(node.node_id)
        if stored is None:
            return False
        is_same = has_failed(node) and read_triples(stored) == read_triples(node)
        return is_same or bool(_read_record(node).get("reused")) or must_stay(stored, node)


def plan_index(
    store: GeARVectorStore,
    folder: Path,
    store_folder: Path,
    extractor: MentionTripleExtractor | GeARTripleExtractor,
) -> IndexPlan:
    """Compare a store with what a folder's files say now.

    Args:
        store: the store.
        folder: the folder of files.
        store_folder: the store's folder, which is left out of the files.
        extractor: extracts the triples. Passages that another one extracted are extracted anew, but for those that
            rules extracted, by rules.

    Raises:
        ClickException: there is no text in the folder; nothing is changed.

    """
    reader = FolderReader(folder, store_folder)
    wanted: dict[str, BaseNode] = {}
    splitter = SentenceSplitter(
        chunk_size=PASSAGE_TOKENS,
        chunk_overlap=OVERLAP_TOKENS,
        chunking_tokenizer_fn=split_pieces,
        secondary_chunking_regex=_PHRASES,
        id_func=passage_id,
    )
    paths = reader.list_files()
    with tqdm(paths, desc="Reading files", unit="file", disable=not paths) as bar:
        for path in bar:
            wanted |= {node.node_id: node for node in splitter.get_nodes_from_documents(reader.read(path))}
    if not paths and not reader.failed:
        raise ClickException(
            f"there is no file in {folder}: put texts, Markdown or PDFs into it, or name another folder; hidden files "
            "do not count"
        )
    if not wanted:
        first = next((f" ({name}: {reason})" for name, reason in {**reader.skipped, **reader.failed}.items()), "")
        number = count(len(paths), "file")
        raise ClickException(f"no text in the {number} of {folder}{first}: the store was left as it is")
    stored = {node.node_id: node for node in store.get_nodes(with_embeddings=False)}
    kept = {id_: stored[id_] for id_, node in wanted.items() if _read_content(node) == _read_content(stored.get(id_))}
    is_model = isinstance(extractor, GeARTripleExtractor)
    candidates = [
        kept[id_] if id_ in kept and _read_record(kept[id_]) and is_model else node
        for id_, node in wanted.items()
        if is_model or id_ not in kept or _read_record(kept[id_])
    ]
    gone = [
        id_
        for id_, node in stored.items()
        if id_ not in wanted and "file" in node.metadata and not reader.keeps(node.metadata["file"])
    ]
    return IndexPlan(store, extractor, reader, wanted, kept, candidates, gone)


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
