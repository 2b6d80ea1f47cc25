"""The files of a folder as LlamaIndex documents.

Text and Markdown are as they are, with the blocks of other files that they show; rows of a table are sentences; a
record of JSON is a document; a converter makes Markdown of all else. Lines that most pages of a site share, menus,
footers and notices, are left out: they would link each page to all.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_index_gear.characters import unify_spelling
from llama_index_gear.errors import is_whole
from llama_index_gear.ingestion.converter import CONVERTED, EXTRA, HTML, is_installed
from llama_index_gear.ingestion.file_texts import MOST, PARSED, read_plain_text
from llama_index_gear.ingestion.notebooks import MADE_MARKDOWN
from llama_index_gear.ingestion.reading_process import SECONDS, ReadingProcess
from llama_index_gear.ingestion.regular_files import NOTE, NoText, UnreadableFile, check_file, is_collection
from llama_index_gear.ingestion.stated_links import LINKS, MESSAGE_ID, read_links
from llama_index_gear.ingestion.titles import find_shared, find_title
from llama_index_gear.ingestion.transclusion import HOSTS, Transclusion

PARSER = "llama_index_gear.ingestion.file_texts:parse_file"
"""The function that reads what is not plain text, in a process of its own."""
_HIDDEN_KEYS = ["file", "file_type", LINKS, MESSAGE_ID]
_MARKDOWN = {"file_type": "text/markdown"}  # of what was converted, whatever its name ends with


@dataclass
class FolderReader(BaseReader):
    """Reads the files below a folder, as the command `index` does.

    A file's document has the file's path below the folder, in its one spelling (`unify_spelling`), as its id and in its
    metadata (`file`), and what it is about as `title`; what was converted has `file_type` "text/markdown". A format
    with pages gives a document a page; JSON and BibTeX give one a record, if all records have titles. A block of
    another file that a text shows, `![[page#section]]` or an include of AsciiDoc or reStructuredText, stands in its
    text. Hidden files, hidden folders and stores are skipped. What is no text is read in another process, in bounded
    time and memory: close the reader after use, or use it in a `with` statement.

    Attributes:
        folder: the folder.
        without: a folder below it to skip, such as that of a store to be made. Default None.
        seconds: how long a file may take, if it is not plain text.
        skipped: path below the folder → why, of the files so far that have no text, or a format without a reader.
        failed: path below the folder → why, of the files and folders so far that could not be read.
        unread: paths below the folder of the files that an interrupt kept from being read.
        vanished: paths below the folder of the files that were gone when they were to be read. `index` leaves what is
            stored of them to its next run: the disk may have gone, and not they.

    """

    folder: Path
    without: Path | None = None
    seconds: float = SECONDS
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    vanished: set[str] = field(default_factory=set)
    _ambiguous: frozenset[str] = frozenset()
    _site: tuple[frozenset[str], Furniture] | None = None
    _process: ReadingProcess | None = None
    _transclusion: Transclusion | None = None

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)

    def __enter__(self) -> FolderReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def lazy_load_data(self, *arguments: Any, **options: Any) -> Iterator[Document]:
        """Read the files, one after the other. What can't be read is in `skipped` and `failed` then."""
        with self:
            for path in self.list_files():
                yield from self.read(path)

    def close(self) -> None:
        """End the process that parses files, if there is one."""
        if self._process is not None:
            self._process.close()

    def list_files(self) -> list[Path]:
        """Return the files, by path; note the folders below that can't be read.

        Raises:
            OSError: the folder itself can't be read.

        """
        files = []
        without = self.without and Path(self.without).resolve()
        for root, folders, names in os.walk(self.folder, onerror=self._note_folder):
            collections = {name for name in folders if is_collection(Path(root, name))}
            left_out = {*collections, NOTE} if collections else set()
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and name not in left_out and Path(root, name).resolve() != without
            ]
            files += [Path(root, name) for name in names if not name.startswith(".") and name not in left_out]
        self._ambiguous, self._transclusion = frozenset(), None
        spellings = Counter(map(self.name_of, files))
        self._ambiguous = frozenset(name for name, number in spellings.items() if number > 1)
        return sorted(files)

    def keeps(self, file: str) -> bool:
        """Return True if a file, by its path below the folder, may still be as it was: it could not be read."""
        missed = (self.skipped, self.failed, self.unread, self.vanished)
        return any(name in names for name in (file, *_list_folders(file)) for names in missed)

    def leave(self, paths: Iterable[Path]) -> None:
        """Note the files that an interrupt keeps from being read."""
        self.unread.update(map(self.name_of, paths))

    def fail(self, name: str, reason: str) -> None:
        """Note that a file whose text was read can't be used."""
        self.failed[name] = reason

    def _note_folder(self, error: OSError) -> None:
        folder = Path(error.filename)
        if folder == self.folder:
            raise error
        self.failed[self.name_of(folder)] = str(error.strerror)

    def read(self, path: Path) -> list[Document]:
        """Read a file. If it has no text or can't be read, note why and return []."""
        name = self.name_of(path)
        if name in self.failed:
            return []
        try:
            if not is_whole(path.relative_to(self.folder).as_posix()):
                raise UnreadableFile("its name is no UTF-8: rename it")
            stated, texts, titles = self._read_texts(path, name)
            if path.suffix.lower() in HOSTS:
                texts = [self._fill(text, name) for text in texts]
        except (OSError, UnreadableFile) as error:
            self._note(path, name, error)
            return []
        shared: frozenset[str] = frozenset()
        if path.suffix.lower() in HTML:
            shared, furniture = self._compare_pages()
            texts = [furniture.take_off(name, text) for text in texts]
        if not any(text.strip() for text in texts):
            self.skipped[name] = "there is no text in it"
        title = find_title(name, texts[0] if texts else "", stated, shared)
        kind: dict[str, Any] = dict(_MARKDOWN) if path.suffix.lower() in MADE_MARKDOWN else {}
        try:
            kind |= read_links(path, texts[0] if texts else "")
        except OSError as error:
            self._note(path, name, error)
            return []
        return [
            Document(
                text=text,
                id_=name if len(texts) == 1 else f"{name}#{number}",
                metadata={"title": titles[number - 1] if titles else title, "file": name, **kind},
                excluded_embed_metadata_keys=_HIDDEN_KEYS,
                excluded_llm_metadata_keys=_HIDDEN_KEYS,
            )
            for number, text in enumerate(texts, start=1)
            if text.strip()
        ]

    def _fill(self, text: str, name: str) -> str:
        """Return a text with the blocks of other files that it shows."""
        if "![[" not in text and "include::" not in text:
            return text
        if self._transclusion is None:
            paths = {self.name_of(path): path for path in self.list_files()}
            self._transclusion = Transclusion(
                paths, lambda shown: "\n\n".join(self._read_texts(paths[shown], shown)[1])
            )
        return self._transclusion.fill(text, name)

    def _compare_pages(self) -> tuple[frozenset[str], Furniture]:
        """Return what titles of several HTML files begin with, and what texts of most share; note those that fail."""
        if self._site is None:
            titles: list[str] = []
            furniture = Furniture(self._read_pages(titles))
            self._site = find_shared(titles), furniture
        return self._site

    def _read_pages(self, titles: list[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the path and the texts of each HTML file; add its title to the list."""
        for path in self.list_files():
            name = self.name_of(path)
            if path.suffix.lower() in HTML and name not in self.failed:
                try:
                    title, texts, _ = self._read_texts(path, name)
                except (OSError, UnreadableFile) as error:
                    self._note(path, name, error)
                else:
                    titles.append(title)
                    yield name, texts

    def _read_texts(self, path: Path, name: str) -> tuple[str, list[str], list[str]]:
        """Return the title that a file states of itself ("" without one), and its text, or that of each page or record.

        Records with titles have these in a third list.
        """
        ending = path.suffix.lower()
        check_file(path, MOST)
        if ending in CONVERTED and not is_installed():
            raise NoText(EXTRA)
        if ending in PARSED:
            return self._ask(path, name)
        plain = read_plain_text(path)
        if not plain.is_whole and is_installed():
            return self._ask(path, name)
        return plain.subject, [plain.text], []

    def _ask(self, path: Path, name: str) -> tuple[str, list[str], list[str]]:
        """Have a file parsed in another process."""
        if self._process is None:
            self._process = ReadingProcess(PARSER, self.seconds)
        title, texts, *titles = self._process.read(path, name)
        return title, texts, titles[0] if titles else []

    def name_of(self, path: Path) -> str:
        """Return the path of a file below the folder, in its one spelling: systems write the same letters differently.

        Where the folder has two files of one spelling, each keeps its own. Bytes that are no UTF-8 are escaped.
        """
        name = path.relative_to(self.folder).as_posix()
        name = name if is_whole(name) else os.fsencode(name).decode("utf-8", "backslashreplace")
        spelling = unify_spelling(name)
        return name if spelling in self._ambiguous else spelling

    def _note(self, path: Path, name: str, error: OSError | UnreadableFile) -> None:
        """Note why a file can't be read."""
        if not os.path.lexists(path):
            self.vanished.add(name)
            return
        reason = " ".join(str(error.strerror if isinstance(error, OSError) else error).split())
        (self.skipped if isinstance(error, NoText) else self.failed)[name] = reason


def _list_folders(file: str) -> list[str]:
    return [folder.as_posix() for folder in PurePosixPath(file).parents]


_LEAST = 3
"""Pages that a line must stand on, at least; besides, on more than half of those of its folder or of one above."""
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_STRUCTURE = re.compile(r"#|\|[ \t|:-]*$|[^\w]*$")
"""Matches a heading, a rule, or what has no words."""


class Furniture:
    """The lines that most HTML pages of a folder share.

    Args:
        pages: path → text of each page, as Markdown.

    """

    def __init__(self, pages: Iterable[tuple[str, Sequence[str]]]) -> None:
        numbers: Counter[str] = Counter()
        counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for file, texts in pages:
            lines = {hash(line) for text in texts for _, line in _list_lines(text) if line}
            for folder in _list_folders(file):
                numbers[folder] += 1
                counts[folder].update(lines)
        self._shared = {
            folder: {line for line, number in found.items() if number >= _LEAST and number * 2 > numbers[folder]}
            for folder, found in counts.items()
        }

    def take_off(self, file: str, text: str) -> str:
        """Return a page's text without them; as it is, if nothing would be left, as of a page that was saved twice."""
        shared: set[int] = set().union(*(self._shared.get(folder, ()) for folder in _list_folders(file)))
        kept = [own for own, line in _list_lines(text) if not line or hash(line) not in shared]
        if not any(line for _, line in _list_lines("\n".join(kept))):
            return text
        return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()


def _list_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line, and what of it is compared with other pages': "" of code, headings, and what has no words."""
    is_code = False
    for line in text.split("\n"):
        is_fence = bool(_FENCE.match(line))
        is_code ^= is_fence
        yield line, "" if is_code or is_fence or _STRUCTURE.match(line.strip()) else line.strip()
