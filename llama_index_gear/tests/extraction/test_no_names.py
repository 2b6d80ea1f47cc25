"""Words with a capital letter, a mark or a place of their own for another reason than to be a name."""

from __future__ import annotations

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear import MentionTripleExtractor, read_triples
from llama_index_gear.extraction.languages import tell_language


def names(text: str, file: str = "a.md", title: str = "Yard") -> list[str]:
    """Return the different names of a passage, in its order."""
    node = TextNode(text=text, metadata={"title": title, "file": file})
    return list(dict.fromkeys(triple.object for triple in read_triples(MentionTripleExtractor()([node])[0])))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the stamp of a machine; a date of people stays
        ("Received: by Osthafen; Mon, 1 Jan 2024 12:00:00 +0000", ["Osthafen"]),
        ("It says: Tue Feb 13 09:15:02 2024 in Bremen.", ["Bremen"]),
        ("The gate closed on 3 Oct 2023 18:30 in Bremen.", ["Bremen"]),
        ("At Bremen Theresa May 12:30 spoke.", ["Bremen Theresa May"]),
        ("The gate closed in October 2023 in Bremen.", ["October 2023", "Bremen"]),
        # a number of a section
        ("3.1 Scripts of the yard are in Bremen.\n\n2.4.1 Script state at Osthafen.", ["Bremen", "Osthafen"]),
        ("1.2 Nora Blum paints.", ["Nora Blum"]),
        # a number behind points to a place of the document
        ("See Additional Figure 2.1 and Extended Data Table 3 by Nora Blum.", ["Nora Blum"]),
        ("As Ref. 12 and Merged Cell 1.1 say, Bremen is far.", ["Bremen"]),
        ("They saw Father Figures (2017) in Bremen.", ["Father Figures", "Bremen"]),
        # an adjective of a people or faith behind a small word
        ("The non-Hispanic, anti-German and pre-Islamic yards of Bremen are old.", ["Bremen"]),
        ("The al-Qaeda yard is old.", ["al-Qaeda"]),
        # an imperative or adverb, an article, and a name
        ("Set the DOCTYPE of it. Historically the Tor Project did.", ["DOCTYPE", "Tor Project"]),
        # a participle with a date behind it
        ("Paul Kern won in 2004. Beijing (2008) was lost. Alfred 1990 ended.", ["Paul Kern", "Beijing", "Alfred 1990"]),
        ("Paul Kern said it. Archived 2013-05-13 at Bremen. Retrieved 12.5.2020.", ["Paul Kern", "Bremen"]),
        # in brackets, as the text writes it elsewhere
        ("In a mandatory part: a part (Mandatory, short) at Bremen, the mandatory one.", ["Bremen"]),
        ("We stand (Bremen) here.", ["Bremen"]),
        # bullets inside of a line
        ("has: the foreword • Reading at Osthafen ▪ Bremen.", ["Osthafen", "Bremen"]),
        # a line in capitals
        ("BLUM, NORA; BREMEN; MEALS; LODGING; 12.", ["BLUM", "NORA", "BREMEN"]),
        ("NASA and the ESA are said to have told it to the CIA, as the others know.", ["NASA", "ESA", "CIA"]),
        # a line in bold, alone
        ("**bold**\n\nThe bold one is in Bremen.", ["Bremen"]),
        ("# certifi\n\nThe certifi is in Bremen.", ["certifi", "Bremen"]),
        # a picture's text that is its file's name
        ("The hall: ![CleanShot 2022-10-12.png](../a.png) and ![Nora Blum](n.png).", ["Nora Blum"]),
        ("![Screenshot from Osthafen.jpeg](x) stands in Bremen.", ["Bremen"]),
        # the kind of a number, in front of it
        ("- Beta 0.8.15\n- Alpha 1.2.3 of Kafka 2.8.0\n- Beta in Bremen", ["Kafka", "Beta", "Bremen"]),
        ("Nora Blum. ISBN 978-0-415-08009-5. S2CID 8570-1. The ISBN is new.", ["Nora Blum", "ISBN"]),
        # a participle in front of a noun, or of brackets
        (
            "- Nested item 1\n- Archived (PDF) from Bremen\n- Jared paints\n- Alfred went",
            ["PDF", "Bremen", "Jared", "Alfred"],
        ),
        # a label in brackets, of a common word
        ("It is (Standard: 5) at Kiel (Bremen: 6).", ["Kiel", "Bremen"]),
        # a page of a common word, alone above its items
        (
            "- x\n\t- [[Thanks]]\n\t\t- [[Nora]]\n\t- [[Fixed issues]]\n\t\t- z\n\t- [[Templates]]",
            ["Nora", "Templates"],
        ),
        # the label of a button in bold, and what is in front of it
        ("Al menu **Apri un altro kran** e nel sito: **Nora Blum** va a Roma.", ["Nora Blum", "Roma"]),
        ("Seleziona **Osthafen** dalla barra. La barra è a Kiel.", ["Osthafen", "Kiel"]),
        ("Kestrel **API** is in Bremen.", ["Kestrel API", "Bremen"]),
        # what a passage has as an infinitive too
        (
            "Per aprire la nota vai da Nora Blum. Apri note di Kiel. Kestrel vende la nota.",
            ["Nora Blum", "Kiel", "Kestrel"],
        ),
        ("Per dare la nota vai da Nora Blum. Dan vende la nota.", ["Nora Blum", "Dan"]),
        (
            "Wähle unter Format aus, wenn du magst. Wähle **Neue Notiz**. Gib optional Kiel ein. Halle liegt fern.",
            ["Format", "Neue Notiz", "Kiel", "Halle"],
        ),
        ("Um eine Farbe zu wählen, ist das nicht nötig. Wähle aus der Liste. Halle ist bei Kiel.", ["Halle", "Kiel"]),
        # a name in front of bold text, and one in bold with a small word behind
        ("IBM **Watson** won. Juan **Pérez** too. The **Kafka broker** fell.", ["IBM Watson", "Juan Pérez", "Kafka"]),
        ("He met **Paul and Ida**. Go to **Settings and privacy** in **Bremen**.", ["Paul", "Ida", "Bremen"]),
        # no imperative, whatever infinitive stands there
        ("Para marcar un gol hay que correr. Marco vive en Lima con su perro.", ["Marco", "Lima"]),
        ("Das ist für dich nicht weit von dem Ort. Goethe starb dort. Silke, du bist da.", ["Goethe", "Silke"]),
        # a name and a year, where openers are unknown
        ("Kraków 1920 był miastem i nie jest to. W 1920 roku przez to się cieszyła.", ["Kraków 1920"]),
        # words that are shouted
        ("El bot NUNCA ofrece la caja, que NO es de Nora Blum. La SIN está en el puerto.", ["Nora Blum", "SIN"]),
        # a preposition in front of an address
        ("activity: From Yard.example; film: From Hell to Bremen.", ["Yard.example", "From Hell", "Bremen"]),
        # options of commands
        ("It runs iptables -A INPUT and gcc -O for Nora Blum.", ["INPUT", "Nora Blum"]),
    ],
)  # fmt: skip
def test_what_is_no_name(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('def run():\n    """Headers from Osthafen."""\n    assert x == "Test"\n', {"Osthafen"}),
        ("x = 1  # Options to pass\ny = 2  # Scripts run at Osthafen\n", {"Osthafen"}),
        ('class Scripts:\n    pass\n\n\nx = Scripts("Kafka")\n', {"Scripts"}),
        ("import pump.__main__\nfrom yard.__init__ import gate\n", {"pump.__main__", "yard.__init__"}),
    ],
)
def test_comments_and_strings_of_code_begin_sentences(text: str, expected: set[str]) -> None:
    found = set(names(text, "a.py"))
    assert expected <= found
    assert not found & {"Headers", "Test", "Options", "pump.__main", "Scripts"} - expected


