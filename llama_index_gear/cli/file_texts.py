"""The text of one file, by its format. Nothing here takes seconds to import."""

from __future__ import annotations

import importlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from llama_index_gear.cli.html_text import read_html
from llama_index_gear.cli.regular_files import NoText, UnreadableFile, read_file
from llama_index_gear.cli.tables import TABLES, read_table
from llama_index_gear.errors import repair_surrogates

WITH_READER = {".docx", ".epub", ".hwp", ".pdf", ".ppt", ".pptx", ".xls", ".xlsx"}
"""Formats that are not text. Every other file is read as text, whatever readers are installed."""
HTML = {".htm", ".html", ".xhtml"}
MOST = 100 * 10**6
"""Bytes that a file may have."""
_HEAD = 20_000  # characters of an HTML file in which its title is looked for
_LOUD = re.compile(r"([!?]{100})[!?]+")
"""Matches more marks than a splitter of sentences takes: it calls itself for each of them."""


def read_text(path: Path) -> str:
    """Read a file that is text.

    Raises:
        NoText: it is no UTF-8.
        UnreadableFile: it is no regular file, or too large.

    """
    try:
        text = read_file(path, MOST).decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise NoText("no UTF-8 text; if it is text, save it as UTF-8")
    return _calm(text)


def parse_file(path: Path, only_title: bool = False) -> tuple[str, list[str]]:
    """Read a file that is no plain text: the title that it states of itself ("" without one), and its pages' texts.

    Args:
        path: of the file.
        only_title: of HTML, read no more than the title. Default False.

    Raises:
        NoText: it is no text, or its reader is not installed.
        UnreadableFile: it can't be read.

    """
    ending = path.suffix.lower()
    if ending in WITH_READER:
        title, texts = _read_by_reader(path)
    elif ending in TABLES:
        title, texts = "", [_read_table(path, ending)]
    else:
        text = read_text(path)
        page = read_html(text[:_HEAD] if only_title else text)
        title, texts = page.title, [] if only_title else [page.text]
    if sum(map(len, texts)) > MOST:
        raise UnreadableFile(f"has more than {MOST // 10**6} million characters of text: split it")
    return title[:_HEAD], list(map(_calm, texts))


def _calm(text: str) -> str:
    """Return a text with no more than a hundred marks of exclamation or question together."""
    return _LOUD.sub(r"\1", text)


def _read_table(path: Path, ending: str) -> str:
    try:
        return read_table(read_text(path), ending)
    except ValueError as error:
        raise UnreadableFile(str(error)) from error


def _read_by_reader(path: Path) -> tuple[str, list[str]]:
    """Read a file by the reader of LlamaIndex that its format needs."""
    core: Any = importlib.import_module("llama_index.core.readers")
    try:
        documents = core.SimpleDirectoryReader.load_file(path, lambda _: {}, {}, raise_on_error=True)
    except ImportError as error:
        raise NoText(" ".join(str(error).split())) from error
    stated = _read_pdf_title(path) if path.suffix.lower() == ".pdf" else ""
    return stated, [repair_surrogates(document.get_content()) for document in documents]


def _read_pdf_title(path: Path) -> str:
    """Return the title in the metadata of a PDF that was read before; "" without one."""
    pypdf = importlib.import_module("pypdf")  # LlamaIndex's reader reads with it
    with suppress(Exception):  # damaged metadata, of a file whose text was read, are no title
        return repair_surrogates(str((pypdf.PdfReader(path).metadata or {}).get("/Title") or ""))
    return ""
