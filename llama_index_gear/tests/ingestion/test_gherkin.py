"""Tests that are told as steps: features and scenarios are headings, and the words that begin steps are no names."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_index_gear import MentionTripleExtractor, read_triples
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.gherkin import read_gherkin

ENGLISH = '''@wip
Feature: Lift a crane
  As Nora Blum she wants it up.

  Background:
    Given Paul Kern in Bremen

  Scenario Outline: Lift it <high>
    # not now
    When Osthafen: she pulls
    When she waits
    * Then it writes
      """
      Given Up
      """
    And this:
      | name | town |
      | Kran | Kiel |

    Examples: of cranes
      | high |
      | 5    |
'''


def test_steps_are_items_and_titles_headings() -> None:
    assert [line for line in read_gherkin(ENGLISH).split("\n") if line] == [
        "# Lift a crane",
        "As Nora Blum she wants it up.",
        "- given Paul Kern in Bremen",
        "## Lift it <high>",
        "- when Osthafen: she pulls",
        "- when she waits",
        "- then it writes",
        "```",
        "Given Up",
        "```",
        "- and this:",
        "| name | town |",
        "|---|---|",
        "| Kran | Kiel |",
        "## of cranes",
        "| high |",
        "|---|",
        "| 5    |",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ENGLISH, ["Nora Blum", "Paul Kern", "Bremen", "Osthafen", "Kran", "Kiel"]),
        (
            "# language: de\nFunktionalität: kran heben\n  Grundlage:\n    Angenommen Nora Blum steht dort\n\n"
            "  Szenario: er hebt\n    Wenn sie in Bremen zieht\n    Dann hebt Osthafen ihn\n",
            ["Nora Blum", "Bremen", "Osthafen"],
        ),
        (
            "# language: fr\nFonctionnalité: lever la grue\n  Plan du scénario: elle lève\n"
            "    Étant donné que Nora Blum est à Nantes\n    Quand elle tire\n    Alors Osthafen monte\n",
            ["Nora Blum", "Nantes", "Osthafen"],
        ),
    ],
)
def test_the_words_that_begin_steps_are_no_names(text: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "lift.feature").write_text(text, encoding="utf-8")
    reader = FolderReader(tmp_path)
    nodes = MentionTripleExtractor()(reader.read(tmp_path / "lift.feature"))
    reader.close()
    assert list(dict.fromkeys(triple.object for triple in read_triples(nodes[0]))) == expected


def test_a_step_with_a_colon_code_in_code_and_a_commented_row_lose_nothing() -> None:
    text = (
        'Feature: f\n\n  Scenario: s\n    Given a user: Nora Blum\n    Then it has:\n      """\n      ```py\n'
        '      Given Up\n      ```\n      """\n    And these\n      | a\\|b | c |\n      # | x | y |\n      | d | e |\n'
    )
    assert [line for line in read_gherkin(text).split("\n") if line] == [
        "# f",
        "## s",
        "- given a user: Nora Blum",
        "- then it has:",
        "```",
        "    ```py",
        "Given Up",
        "    ```",
        "```",
        "- and these",
        "| a\\|b | c |",
        "|---|---|",
        "| d | e |",
    ]
    assert "# क्रेन" in read_gherkin("रूप लेख: क्रेन\n  परिदृश्य: उठाना\n    अगर नोरा\n")
