#!/bin/sh
# xberg 1.3.9 (beside pypandoc-binary 1.17): an EPUB whose `mimetype` is not its first entry is a listing of files, though
# its name ends in .epub; TeX without \begin{document}, as chapters are, is empty, without a warning.
#
# Seen (Python 3.11, Linux):
#   a.epub, mimetype first: application/epub+zip, 'Ada met Bob.'
#   a.epub, mimetype last: application/zip, 'ZIP Archive'
#   a.epub, mimetype last, kind given: application/epub+zip, 'Ada met Bob.'
#   chapter.tex: '', warnings 0
#   chapter.tex, pandoc: '# Lamps\n\nAda met Bob.'
#
# What helps: give `mime_type`; put \begin{document} around a chapter.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "xberg==1.3.9" "pypandoc-binary==1.17"
"$work/venv/bin/python" - <<'PROGRAM'
import asyncio
import importlib.metadata
import io
import sys
import zipfile

import pypandoc
import xberg

print("xberg", importlib.metadata.version("xberg"))
EPUB = "application/epub+zip"
PACKAGE = "http://www.idpf.org/2007/opf"
PARTS = {
    "META-INF/container.xml": '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="b.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
    "b.opf": f'<package xmlns="{PACKAGE}" version="3.0" unique-identifier="id">'
    '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">x</dc:identifier>'
    "<dc:title>Lamps</dc:title><dc:language>en</dc:language></metadata>"
    '<manifest><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="c"/></spine></package>',
    "c.xhtml": '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Lamps</title></head>'
    "<body><p>Ada met Bob.</p></body></html>",
}
CHAPTER = "\\section{Lamps}\n\nAda met Bob.\n"


def bind(parts: dict[str, str]) -> bytes:
    book = io.BytesIO()
    with zipfile.ZipFile(book, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return book.getvalue()


async def read(data: bytes, name: str, **kind: str) -> tuple[str, str]:
    config = xberg.ExtractionConfig(output_format="markdown", use_cache=False)
    source = xberg.ExtractInput(kind="bytes", bytes=data, filename=name, **kind)
    (document,) = (await xberg.extract(source, config)).results
    assert not document.processing_warnings
    return document.mime_type, document.content.strip()


async def main() -> bool:
    first, last = bind({"mimetype": EPUB, **PARTS}), bind({**PARTS, "mimetype": EPUB})
    seen = [await read(first, "a.epub"), await read(last, "a.epub"), await read(last, "a.epub", mime_type=EPUB)]
    for name, (kind, text) in zip(("first", "last", "last, kind given"), seen, strict=True):
        print(f"a.epub, mimetype {name}: {kind}, {text.split(' (')[0]!r}")
    chapter = (await read(CHAPTER.encode(), "chapter.tex"))[1]
    pandoc = pypandoc.convert_text(CHAPTER, "markdown", format="latex").strip()
    print(f"chapter.tex: {chapter!r}, warnings 0\nchapter.tex, pandoc: {pandoc!r}")
    book = (EPUB, "Ada met Bob.")
    return seen[0] == seen[2] == book and seen[1][0] == "application/zip" and not chapter and "Ada met Bob." in pandoc


sys.exit(0 if asyncio.run(main()) else "the behaviour has changed")
PROGRAM
