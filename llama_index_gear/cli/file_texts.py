"""The text of one file, by its format. Nothing here takes seconds to import."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from llama_index_gear.cli.html_text import read_html
from llama_index_gear.cli.prose import explain_no_prose, explain_no_sentences
from llama_index_gear.cli.records_of_json import JSON, read_json
from llama_index_gear.cli.regular_files import NoText, UnreadableFile, read_file
from llama_index_gear.cli.tables import TABLES, read_table
from llama_index_gear.errors import repair_surrogates

WITH_READER = {".docx", ".epub", ".hwp", ".pdf", ".ppt", ".pptx", ".xls", ".xlsx"}
"""Formats that are not text. Every other file is read as text, whatever readers are installed."""
HTML = {".htm", ".html", ".xhtml"}
MOST = 100 * 10**6
"""Bytes that a file may have."""
_HEAD = 20_000  # characters of an HTML file in which its title is looked for


def read_text(path: Path) -> str:
    """Read a file that is text.

    Raises:
        NoText: it is no UTF-8, or a program wrote it for programs.
        UnreadableFile: it is no regular file, or too large.

    """
    text = _read_source(path)
    if reason := explain_no_sentences(text):
        raise NoText(reason)
    return text


def parse_file(path: Path, only_title: bool = False) -> tuple[str, list[str], list[str]]:
    """Read a file that is no plain text: the title that it states of itself ("" without one), and its pages' texts.

    The records of JSON are such pages; if all have titles, these stand in a third list.

    Args:
        path: of the file.
        only_title: of HTML, read no more than the title. Default False.

    Raises:
        NoText: it is no text, or its reader is not installed.
        UnreadableFile: it can't be read.

    """
    ending = path.suffix.lower()
    titles: list[str] = []
    if ending in WITH_READER:
        title, texts = _read_by_reader(path)
    elif ending in TABLES:
        title, texts = "", [_read_table(path, ending)]
    elif ending in JSON:
        title, (texts, titles) = "", _read_records(path, ending)
    else:
        text = _read_source(path)
        page = read_html(text[:_HEAD] if only_title else text)
        title, texts = page.title, [] if only_title else [page.text]
    if ending not in WITH_READER and (reason := explain_no_sentences("\n\n".join(texts))):
        raise NoText(reason)
    return title, texts, titles


def _read_source(path: Path) -> str:
    """Read a file of characters, unless its name or form says that no reader is meant."""
    try:
        text = read_file(path, MOST).decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise NoText("no UTF-8 text; if it is text, save it as UTF-8")
    if reason := explain_no_prose(path.name, text):
        raise NoText(reason)
    return text


def _read_table(path: Path, ending: str) -> str:
    try:
        return read_table(_read_source(path), ending)
    except ValueError as error:
        raise UnreadableFile(str(error)) from error


def _read_records(path: Path, ending: str) -> tuple[list[str], list[str]]:
    try:
        records = read_json(_read_source(path), ending)
    except ValueError as error:
        raise UnreadableFile(str(error)) from error
    titles = [repair_surrogates(record.title) for record in records if record.title]
    return [repair_surrogates(record.text) for record in records], titles if len(titles) == len(records) else []


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
