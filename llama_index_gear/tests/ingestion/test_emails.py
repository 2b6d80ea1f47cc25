"""Letters of odd characters are prepared for the converter, and lose nothing."""

from __future__ import annotations

import base64
import email
from email.message import EmailMessage

import pytest

from llama_index_gear.ingestion.emails import clean_letter, drop_heads, prepare_letter, read_plain_letter
from llama_index_gear.tests.growth import assert_linear


def read_text(letter: str) -> str:
    return read_plain_letter(letter).text


def prepare(letter: bytes) -> str:
    prepared = email.message_from_bytes(prepare_letter(letter, lambda page: page.decode()))
    payloads = (part.get_payload(decode=True) for part in prepared.walk())
    return "".join(payload.decode("utf-8") for payload in payloads if isinstance(payload, bytes))


def test_a_charset_that_is_none_is_no_fault() -> None:
    head = b"Subject: Cranes\nContent-Type: text/plain; charset=utf-16x\n\n"
    assert "Nora Blum wrote" in prepare(head + b"Nora Blum wrote it.\nAnd signed.\n")


def test_a_text_that_is_attached_keeps_its_name() -> None:
    letter = EmailMessage()
    letter["Subject"] = "Cranes"
    letter.set_content("See the list.")
    letter.add_attachment("Größe: 5".encode("latin-1"), "text", "plain", filename="От.txt")
    letter.get_payload()[1].set_param("charset", "latin-1")  # type: ignore[index, union-attr]
    said = prepare(letter.as_bytes())
    assert "От.txt:" in said and "Größe: 5" in said


def test_bytes_that_are_no_text_are_left_out_whatever_their_type() -> None:
    head = b"Subject: Cranes\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nNora Blum wrote it.\n--b\n"
    part = (
        b'Content-Type: ; name="crane.jpg"\nContent-Transfer-Encoding: base64\n\n/9j/4AAQSkZJRgABAQEAYABgAAD/\n--b--\n'
    )
    said = prepare(head + part)
    assert "Nora Blum wrote it." in said and "JFIF" not in said and "crane.jpg" not in said


def test_the_head_of_a_letter_that_came_back_says_who_wrote_to_whom() -> None:
    head = (
        "Return-Path: <n@x.example>\nReceived: from a.example\n by b.example with ESMTP\nFrom: Nora Blum\nX-Mailer: P"
    )
    assert clean_letter(f"It came back.\n\n{head}\nSubject: Paint\n\nIt is blue.\n") == (
        "It came back.\n\nFrom: Nora Blum\nSubject: Paint\n\nIt is blue.\n"
    )
    assert clean_letter("Received: 3 cranes\nfrom Bremen\n") == "Received: 3 cranes\nfrom Bremen\n"


def test_a_head_begins_with_any_line_for_programs() -> None:
    for first in ("Received: by b.example", "DKIM-Signature: v=1; a=rsa", "DomainKey-Signature: a=rsa"):
        assert drop_heads(f"{first}\nTo: Nora\n\nIt is blue.") == "To: Nora\n\nIt is blue."


def test_code_of_a_letter_in_markdown_is_not_escaped() -> None:
    assert clean_letter("Say \\`run\\`.%0A;%0C;Now.") == "Say `run`.\nNow."


def test_a_letter_in_a_file_of_plain_text_is_decoded() -> None:
    head = "Received: from a.example\n by b.example\nFrom: Nora Blum <n@x.example>\n"
    head += "Subject: =?utf-8?q?Der_Kran_f=C3=A4hrt?=\n"
    said = "The crane fährt.\n"
    whole = f"{head}Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>x</p>\n--b\n"
    part = "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\nVGhlIGNyYW5lIGbDpGhydC4K\n"
    readable = "From: Nora Blum <n@x.example>\nSubject: Der Kran fährt\n\n"
    assert read_text(f"{whole}{part}--b--\n") == readable + said
    assert read_text(f"{head}{part}") == readable + said
    for other in (f"{whole}--b--\n", f"{head}{part.replace('utf-8', 'x-none')}", f"{head}\nThe crane."):
        assert read_text(other) == drop_heads(other) != other
    prose = "Cranes. Content-Type: multipart/mixed is a line.\n\nReceived: from a.example"
    assert read_text(prose) == prose


