"""Records of JSON, and files that are no text for readers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from llama_index_gear.ingestion.file_texts import explain_no_prose, explain_no_sentences
from llama_index_gear.ingestion.files import FolderReader
from llama_index_gear.ingestion.records_of_json import Record, read_json


def read(folder: Path, name: str, text: str) -> tuple[list[tuple[str, str]], dict[str, str], dict[str, str]]:
    (folder / name).write_text(text, "utf-8")
    reader = FolderReader(folder, folder / "s")
    with closing(reader):
        documents = reader.read(folder / name)
    return [(node.metadata["title"], node.text) for node in documents], reader.skipped, reader.failed


def test_each_record_with_a_title_is_a_document(tmp_path: Path) -> None:
    records = [{"title": f"Märta Ek {town}", "text": f"She grew up in {town}."} for town in ("Žilina", "Łódź")]
    expected = [("Märta Ek Žilina", "She grew up in Žilina."), ("Märta Ek Łódź", "She grew up in Łódź.")]
    assert read(tmp_path, "corpus.jsonl", "\n".join(map(json.dumps, records)))[0] == expected
    assert read(tmp_path, "corpus.json", json.dumps(records))[0] == expected
    assert read(tmp_path, "wrapped.json", json.dumps({"count": 2, "rows": records}))[0] == expected


@pytest.mark.parametrize(
    ("value", "records"),
    [
        ({"name": "Ada", "office": {"town": "K\u00f6ln", "room_number": 5}, "tags": ["a", "b"], "none": None},
         [Record("Ada", "office town: Köln; office room number: 5; tags: a, b.")]),
        ([{"from": "Nora", "text": "The crane is here."}, {"from": "Paul", "text": "Who?"}],
         [Record("", "The crane is here.\n\nfrom: Nora.\n\n\nWho?\n\nfrom: Paul.")]),
        (["one", "two"], [Record("", "one\n\n\ntwo")]),
        ("only text", [Record("", "only text")]),
        ([], [Record("", "")]),
    ],
)  # fmt: skip
def test_the_text_of_records(value: object, records: list[Record]) -> None:
    assert read_json(json.dumps(value), ".json") == records


def test_a_line_that_is_no_json_is_named_and_another_dialect_stays(tmp_path: Path) -> None:
    _, _, failed = read(tmp_path, "a.jsonl", '{"title": "A"}\n{"title": \n')
    assert "line 2 is no JSON" in failed["a.jsonl"]
    assert read(tmp_path, "tsconfig.json", '{ // Osthafen\n "a": 1 }')[0][0][1].startswith("{ // Osthafen")
    assert read(tmp_path, "b.jsonl", '{"title": "A\u2028B", "text": "x"}\n')[0] == [("A B", "x")]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("config.edn", '{:name "Nora Blum" :point [1 2]}', "EDN"),
        ("report.txt", "{\\rtf1\\ansi Nora Blum}", "RTF"),
        ("yard.svg", "<svg><text>Nora Blum</text></svg>", "SVG"),
        ("crane.1", '.\\" Nora Blum\n.TH CRANE 1\n.SH NAME\ncrane', "roff"),
        ("poetry.lock", 'name = "click"', "lock file"),
        ("package-lock.json", "{}", "lock file"),
        ("app.min.js", "var a=1", "minified"),
        ("app.js.map", '{"version":3,"mappings":"AAAA"}', "source map"),
        ("bundle.js", "!function(e){var t=n(7),r=n(2);" * 40, "minified"),
        ("image.txt", "iVBORw0KGgo" * 60, "base64"),
    ],
)
def test_what_a_program_wrote_for_programs_is_passed_over(tmp_path: Path, name: str, text: str, reason: str) -> None:
    documents, skipped, _ = read(tmp_path, name, text)
    assert documents == [] and reason in skipped[name]


@pytest.mark.parametrize(
    "text",
    [
        "Nora Blum founded Osthafen.",
        "| a | b |\n|" + "-" * 300 + "|\n| c | d |\n" + "The yard lies in Bremen. " * 50,
        "see https://a.example/" + "x" * 200 + " " + "and so on " * 100,
        "她在不来梅工作。" * 100,
        "",
    ],
)
def test_prose_is_kept(text: str) -> None:
    assert explain_no_prose("a.txt", text) == explain_no_sentences(text) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", "<p>Nora Blum founded Osthafen.</p><img src='data:image/png;base64," + "iVBORw0KGgo" * 60 + "'>"),
        ("a.json", json.dumps([{"town": town, "river": "Weser"} for town in "ABCDEFGHIJKLMNO"], separators=(",", ":"))),
        ("a.json", json.dumps({"deep": [[[["Nora Blum founded Osthafen."]]]]}, separators=(",", ":"))),
    ],
)
def test_markup_around_a_text_does_not_make_it_one_of_a_program(tmp_path: Path, name: str, text: str) -> None:
    documents, skipped, failed = read(tmp_path, name, text)
    assert documents and not skipped and not failed


def test_json_that_nests_too_deep_is_named_and_ends_no_run(tmp_path: Path) -> None:
    _, _, failed = read(tmp_path, "deep.json", "[" * 100_000 + "]" * 100_000)
    assert "nests too deep" in failed["deep.json"]


def test_half_a_character_in_json_is_stored_as_none(tmp_path: Path) -> None:
    documents, _, _ = read(tmp_path, "a.json", r'{"title": "Osthafen \ud83d", "text": "Nora \ud83d Blum"}')
    assert documents[0][1] == "Nora \ufffd Blum" and documents[0][0].encode()


SLACK = [
    {
        "type": "message",
        "user": "U01ABCDEF",
        "ts": "1.1",
        "user_profile": {"real_name": "Nora Blum"},
        "text": "<@U02NORA99> see <https://a.example/7|the order> in <#C01ABCDEF|yard>"
        " <!here> or ask <mailto:ida@a.example|ida@a.example>",
        "client_msg_id": "c2f1",
        "reactions": [{"name": "thumbsup"}],
    },
    {"type": "message", "user": "U02NORA99", "ts": "1.2", "text": "It is in Bremen."},
]
TELEGRAM = {
    "name": "Crane Group",
    "id": 99,
    "messages": [
        {"id": 1, "type": "service", "date": "2025-03-03", "actor": "Nora Blum", "text": ""},
        {
            "id": 2,
            "date": "2025-03-03",
            "from": "Nora Blum",
            "text": ["See ", {"type": "link", "text": "a.example"}, "."],
        },
        {"id": 3, "date": "2025-03-03", "from": "Paul Kern", "text": "Yes."},
    ],
}
DISCORD = {
    "channel": {"name": "general"},
    "messages": [
        {"id": "1", "timestamp": "2025", "content": "It is here.", "author": {"name": "nora", "nickname": "Nora Blum"}},
        {"id": "2", "timestamp": "2025", "content": "Yes.", "author": {"name": "paul", "nickname": None}},
    ],
}
TEAMS = {
    "value": [
        {
            "id": str(place),
            "messageType": "message",
            "createdDateTime": "2025-03-03T09:15:00Z",
            "from": sender,
            "body": body,
            "attachments": [],
        }
        for place, (sender, body) in enumerate(
            [
                (
                    {"application": None, "user": {"id": "7", "displayName": "Nora Blum"}},
                    {"contentType": "html", "content": "<p>The crane&nbsp;is</p><p>in <b>Bremen</b>. &lt; 3 t</p>"},
                ),
                ({"user": {"displayName": "Paul Kern"}}, {"contentType": "text", "content": "Yes <b>."}),
                ({"application": {"displayName": "Yard bot"}}, {"contentType": "text", "content": "No."}),
            ]
        )
    ]
}


@pytest.mark.parametrize(
    ("value", "title", "text"),
    [
        (
            SLACK,
            "",
            "Nora Blum: see the order (https://a.example/7) in yard  or ask ida@a.example\n\nIt is in Bremen.",
        ),
        (TEAMS, "", "Nora Blum: The crane is in Bremen. < 3 t\n\nPaul Kern: Yes <b>.\n\nYard bot: No."),
        (TELEGRAM, "Crane Group", "Nora Blum: See a.example.\n\nPaul Kern: Yes."),
        (DISCORD, "", "Nora Blum: It is here.\n\npaul: Yes."),
        (
            [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ida."}],
            "",
            "user: Who?\n\nassistant: Ida.",
        ),
        ([{"author": "Ida", "text": "Yes.", "town": "Rome"}], "", "Yes.\n\nauthor: Ida; town: Rome."),
    ],
)
def test_messages_of_a_chat_are_what_people_say(value: object, title: str, text: str) -> None:
    assert read_json(json.dumps(value), ".json") == [Record(title, text)]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"author": "Nora Blum", "body": "It is late.", "labels": ["Osthafen"], "state": "open"},
         "It is late.\n\ncreated at: 2025-03-03; author: Nora Blum; labels: Osthafen; state: open."),
        ({"user": "Nora Blum", "text": "Strong.", "product": "Crane 7", "rating": 5},
         "Strong.\n\ncreated at: 2025-03-03; user: Nora Blum; product: Crane 7; rating: 5."),
        ({"name": "Nora Blum", "role": "founder", "text": "She lives in Bremen."},
         "Nora Blum: She lives in Bremen.\n\ncreated at: 2025-03-03; role: founder."),
        ({"sender": "Nora Blum", "subject": "Crane 7", "body": "It is here."},
         "Crane 7: It is here.\n\ncreated at: 2025-03-03; sender: Nora Blum."),
        ({"author": "Nora Blum", "text": "It is here.", "message": "Closes Osthafen"},
         "It is here.\n\nCloses Osthafen\n\ncreated at: 2025-03-03; author: Nora Blum."),
        ({"author": "Nora Blum", "text": "It is here.", "reactions": [{"name": "up"}], "type": "message"},
         "Nora Blum: It is here."),
    ],
)  # fmt: skip
def test_a_record_with_more_than_a_message_has_keeps_all_of_it(fields: dict[str, object], text: str) -> None:
    three = [{"created_at": "2025-03-03", **fields}, *({"from": who, "date": "1", "text": "Yes."} for who in "AB")]
    assert read_json(json.dumps(three), ".json") == [Record("", f"{text}\n\nA: Yes.\n\nB: Yes.")]


def test_a_title_stays_where_other_records_have_none() -> None:
    records = [{"name": "Nora Blum", "office": "Bremen"}, {"office": "Hamburg"}]
    assert read_json(json.dumps(records), ".json") == [Record("", "Nora Blum: office: Bremen.\n\n\noffice: Hamburg.")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"mimeType": "text/plain", "endOffset": 5}, "mime type: text/plain; end offset: 5."),
        ({"part": {"lineNumber": 7, "isLast": True}}, "part line number: 7; part is last: True."),
        ({"offices": {"Berlin": {"chiefName": "Ada"}, "macOS": 1, "eBay": 2}},
         "offices Berlin chief name: Ada; offices macOS: 1; offices eBay: 2."),
        ({"end_offset": 1, "endOffset": 2}, "end offset: 1; end offset: 2."),
    ],
)  # fmt: skip
def test_keys_are_written_as_words(value: object, said: str) -> None:
    assert read_json(json.dumps(value), ".json") == [Record("", said)]


BASE64 = "\n".join(["/9j/4AAQSkZJRgABAQEASABIAAD4gxYSUNDX1BST0ZJTEUAAQEAAAxITGlub"] * 9)
UUENCODED = "begin 644 photo.jpg\n" + "M_]C_X  02D9)1@ ! 0$ 2 !(  #_X@Q824-#7U!23T9)3$4  0$   Q(3&EN\n" * 9 + "`\nend\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("photo.b64", BASE64),
        ("key.pem", f"-----BEGIN CERTIFICATE-----\n{BASE64}\n-----END CERTIFICATE-----\n"),
        ("photo.uu", UUENCODED),
        ("letter.txt", f"Here it is, Nora.\r\n\r\n{BASE64}".replace("\n", "\r\n")),
    ],
)
def test_what_is_encoded_in_lines_is_no_text(tmp_path: Path, name: str, text: str) -> None:
    assert "base64" in read(tmp_path, name, text)[1][name]


def test_two_long_paths_are_text(tmp_path: Path) -> None:
    paths = [f"yard/harbour/cranes/{place}/hall/pumps/of/the/northern/basin/plans" for place in ("north", "south")]
    assert all(60 <= len(path) <= 76 for path in paths)
    assert read(tmp_path, "paths.txt", "\n".join(paths))[1] == {}


def test_a_text_with_a_key_in_it_is_read(tmp_path: Path) -> None:
    for times in (60, 9):
        text = f"{BASE64}\n\n{'Nora Blum built the crane in Bremen. ' * times}"
        assert read(tmp_path, f"{times}.txt", text)[0][0][1] == text
