"""Links that lead nowhere, as people are told of them: the file and the line, and the target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from click import echo
from llama_index.core.schema import BaseNode

from llama_index_gear import LinkTripleExtractor
from llama_index_gear.characters import count
from llama_index_gear.cli.store_folder import NotedStore
from llama_index_gear.cli.store_note import read_note
from llama_index_gear.extraction.blocks import MARKDOWN
from llama_index_gear.extraction.link_extractor import DeadLink
from llama_index_gear.ingestion.file_texts import WIKI, read_plain_text
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.gherkin import GHERKIN
from llama_index_gear.ingestion.origins import read_file
from llama_index_gear.ingestion.regular_files import UnreadableFile

_SHOWN = 50
_OWN_TEXT = MARKDOWN - {*WIKI, GHERKIN} | {".txt"}
"""Endings of files whose text is read as it is: lines of a converted file are not the file's."""


def check_links(store: NotedStore, store_folder: Path) -> tuple[int, list[str]]:
    """Count the links between a store's documents, and name those of files that lead nowhere.

    Where the folder that the store was filled from is gone, no line is known, nor which targets are files without text.
    A store that was filled from none has no links.

    Args:
        store: the store.
        store_folder: its folder.

    """
    note = read_note(store_folder)
    if note is None or not note.files:
        return 0, []
    folder = Path(note.files)
    report = LinkTripleExtractor().check(store)
    ids = list({link.node_id for link in report.dead})
    nodes = store.get_nodes(ids, with_embeddings=False) if ids else []
    of_files = {node.node_id: node for node in nodes if read_file(node) is not None}
    reader = FolderReader(folder, store_folder) if folder.is_dir() else None
    return report.number, name_dead_links(report.dead, of_files, reader)


def name_dead_links(dead: Iterable[DeadLink], nodes: Mapping[str, BaseNode], reader: FolderReader | None) -> list[str]:
    """Name links that lead nowhere, each once, as "file:line: target"; without a line, if that is not known.

    A link to a file without text, as a picture, or to one that stands beside the folder, leads somewhere. One that a
    file only shows, in a block of another, is that one's.

    Args:
        dead: the links. Those of passages that are not among `nodes` are left out.
        nodes: id → passage.
        reader: of the folder of the files, if it is there.

    """
    dead = list(dead)
    files = {} if reader is None or not dead else {reader.name_of(path): path for path in reader.list_files()}
    names = {path.name for path in files.values()}

    @cache
    def read_own_text(name: str) -> str | None:
        try:
            is_own = name in files and PurePosixPath(name).suffix.lower() in _OWN_TEXT
            return read_plain_text(files[name]).text if is_own else None
        except (OSError, UnreadableFile):
            return None

    named: dict[str, None] = {}
    for link in dead:
        node = nodes.get(link.node_id)
        if node is None or (reader is not None and _exists(link, reader.folder, names)):
            continue
        file = node.metadata["file"]
        text = read_own_text(file)
        if text is None:
            named[f"{file}: {link.target}"] = None
        elif line := _find_line(node, text, link.place):
            named[f"{file}:{line}: {link.target}"] = None
    return list(named)


def _exists(link: DeadLink, folder: Path, names: set[str]) -> bool:
    """Return True if a link leads to a file that has no text, as a picture, or that stands beside the folder."""
    path = unquote(link.target.partition("#")[0].partition("?")[0])
    beside = (folder / PurePosixPath(link.path).parent / path.lstrip("/"), folder / path.lstrip("/"))
    try:
        return (link.is_name and PurePosixPath(path).name in names) or any(place.exists() for place in beside)
    except (OSError, ValueError):  # no name of a file
        return False


def _find_line(node: BaseNode, text: str, place: int) -> int:
    """Return the line of its file, from 1, in which a place of a passage stands; 0 if the file does not have it."""
    content = node.get_content()
    start = getattr(node, "start_char_idx", None) or 0
    if text.startswith(content, start):
        return text.count("\n", 0, start + place) + 1
    begin, end = content.rfind("\n", 0, place) + 1, content.find("\n", place)
    found = text.find(content[begin : end if end >= 0 else len(content)])  # blocks of other files moved it
    return text.count("\n", 0, found) + 1 if found >= 0 else 0


def show_links(number: int, dead: Sequence[str]) -> None:
    """Say how many links there are between files, and name those that lead nowhere."""
    if number or dead:
        echo(f"{count(number, 'link')} between files, {len(dead)} that lead nowhere")
    for link in dead[:_SHOWN]:
        echo(f"dead link: {link}", err=True)
    if len(dead) > _SHOWN:
        echo(f"and {count(len(dead) - _SHOWN, 'dead link')} more", err=True)
