"""MediaWiki's markup as Markdown."""

from __future__ import annotations

from pathlib import Path

from llama_index_gear import FolderReader, MentionTripleExtractor
from llama_index_gear.nodes import read_triples

PAGE = """{{Infobox company
| name = Weserkran GmbH
| founder = [[Nora Blum|Nora]] {{small|(b. 1960)}}
}}
'''Weserkran''' is in [[Bremen]].<ref name="hb">{{cite web |title=Rome}}</ref> See [https://a.example the ''site''].

== History ==
# In 1990 it met [[Paul Kern|Kern]].

{| class="wikitable"
|+ Cranes
|-
! Year !! style="x" | Crane
|-
| 1991 || [[Goliath]]
|-
| 1992
| David
|}

[[Category:Companies of Visby]]
[[File:Crane.jpg|thumb|A crane of [[Ida Falk]]]]
"""


def test_a_page_of_mediawiki_is_markdown(tmp_path: Path) -> None:
    for name in ("crane.wiki", "crane.mediawiki"):
        (tmp_path / name).write_text(PAGE, "utf-8")
    for document in FolderReader(tmp_path).load_data():
        assert document.text.strip() == (
            "name: Weserkran GmbH; founder: [[Nora Blum|Nora]].\n"
            "**Weserkran** is in [[Bremen]]. See [the *site*](https://a.example).\n\n"
            "## History\n- In 1990 it met [[Paul Kern|Kern]].\n\n"
            "**Cranes**\n\nyear: 1991; crane: [[Goliath]].\n\n\nyear: 1992; crane: David."
        )
        (node,) = MentionTripleExtractor()([document])
        names = [triple.object for triple in read_triples(node)]
        assert names == [
            "Weserkran GmbH",
            "Nora Blum",
            "Weserkran",
            "Bremen",
            "https://a.example",
            "Paul Kern",
            "Goliath",
            "David",
        ]


def test_captions_of_a_gallery_are_items_and_a_redirect_leads_to_its_page(tmp_path: Path) -> None:
    gallery = "<gallery mode=packed>\nFile:Crane.jpg|A crane of [[Ida Falk]]\nFile:Bare.jpg\n</gallery>\n# one"
    (tmp_path / "Gallery.wiki").write_text(gallery, "utf-8")
    (tmp_path / "Nora.wiki").write_text("#REDIRECT [[Nora Blum]]", "utf-8")
    texts = [document.text.split("\n") for document in FolderReader(tmp_path).load_data()]
    assert [[line for line in text if line.strip("- ")] for text in texts] == [
        ["- A crane of [[Ida Falk]]", "- one"],
        ["[[Nora Blum]]"],
    ]
