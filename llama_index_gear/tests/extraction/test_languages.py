"""Names in texts of other languages and registers: letters, chats, contracts, data sheets, read-me files."""

from __future__ import annotations

import pytest

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor


def names(text: str, title: str = "T") -> list[str]:
    return [triple.object for triple in MentionTripleExtractor().extract(text, title)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "Elle est née à Paris. Né en 1950 à Nantes, il étudia à l'École normale. Cependant, Paul refuse. Depuis"
            " lundi, Aurélie travaille chez Renault. Lorsque Claire partit, il n'y avait rien. C'est la vie. Travaille"
            " avec Luc.",
            ["Paris", "Nantes", "École", "Paul", "Aurélie", "Renault", "Claire", "Luc"],
            id="French",
        ),
        pytest.param(
            "L'entreprise Dassault Systèmes fournit CATIA aux usines de Lyon et d'Aix-en-Provence. Jeanne d'Arc vint"
            " de l’Allemagne. L'Allemagne est grande. L'Oréal est une entreprise que L'Oréal dirige.",
            [
                "Dassault Systèmes",
                "CATIA",
                "Lyon",
                "Aix-en-Provence",
                "Jeanne d'Arc",
                "Allemagne",
                "Allemagne",
                "L'Oréal",
            ],
            id="French elision",
        ),
        pytest.param(
            "Nació en Bogotá en 1980. Después trabajó con Gabriel García Márquez. Sin embargo, Pedro no vino. ¿Quién"
            " llamó a Lucía? Según María, el Ayuntamiento de Madrid aprobó el plan. Cuando llegó Luis, todos se fueron."
            " Está en la calle. También hubo lluvia. Desde 2010, Repsol opera en Perú.",
            [
                "Bogotá",
                "Gabriel García Márquez",
                "Pedro",
                "Lucía",
                "María",
                "Ayuntamiento de Madrid",
                "Luis",
                "Repsol",
                "Perú",
            ],
            id="Spanish",
        ),
        pytest.param(
            "Nasceu em Lisboa em 1950. Depois, a empresa Galp comprou a Petrogal. Segundo João Silva, não há plano."
            " Também foi com Ana para o Porto.",
            ["Lisboa", "Galp", "Petrogal", "João Silva", "Ana", "Porto"],
            id="Portuguese",
        ),
        pytest.param(
            "Nel 1950 si trasferì a Milano. Dopo la guerra, Enzo Ferrari costruì auto a Maranello. Anche Paolo venne."
            " Nato a Roma, studiò con Fermi. Tuttavia il progetto fallì. La società fu fondata a Torino da Giovanni"
            " Agnelli. Questo è dell'Università di Pisa.",
            ["Milano", "Enzo Ferrari", "Maranello", "Paolo", "Roma", "Fermi", "Torino", "Giovanni Agnelli"]
            + ["Università di Pisa"],
            id="Italian",
        ),
        pytest.param(
            "Volgens Jan de Vries is de brug klaar. Sinds maandag werkt Annelies bij Philips in Eindhoven. Dit is goed."
            " Deze week komt Piet. Hij werd geboren in Leiden. Daarna verhuisde zij naar Den Haag.",
            ["Jan de Vries", "Annelies", "Philips", "Eindhoven", "Piet", "Leiden", "Den Haag"],
            id="Dutch",
        ),
        pytest.param(
            "Он родился в Гурьеве. После войны Анна Ахматова жила в Ленинграде. Однако проект закрыли. Это хорошо."
            " В 1997 году появился Яндекс. Когда пришёл Иван, все ушли. Родился в Туле.",
            ["Гурьеве", "Анна Ахматова", "Ленинграде", "Яндекс", "Иван", "Туле"],
            id="Russian",
        ),
    ],
)
def test_what_opens_a_sentence_is_no_name_in_other_languages(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_a_word_that_opens_a_sentence_is_a_name_if_it_is_one_elsewhere() -> None:
    assert names("Valencia en otoño es bonita. La ciudad de Valencia está en la costa.") == ["Valencia", "Valencia"]
    assert names("Valencia en otoño es bonita, y está en la costa.", "Valencia y Murcia") == ["Valencia"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Vielen Dank für Ihre Nachricht. Leider hat die Firma Kübler GmbH das Ersatzteil nicht geliefert. Für"
            " Rückfragen steht Ihnen der Kundendienst gerne zur Verfügung. Herr Yilmaz wird Sie in Augsburg besuchen.",
            ["Kübler GmbH", "Yilmaz", "Augsburg"],
        ),
        (
            "Betreiberin ist die Zermatt Bergbahnen AG. Deren Präsident, Franz Julen, stammt aus Brig. Wasserkraft aus"
            " dem Wallis liefert den Strom. Hersteller war damals Garaventa.",
            ["Zermatt Bergbahnen AG", "Franz Julen", "Brig", "Garaventa"],
        ),
        (
            "Gebaut wurde sie von Garaventa. Bekannt ist der Ort für das Werk Meissner. Gelegen ist er am Rhein, und"
            " Gerhardt ist von hier.",
            ["Garaventa", "Werk Meissner", "Gerhardt"],
        ),
        (
            "Die Seilbahn wurde von Garaventa gebaut. Im Sommer fährt die Seilbahn nach Zermatt.",
            ["Garaventa", "Zermatt"],
        ),
    ],
)
def test_german_letters_and_compounds(text: str, expected: list[str]) -> None:
    assert names(text, "Seilbahn") == expected


