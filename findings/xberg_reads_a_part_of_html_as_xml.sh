#!/bin/sh
# xberg 1.3.9: HTML that begins with some elements, such as <article> or <center>, is read as XML, without a warning: the
# names of its elements become headings of the text. As part of a whole page the same elements are read as HTML.
#
# Seen (Python 3.11, Linux):
#   part of a page: '# article\n\n## h2\n\nPump\n\nAda met Bob.'
#   whole page: '## Pump\n\nAda met Bob.'
#
# What helps: put <html><body> and </body></html> around it.
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "xberg==1.3.9"
"$work/venv/bin/python" - <<'PROGRAM'
import asyncio
import importlib.metadata
import sys

import xberg

print("xberg", importlib.metadata.version("xberg"))
PART = b"<article><h2>Pump</h2>Ada met Bob.</article>"


async def main() -> bool:
    found = {}
    for name, page in (("part of a page", PART), ("whole page", b"<html><body>" + PART + b"</body></html>")):
        source = xberg.ExtractInput(kind="bytes", bytes=page, filename="a.html")
        (document,) = (await xberg.extract(source, xberg.ExtractionConfig(output_format="markdown"))).results
        found[name] = document.content.strip()
        print(f"{name}: {found[name]!r}, warnings {len(document.processing_warnings)}")
    return "# article" in found["part of a page"] and found["whole page"].startswith("## Pump")


ok = asyncio.run(main())
sys.exit(0 if ok else "the behaviour has changed")
PROGRAM
