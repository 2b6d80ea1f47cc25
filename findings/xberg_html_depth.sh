#!/bin/sh
# xberg 1.3.9: text of HTML that stands below 63 elements or more is lost, without a warning.
#
# Seen (Python 3.11, Linux):
#   default, 60 levels: 'Ada met Bob.', warnings 0
#   default, 100 levels: '', warnings 0
#   max_depth=1000, 100 levels: 'Ada met Bob.', warnings 0
#
# What helps: `max_depth` of `ConversionOptions`.
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

async def main() -> bool:
    found = {}
    for name, options in (("default", {}), ("max_depth=1000", {"max_depth": 1000})):
        for depth in (60, 100):
            html = xberg.ConversionOptions(extract_metadata=False, **options)
            config = xberg.ExtractionConfig(output_format="markdown", use_cache=False, html_options=html)
            page = b"<div>" * depth + b"Ada met Bob."
            source = xberg.ExtractInput(kind="bytes", bytes=page, filename="a.html")
            (document,) = (await xberg.extract(source, config)).results
            found[name, depth] = document.content.strip()
            print(f"{name}, {depth} levels: {document.content.strip()!r}, warnings {len(document.processing_warnings)}")
    lost = found.pop(("default", 100))
    return not lost and set(found.values()) == {"Ada met Bob."}

ok = asyncio.run(main())
sys.exit(0 if ok else "the behaviour has changed")
PROGRAM