MAIL = """From: Sarah Connolly <sarah@hellmann.com>
To: procurement@acme.io
Cc: Bob
Date: Tue, 14 May 2024 09:12:33 +0200
Subject: Re: The draft

Hi Tom,

Thanks for your mail. I've spoken to Legal, and they accept clause 7.2. Could you send it to Maria, please?

On Mon, May 13, 2024 at 5:01 PM Tom Baker <tom@acme.io> wrote:
> Hello Sarah, the draft is attached. Regards, Tom

Best regards,
Sarah Connolly
Head of Procurement
Hellmann Logistics GmbH
Phone: +49 40 1234567
"""


def test_a_letter_s_lines_are_sentences() -> None:
    found = [(triple.predicate, triple.object) for triple in MentionTripleExtractor().extract(MAIL, "T")]
    header, clause = "From: Sarah Connolly <sarah@hellmann.com>", "I've spoken to Legal, and they accept clause 7.2."
    reply = "On Mon, May 13, 2024 at 5:01 PM Tom Baker <tom@acme.io> wrote:"
    assert found == [
        (header, "Sarah Connolly"),
        (header, "sarah@hellmann.com"),
        ("To: procurement@acme.io", "procurement@acme.io"),
        ("Cc: Bob", "Bob"),
        ("Hi Tom,", "Tom"),
        (clause, "Legal"),
        ("Could you send it to Maria, please?", "Maria"),
        (reply, "May 13"),
        (reply, "Tom Baker"),
        (reply, "tom@acme.io"),
        ("Hello Sarah, the draft is attached.", "Sarah"),
        ("Regards, Tom", "Tom"),
        ("Sarah Connolly", "Sarah Connolly"),
        ("Head of Procurement", "Head of Procurement"),
        ("Hellmann Logistics GmbH", "Hellmann Logistics GmbH"),
    ]


def test_hard_wrapped_prose_goes_on_over_its_lines() -> None:
    text = "He moved from the small village where he was born to the city of New\n"
    text += "York, and worked there for twenty years, at last for the Acme\n"
    assert names(text + "Company until he retired.") == ["New York", "Acme Company"]


CHAT = """[09:02] keeva: anyone seen the restart?
[09:03] dmitri: yeah, it crashed. Looking.
[09:05] Ben S.: OOM again? see INC-2041
[09:06] dmitri: no, pinned it to 2.7
[09:07] keeva: Thanks!! Can you tell @Pri and @ify?
Pri: Done. Ask keeva.
[09:08] * lars waves to the crane
Paul Kern: Is the Osthafen open?
Ida Falk: did anyone ask lars?
"""