@pytest.mark.parametrize(
    "line",
    ["iptables -A INPUT -p TCP -j ACCEPT", "docker run --rm -v /a:/b -e Name Osthafen", "Foo.Bar(x1, y2); z();"],
)
def test_a_passage_from_the_middle_of_code_is_code(line: str) -> None:
    code = f"{line}\n" * 4
    assert names(f"{code}\n{code}") == [name for name in names(f"```\n{code}\n{code}```")]


def test_prose_with_a_command_in_it_is_prose() -> None:
    text = "Nora Blum runs it.\nShe calls pump -v here.\nPaul Kern calls pump -x too.\nThey live in Bremen.\n"
    assert names(text) == ["Nora Blum", "Paul Kern", "Bremen"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("-Nora Blum arrived", "-Paul Kern left", "-Ida Falk stayed"), ["Nora Blum", "Paul Kern", "Ida Falk"]),
        (("Blum, N. (1999);", "Falk, I. (2003);", "Kern, P. 2001;"), ["Blum", "Falk", "Kern"]),
    ],
)
def test_entries_of_a_list_are_prose(lines: tuple[str, ...], expected: list[str]) -> None:
    found = " ".join(names("\n".join(lines)))
    assert all(name in found for name in expected)


def test_words_of_a_cell_that_the_passage_writes_small_are_no_name() -> None:
    rows = "| a | Purpose and Use Cases | What are the use cases? |\n| b | Golden Gate | Why golden? |\n"
    assert names(f"| k | l | m |\n|---|---|---|\n{rows}") == ["Golden Gate"]