HEAD = "Received: from a.example\nFrom: Nora Blum\nTo: Ada Orr\nTo: Łukasz\n"
PLAIN = "Content-Type: text/plain; charset={}\nContent-Transfer-Encoding: {}\n\n{}"


def make_letter(*parts: str, kind: str = "mixed", end: str = "--b--\n") -> str:
    lines = "".join(f"--b\n{part}\n" for part in parts)
    return f"{HEAD}Content-Type: multipart/{kind}; boundary=b\n\n{lines}{end}"


def encode(text: str) -> str:
    return base64.encodebytes(text.encode()).decode()


def test_characters_of_a_part_that_is_not_encoded_stay() -> None:
    for charset in ("utf-8", "us-ascii", "iso-8859-1", "x-none"):
        letter = make_letter(PLAIN.format(charset, "8bit", "Der Kran fährt → Łódź."), "Content-Type: a/b\n\nx")
        assert read_text(letter) == ("From: Nora Blum\nTo: Ada Orr\nTo: Łukasz\n\nDer Kran fährt → Łódź.\n")


def test_all_texts_of_a_letter_are_read() -> None:
    attached = PLAIN.format("utf-8", "base64\nContent-Disposition: attachment; filename=list.txt", encode("Crane 5"))
    other = f"Content-Type: message/rfc822\n\nFrom: Ada Orr\n{PLAIN.format('utf-8', 'base64', encode('I painted.'))}"
    said = read_text(make_letter("\nSee below.", attached, other, "\nA footer."))
    assert said.split("\n\n")[1:] == [
        "See below.",
        "list.txt:",
        "Crane 5",
        "From: Ada Orr",
        "I painted.",
        "A footer.\n",
    ]


def test_a_letter_that_cannot_be_read_whole_stays() -> None:
    text, page = PLAIN.format("utf-8", "base64", encode("In it.")), "Content-Type: text/html\n\n<p>The crane.</p>"
    deep = "".join(f"Content-Type: multipart/mixed; boundary=b{depth}\n\n--b{depth}\n" for depth in range(5_000))
    for letter in (
        make_letter(text, end="--b--\nMore.\n"),
        make_letter(text, end="More.\n"),
        make_letter(page, "\nA footer."),
        f"{HEAD}{text}\n___\nA footer.\n",
        f"{HEAD}{PLAIN.format('us-ascii', 'quoted-printable', 'Der Kran f=C3=A4hrt.')}",
        f"{HEAD}{PLAIN.format('utf-8', 'quoted-printable', 'f=C3=A4hrt → Łódź')}",
        f"{HEAD}{deep}{text}",
        f"{HEAD}Subject: {'=?utf-8?q?a?= ' * 50_000}\n{text}",
    ):
        assert read_text(letter) == drop_heads(letter)


def test_each_letter_of_a_mailbox_that_is_a_text_is_read() -> None:
    encoded = PLAIN.format("utf-8", "base64", encode("One crane."))
    page = make_letter("Content-Type: text/html\n\n<p>Three.</p>")
    letters = [make_letter(encoded, "\nA footer."), f"{HEAD}\nTwo cranes.\n", page]
    said = read_text("\n".join(f"From n@x.example Mon Jan 1 2024\n{letter}" for letter in letters))
    assert [said.count(words) for words in ("One crane.", "A footer.", "Two cranes.", "<p>Three.</p>")] == [1] * 4
    assert "Received:" not in said and "base64" not in said
    prose = "From Bremen we left.\n\nFrom Kiel: see below\nFar: yes\n"
    assert read_text(prose) == prose


def test_a_letter_that_is_quoted_loses_its_head_alone() -> None:
    head = "> Received: from a.example\n>\tby b.example\n> From: Nora Blum\n> X-Mailer: P\n"
    said = ">\n> It is blue.\n>> Is it?\n"
    assert drop_heads(f"He wrote:\n{head}{said}") == f"He wrote:\n> From: Nora Blum\n{said}"


