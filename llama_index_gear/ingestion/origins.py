"""The origins of stored passages: a file, a collection, or a client or a program. No document has two of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from llama_index.core.schema import BaseNode

from llama_index_gear.nodes import SOURCE_KEY

_FILE = "file"


class Origin(NamedTuple):
    """Where a command takes passages from, and will again: how to change it, and what to know if they are deleted."""

    to_change: str
    comes_back: str


OF_COLLECTION = Origin(
    "of a collection: change it there and run `extract`",
    "It is still in its collection: the next `extract` brings it back.",
)
OF_FILE = Origin("a file: change the file and run `index`", "Its file is still there: the next `index` brings it back.")


def read_file(node: BaseNode) -> str | None:
    """Return the path of the file that `index` took a passage from; None if it took it from none.

    Others may write a `file` into metadata: that of `index` is the name of the passage's document too, but for a page's
    number.
    """
    file, document = node.metadata.get(_FILE), node.ref_doc_id or ""
    if not isinstance(file, str) or SOURCE_KEY in node.metadata:
        return None
    is_of_file = document.startswith(file) and re.fullmatch(r"(#\d+)?", document[len(file) :])
    return file if is_of_file and node.node_id.startswith(f"{document}-") else None


def find_origin(nodes: Sequence[BaseNode]) -> Origin | None:
    """Return the origin of a document's passages; None if a client or a program added all of them."""
    if any(SOURCE_KEY in node.metadata for node in nodes):
        return OF_COLLECTION
    return OF_FILE if any(map(read_file, nodes)) else None


def refuse_meeting(
    wanted: Mapping[str, BaseNode], stored: Collection[BaseNode], keeps: Callable[[str], bool]
) -> dict[str, str]:
    """Compare the passages that files have with stored ones of other origin.

    A passage of another origin is in a file's way if both have one id, or if the document that it is of is named like
    the file, or like one of its pages.

    Args:
        wanted: id → passage of all passages that the files have.
        stored: all stored passages.
        keeps: returns True for a file that is not among these, but may still be there.

    Returns:
        Path of a file → why it can't be stored, and what to do.

    """
    files = {node.metadata[_FILE] for node in wanted.values()}
    by_document: defaultdict[str, set[str]] = defaultdict(set)  # name or document → files
    for node in wanted.values():
        for name in (node.ref_doc_id, node.metadata[_FILE]):
            by_document[name or ""].add(node.metadata[_FILE])
    refused: dict[str, str] = {}
    for node in stored:
        origin = read_file(node)
        if origin is not None and origin not in files and not keeps(origin):
            continue  # of a file that is gone: it is deleted, or replaced
        meeting = set() if origin is not None else by_document.get(node.ref_doc_id or "", set())
        same = wanted.get(node.node_id)
        for file in meeting | ({same.metadata[_FILE]} if same is not None else set()):
            if file != origin:
                refused.setdefault(file, _explain(node, origin))
    return refused


def _explain(node: BaseNode, file: str | None) -> str:
    if file is not None:
        return f"the store has a passage {node.node_id!r} of {file!r}: rename one of the two files"
    if SOURCE_KEY in node.metadata:
        return f"the store has a document {node.ref_doc_id!r} of a collection: rename the file"
    return (
        f"the store has a document {node.ref_doc_id or node.node_id!r} that is of no file: a client's `add`, or a "
        "program, stored it. It was left as it is: rename the file, or delete that document first"
    )