def test_a_chat_s_lines_are_sentences_and_its_speakers_names() -> None:
    found = [(triple.predicate, triple.object) for triple in MentionTripleExtractor().extract(CHAT, "T")]
    assert found == [
        ("[09:02] keeva: anyone seen the restart?", "keeva"),
        ("[09:03] dmitri: yeah, it crashed.", "dmitri"),
        ("[09:05] Ben S.: OOM again? see INC-2041", "Ben S"),
        ("[09:05] Ben S.: OOM again? see INC-2041", "OOM"),
        ("[09:05] Ben S.: OOM again? see INC-2041", "INC-2041"),
        ("[09:06] dmitri: no, pinned it to 2.7", "dmitri"),
        ("[09:07] keeva: Thanks!!", "keeva"),
        ("Can you tell @Pri and @ify?", "@Pri"),
        ("Can you tell @Pri and @ify?", "@ify"),
        ("Ask keeva.", "keeva"),
        ("[09:08] * lars waves to the crane", "lars"),
        ("Paul Kern: Is the Osthafen open?", "Paul Kern"),
        ("Paul Kern: Is the Osthafen open?", "Osthafen"),
        ("Ida Falk: did anyone ask lars?", "Ida Falk"),
        ("Ida Falk: did anyone ask lars?", "lars"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # contracts
        ("Northwind Traders, Inc., sold it to Contoso Ltd. in Ohio.", ["Northwind Traders", "Contoso Ltd", "Ohio"]),
        ("They are in Exhibit A. Customer pays. See Appendix B. Then ask Ann.", ["Exhibit A", "Appendix B", "Ann"]),
        ("It is vitamin D. Ann B. Lee knows.", ["Ann B. Lee"]),
        ("The fee of clause 7.2. Then Rome. It is v2.1. Then Bonn.", ["Rome", "v2.1", "Bonn"]),
        # data sheets
        (
            "| Property | Value |\n|---|---|\n| Model | AX-200 |\n| Flow rate | 12.5 m³/h |\n| Weight | 14 kg |"
            "\n| Supplier | Grundfos Holding A/S |",
            ["AX-200", "Grundfos Holding A/S"],
        ),
        ("Compatible with Modbus. Spare parts: none. Operating in Rome.", ["Modbus", "Rome"]),
        # strokes that join
        ("the CI/CD and TCP/IP at 5 km/h, Berlin/Hamburg and read/write", ["CI/CD", "TCP/IP", "Berlin", "Hamburg"]),
        # code
        (
            "[![PyPI](https://img.shields.io/pypi/v/x.svg)](https://pypi.org/project/x/) works",
            ["PyPI"] + ["https://pypi.org/project/x/"],
        ),
        ("we pin certifi==2023.7.22 and numpy>=1.26, not 3>=2", ["certifi", "numpy"]),
        (
            "It uses torch.\n\n```python\nfrom torch import nn\nimport numpy as np\n```\n\nnumpy is needed.",
            ["torch"] + ["torch", "numpy", "numpy"],
        ),
        ("```\nexport FAST_HOME=/opt/fast --out_dir=x\n```", ["FAST_HOME"]),
        ("```python\n@property\ndef some_name(): ...\n```\nAsk @jdoe, not a @ b.", ["some_name()", "@jdoe"]),
        # a sentence of one word says nothing; an entry of a list does
        ("Approved. Grafana! LGTM", ["LGTM"]),
        ("- Grafana\n- Kafka", ["Grafana", "Kafka"]),
    ],
)
def test_registers(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_words_that_dutch_shares_with_english_make_no_passage_dutch() -> None:
    text = "The Hotel Wentworth in New Castle serves our house blend. The blend is half Pink Bourbon."
    assert names(text, "Hotel Wentworth") == ["New Castle", "Pink Bourbon"]
    assert names("In Leiden is hij nu. In het huis is Piet.") == ["Leiden", "Piet"]


def test_who_is_of_an_institution_is_not_named_by_it() -> None:
    """ "Von der" joins the parts of a name, but not a person and what they work for."""
    text = "Die Sackmann GmbH näht Säcke in Bremen. Sie kennt Priya Raman von der Messe und Ulf von der Akademie."
    assert names(text, "Sackmann GmbH") == ["Säcke", "Bremen", "Priya Raman", "Ulf"]
    text = "Sie kennt Eva Kern von der Deutschen Bahn AG, Ulf Lang von der Berliner Sparkasse und Kai von den Grünen."
    assert names(text) == ["Eva Kern", "Deutschen Bahn AG", "Ulf Lang", "Berliner Sparkasse", "Kai"]
    text = "Hier ist Anne Roth von den Vereinten Nationen mit Ida Bär von der ARD. Er ist Vorstand der Deutschen Bahn."
    assert names(text) == ["Anne Roth", "Vereinten Nationen", "Ida Bär", "ARD", "Vorstand", "Deutschen Bahn"]
    assert names("Das ist auch ein Bild von den Alpen, und von Otto von der Linden in Bonn.") == [
        "Alpen",
        "Otto von der Linden",
        "Bonn",
    ]
    assert "Walther von der Vogelweide" in names("Hier sang auch Walther von der Vogelweide für die Leute.")
    assert "Ursula von der Leyen" in names("In Brüssel kennt Ursula von der Leyen jeder.")
