"""Names outside encyclopaedias: in company wikis, code, German, and scripts without capital letters."""

from __future__ import annotations

import pytest

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.triple import Triple, entity_key


def triples(text: str, title: str = "T") -> list[Triple]:
    return MentionTripleExtractor().extract(text, title)


def names(text: str, title: str = "T") -> list[str]:
    return [triple.object for triple in triples(text, title)]


RUNBOOK = """# Ledger Sync Runbook

## Known Issues

`ledger-sync` copies invoices to pg-main-02.internal:5432. It is owned by
**Team Ledger**; write to jane.doe@example.com.

- Restart ledger-sync. Then check [Grafana Board](https://grafana.internal/d/abc_(1)?x=1&y=a.b).
- [ ] See OPS-1432: the client pinned `certifi==2023.7.22`.
1. Ask Jane Doe. v2.3.1 fixed it on Monday.
2. Edit config/app.yaml and `README.md`.

```bash
pip install certifi
python -c "If True. Then False." # Not A Name
curl https://ledger.internal/health?full=1
```

| Service | Owner | Host |
|---|---|---|
| invoice-api | Team Billing | inv-01 |
| Nobody | Anna Meier | 10.0.3.14 |

> **Owner:** Bob Stone
"""


def test_a_runbook_in_markdown() -> None:
    code = (
        'pip install certifi python -c "If True. Then False." # Not A Name curl https://ledger.internal/health?full=1'
    )
    link = "Then check Grafana Board."
    ticket = "See OPS-1432: the client pinned `certifi==2023.7.22`."
    expected = [
        ("`ledger-sync` copies invoices to pg-main-02.internal:5432.", "ledger-sync"),
        ("`ledger-sync` copies invoices to pg-main-02.internal:5432.", "pg-main-02.internal"),
        ("It is owned by Team Ledger; write to jane.doe@example.com.", "Team Ledger"),
        ("It is owned by Team Ledger; write to jane.doe@example.com.", "jane.doe@example.com"),
        ("Restart ledger-sync.", "ledger-sync"),
        (link, "Grafana Board"),
        (link, "https://grafana.internal/d/abc_(1)?x=1&y=a.b"),
        (ticket, "OPS-1432"),
        (ticket, "certifi"),
        ("Ask Jane Doe.", "Jane Doe"),
        ("v2.3.1 fixed it on Monday.", "v2.3.1"),
        ("Edit config/app.yaml and `README.md`.", "config/app.yaml"),
        ("Edit config/app.yaml and `README.md`.", "README.md"),
        (code, "certifi"),
        (code, "https://ledger.internal/health?full=1"),
        ("invoice-api | Team Billing | inv-01", "invoice-api"),
        ("invoice-api | Team Billing | inv-01", "Team Billing"),
        ("invoice-api | Team Billing | inv-01", "inv-01"),
        ("Nobody | Anna Meier | 10.0.3.14", "Anna Meier"),
        ("Nobody | Anna Meier | 10.0.3.14", "10.0.3.14"),
        ("Owner: Bob Stone", "Bob Stone"),
    ]
    assert [(triple.predicate, triple.object) for triple in triples(RUNBOOK)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it runs on pg-main-02.internal, not eu-west-1.", ["pg-main-02.internal", "eu-west-1"]),
        (
            "read foo_bar and pkg.mod_a in src/app/main.py or ~/notes.txt",
            ["foo_bar", "pkg.mod_a", "src/app/main.py", "~/notes.txt"],
        ),
        ("mail ops+alerts@mail.example.co.uk. Then wait.", ["ops+alerts@mail.example.co.uk"]),
        ("(see https://en.wikipedia.org/wiki/Vienna_(city)).", ["https://en.wikipedia.org/wiki/Vienna_(city)"]),
        ("see <https://example.com/a/b.>, or www.example.com/x.", ["https://example.com/a/b", "www.example.com/x"]),
        ("OPS-1432 blocks Jira PAY-2001.", ["OPS-1432", "Jira", "PAY-2001"]),
        ("the McLaren MP4-18 and COVID-19", ["McLaren MP4-18", "COVID-19"]),
        (
            "run `kubectl get pods -n pay`, `--force`, `foo()` and `__init__`",
            ["kubectl get pods -n pay", "--force", "foo()", "__init__"],
        ),
        ("``an inbuilt tendency'' and ``another one'' of O`Brien", ["O`Brien"]),
        ("`this is a whole sentence that someone marked as code`", []),
        # ordinary words with hyphens, dots and strokes, though the passage has an identifier
        (
            "foo_bar is a well-known, co-written, user-facing, third-party and/or read-only e.g. i.e. end.the",
            ["foo_bar"],
        ),
        ("on 12/31/2020 at 3.5km/h, 1.2.3 and 10:30", []),
        # small words with hyphens: at the start, twice, or beside an identifier
        ("ledger-sync copies.", ["ledger-sync"]),
        ("restart ledger-sync. Then stop ledger-sync.", ["ledger-sync", "ledger-sync"]),
        ("the stage-coach, a singer-songwriter. a singer-songwriter.", []),
        ("restart ledger-sync for OPS-1432", ["ledger-sync", "OPS-1432"]),
        # small words alone
        ("`certifi` is old. Update certifi.", ["certifi", "certifi"]),
        ("`status` is old. Look at the status.", ["status"]),
        ("## certifi\n\nwe pin certifi.", ["certifi"]),
        ("pip install --upgrade certifi. Is certifi new?", ["certifi", "certifi"]),
        ("The package certifi is old: pip has certifi.", ["certifi"]),
        ("The package certifi is old.", []),
        ("The whole package is whole, says pip.", []),
    ],
)
def test_identifiers(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Born in Vienna, he moved. Ten men left. Es regnet. Hundreds died.", ["Vienna"]),
        ("Born Robert Zimmerman, he sang. Starring Tom Hanks, it won.", ["Robert Zimmerman", "Tom Hanks"]),
        ("Emboldened by Rome, they came. Restart it. Users see nothing.", ["Rome"]),
        ("Paul\u200b Kern met Ida\xad Falk.", ["Paul Kern", "Ida Falk"]),
        ("I'm out. Don't go. It's late. They're here. Let's see. We asked O'Brien.", ["O'Brien"]),
        ("On Monday and in March it rained. Sundays are free. It was March 1999.", ["March 1999"]),
        ("Note: The pool is full. Status: Open.", []),
        # a common word that has its capital letter inside a sentence too, or in the title
        ("Chicago won the Big Ten. Ten is a band.", ["Chicago", "Big Ten", "Ten"]),
        ("They like Access. Access is a database.", ["Access", "Access"]),
        ("A. R. Rahman sang. Vitamin A.", ["A. R. Rahman", "Vitamin A"]),
        # headings in title case and the heads of tables are no evidence
        ("# Getting Started\n## Next Steps\nAsk Ann.", ["Ann"]),
        ("## How we met in Vienna\nIt was good.", ["Vienna"]),
        ("Getting Started\n===============\nAsk Ann.", ["Ann"]),
        ("## Team Ledger\nAsk Team Ledger.", ["Team Ledger"]),
        ("Name | Team\n--- | ---\nAnn Lee | Red Fox\n\nBye.", ["Ann Lee", "Red Fox"]),
        ("* *Ann Lee* and __Bob__, ***Cy Fox***.\n* ~~Dee Ray~~", ["Ann Lee", "Bob", "Cy Fox", "Dee Ray"]),
        ("Escalation: Ask Ann Lee; Restart it. Star Wars: The Last Jedi", ["Ann Lee", "Star Wars", "The Last Jedi"]),
        ("<br>See Ann<br/>and Bob[^2].\n[^2]: It was <b>Cy</b>.", ["Ann", "Bob", "Cy"]),
        ("- tell [Ann](mailto:ann@acme.io)\n- `List<b>` of Bob", ["Ann", "ann@acme.io", "List<b>", "Bob"]),
        # a block of code that a splitter cut off
        ("It says:\n~~~python\nclass Ledger: pass\nfoo_bar = True", ["foo_bar"]),
    ],
)
def test_words_with_a_capital_letter_that_are_no_names(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_words_of_the_title_may_open_a_sentence() -> None:
    assert names("Open University courses are free.", "Open University of Kenya") == ["Open University"]
    assert names("Five Easy Pieces won.", "Films: Five Easy Pieces") == ["Five Easy Pieces"]
    assert names("Five Easy Pieces won.", "Films") == ["Easy Pieces"]


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        (
            "Angela Merkel wurde 1954 in Hamburg geboren. Sie war von 2005 bis 2021 Bundeskanzlerin der Bundesrepublik"
            " Deutschland. Die Politikerin studierte Physik in Leipzig. Später wohnte Merkel in Berlin. Es regnet. Zehn"
            " Kinder spielten mit Wasser.",
            "Angela Merkel",
            ["Hamburg", "Bundesrepublik Deutschland", "Leipzig", "Merkel", "Berlin"],
        ),
        (
            "Die Firma Siemens hat ihren Sitz in München. Das Unternehmen wurde von Werner von Siemens gegründet."
            " Geboren in Lenthe, zog er nach Berlin. Am 14. März 1879 kam Albert Einstein in Ulm zur Welt. Im Januar"
            " besuchte Kanzler Scholz die SPD und das Max-Planck-Institut.",
            "Konzerne",
            [
                "Siemens",
                "München",
                "Werner von Siemens",
                "Lenthe",
                "Berlin",
                "März 1879",
                "Albert Einstein",
                "Ulm",
                "Scholz",
                "SPD",
                "Max-Planck-Institut",
            ],
        ),
        (
            "Der Dienst ledger-sync läuft auf pg-main-02.internal. Bei Fehlern hilft Anna Meier. Die neuen Regeln"
            " stehen in Confluence. Bitte nie am Freitag ausrollen, nur nach einer kurzen Prüfung durch alle Kollegen.",
            "Zahlungen",
            ["ledger-sync", "pg-main-02.internal", "Anna Meier", "Confluence"],
        ),
        (
            "Wegen Wartung hilft nur ein Neustart von Kafka: Danach Grafana öffnen. Dein Zugang zu GitLab wird von"
            " Jonas Weber eingerichtet. In Österreich gilt das nicht. Bertha von Suttner war hier.",
            "Ausfall",
            ["Kafka", "Grafana", "GitLab", "Jonas Weber", "Österreich", "Bertha von Suttner"],
        ),
        (
            "Walther von der Vogelweide war ein Dichter. Seine Lieder sind in Handschriften aus Heidelberg erhalten."
            " Die schönen alten Handschriften wurden restauriert.",
            "Minnesang",
            ["Walther von der Vogelweide", "Heidelberg"],
        ),
    ],
)
def test_german_nouns_are_no_names(text: str, title: str, expected: list[str]) -> None:
    assert names(text, title) == expected