@pytest.mark.parametrize(
    "text",
    [
        "Die Seite zeigt es. Ein topologischer Raum X heißt offen, wenn die Mannigfaltigkeit M es ist.",
        "Die hyperbolische Ebene H ist offen. Es gibt genau eine euklidische Ebene, wie man sagt.",
        "Es ist so. O. B. d. A. sei die Gerade offen, wie man sagt, und das ist nicht schwer.",
        "In R3 gilt = und auch = so, wenn der Punkt in R3 liegt, was in S1 der Fall ist, und Q 2 X.",
    ],
)
def test_variables_and_abbreviations_of_proofs_are_no_names(text: str) -> None:
    assert names(text) == []


def test_a_name_with_a_letter_behind_it_is_whole() -> None:
    text = "Die Reden von Malcolm X sind bekannt, und der Apple II ist alt, wie man in Bremen sagt."
    assert names(text) == ["Malcolm X", "Apple II", "Bremen"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("- Definición de redes en la casa y en el puerto\n- Gestión de datos que son de la red", ""),
        ("Gestione di progetti che sono nella casa, e non di altri. Nora di notte.", ""),
        ("Elaboração de relatórios com os dados que não são do porto.", ""),
        ("Existen varios puertos en la ciudad. Surgieron otros con el tiempo. Crecen dos para la red.", ""),
        ("Servono due porti nella casa. Esistono altri che sono di legno, e non alcuni.", ""),
        ("Zijn er dan andere huizen van hout? Bestaan twee huizen in de stad die het zijn?", ""),
        ("Universidad de Madrid es la que está en el puerto con los otros.", "Universidad de Madrid"),
        ("Utilisation de bases pour les ports dans la ville.", ""),
    ],
)
def test_a_noun_with_a_noun_behind_it_opens_a_sentence(text: str, name: str) -> None:
    assert names(text) == ([name] if name else names(text)[:0])


@pytest.mark.parametrize(
    "text",
    [
        "Lorem ipsum dolor sit amet, consetetur elitr, sed diam ut labore et dolore. Stet clita kasd no sea.",
        "Gallia est omnis divisa in partes tres, quarum unam incolunt Belgae, qui ipsorum lingua Celtae, sed non ab.",
        "Quisque ullamcorper sit amet nulla eget. Morbi vel justo vitae lacus ut non dolor. Duis non odio et elit.",
    ],
)
def test_latin_is_told_and_its_openers_are_no_names(text: str) -> None:
    assert tell_language(text).foreign == "Latin"
    assert not set(names(text)) & {"Stet", "Gallia", "Quisque", "Morbi", "Duis", "Lorem"}


@pytest.mark.parametrize(
    "text",
    [
        "El puerto está en la ciudad, y no es de los otros que se ven.",
        "Il porto è nella città, e non è di altri per la via che si vede.",
        "Le port est dans la ville, et il ne sert pas aux autres qui sont là.",
        "The yard et al. say in vivo and ex situ, ad hoc and per se, that it is so.",
        "O porto está na cidade, e não é dos outros que se veem, sed non est.",
    ],
)
def test_other_languages_are_not_taken_for_latin(text: str) -> None:
    assert tell_language(text).foreign != "Latin"


@pytest.mark.parametrize("state", ["AFIRMATIVO", "Aprobado", "VIGENTE", "Pendiente"])
def test_a_state_that_fills_a_column_is_no_name(state: str) -> None:
    towns = [("Nora Blum", "Bremen"), ("Ida Falk", "Visby"), ("Paul Kern", "Kiel")]
    rows = [f"apellido y nombre: {name}; ciudad de la persona: {town}; {state}." for name, town in towns]
    assert names("\n\n".join(rows)) == [name for pair in towns for name in pair]
    assert state in names("\n\n".join(rows[:2]))
    capital = [f"apellido y nombre: {name}; ciudad de la persona: Bonn; Madrid." for name, _ in towns]
    assert "Madrid" in names("\n\n".join(capital))
