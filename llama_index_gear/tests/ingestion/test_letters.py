"""Letters of odd characters are prepared for the converter, and lose nothing."""

from __future__ import annotations

import email
from email.message import EmailMessage

from llama_index_gear.ingestion.letters import prepare_letter


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
