#!/bin/sh
# xberg 1.3.9 (beside pypandoc-binary 1.17): text of four formats is cut, lost or made up of markup.
#
# The last cell of a simple table of reStructuredText is cut; what follows a TeX \section on its line is lost; headings
# of AsciiDoc above dashes are text; the style sheet of a mail's HTML is text. pandoc does neither of the first two.
#
# Seen (Python 3.11, Linux):
#   a.rst: xberg '| Name | Town |\n| --- | --- |\n| Nora | Brem |\n'
#   a.rst: pandoc '| Name | Town   |\n|------|--------|\n| Nora | Bremen |\n'
#   a.tex: xberg '# Yard\n\nMore.\n'
#   a.tex: pandoc '# Yard\n\nNora founded it.\n\nMore.\n'
#   a.adoc: xberg 'Pump\n\nManual ------ Text.\n'
#   a.eml: xberg '**Subject**: x\n\na {max-width: 9px}\n\nHi.\n'
#
# The script exits with 1 if this changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "xberg==1.3.9" "pypandoc-binary==1.17"
"$work/venv/bin/python" - <<'PROGRAM'
import asyncio
import importlib.metadata
import sys

import pypandoc
import xberg

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
sys.exit(0 if ok else "the behaviour has changed")
PROGRAM