def test_what_opens_a_german_sentence_and_is_no_subject_is_no_name() -> None:
    text = (
        "Wähle die Datei aus. Standardmäßig ist das so. Sei nicht so. Osthafen ist nicht groß. In Osthafen die Pumpe."
    )
    assert [triple.object for triple in MentionTripleExtractor().extract(text, "T")] == ["Osthafen", "Osthafen"]


def test_the_language_is_that_of_the_passage() -> None:
    assert names("The firm moved to Bonn. Firms of the Bundesrepublik paid the Zahlungen.") == [
        "Bonn",
        "Firms of the Bundesrepublik",
        "Zahlungen",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "阿尔伯特·爱因斯坦（Albert Einstein）出生于德国乌尔姆。他写了《相对论》，使用Python语言。"
            "“你好”，他说。“量子”是重要的。量子力学。",
            ["Albert Einstein", "相对论", "Python", "量子"],
        ),
        (
            "レオ・トルストイはロシアの作家である。彼はGoogle Cloudで「東京」を使った。"
            "東京は大きい。『銀河鉄道の夜』を読んだ。「はい」と言った。",
            ["レオ・トルストイ", "Google Cloud", "東京", "銀河鉄道の夜"],
        ),
        ("ولد ألبرت أينشتاين في مدينة أولم. يعمل في Google وكتب «النسبية». النسبية مهمة.", ["Google", "النسبية"]),
        ("דוד בן גוריון נולד בפלונסק. הוא כתב אל OPS-1432 ואל ben@example.com.", ["OPS-1432", "ben@example.com"]),
        ("서비스 `ledger-sync`는 서울에서 실행된다.", ["ledger-sync"]),
        ("เขาอาศัยอยู่ในกรุงเทพ", []),
    ],
)
def test_scripts_without_capital_letters(text: str, expected: list[str], caplog: pytest.LogCaptureFixture) -> None:
    extractor = MentionTripleExtractor()
    assert [triple.object for triple in extractor.extract(text, "T")] == expected
    extractor.extract(text, "T")
    assert extractor.caseless_passages == 2
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "recognizer=…" in record.getMessage()


