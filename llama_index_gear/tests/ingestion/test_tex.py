"""TeX keeps its words: those behind commands, in braces, and of letters with accents; a bibliography's entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_index_gear import FolderReader
from llama_index_gear.ingestion.tex import clean_tex, prepare_tex, read_bibliography
from llama_index_gear.tests.growth import assert_linear


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"J{\"urgen} K\"oln {\c C}aglar \v{C}ech Erd\H{o}s", "Jürgen Köln Çaglar Čech Erdős"),
        (r"na\"{\i}ve {\aa}r G\o rup", "naïve år Gørup"),
        (r"{\em The {C}rane} of the {L}efschetz", "The Crane of the Lefschetz"),
        (r"\textbf{the {B}lum} \frac{a}{b} $x_{i}^{10}$ \{a\}", r"\textbf{the Blum} \frac{a}{b} $x_{i}^{10}$ \{a\}"),
        (r"Blum vs.\ Kern\@. A\orcidID{0000-1} B\inst{1} \cite[p.~3]{x}C", "Blum vs. Kern. A B C"),
        (
            r"\newcommand{\yard}{\textsc{Ost}hafen\xspace}\def\nb{Nora Blum}\yard{} and \nb, \yards",
            r"Osthafen and Nora Blum, \yards",
        ),
        (
            r"\newcommand{\vek}[1]{\mathbf{#1}}\newcommand\z{0.5} \vek{x} \z",
            r" \vek{x} 0.5",
        ),
        (r"\verb|50% of it| is Blum's.% a comment", r"\verb|50% of it| is Blum's."),
    ],
)
def test_the_words_of_tex_stay(source: str, text: str) -> None:
    assert prepare_tex(f"\\documentclass{{book}}{source}") == f"\\documentclass{{book}}{text}"
    assert text in prepare_tex(source).split("\n")


def test_a_long_text_behind_a_command_is_said_once_and_a_name_each_time() -> None:
    said = prepare_tex(rf"\newcommand{{\long}}{{{'A crane is tall. ' * 20}}}\def\nb{{Nora Blum}}\long \nb, \long \nb")
    assert (said.count("crane"), said.count("Nora Blum")) == (20, 2)


def test_pictures_and_commands_among_authors_are_left_out() -> None:
    text = "**author**: \\\\AND {Nora Blum}\n\n[image: figures/crane.pdf]\n\nThe [crane: blue] is $\\alpha$.\n"
    assert clean_tex(text) == "**author**:  Nora Blum\n\nThe [crane: blue] is $\\alpha$.\n"


BIB = r"""@string{yard = "Osthafen Press"}
@article{blum24, title = {The {C}rane of {K}\"oln: $\alpha$ \& more}, author = {Blum, Nora and Paul Kern},
  journal = "Cranes, {B}lue", year = 2024, doi = {10.1/x}}
@comment{old}
@book{kern, editor={Kern, Paul}, note={No title}}
@misc{orr, Title = {Alone}}
"""


def test_an_entry_of_a_bibliography_is_a_record(tmp_path: Path) -> None:
    others = [("kern", "editor: Paul Kern\n\nnote: No title"), ("Alone", "Alone")]
    said = "author: Nora Blum, Paul Kern\n\njournal: Cranes, Blue\n\nyear: 2024"
    assert list(read_bibliography(BIB)) == [("The Crane of Köln: alpha & more", said), *others]
    (tmp_path / "refs.bib").write_text(BIB, "utf-8")
    (tmp_path / "old.bib").write_text("Cranes of Bremen, a list of no entries.\n", "utf-8")
    documents = FolderReader(tmp_path).load_data()
    assert [(one.metadata["title"], one.text) for one in documents] == [
        ("old", "Cranes of Bremen, a list of no entries.\n"),
        ("The Crane of Köln: alpha & more", said),
        *others,
    ]


@pytest.mark.parametrize(
    "piece", ["a", "a-", " ", "\n", "\\begin{thebibliography}", "a={b", "\\begin{a}", "\\def\\a{", "\\end{a}"]
)
def test_long_tex_takes_linear_time(piece: str) -> None:
    assert_linear(prepare_tex, piece.__mul__, 20_000)
    assert_linear(lambda text: [*read_bibliography(f"@a{{k,{text}")], piece.__mul__, 20_000)


def test_a_command_for_very_many_words_stays() -> None:
    source = f"\\newcommand{{\\yard}}{{{'Osthafen ' * 300}}}\\yard"
    assert source in prepare_tex(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "\\def\\be{\\begin{equation}}\\def\\ee{\\end{equation}}\nBefore Osthafen. \\be x = y \\ee After Bremen.",
            "Before Osthafen.\n\n$$\\begin{equation}\nx = y \n\\end{equation}$$\n\nAfter Bremen.",
        ),
        ("Let \\begin{quote}Nora Blum came.\\end{quote} Then.", "Let\n\n> Nora Blum came.\n\nThen."),
        ("\\newcommand{\\R}{\\mathbb{R}}The set \\R is hers.", "The set R is hers."),
        ("\\begin{verbatim}\n100% of it\n\\end{verbatim}", "```\n100% of it\n```"),
        ("\\begin{itemize}\n\\item Nora Blum", "- Nora Blum"),
        ("\\begin{enumerate}\n\\item A\n\\begin{itemize}\n\\item B\n\\end{enumerate}\nEnd.", "1. A\n   - B\n\nEnd."),
        ("Before.\n\\end{itemize}\nAfter.", "Before.\n\nAfter."),
        (
            "\\begin{tabular}{ll}\n\\centering \\textbf{Crane} & B \\\\\nBlue & d\n",
            "| Crane | B |\n| --- | --- |\n| Blue | d |",
        ),
        ("A $x = \\begin{pmatrix} 1 \\end{pmatrix}$ B.", "A $x = 1 $ B."),
    ],
)
def test_nothing_of_a_document_is_lost_with_a_formula_a_list_or_code(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "crane.tex").write_text(source, "utf-8")
    (document,) = FolderReader(tmp_path).load_data()
    assert document.text.strip() == said


def test_a_list_of_references_has_the_title_of_its_document(tmp_path: Path) -> None:
    command = "\\newcommand{\\crane}{The Crane of}"
    (tmp_path / "main.tex").write_text(
        f"{command}\\title{{\\centering \\crane{{}} Bremen}}\n\\maketitle\nText.", "utf-8"
    )
    (tmp_path / "main.bbl").write_text("\\bibitem{a} Nora Blum. Cranes. 2024.", "utf-8")
    (tmp_path / "other.bbl").write_text("\\bibitem{a} Paul Kern. Yards. 2024.", "utf-8")
    titles = [document.metadata["title"] for document in FolderReader(tmp_path).load_data()]
    assert titles == ["The Crane of Bremen", "The Crane of Bremen", "other"]


def test_styles_of_tex_and_prints_are_for_programs(tmp_path: Path) -> None:
    texts = {
        "yard.sty": "\\def\\yard{x}\n",
        "yard.bst": "FUNCTION {yard}\n",
        "yard.cls": "% A class\n\\ProvidesClass{yard}\n",
        "crane.eps": "%!PS-Adobe-2.0 EPSF-2.0\n",
        "Crane.cls": "public class Crane { // Nora Blum built it for Bremen\n}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    reader = FolderReader(tmp_path)
    assert [document.id_ for document in reader.load_data()] == ["Crane.cls"]
    assert reader.skipped["yard.cls"] == reader.skipped["yard.sty"] == "a style of TeX, which is for programs"
    assert "PostScript" in reader.skipped["crane.eps"]
