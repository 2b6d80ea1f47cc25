"""Files of other programs, as Markdown. Each test makes small real files; the converter runs in its own process."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import FolderReader, GeARVectorStore, MentionTripleExtractor
from llama_index_gear.ingestion import converter
from llama_index_gear.ingestion import files as folder_files
from llama_index_gear.testing import WordEmbedding

needs_converter = pytest.mark.skipif(not converter.is_installed(), reason="needs the extra files")

ADOC = """= Pump *House*

The manual
----------

See <<crane.adoc#hall,Crane Hall>>, xref:crane.adoc[Crane Hall]<<hall>>. Built by Nora Blum.

[NOTE]
====
Paul Kern paints.
====

|===
| Name | Town

| Nora Blum | Bremen
|===

[source,sh]
----
# Start Osthafen
----
"""
RST = """.. _top:

=================
Pump :doc:`house`
=================

Manual
======

See :ref:`Crane Hall <crane>`.

===== =====
Name  Town
===== =====
Nora  Bremen-Vegesack
===== =====

Call
:func:`~yard.open_gate`, or
:func:`shut` it.

.. code-block:: sh
   :caption: The yard

   # Start Osthafen
"""
TITLED_TEX = r"""\documentclass{article}
\title{Ring Yard}
\author{Nora Blum}
\begin{document}
\maketitle
Text of the yard.
\end{document}
"""
TEX = r"""\documentclass{article}
\title{On \emph{Pumps}}
\author{Nora Blum\thanks{Rome} \and Paul Kern}
\begin{document}
% Ida Falk: check this
\section{Yard} Nora Blum\label{sec:a} founded \textbf{Osthafen} in K\"oln~\cite{kern}. % Ida

\begin{tabular}{ll}
\multicolumn{2}{c}{Crane} & Load \\
Goliath & 5\% \\
\end{tabular}

