"""The files of a folder as LlamaIndex documents.

Text is as it is; HTML is its text; rows of a table are sentences; LlamaIndex's readers read other formats.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from llama_index.core.readers import SimpleDirectoryReader
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from llama_index_gear.cli.html_text import read_html
from llama_index_gear.cli.messages import name_file
from llama_index_gear.cli.prose import explain_no_prose
from llama_index_gear.cli.records_of_json import JSON, read_json
from llama_index_gear.cli.store_note import NOTE, is_collection
from llama_index_gear.cli.tables import TABLES, read_table
from llama_index_gear.cli.titles import find_shared, find_title
from llama_index_gear.errors import repair_surrogates

_READERS = "llama_index.readers.file"
_WITH_READER = {".docx", ".epub", ".hwp", ".pdf", ".ppt", ".pptx", ".xls", ".xlsx"}
"""Formats that are not text. Every other file is read as text, whatever readers are installed."""
_HTML = {".htm", ".html", ".xhtml"}
_HEAD = 20_000  # characters of an HTML file in which its title is looked for
_HIDDEN_KEYS = ["file"]


@dataclass
class FolderReader:
    """Reads the files below a folder.

    A file's document has the file's path below the folder as its id and in its metadata (`file`), and what it is about
    as `title`. A format with pages gives a document a page. Hidden files and folders are left out, and stores.

    Attributes:
        folder: the folder.
        without: a folder below it that is left out: that of the store, which may be empty yet.
        skipped: path below the folder → why, of the files so far that have no text, or a format without a reader.
        failed: path below the folder → why, of the files and folders so far that could not be read.

    """

    folder: Path
    without: Path
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    _readers: dict[str, BaseReader] = field(default_factory=dict)
    _shared: frozenset[str] | None = None

    def list_files(self) -> list[Path]:
        """Return the files, by path; note the folders below that can't be read.

        Raises:
            OSError: the folder itself can't be read.

        """
        files = []
        without = self.without.resolve()
        for root, folders, names in os.walk(self.folder, onerror=self._note_folder):
            collections = {name for name in folders if is_collection(Path(root, name))}
            left_out = {*collections, NOTE} if collections else set()
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and name not in left_out and Path(root, name).resolve() != without
            ]
            files += [Path(root, name) for name in names if not name.startswith(".") and name not in left_out]
        return sorted(files)

    def keeps(self, file: str) -> bool:
        """Return True if a file, by its path below the folder, may still be as it was: it could not be read."""
        return any(name in self.skipped or name in self.failed for name in (file, *_list_folders(file)))

    def _note_folder(self, error: OSError) -> None:
        folder = Path(error.filename)
        if folder == self.folder:
            raise error
        self.failed[folder.relative_to(self.folder).as_posix()] = str(error.strerror)

    def read(self, path: Path) -> list[Document]:
        """Read a file. If it has no text or can't be read, note why and return []."""
        name = path.relative_to(self.folder).as_posix()
        try:
            with name_file(name):
                stated, texts, titles = self._read_texts(path)
        except _NoTextError as error:
            self.skipped[name] = str(error)
            return []
        except (OSError, _ReaderError) as error:
            self.failed[name] = " ".join(str(error.strerror if isinstance(error, OSError) else error).split())
            return []
        if not any(text.strip() for text in texts):
            self.skipped[name] = "there is no text in it"
        shared = self._find_shared() if stated and path.suffix.lower() in _HTML else frozenset()
        title = find_title(name, texts[0] if texts else "", stated, shared)
        return [
            Document(
                text=text,
                id_=name if len(texts) == 1 else f"{name}#{number}",
                metadata={"title": titles[number - 1] if titles else title, "file": name},
                excluded_embed_metadata_keys=_HIDDEN_KEYS,
                excluded_llm_metadata_keys=_HIDDEN_KEYS,
            )
            for number, text in enumerate(texts, start=1)
            if text.strip()
        ]

    def _find_shared(self) -> frozenset[str]:
        """Return what titles of several HTML files of the folder begin with."""
        if self._shared is None:
            titles = []
            for path in self.list_files():
                if path.suffix.lower() in _HTML:
                    with suppress(OSError), path.open(encoding="utf-8-sig", errors="replace") as file:
                        titles.append(read_html(file.read(_HEAD)).title)
            self._shared = find_shared(titles)
        return self._shared

    def _read_texts(self, path: Path) -> tuple[str, list[str], list[str]]:
        """Return the title that a file states of itself ("" without one), its text, or that of each page or record.

        Records with titles have these in a third list.
        """
        if path.suffix.lower() in _WITH_READER:
            return *self._read_by_reader(path), []
        return _read_text(path)

    def _read_by_reader(self, path: Path) -> tuple[str, list[str]]:
        """Read a file by the reader of LlamaIndex that its format needs."""
        if not _are_readers_installed():
            raise _NoTextError("needs: pip install llama-index-readers-file")
        try:
            documents = SimpleDirectoryReader.load_file(path, lambda _: {}, self._readers, raise_on_error=True)
        except ImportError as error:
            raise _NoTextError(" ".join(str(error).split())) from error
        except Exception as error:  # the reader's own, of any kind, is its first cause
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise _ReaderError(f"{type(cause).__name__}: {cause}") from error
        stated = _read_pdf_title(path) if path.suffix.lower() == ".pdf" else ""
        return stated, [repair_surrogates(document.get_content()) for document in documents]


def _list_folders(file: str) -> list[str]:
    return [folder.as_posix() for folder in PurePosixPath(file).parents]


class _NoTextError(Exception):
    """A file is no text, and no reader for its format is installed."""


class _ReaderError(Exception):
    """A reader failed on a file."""


def _read_text(path: Path) -> tuple[str, list[str], list[str]]:
    """Read a file that is text: the title that it states of itself, its text, and the titles of its records."""
    ending, data = path.suffix.lower(), path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _NoTextError("no UTF-8 text; if it is text, save it as UTF-8")
    if reason := explain_no_prose(path.name, text):
        raise _NoTextError(reason)
    if ending in _HTML:
        page = read_html(text)
        return page.title, [page.text], []
    if ending in TABLES:
        try:
            return "", [read_table(text, ending)], []
        except ValueError as error:
            raise _ReaderError(str(error)) from error
    if ending in JSON:
        try:
            records = read_json(text, ending)
        except ValueError as error:
            raise _ReaderError(str(error)) from error
        titles = [record.title for record in records if record.title]
        return "", [record.text for record in records], titles if len(titles) == len(records) else []
    return "", [text], []


def _read_pdf_title(path: Path) -> str:
    """Return the title in the metadata of a PDF that was read before; "" without one."""
    pypdf = importlib.import_module("pypdf")  # LlamaIndex's reader reads with it
    with suppress(Exception):  # damaged metadata, of a file whose text was read, are no title
        return repair_surrogates(str((pypdf.PdfReader(path).metadata or {}).get("/Title") or ""))
    return ""


def _are_readers_installed() -> bool:
    try:
        return importlib.util.find_spec(_READERS) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False
