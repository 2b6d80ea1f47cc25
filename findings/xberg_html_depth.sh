#!/usr/bin/env bash
# xberg loses the text of HTML that stands below 63 elements or more, without a warning; max_depth brings it back.
# Exits 0 while that is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check xberg==1.3.9
"$work/venv/bin/python" - <<'PY'
import asyncio, importlib.metadata, os, sys
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
print("as described" if ok else "CHANGED")
sys.stdout.flush()
os._exit(not ok)  # the interpreter's own exit may abort (PyO3/pyo3-async-runtimes issue 40)
PY