See \autoref{tab:x}.
\end{document}
"""
ORG = """#+TITLE: My Yard
#+OPTIONS: toc:nil
* TODO [#A] Visit [[https://b.example][Bremen]]
  DEADLINE: <2025-03-10 Mon>
  :PROPERTIES:
  :ID: 0b3c
  :END:
  :LOGBOOK:
  CLOCK: [2025-03-03 Mon 09:15]
  :END:
# Ida Falk: a comment
#+begin_src sh
# Start Osthafen
#+end_src
See [[https://x.example][the site]].
"""
NOTEBOOK = """{"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Pump study\\n",
"By Nora Blum, after [Pumps: all](05.07-Pumps.ipynb)."]},
{"cell_type": "code", "execution_count": 1, "metadata": {}, "source": ["x = 1"], "outputs": [{"output_type":
"display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB", "text/plain": ["<Fig>"]}}]}],
"metadata": {}, "nbformat": 4, "nbformat_minor": 5}"""
RICH_TEXT = r"""{\rtf1\ansi{\fonttbl{\f0 Times;}}{\info{\title Yard Report}}\f0
Nora Blum founded \b Osthafen\b0  in K\'f6ln.\par}"""
LETTER = """From: Nora Blum <nora@x.example>
To: Paul Kern <paul@x.example>
Subject: Re: =?utf-8?q?The_crane_of_K=C3=B6ln?=
Message-ID: <a81f@x.example>
Date: Mon, 3 Mar 2025 09:15:00 +0100
Content-Type: text/plain; charset=utf-8

Weserkran GmbH built it [[as I heard]].

	[[alternative HTML version deleted]]

> Yes.
> ________________________
> Yard mailing list
________________________
Nora Blum, Osthafen
"""
HTML = """<html><head><title>Pump House — Osthafen</title><style>b{}</style></head><body>
<nav><a href="c.html">Crane Hall</a></nav><div role="navigation"><ul><li><a href="s.html">Slipway</a></ul></div>
<h1>Pump House<a class="headerlink" href="#a">¶</a></h1>
<p>Built by <b>Nora Blum</b> &amp; Sons, near <a href="hall.html" title="x">the hall</a>.</p>
<pre># Start Osthafen</pre><table><tr><th>Name</th><th>Town</th></tr><tr><td>Nora</td><td>Bremen</td></tr></table>
<img src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"><script>var x = 1;</script>
<footer>© Weserkran GmbH</footer></body></html>"""
DOCUMENT = """<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Yard</w:t></w:r></w:p>
<w:p><w:r><w:t>Nora Blum^1,2 founded it on 13^th^ March.</w:t></w:r></w:p></w:body></w:document>"""
RELATIONS = """<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r"
Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>
</Relationships>"""
TYPES = """<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels"
ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml"
ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""


def print_page(lines: list[tuple[int, int, int, str]], title: str = "") -> bytes:
    """Return a PDF with a page of lines, each with its size and place, and a title that the file states."""
    shown = "".join(f"BT /F {size} Tf {x} {y} Td ({text}) Tj ET\n" for size, x, y, text in lines)
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        f"<</Length {len(shown)}>>stream\n{shown}endstream",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<</Title({title})>>",
    ]
    data, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(f"{len(data):010} 00000 n \n")
        data += f"{number} 0 obj{each}endobj\n"
    head = f"xref\n0 7\n0000000000 65535 f \n{''.join(places)}trailer<</Size 7/Root 1 0 R/Info 6 0 R>>\n"
    return f"{data}{head}startxref\n{len(data)}\n%%EOF".encode()


def zip_word(document: str) -> bytes:
    packed = io.BytesIO()
    parts = {"[Content_Types].xml": TYPES, "_rels/.rels": RELATIONS, "word/document.xml": document}
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return packed.getvalue()


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[tuple[str, str]]]:
    """Write a file, read it, and return title and text of its documents."""

    def call(name: str, data: str | bytes) -> list[tuple[str, str]]:
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        reader = FolderReader(folder)
        documents = reader.load_data()
        assert reader.skipped == reader.failed == {}
        return [(document.metadata["title"], document.text) for document in documents]

    return call


@needs_converter
@pytest.mark.parametrize(
    ("name", "data", "title", "wanted", "unwanted"),
    [
        (
            "manual.adoc",
            ADOC,
            "Pump House",
            ["\n## The manual\n", "| Nora Blum | Bremen |", "```sh\n# Start Osthafen\n```", "Paul Kern paints."],
            ["----", "===="],
        ),
        (
            "manual.rst",
            RST,
            "Pump house",
            ["# Manual\n", "| Nora | Bremen-Vegesack |", "# Start Osthafen\n```", "`open_gate`, or `shut` it."],
            [".. ", ":caption:", "func"],
        ),
        (
            "paper.tex",
            TEX,
            "On Pumps",
            ["# Yard\n", "Blum, Paul Kern\n", "founded **Osthafen** in Köln", "| Crane | Load |"],
            ["kern", "sec:a", "Ida", "Rome", "multicolumn", "tab:x"],
        ),
        (
            "yard.org",
            ORG,
            "My Yard",
            ["# Visit Bremen\n", "deadline: 2025-03-10 Mon.", "# Start Osthafen", "[the site](https://x.example)"],
            ["toc", "0b3c", "CLOCK", "END", "Ida", "[#A]"],
        ),
        ("study.ipynb", NOTEBOOK, "Pump study", ["By Nora Blum, after Pumps: all.", "x = 1"], ["iVBOR", "Fig"]),
        ("report-7.rtf", RICH_TEXT, "Yard Report", ["Nora Blum founded **Osthafen** in Köln."], ["Times", "\\"]),
        (
            "letter-7.eml",
            LETTER,
            "The crane of Köln",
            ["Nora Blum", "2025-03-03 09:15", "built it [as I heard]."],
            ["a81f", "Osthafen", "HTML", "mailing list"],
        ),
        (
            "letter-8.eml",
            LETTER.replace("plain", "html") + "<style>@media print {a {max-width: 9px}}</style><p>It is <b>high</b>.",
            "The crane of Köln",
            ["It is **high**."],
            ["@media", "max-width"],
        ),
        (
            "page-7.html",
            HTML,
            "Pump House",
            [
                "# Pump House\n",
                "Built by **Nora Blum** & Sons, near the hall.",
                "# Start Osthafen\n```",
                "| Nora | Bremen |",
            ],
            ["Crane", "Slipway", "hall.html", "¶", "iVBOR", "var x", "Weserkran", "b{}"],
        ),
        ("r7.tex", TITLED_TEX, "Ring Yard", ["Text of the yard."], ["maketitle", "title"]),
        (
            "r7.bbl",
            "\\newcommand{\\natexlab}[1]{#1}\\begin{thebibliography}{9}\n\\bibitem[Blum {\\em {a}}(2024)]{key7}\n"
            "N.~Blum.\n\\newblock {\\em The {C}rane}, 2024.\n\\end{thebibliography}\n",
            "r7",
            ["N. Blum.", "The Crane, 2024."],
            ["key7", "newblock", "natexlab", "{", "*"],
        ),
        (
            "chapter-7.tex",
            "\\section{Yard}\nNora Blum built it.\n",
            "Yard",
            ["# Yard", "Nora Blum built it."],
            ["begin"],
        ),
        (
            "report-7.docx",
            zip_word(DOCUMENT),
            "Yard",
            ["# Yard\n", "Nora Blum founded it on 13th March."],
            ["^"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_a_file_is_markdown_with_its_title(
    read: Callable[..., Any], name: str, data: str | bytes, title: str, wanted: list[str], unwanted: list[str]
) -> None:
    ((found, text),) = read(name, data)
    assert found == title
    assert [words for words in wanted if words not in text] == [words for words in unwanted if words in text] == []


BODY = [
    (10, 72, 600 - 12 * number, f"The yard {number} of Osthafen was built by Nora Blum in Bremen.")
    for number in range(20)
]


@needs_converter
@pytest.mark.parametrize(
    ("lines", "stated", "title"),
    [
        ([(18, 90, 720, "Generational Copying of Cranes with a"), (18, 90, 700, "Long Boom")], "", 1),
        ([(18, 90, 700, "Long Boom"), (18, 90, 720, "Generational Copying of Cranes with a")], "", 1),
        ([(18, 90, 720, "Generational Copying of Cranes with a"), (18, 90, 700, "Long Boom")], "Proceedings - WORD", 1),
        ([(18, 90, 720, "Copying of Cranes"), (18, 72, 300, "Introduction")], "", "Copying of Cranes"),
        ([(90, 72, 640, "CM"), (18, 90, 720, "Copying of Cranes")], "", "Copying of Cranes"),
        ([(20, 32, 400, "arXiv:2405.0482v2 [cs.CL]"), (18, 90, 720, "Copying of Cranes")], "", "Copying of Cranes"),
        ([(18, 90, 720, "Copying of Cranes")], "The Copying of the Cranes", "The Copying of the Cranes"),
        ([(10, 72, 720, "See the")], "Proceedings - WORD", "Proceedings - WORD"),
    ],
)
def test_the_title_of_a_printed_page_is_whole(
    read: Callable[..., Any], lines: list[tuple[int, int, int, str]], stated: str, title: str | int
) -> None:
    ((found, text),) = read("p7.pdf", print_page([*lines, *BODY], stated))
    whole = "Generational Copying of Cranes with a Long Boom"
    assert found == (whole if title == 1 else title)
    assert text.count("Long Boom") == (title == 1) and "Osthafen" in text
    assert title != 1 or text.startswith(f"# {whole}\n\n")


@needs_converter
def test_what_was_converted_is_said_to_be_markdown(tmp_path: Path) -> None:
    (tmp_path / "manual.adoc").write_text("= Pump\n\nText of it.\n\n== OPTIONS\n", "utf-8")
    (document,) = FolderReader(tmp_path).load_data()
    assert document.metadata["file_type"] == "text/markdown"
    assert "OPTIONS" not in str(MentionTripleExtractor()([document])[0].metadata["gear_triples"])


def test_an_embedded_picture_is_no_text(tmp_path: Path) -> None:
    data = "iVBORw0KGgo" * 90
    (tmp_path / "notes.md").write_text(
        f"# Pump\n\nNora Blum built it.\n\n[one]: <data:image/png;base64,{data}>\n", "utf-8"
    )
    (document,) = FolderReader(tmp_path).load_data()
    assert "Nora Blum built it." in document.text and "iVBOR" not in document.text


@needs_converter
def test_a_letter_of_a_mailbox_is_a_document(read: Callable[..., Any]) -> None:
    box = "".join(
        f"From x Mon Mar  3 09:15:00 2025\n{LETTER.replace('Re: =', f'{number} =')}\n" for number in ("First", "Second")
    )
    assert [title for title, _ in read("box.mbox", box)] == ["First The crane of Köln", "Second The crane of Köln"]


@needs_converter
def test_the_parts_of_a_letter_are_named(read: Callable[..., Any]) -> None:
    letter = EmailMessage()
    letter["Subject"] = "Plans"
    letter.set_content("It is here.\n")
    letter.add_attachment(bytes(range(256)), maintype="image", subtype="png", filename="crane.png")
    letter.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Plan of the Yard.pdf")
    ((_, text),) = read("a.eml", letter.as_bytes())
    assert "- `crane.png`\n" in text and "- `Plan of the Yard.pdf`\n" in text and "(256B)" not in text
    letter.add_attachment("Ida Falk paints in Köln.\n-- \nEnd.\n", filename="note.txt", charset="latin-1")
    letter.add_attachment("It is *blue*.\n", subtype="markdown", filename="note.md")
    ((_, text),) = read("a.eml", letter.as_bytes())
    assert "note.txt:\n\nIda Falk paints in Köln." in text and "End." in text and "note.md:\n\nIt is *blue*." in text
    part, outer = EmailMessage(), EmailMessage()
    part.set_content("Paint comes from Visby.\n")
    outer["Subject"] = "Fwd: Paint"
    outer.set_content("See below.\n")
    outer.add_attachment(part)
    ((_, text),) = (letter for letter in read("b.eml", outer.as_bytes()) if letter[0] == "Paint")
    assert "Paint comes from Visby." in text and "unnamed" not in text and "Attachments" not in text


PLAIN = """Hello Nora,

the crane of Bremen stands on the quay since March, and nobody
has painted it.
Halls
-----
# apt install crane

> Do you see it?
> Paul

---------- Forwarded message ----------
From: Ida Falk <ida@x.example>
Subject: Paint

Paul Kern
Osthafen Yard
"""
PAGE = """<html><head><meta name=generator content="MSHTML 6"><title>Mail</title></head><body><h1>News</h1>
<a href="https://x.example/1"><img src="a.png" alt="a"></a><p>Nora Blum paints 3 &lt; 4 cranes.</p>
<table><tr><th>Name</th><th>Town</th></tr><tr><td>Nora</td><td>Bremen</td></tr></table></body></html>"""


@needs_converter
def test_the_lines_of_a_letter_stay_and_are_no_headings(read: Callable[..., Any]) -> None:
    letter = EmailMessage()
    letter["Subject"] = "Plans"
    letter["List-Id"] = "Yard <yard.x.example>"
    letter.set_content(PLAIN)
    ((_, text),) = read("a.eml", letter.as_bytes())
    assert "nobody\nhas painted it.\nHalls\n\n---" in text and "\n\\# apt install crane\n" in text
    assert "\n> Do you see it?\n> Paul\n" in text and "message ----------\nFrom: Ida Falk" in text
    assert "\nPaul Kern\nOsthafen Yard" in text and "List-Id" not in text and "%0A" not in text


@needs_converter
@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "utf-16"])
def test_the_page_of_a_letter_is_read_as_a_page_is(read: Callable[..., Any], charset: str) -> None:
    letter = EmailMessage()
    letter["Subject"] = "Plans"
    letter.set_content("Zoë sees a page.\n", charset=charset)
    letter.add_alternative(PAGE, subtype="html", charset=charset)
    ((_, text),) = read("a.eml", letter.as_bytes())
    assert "# News\n\nNora Blum paints 3 < 4 cranes." in text and "| Nora | Bremen |" in text
    assert not [words for words in ("MSHTML", "Mail", "x.example", "Zoë", "%0") if words in text]
    letter = EmailMessage()
    letter.set_content("Zoë sees text.\nNora too.\n", charset=charset)
    ((_, text),) = read("a.eml", letter.as_bytes())
    assert "Zoë sees text." in text and "Nora too." in text


@needs_converter
def test_a_letter_whose_head_is_broken_keeps_its_subject(read: Callable[..., Any]) -> None:
    ((title, text),) = read("a.eml", b"From: Nora <n@x.example>\nquite Broken\nSubject: Paint\n\nIt is blue.\n")
    assert title == "Paint" and "It is blue." in text


@needs_converter
@pytest.mark.parametrize("part", ["<center>Nora</center><IMG SRC='a.png'>", "<article><h2>Pump</h2>Nora</article>"])
def test_a_part_of_a_page_is_html(read: Callable[..., Any], part: str) -> None:
    ((_, text),) = read("a.html", part)
    assert "Nora" in text and not [name for name in ("center", "IMG", "article", "h2") if name in text]


def test_what_is_underlined_keeps_its_words_alone() -> None:
    clean = converter._CLEAN[".docx"]
    assert clean("See [\\<u\\>Clause 4\\</u\\>](x), <u>5</u>.") == "See [Clause 4](x), 5."


def test_the_texts_of_a_master_are_none_of_its_slides() -> None:
    clean = converter._CLEAN[".pptx"]
    for title, level in (
        ("Click to edit Master title style", "Fifth level"),
        ("Titelmasterformat bearbeiten", "Fünfte Ebene"),
    ):
        said = clean(f"## Cranes\n\nNora paints.{title}\n{level}\nThe Fifth level is blue.\n")
        assert said.split("\n") == ["## Cranes", "", "Nora paints.", "", "", "The Fifth level is blue.", ""]
    stays = "Second level\nNora edits the text and the title.\n"
    assert clean(stays) == stays
    manual = "Click to edit text, then press Enter.\nFifth level\n"
    assert converter._CLEAN[".docx"](manual) == manual


@needs_converter
def test_a_book_is_read_as_one_whatever_stands_first_in_it(read: Callable[..., Any]) -> None:
    files = {
        "chapter.html": "<?xml version='1.0'?><html><head><title>1</title></head><body><p>Nora Blum.</p></body></html>",
        "META-INF/container.xml": "<?xml version='1.0'?><container version='1.0' "
        "xmlns='urn:oasis:names:tc:opendocument:xmlns:container'><rootfiles><rootfile full-path='content.opf' "
        "media-type='application/oebps-package+xml'/></rootfiles></container>",
        "content.opf": "<?xml version='1.0'?><package xmlns='http://www.idpf.org/2007/opf' version='3.0'><metadata "
        "xmlns:dc='http://purl.org/dc/elements/1.1/'><dc:title>The Crane</dc:title></metadata><manifest><item id='c' "
        "href='chapter.html' media-type='application/xhtml+xml'/></manifest><spine><itemref idref='c'/></spine>"
        "</package>",
    }
    book = io.BytesIO()
    with zipfile.ZipFile(book, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    ((title, text),) = read("b7.epub", book.getvalue())
    assert title == "The Crane" and "Nora Blum." in text and "Archive" not in text and "xml" not in text


def test_marks_of_footnotes_are_left_out_escaped_or_not() -> None:
    text = "Nora[[1]](#n) and[\\[2\\]](#n) [Hall](#hall) [[long]](#n)."
    assert converter.clean_links(text) == "Nora and Hall ."


@needs_converter
def test_marks_of_footnotes_and_roles_in_front_of_a_line_leave_no_markup(read: Callable[..., Any]) -> None:
    ((_, text),) = read(
        "a.html", '<p>Nora<sup><a href="#note-190">[190]</a></sup> paints. <a href="#hall">Hall</a></p>'
    )
    assert "190" not in text and "Nora" in text and "Hall" in text and "#" not in text
    _, (_, text) = read(
        "a.rst", "See this:\n\n:meth:`Pump.run()\n<yard.Pump.run>`, like this::\n\n    # Start it\n    run()\n"
    )
    assert "`Pump.run()`, like this" in text and "meth" not in text and "\n# Start" in text and "```" in text


@needs_converter
def test_a_link_that_names_its_target_leads_there(read: Callable[..., Any]) -> None:
    text = "It is `by the winch <the  Winch_>`_, not `there <b_>`_.\n\n.. _The winch: sub/winch.rst\n.. _a: c\n"
    ((_, text),) = read("a.rst", text)
    assert text.startswith("It is [by the winch](sub/winch.rst), not [there](b_).\n")


@needs_converter
def test_a_text_that_begins_like_a_letter_has_no_lines_for_programs(read: Callable[..., Any]) -> None:
    head = "Received: from a.example by b.example\nFrom: Nora Blum\nSubject: Paint\n\nIt is blue.\n"
    assert [text for _, text in read("a.txt", head)] == ["From: Nora Blum\nSubject: Paint\n\nIt is blue.\n"]
    assert read("b.md", f"# Heads\n\n{head}")[-1][1] == f"# Heads\n\n{head}"


def test_a_letter_is_read_as_one_whatever_its_file_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "Return-path: <n@x.example>\nFrom: Nora Blum\nSubject: Fwd: The crane\n"
    page = 'Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n<p class=3D"x">In K=C3=B6ln.</p>\n'
    (tmp_path / "1382.001:2,").write_text(f"{head}\nIt is blue.\n", "utf-8")
    (tmp_path / "1382.002:2,").write_text(head + page, "utf-8")
    (tmp_path / "box").write_text(f"From x Mon Mar  3 09:15:00 2025\n{head}{page}\n" * 2, "utf-8")
    (tmp_path / "Yard.txt").write_text(head + page, "utf-8")
    documents = [(document.metadata["title"], document.text) for document in FolderReader(tmp_path).load_data()]
    assert documents[0] == ("The crane", "From: Nora Blum\nSubject: Fwd: The crane\n\nIt is blue.\n")
    if converter.is_installed():
        titles = ["The crane", "The crane", "The crane", "Yard"]
        assert sorted(title for title, _ in documents[1:]) == titles
        assert all("In Köln." in text and "3D" not in text and "path" not in text for _, text in documents[1:])
    monkeypatch.setattr(folder_files, "is_installed", lambda: False)
    without = [document.text for document in FolderReader(tmp_path).load_data()]
    assert without[0] == documents[0][1] and "K=C3=B6ln" in without[1]


@needs_converter
def test_the_rows_of_a_long_table_name_their_columns(read: Callable[..., Any]) -> None:
    rows = "".join(f"<tr><td>Person {number}</td><td>Town {number}</td></tr>" for number in range(60))
    ((_, text),) = read("t.html", f"<h1>Staff</h1><table><tr><th>Name</th><th>Home_town</th></tr>{rows}</table><p>End.")
    assert "name: Person 59; home town: Town 59." in text and "|" not in text and text.endswith("End.")


@needs_converter
def test_pages_of_a_site_are_not_linked_by_menu_or_footer(tmp_path: Path) -> None:
    """Also where no tag says what is a menu."""
    names = ["Pump House", "Crane Hall", "Slipway"]
    menu = "".join(f'<td><a href="{name}.html">{name}</a></td>' for name in names)
    for number, name in enumerate(names):
        (tmp_path / f"page-{number}.html").write_text(
            f"<title>{name}</title><table><tr>{menu}</tr></table><h1>{name}</h1><p>It was built in {1900 + number}.</p>"
            "<div>Kept by Weserkran GmbH</div>"
        )
    reader = FolderReader(tmp_path)
    nodes = MentionTripleExtractor()(reader.load_data())
    assert [node.metadata["title"] for node in nodes] == names
    assert {triple["object"] for node in nodes for triple in node.metadata["gear_triples"]} <= {"1900", "1901", "1902"}


@needs_converter
def test_what_cannot_be_converted_is_named_and_all_else_is_indexed(
    run: Callable[..., Any], docs: Path, tmp_path: Path
) -> None:
    (docs / "bad.docx").write_bytes(b"PK\x03\x04 no archive")
    (docs / "bad.pdf").write_bytes(b"%PDF-1.4\n\xff\xfe")
    (docs / "deep.html").write_text("<div>" * 100_000 + "Ada met Bob.")
    (docs / "bomb.docx").write_bytes(zip_word(DOCUMENT.replace("founded", "x" * 200_000_000)))
    (docs / "good.html").write_text("<p>Ada met Charles Babbage.")
    done = run("index", "docs", "--store", "s")
    failed = {line.split(": ")[1] for line in done.err.splitlines() if line.startswith("failed: ")}
    assert done.code == 1 and {"bad.docx", "bad.pdf", "bomb.docx"} <= failed <= {
        "bad.docx",
        "bad.pdf",
        "bomb.docx",
        "deep.html",
    }
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        assert {"good.html", "Lego.txt"} <= {node.metadata["file"] for node in store.get_nodes(with_embeddings=False)}


def test_without_the_converter_each_file_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_files, "is_installed", lambda: False)
    for name in ("a.html", "a.rst", "a.pdf", "a.docx", "a.eml"):
        (tmp_path / name).write_text("Ada met Bob.")
    (tmp_path / "a.md").write_text("# Ada\n\nShe met Bob.")
    (tmp_path / "a.csv").write_text("name,town\nAda,Paris\nBob,Rome\n")
    reader = FolderReader(tmp_path)
    assert [document.text for document in reader.load_data()] == [
        "name: Ada; town: Paris.\n\n\nname: Bob; town: Rome.",
        "# Ada\n\nShe met Bob.",
    ]
    assert set(reader.skipped) == {"a.html", "a.rst", "a.pdf", "a.docx", "a.eml"}
    assert set(reader.skipped.values()) == {"needs: pip install 'llama-index-gear[files]'"}


@needs_converter
def test_a_term_of_html_is_a_block_and_one_without_an_end_is_read(read: Callable[..., Any]) -> None:
    page = "<h1>Yard</h1><dl><dt>AMPERSAND (&amp;)</dt><dd>Switch to the <b>state</b>.</dd><dt>Crane</dt><dd>Tall.</dd>"
    ((_, text),) = read("terms.html", f"{page}</dl>")
    assert text.split("\n\n")[1:] == ["AMPERSAND (&)", "Switch to the **state**.", "Crane", "Tall."]
    unclosed = "".join(f"<DT><A HREF='https://x.example/{number}'>Crane {number}</A>\n" for number in range(500))
    found = read("bookmarks.html", f"<h1>Marks</h1><DL><p>{unclosed}</DL>")
    assert "Crane 499" in found[-1][1] or "Crane 499" in found[0][1]
