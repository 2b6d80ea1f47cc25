"""Names in notes, manuals and proofs: what opens a sentence there is an imperative, a verb or a variable."""

from __future__ import annotations

import pytest

from llama_index_gear import MentionTripleExtractor


def find(text: str, title: str = "Yard") -> set[str]:
    return {triple.object for triple in MentionTripleExtractor().extract(text, title)}


@pytest.mark.parametrize(
    ("text", "none", "names"),
    [
        (
            "Apri il menu delle note e scegli. Fai clic su Nora Blum, se il tuo nome non è qui. Puoi usare Obsidian per"
            " la nota. Ad esempio con un collegamento.",
            "Apri, Fai, Puoi, Ad",
            "Nora Blum, Obsidian",
        ),
        (
            "Garante que o algoritmo varie. Pode ser usado com o MIPS em uma máquina. Caso médio: não há. Finalmente"
            " Nora Blum escreveu o texto.",
            "Garante, Pode, Caso, Finalmente, Finalmente Nora Blum",
            "MIPS, Nora Blum",
        ),
        (
            "Pulsa el botón de la ventana. Guarda tus notas en Obsidian. Debes elegir una para que Nora Blum la vea.",
            "Pulsa, Guarda, Debes",
            "Obsidian, Nora Blum",
        ),
        (
            "Ouvrez la page des notes et cliquez. Choisissez votre nom dans Obsidian pour le voir.",
            "Ouvrez, Choisissez",
            "Obsidian",
        ),
        (
            "Klik op je naam in het menu. Kies daarna een van de notities van Nora Blum, want die zijn er al.",
            "Klik, Kies",
            "Nora Blum",
        ),
    ],
)
def test_imperatives_of_a_text_that_addresses_its_reader_are_no_names(text: str, none: str, names: str) -> None:
    found = find(text)
    assert not found.intersection(none.split(", ")) and found.issuperset(names.split(", "))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "Garibaldi nacque nella città di Nizza. Mazzini fondò una società, che era segreta.",
            "Garibaldi, Mazzini, Nizza",
        ),
        ("Clemente escribió una novela en la ciudad. Cervantes murió con los suyos.", "Clemente, Cervantes"),
        (
            "Bogotá, que es la capital, está en los Andes. Medellín y Cali son más pequeñas.",
            "Bogotá, Medellín, Cali, Andes",
        ),
        (
            "Airbus construit des avions à Toulouse. Nous vous remercions de votre visite. Renault est aussi une"
            " marque de la ville.",
            "Airbus, Toulouse, Renault",
        ),
        (
            "Repsol vende gas en la ciudad. Si usted quiere, llame hoy. Telefónica ofrece internet.",
            "Repsol, Telefónica",
        ),
        ("Amusement stemt niet over het plan van de stad, maar Management wel.", "Amusement"),
        ("Philips maakt de lampen. Wilt u een prijs van ons? Ahold opent daar een winkel.", "Philips, Ahold"),
        ("Rembrandt schilderde het doek. Vermeer woonde ook in een huis van de stad.", "Rembrandt, Vermeer"),
    ],
)
def test_a_name_that_opens_a_sentence_about_somebody_stays(text: str, names: str) -> None:
    assert find(text).issuperset(names.split(", "))


def test_an_adverb_of_italian_is_no_name() -> None:
    assert find("Certamente lavora nella città di Roma, che è grande. Nora Blum è lì.") == {"Roma", "Nora Blum"}


def test_an_imperative_that_mostly_opens_sentences_is_no_name() -> None:
    switch = "Switch to the state. Emit the token. " * 5
    said = MentionTripleExtractor().extract(f"{switch}In the sign Switch was seen once.", "Yard")
    assert [triple.predicate for triple in said] == ["In the sign Switch was seen once."]
    assert "Switch" in find("Switch is a console. It is the Switch of Nora Blum. She has a Switch and the Switch.")


def test_variables_of_proofs_are_no_names() -> None:
    proof = (
        "Sei X ein Raum mit Y = Z und f = idX. Dann ist 4ABC = 4DEF und R2 = S1. Es gilt Wege = idY, sagt Nora Blum."
    )
    assert find(proof) == {"Nora Blum"}
    english = "Let X be in Y and f = idX, so R2 = S1 and Ui = Z for the map of Emmy Noether = Y."
    assert find(english) == {"Emmy Noether"}
    assert {"R2", "S1"} <= find("The robots R2 and S1 met in the yard of Bremen, near a crane.")


def test_initials_are_no_variables() -> None:
    english = "A. Smith, B. Jones, C. Miller, D. Brown, J. Wood and K. Li wrote for the EU and the UN in May."
    assert {"EU", "UN"} <= find(english)
    german = "Nach M. Kern, B. Blum und P. Weber liegt Bremen an der Weser. Hamburg wuchs."
    assert {"Bremen", "Hamburg"} <= find(german)


def test_words_of_formulas_are_no_names() -> None:
    assert find("On the $C^*$-algebra and $T\\sim175$ of H^1 Nora Blum wrote.") == {"Nora Blum"}
    assert find("Ke$ha met A$AP Rocky there.") == {"Ke$ha", "A$AP Rocky"}


def test_what_begins_a_docstring_a_comment_or_a_cell_is_no_name() -> None:
    code = 'def run():\n    """Test the yard."""\n    # Test it with Nora Blum\n    return 1\n'
    assert "Test" not in find(code) and "Test the" not in find(code)
    rows = "| who | what | whom |\n|---|---|---|\n| Nora | The AI is applied for it | The Beatles |\n"
    assert "AI" in find(rows) and "The AI" not in find(rows) and "The Beatles" in find(rows)


def test_a_dash_or_a_mark_of_a_comment_begins_a_sentence() -> None:
    for mark in ("—", "–", "#"):
        assert find(f"The crane of Bremen {mark} Press the button {mark} Recently Nora Blum left.") == {
            "Bremen",
            "Nora Blum",
        }


def test_yes_and_no_of_a_table_are_no_names() -> None:
    assert find("| sort | estável |\n|---|---|\n| Shell | Não |\n| Bubble | Sim |\n") == {"Shell", "Bubble"}
