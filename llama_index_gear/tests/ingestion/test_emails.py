"""Letters of odd characters are prepared for the converter, and lose nothing."""

from __future__ import annotations

import email
from email.message import EmailMessage

from llama_index_gear.ingestion.emails import clean_letter, drop_heads, prepare_letter, read_plain_letter


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
    assert read_plain_letter(f"{whole}{part}--b--\n") == readable + said
    assert read_plain_letter(f"{head}{part}") == readable + said
    for other in (f"{whole}--b--\n", f"{head}{part.replace('utf-8', 'x-none')}", f"{head}\nThe crane."):
        assert read_plain_letter(other) == drop_heads(other) != other
    prose = "Cranes. Content-Type: multipart/mixed is a line.\n\nReceived: from a.example"
    assert read_plain_letter(prose) == prose


def test_a_letter_that_is_quoted_loses_its_head_alone() -> None:
    head = "> Received: from a.example\n>\tby b.example\n> From: Nora Blum\n> X-Mailer: P\n"
    said = ">\n> It is blue.\n>> Is it?\n"
    assert drop_heads(f"He wrote:\n{head}{said}") == f"He wrote:\n> From: Nora Blum\n{said}"


ALTERNATIVE = "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>x</p>\n--b\n"


def test_letters_of_a_file_that_are_not_encoded_keep_its_characters() -> None:
    for charset in ("utf-8", "iso-8859-1", "x-none"):
        part = (
            f"Content-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: 8bit\n\nDer Kran fährt → Łódź.\n"
        )
        letter = f"From: Größe\n{ALTERNATIVE}{part}--b--\n"
        assert read_plain_letter(letter) == "From: Größe\n\nDer Kran fährt → Łódź."


def test_everything_that_a_letter_of_a_file_brings_is_read() -> None:
    """Texts behind the first one, letters that it forwards, and further letters of a mailbox."""
    texts = "--c\n\nSee below.\n--c\nContent-Type: text/plain; name=a.txt\n\nCranes: 5.\n"
    forwarded = "--c\nContent-Type: message/rfc822\n\nFrom: Paul\nX-Mailer: P\n\nIt is blue.\n"
    picture = "--c\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\nAAEC\n"
    post = "From {0}@x.example Sat Nov 28 10:00:0{1} 2026\nFrom: {0}\n"
    first = f"{post.format('Nora', 1)}Content-Type: multipart/mixed; boundary=c\n\n{texts}{forwarded}{picture}--c--\n\n"
    second = f"{post.format('Ada', 2)}\nFrom Bremen at 10:00:00\nit came: blue.\n\n"
    third = f"{post.format('Bob', 3)}Content-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=C3=9Fe\n".replace(
        "Content", "Content-Type: text/plain; charset=utf-8\nContent"
    )
    assert read_plain_letter(first + second + third) == (
        f"From: Nora\n\nSee below.\nCranes: 5.\nFrom: Paul\n\nIt is blue.\n{second}From: Bob\n\nGrüße\n"
    )
