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
            r"\newcommand{\vek}[1]{\mathbf{#1}}\newcommand\z{0.5} \vek{x} \z",
        ),
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


@pytest.mark.parametrize("piece", ["a", "a-", " ", "\n", "\\begin{thebibliography}", "a={b"])
def test_long_tex_takes_linear_time(piece: str) -> None:
    assert_linear(prepare_tex, piece.__mul__, 20_000)
    assert_linear(lambda text: [*read_bibliography(f"@a{{k,{text}")], piece.__mul__, 20_000)


def test_a_command_for_very_many_words_stays() -> None:
    source = f"\\newcommand{{\\yard}}{{{'Osthafen ' * 50}}}\\yard"
    assert source in prepare_tex(source)


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