def test_the_head_of_a_letter_has_only_what_readers_need() -> None:
    head = (
        "X-From: owner@x.example Mon Nov 15 04:05:30 2010\nFrom: Nora Blum <n@x.example>\n"
        "Subject: Re: =?utf-8?q?Der_Kran_f=C3=A4hrt?=\nDate: Sun, 14 Nov 2010 19:04:19 -0800\n"
        "Message-ID: <1@x.example>\nCc: Ada Orr <a@x.example>,\n\tPaul Kern <p@x.example>\nX-Mailer: P\n"
    )
    readable = (
        "From: Nora Blum <n@x.example>\nSubject: Re: =?utf-8?q?Der_Kran_f=C3=A4hrt?=\nDate: 2010-11-14 19:04\n"
        "Cc: Ada Orr <a@x.example>,\n\tPaul Kern <p@x.example>\n"
    )
    plain = read_plain_letter(f"{head}\nIt is blue.\n")
    assert plain == (f"{readable}\nIt is blue.\n", "Der Kran fährt", True)
    assert read_plain_letter(head.replace("utf-8", "x-none") + "\nText.").subject == ""
    note = "Date: Sun, 14 Nov 2010\nPlace: Visby\n\nIt is blue.\n"
    assert read_plain_letter(note) == (note, "", True)
    two = f"From n@x.example Mon Jan 1 2024\n{head}\nOne.\n\nFrom n@x.example Mon Jan 1 2024\n{head}\nTwo.\n"
    said = read_plain_letter(two)
    assert said.subject == "" and "One." in said.text and "Two." in said.text and "X-Mailer" not in said.text


def test_a_form_keeps_its_lines() -> None:
    for form in (
        "Patient: Nora Blum\nX-Ray: the wrist is broken\nDoctor: Paul Kern\n\nShe rests.\n",
        "From: Nora Blum\nTo: Ada Orr\nReceived: 3 May\nContents: three cranes\n\nThanks.\n",
    ):
        assert read_plain_letter(form) == (form, "", True)


def test_a_long_line_of_spaces_takes_linear_time() -> None:
    assert_linear(clean_letter, " \t".__mul__, 20_000)
    assert_linear(read_plain_letter, lambda size: f"From: a\n{' ' * size}", 20_000)


def test_a_page_has_only_what_is_seen_in_a_time_that_grows_with_its_length() -> None:
    head = "Content-Type: text/html; charset=utf-8\n\n"
    unseen = "<TITLE>x</title><style media=a>b{}</style><!-- c --><meta name=d><a href=e> <img src=f> </a>"
    assert prepare(f"{head}A{unseen} crane<!-- of <style> Nora".encode()) == "A crane<!-- of <style> Nora"
    for piece in ("<style ", "<!-- ", "<title>", "<a><img> ", "<meta "):
        assert_linear(lambda text: prepare((head + text).encode()), piece.__mul__, 8_000)


def test_lines_of_encoded_data_are_no_text() -> None:
    data = encode("\u00e4 crane in Köln. " * 20)
    head = "Message-ID: <1@x.example>\nFrom: Nora Blum\nContent-Type: multipart/mixed; boundary=b\n"
    letter = f"{head}\nIt is blue.\n{data}End.\n"
    plain = read_plain_letter(letter)
    assert plain.text.split() == "From: Nora Blum It is blue. End.".split() and plain.is_whole
    for begin, is_part in (
        ("--b\n\n", True),
        ("--b\nContent-Id: 1\n\n", True),
        ("-----Original-----\nFrom: x\n", False),
    ):
        assert read_plain_letter(letter.replace("It is", f"{begin}It is")).is_whole is not is_part
    sums = "".join(f"{digit * 64}\n" for digit in "abc")
    assert clean_letter(f"The sums:\n{sums}") == f"The sums:\n{sums}"
    uuencoded = "".join(f"M{sign * 60}\n" for sign in "1B#")
    assert clean_letter(f"begin 644 crane.bmp\n{uuencoded}end\n") == "begin 644 crane.bmp\nend\n"
    assert clean_letter("**List-Unsubscribe**: <https://x.example/u>\nText.\n") == "Text.\n"


@pytest.mark.parametrize(
    "note",
    [
        "X-Ray: a wave\nGamma: another wave\n\nThese are waves.\n",
        "Message-ID: names a letter\nFrom: names its sender\nIn-Reply-To: names another\n\nLines of a head.\n",
        "Received: 12 boxes of tea\nSent: 3 boxes\n\nThe clerk signed.\n",
        "From here on, look at a head:\n\nReceived: from x.example by y.example\nReturn-Path: <a@x.example>\n\nEnd.\n",
    ],
)
def test_a_note_with_lines_like_a_head_is_no_letter(note: str) -> None:
    assert read_plain_letter(note) == (note, "", True)
