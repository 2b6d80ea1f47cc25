"""Words that open a sentence are names by evidence, not by their capital letter."""

from __future__ import annotations

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.nodes import read_triples


def names(text: str, title: str = "T") -> list[str]:
    return [triple.object for triple in MentionTripleExtractor().extract(text, title)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Recently Nora Blum moved. Yesterday Paul Kern came.", ["Nora Blum", "Paul Kern"]),
        ("Currently Weserkran GmbH builds it. Unfortunately Ida Falk left.", ["Weserkran GmbH", "Ida Falk"]),
        ("Thank Nora Blum. Congratulate Ida Falk. Visit Bremen.", ["Nora Blum", "Ida Falk", "Bremen"]),
        ("Press the button. Stir the soup. Absolutely right. Sounds good.", []),
        ("| state | level |\n|---|---|\n| Current | High |\n| Passed | Low |", []),
        ("- Press\n- Stir\n- Nora", ["Nora"]),
        ("Converts the text. Right-click a cell. Generate pages. Resolves issue 5.", []),
        ("Select **Manage**, then **Open folder**, then **Osthafen**.", ["Osthafen"]),
        ("(`pump`) Returns the town.\n\nOsthafen → Open it.\n\nOsthafen - Get it.", ["pump", "Osthafen", "Osthafen"]),
        ("1. Generate a key for Nora Blum.\n2. Create it.", ["Nora Blum"]),
        ("+ <1> Try to see Nora Blum.", ["Nora Blum"]),
        ("<sarang> Otherwise Nora Blum does.", ["Nora Blum"]),
        ("file: Specifies the object; note: Good to have.", []),
        ("values: It fails. Since Ant 1.6 it works. Use Osthafen.", ["Ant", "Osthafen"]),
        ("- Fixes Weserkran\n- Added Osthafen\n- Bumped Bremen", ["Weserkran", "Osthafen", "Bremen"]),
        ("Congratulations Nora Blum! Welcome Ida Falk.", ["Nora Blum", "Ida Falk"]),
        (
            "They live, e.g. Nora Blum, in Bremen; see Section 4.1, Table 3 and Figure 2a. I.e. all.",
            ["Nora Blum", "Bremen"],
        ),
        ("need: Nice to have; 3D: Essential for me. Nice to see Nora Blum. It takes 700 MB.", ["Nora Blum"]),
        ("A transfer has Posted. A request was Closed by Nora Blum. It was Reading.", ["Nora Blum", "Reading"]),
        ("Defaults to `raw` in Bremen. Jones came to Bremen.", ["raw", "Bremen", "Jones", "Bremen"]),
        ("Mail to:Nora and p:Person, subject:This is From:<x>, of Osthafen.", ["Osthafen"]),
        ("Let A and B be sets, and Ui in X. Then f of Ui is in Y, or g of R2, for n and m in Hilbert.", ["Hilbert"]),
        ("The fruit of the yard and of the other yards near the river has vitamin C in it, as Ui says.", ["Ui"]),
        ("N 77 E 21 in Ui of C and D.", ["N 77 E 21"]),
        ("By Theorem 3 and Satz 1.1 it holds in Col 3 and Row 2, as Clause 4 says of Bremen.", ["Bremen"]),
        (
            "This is a WARNING MESSAGE only. Warning: it fell. We have NASA. NASA is here.",
            ["WARNING MESSAGE", "NASA", "NASA"],
        ),
        ("The operator L_0 of x_i takes X_train and pump_id.", ["X_train", "pump_id"]),
        ("Pass `A` or `-n` to `run`.", ["-n", "run"]),
        ("A bucket of S3 and a crane of Q4 stand in Bremen.", ["S3", "Q4", "Bremen"]),
        ("From 2D to 3D, with 1.5 GHz and 4GB (10248B).", []),
        # names like them
        ("Banks founded it. Bed-Stuy is far. It is **Osthafen**.", ["Banks", "Bed-Stuy", "Osthafen"]),
        ("Select **Press**. We know Press.", ["Press", "Press"]),
        # parts of names
        ("Golden Gate Bridge is old. Press Association wrote it.", ["Golden Gate Bridge", "Press Association"]),
        (
            "South Korea won. United Arab Emirates grew. Mount Fuji rose.",
            ["South Korea", "United Arab Emirates"] + ["Mount Fuji"],
        ),
        ("Welcome Collection is old. Fixed Income Fund too.", ["Welcome Collection", "Fixed Income Fund"]),
        # names that are words too
        ("Rose went out. Apple sells it. Paris is far. Nice lies there.", ["Rose", "Apple", "Paris", "Nice"]),
        ("We met Press. Press is a firm.", ["Press", "Press"]),
        (
            "SMS is sent. CI is red. It is of 3M, Nintendo 3DS and 4D Systems.",
            ["SMS", "CI", "3M", "Nintendo 3DS", "4D Systems"],
        ),
    ],
)
def test_english(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_values_types_and_pieces_of_code_are_no_names() -> None:
    assert names("It is `true`, a `string` or None, in `pump_id`. True is none.") == ["pump_id"]
    assert names("It takes Sequence[str and Pump(a.") == []


FOREIGN = [
    pytest.param(
        "Swedish",
        "Igår kom Nora Blum till hamnen. Efter det var det lugnt och kranen stod still. Kranen är ny. Sedan reste hon"
        " från Visby till Uppsala. Dagen efter det sov hon, och Visby var tyst. Visby är inte stort.",
        ["Nora Blum", "Visby", "Uppsala", "Visby", "Visby"],
        id="Swedish",
    ),
    pytest.param(
        "Polish",
        "Wczoraj Nora Blum przyjechała do Gdańska. Potem poszła na obiad, ale nie było tam nikogo. Dźwig jest nowy i"
        " stoi przy porcie. Następnie wróciła z Warszawy.",
        ["Nora Blum", "Gdańska", "Warszawy"],
        id="Polish",
    ),
    pytest.param(
        "Turkish",
        "Sonra İstanbul için yola çıktı ve orada çok kaldı. Vinç çok yeni ama daha kurulmadı. Bu yüzden Ankara ile"
        " konuştu.",
        ["İstanbul", "Ankara"],
        id="Turkish",
    ),
    pytest.param(
        "Catalan",
        "Ahir va venir la Núria Vidal. Després va pintar la barca, però no era seca. Malauradament a Girona plovia, i"
        " això no era bo per als altres. Després Jordi Puig va marxar, i després va tornar.",
        ["Núria Vidal", "Girona", "Jordi Puig"],
        id="Catalan",
    ),
    pytest.param(
        "Swahili",
        "Kisha alipaka rangi mashua, lakini haikuwa kavu. Kwa bahati mbaya mvua ilinyesha Mombasa na hii ilikuwa mbaya"
        " kwa wote. Rekebisha kosa la Mombasa.",
        ["Mombasa", "Mombasa"],
        id="Swahili",
    ),
    pytest.param(
        "another language",
        "- Dodano polje za Kestrel\n- Popravljeno delovanje v Kopru\n- Odstranjena podpora za Osprey\n"
        "- Posodobljen Kestrel\n",
        ["Kestrel", "Kopru", "Osprey", "Kestrel"],
        id="a Slovene change log",
    ),
    pytest.param(
        "another language",
        "- Adicionado suporte ao Kestrel\n- Corrigido erro Osprey grave\n- Removido comando antigo\n",
        ["Kestrel", "Osprey"],
        id="a Portuguese change log",
    ),
]


@pytest.mark.parametrize(("language", "text", "expected"), FOREIGN)
def test_a_language_without_rules_is_named_once(
    language: str, text: str, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    extractor = MentionTripleExtractor()
    nodes = extractor([TextNode(text=text, metadata={"title": "T"}), TextNode(text=text, metadata={"title": "T"})])
    assert [triple.object for triple in read_triples(nodes[0])] == expected
    assert extractor.foreign_passages == {language: 2}
    (record,) = caplog.records
    assert record.levelname == "WARNING" and language in record.getMessage() and "recognizer=…" in record.getMessage()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Początkowo Piotr Zając mieszkał w Lublinie. Zimą miasto jest puste. W 1950 roku most został zamknięty.",
            ["Piotr Zając", "Lublinie"],
        ),
        (
            "Eredetileg Szabó Péter itt élt, de ez nem volt könnyű. Sajnos senki nem maradt.",
            ["Szabó Péter"],
        ),
        (
            "Inițial Petru Iepure locuia la Iași, dar nu era ușor. Curând Maria Lup a înființat o școală.",
            ["Petru Iepure", "Iași", "Maria Lup"],
        ),
        ("Poté Petr Zajíc žil v Olomouci. Obvykle vlak odjíždí ráno.", ["Petr Zajíc", "Olomouci"]),
        (
            "Pian Liisa Aho perusti koulun Turkuun, mutta se ei ole suuri. Yleensä juna lähtee aamulla.",
            ["Liisa Aho", "Turkuun"],
        ),
        ("Başlangıçta Mehmet Kaya köyde yaşıyordu ve bu çok kolay değildi. Kışın şehir boş olur.", ["Mehmet Kaya"]),
        ("Därefter flyttade Per Holm till Borås, och det var inte lätt. Oftast går tåget.", ["Per Holm", "Borås"]),
        (
            "Aanvankelijk woonde Piet Bos in Delft, maar dat was niet veel. Helaas bleef Eva Smit daar.",
            ["Piet Bos", "Delft", "Eva Smit"],
        ),
    ],
)  # fmt: skip
def test_what_opens_a_sentence_begins_no_name_there(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_what_opens_a_sentence_there_is_a_name_if_the_passage_has_it_inside_one_too() -> None:
    text = "Kranen är ny och står still. Uppsala är inte stort. Hon reste från Visby till Gotland. Visby är det inte."
    assert names(text) == ["Visby", "Gotland", "Visby"]
    text = "Igår Nora Blum kom till hamnen, och det var lugnt. Där var inte Nora Blum på morgonen."
    assert names(text) == ["Nora Blum", "Nora Blum"]


def test_labels_and_function_words_of_other_languages_are_no_names() -> None:
    text = (
        "Caso real de 2024: la caja de Osthafen no está en el puerto. Barcelona es grande. → Si no, la bomba NO llega"
        " para Nora Blum."
    )
    assert names(text) == ["Osthafen", "Barcelona", "Nora Blum"]
    assert names("La caja de SIN está en el puerto, con la bomba.") == ["SIN"]
    far = "Barcelona es grande y la otra parte de la costa no es: la bomba está en el puerto para Nora Blum."
    assert names(far) == ["Barcelona", "Nora Blum"]
    other = "Barcelona es Osthafen: la bomba está en el puerto, para Nora Blum no."
    assert names(other) == ["Barcelona", "Osthafen", "Nora Blum"]
    assert names("La caja está en el puerto, con la bomba. OTAN y SEAT son de Osthafen.") == [
        "OTAN",
        "SEAT",
        "Osthafen",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "The crane is new. It stands in the harbour of Visby.",
        "Der Kran ist neu und steht im Hafen von Bremen.",
        "La grue est dans le port de Nantes avec un autre.",
        "Der Hafen Bremen: Kran, Boot, Pumpe, Tor; dazu Land, Haus und Hof, weil es so ist, aber als Erbe im Jahr.",
        "The señor and the fiancée of Dvořák saw a café and a smörgåsbord near the jalapeño field.",
        "Im Hafen von Bremen gab es zu dem Fest ein smörgåsbord, dazu bøf und Brot, wie es sie im Norden jedes Jahr"
        " gibt, wenn die Abende lang sind und alle noch lange bei ihren Booten stehen.",
        "kubectl apply -f pump.yaml && helm upgrade pump ./chart --set image.tag=2",
    ],
)
def test_other_texts_are_taken_for_no_such_language(text: str) -> None:
    extractor = MentionTripleExtractor()
    extractor.extract(text, "T")
    assert extractor.foreign_passages == {}


def test_a_passage_s_triples_do_not_depend_on_those_beside_it() -> None:
    nodes = [TextNode(text=text, metadata={"title": "T"}) for text in ("Press is here.", "We know Press.", "It is.")]
    alone = [read_triples(MentionTripleExtractor()([node])[0]) for node in nodes]
    assert [read_triples(node) for node in MentionTripleExtractor()(nodes)] == alone
