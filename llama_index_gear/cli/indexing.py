"""`index`: brings a store to what the files of a folder say now.

The store itself is compared with the files: each passage that a file has now, and the store has not or has with another
text, is written; each that its file no longer has is deleted; what was stored without a file stays. So nothing else
must be remembered, and a run after one that was killed does what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click import ClickException
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode
from tqdm import tqdm

from llama_index_gear import GeARVectorStore, MentionTripleExtractor, passage_id
from llama_index_gear.cli.files import FolderReader
from llama_index_gear.counts import count

PASSAGE_TOKENS = 224
"""Size of a passage. The default embedding model reads 256 tokens, of its own tokenizer."""
OVERLAP_TOKENS = 20
"""Tokens that a passage shares with the one before. LlamaIndex's default, 200, would start one at every sentence."""
_BATCH = 256  # passages that a kill can cost
_SHOWN_BATCH = 32  # passages between two states of the progress bar
_DELETED_AT_ONCE = 1_000
_OWN_PREFIX = "gear_"  # of the metadata that the extractor adds


@dataclass(frozen=True)
class IndexReport:
    """The result of a run.

    Attributes:
        files: number of files with text.
        passages: number of passages that these have.
        written: number of passages that were new or changed.
        deleted: number of stored passages that no file has any more.
        skipped: path of a file → why it has no text that can be read. What the store has of it is kept.
        failed: path of a file, or of a folder → why it could not be read. What the store has of it is kept.

    """

    files: int
    passages: int
    written: int
    deleted: int
    skipped: dict[str, str]
    failed: dict[str, str]


def index_folder(store: GeARVectorStore, folder: Path, store_folder: Path) -> IndexReport:
    """Bring a store to what a folder's files say now.

    Raises:
        ClickException: there is no text in the folder; nothing is changed.

    """
    reader = FolderReader(folder, store_folder)
    wanted: dict[str, BaseNode] = {}
    splitter = SentenceSplitter(chunk_size=PASSAGE_TOKENS, chunk_overlap=OVERLAP_TOKENS, id_func=passage_id)
    paths = reader.list_files()
    with tqdm(paths, desc="Reading files", unit="file") as bar:
        for path in bar:
            wanted |= {node.node_id: node for node in splitter.get_nodes_from_documents(reader.read(path))}
    kept = {**reader.skipped, **reader.failed}
    if not wanted:
        first = next((f" ({name}: {reason})" for name, reason in kept.items()), "")
        number = count(len(paths), "file")
        raise ClickException(f"no text in the {number} of {folder}{first}: the store was left as it is")
    stored = {node.node_id: node for node in store.get_nodes(with_embeddings=False)}
    new = [node for node_id, node in wanted.items() if _read_content(node) != _read_content(stored.get(node_id))]
    gone = [
        node_id
        for node_id, node in stored.items()
        if node_id not in wanted and "file" in node.metadata and not reader.keeps(node.metadata["file"])
    ]
    for start in range(0, len(gone), _DELETED_AT_ONCE):
        store.delete_nodes(gone[start : start + _DELETED_AT_ONCE])
    _write(store, new)
    files = {node.metadata["file"] for node in wanted.values()}
    return IndexReport(len(files), len(wanted), len(new), len(gone), reader.skipped, reader.failed)


def _write(store: GeARVectorStore, nodes: Sequence[BaseNode]) -> None:
    """Extract, embed and store passages, a batch at a time."""
    extractor = MentionTripleExtractor()
    with tqdm(total=len(nodes), desc="Storing passages", unit="passage", disable=not nodes) as bar:
        for start in range(0, len(nodes), _BATCH):
            batch: list[BaseNode] = []
            for shown in range(start, min(start + _BATCH, len(nodes)), _SHOWN_BATCH):
                batch += store.embed_model(extractor(nodes[shown : min(shown + _SHOWN_BATCH, start + _BATCH)]))
                bar.update(len(batch) - (shown - start))
            store.add(batch)


def _read_content(node: BaseNode | None) -> tuple[str, dict[str, Any]] | None:
    """Return what a file says in a passage: its text, and the metadata that no extractor added."""
    if node is None:
        return None
    kept = {key: value for key, value in node.metadata.items() if not key.startswith(_OWN_PREFIX)}
    return node.get_content(), kept
