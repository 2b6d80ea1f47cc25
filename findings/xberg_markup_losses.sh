#!/usr/bin/env bash
# xberg cuts the last cell of a simple table of reStructuredText, drops what follows a TeX \section on its line, reads
# headings of AsciiDoc that stand above dashes as text, and takes the style sheet of a mail's HTML for text. pandoc does
# none of the first two. Exits 0 while that is so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check xberg==1.3.9 pypandoc-binary==1.17
"$work/venv/bin/python" - <<'PY'
import asyncio, importlib.metadata, os, sys
import pypandoc, xberg

print(*(f"{name} {importlib.metadata.version(name)}" for name in ("xberg", "pypandoc-binary")))
FILES = {
    "a.rst": ("===== ====\nName  Town\n===== ====\nNora  Bremen\n===== ====\n", "Bremen", "rst"),
    "a.tex": ("\\begin{document}\n\\section{Yard} Nora founded it.\n\nMore.\n\\end{document}\n", "Nora", "latex"),
    "a.adoc": ("Pump\n====\n\nManual\n------\n\nText.\n", "# Manual", ""),
    "a.eml": ("Subject: x\nContent-Type: text/html\n\n<style>a {max-width: 9px}</style><p>Hi.</p>\n", "max-width", ""),
}

async def main() -> bool:
    ok = True
    config = xberg.ExtractionConfig(output_format="markdown", use_cache=False)
    for name, (text, word, reader) in FILES.items():
        source = xberg.ExtractInput(kind="bytes", bytes=text.encode(), filename=name)
        (document,) = (await xberg.extract(source, config)).results
        has = word in document.content
        print(f"{name}: xberg {document.content!r}")
        ok = ok and has == (name == "a.eml")
        if reader:
            made = pypandoc.convert_text(text, "gfm", format=reader, sandbox=True)
            print(f"{name}: pandoc {made!r}")
            ok = ok and word in made
    return ok

ok = asyncio.run(main())
print("as described" if ok else "CHANGED")
sys.stdout.flush()
os._exit(not ok)  # the interpreter's own exit may abort (PyO3/pyo3-async-runtimes issue 40)
PY