@pytest.mark.parametrize("text", ["He was born in Beijing (北京).", "Он родился в Москве.", "Ο Νίκος ζει στην Αθήνα."])
def test_scripts_with_capital_letters_need_no_warning(text: str, caplog: pytest.LogCaptureFixture) -> None:
    extractor = MentionTripleExtractor()
    assert extractor.extract(text, "T") and extractor.caseless_passages == 0
    assert not caplog.records


@pytest.mark.parametrize("title", ["T", "ledger-sync", "Ledger Sync Runbook", "certifi"])
def test_no_self_loop_whatever_the_title(title: str) -> None:
    for triple in triples(RUNBOOK, title):
        assert entity_key(triple.subject) != entity_key(triple.object)


def test_tags_of_xml_formulas_and_heads_of_letters_are_no_names() -> None:
    schema = '<xsd:element name="pgSz" type="CT_PageSz" minOccurs="0"/>\n     <xsd:attribute name="W" type="ST_Hex"/>\n'
    assert names(f"{schema}</xsd:complexType>") == []
    assert names("In Bremen `<w:cr/>` and <w:Cr/> break lines.") == ["Bremen", "<w:cr/>"]
    assert names("We let $\\Pi = (K)$ and $H_{1}$ be $t$-of-$N$ as `x` of Nora Blum has them.") == ["Nora Blum"]
    assert names("Put it into C:\\Users\\nora *now*.") == ["C:\\Users\\nora"]
    forwarded = "---- Forwarded message ---- From: Nora Blum Date: 2025-05-08 Subject: the crane To: ida@weser.example"
    assert names(forwarded) == ["Nora Blum", "ida@weser.example"]
