"""Blocks of other files stand where a text shows them, in bounded number, size and depth."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from llama_index_gear import FolderReader
from llama_index_gear.ingestion import converter
from llama_index_gear.ingestion.regular_files import UnreadableFile
from llama_index_gear.ingestion.transclusion import MAX_CHARACTERS, Transclusion

CRANE = """---
aliases: [Old Lady]
---
# North Crane

It is tall. See [the oil](oil.md), [there](#life), [web](https://a.example) and [root](/yard.md).

(lives)=

## Life

It was built in 1990. ^built

### Repairs

Its rope is new.

## End

```
# no heading
```
"""


def read(folder: Path, files: dict[str, str], name: str) -> str:
    """Write files, and return the text of one as it is read."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return next(document.text for document in FolderReader(folder).load_data() if document.metadata["file"] == name)


def test_a_page_a_section_and_a_paragraph_stand_behind_the_line_that_shows_them(tmp_path: Path) -> None:
    host = (
        "# Yard\n\n![[crane#Life|its life]]\n\nMore of the yard.\n\n![[old/crane.md#^built]]\n\n```\n![[crane]]\n```\n"
    )
    text = read(tmp_path, {"old/crane.md": CRANE, "yard.md": host}, "yard.md")
    life = "**Life**\n\nIt was built in 1990. ^built\n\n**Repairs**\n\nIts rope is new."
    assert text == (
        f"# Yard\n\n![[crane#Life|its life]]\n\n{life}\n\n\nMore of the yard.\n\n"
        "![[old/crane.md#^built]]\n\nIt was built in 1990. ^built\n\n\n```\n![[crane]]\n```\n"
    )
    table = {"t.md": "One.\n\n- Two.\n- Three.\n\n^list\n\nFour. ^listed", "yard.md": "![[t#^list]]"}
    assert read(tmp_path, table, "yard.md") == "![[t#^list]]\n\n- Two.\n- Three.\n"
    whole = read(tmp_path, {"yard.md": "![[crane]]"}, "yard.md")
    assert whole.startswith("![[crane]]\n\n**North Crane**\n\nIt is tall.") and "aliases" not in whole
    assert "[the oil](old/oil.md), [there](old/crane.md#life), [web](https://a.example) and [root](/yard.md)" in whole
    assert "(lives)=" not in whole and "```\n# no heading\n```" in whole


def test_what_is_no_block_of_a_file_of_the_folder_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("Secret.", "utf-8")
    lines = [
        "![[nobody]]",
        "![[crane#Nothing]]",
        "![[crane#^no]]",
        "Inline ![[crane]] too.",
        "![[../secret]]",
        "![[a/plan]]",
    ]
    lines += ["![[plan]]", "![[picture.png]]", "![[#Yard]]", "![[yard]]", "include::crane.md[]"]
    files = {"crane.md": CRANE, "b/plan.md": "Plan b.", "c/plan.md": "Plan c.", "yard.md": "\n\n".join(lines)}
    (tmp_path / "docs" / "b").mkdir(parents=True)
    (tmp_path / "docs" / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    assert read(tmp_path / "docs", files, "yard.md") == files["yard.md"]
    near = read(tmp_path / "docs", {"b/near.md": "![[plan]]"}, "b/near.md")
    assert near == "![[plan]]\n\nPlan b.\n"


@pytest.mark.skipif(not converter.is_installed(), reason="needs the extra files")
def test_includes_of_other_markup_are_replaced(tmp_path: Path) -> None:
    files = {
        "a.adoc": "= Host\n\nBefore.\n\ninclude::parts/one.adoc[leveloffset=+1]\n\ninclude::gone.adoc[]\n\n"
        "include::parts/one.adoc[tag=x]\n\n----\ninclude::parts/one.adoc[]\n----\n\nAfter.\n",
        "parts/one.adoc": "== Oil of Bremen\n\nOil it daily.\n",
        "b.rst": "Host\n====\n\n.. include:: parts/two_of.rst\n\n"
        ".. include:: parts/two_of.rst\n   :start-line: 3\n\nAfter.\n",
        "parts/two_of.rst": "The winch is new.\n",
    }
    a = read(tmp_path, files, "a.adoc")
    assert a.count("Oil it daily.") == 1 and "## Oil of Bremen" in a and a.count("include::") == 1 and "After." in a
    b = read(tmp_path, {}, "b.rst")
    assert b.count("The winch is new.") == 1 and "include" not in b and "After." in b


def test_circles_depth_and_size_are_bounded(tmp_path: Path) -> None:
    circle = {"a.md": "A.\n\n![[b]]", "b.md": "B.\n\n![[c]]\n\n![[a]]", "c.md": "C.\n\n![[a]]\n\n![[c]]"}
    assert read(tmp_path / "circle", circle, "a.md").split() == "A. ![[b]] B. ![[c]] C. ![[a]] ![[c]] ![[a]]".split()
    deep = {f"d{n}.md": f"Depth {n}.\n\n![[d{n + 1}]]" for n in range(9)}
    assert [f"Depth {n}." in read(tmp_path / "deep", deep, "d0.md") for n in (4, 5)] == [True, False]
    large = {"l.md": "x " * (MAX_CHARACTERS // 2), "s.md": "Small.", "h.md": "![[s]]\n\n![[l]]\n\n![[s]]"}
    assert read(tmp_path / "large", large, "h.md") == "![[s]]\n\nSmall.\n\n\n![[l]]\n\n![[s]]\n\nSmall.\n"
    calls: list[str] = []
    wide = {f"w{n}.md": "\n".join(f"![[w{to}]]" for to in range(1_000)) for n in range(1_000)}
    text = Transclusion(wide, lambda name: calls.append(name) or wide[name]).fill(wide["w0.md"], "w0.md")  # type: ignore[func-returns-value]
    assert len(calls) <= 200 and len(text) < 3 * MAX_CHARACTERS


def test_links_of_blocks_within_blocks_lead_where_they_lead_from_their_own_files(tmp_path: Path) -> None:
    files = {
        "a/host.md": "![[b/one]]",
        "b/one.md": "# **One**\n\n[x](c/x.md) [y](../y.md)\n\n![[c/two]]\n\n[d]: x.md#part",
        "b/c/two.md": "[z](z.md) [t](#top)",
    }
    text = read(tmp_path, files, "a/host.md")
    assert "**One**\n\n[x](../b/c/x.md) [y](../y.md)\n" in text and "[d]: ../b/x.md#part" in text
    assert "[z](../b/c/z.md) [t](../b/c/two.md#top)" in text


def test_an_item_of_a_list_has_an_id_of_its_own(tmp_path: Path) -> None:
    part = {"part.md": "p m^2\n\n- one ^abc\n- two ^2\n", "yard.md": "![[part#^abc]]"}
    assert read(tmp_path, part, "yard.md") == "![[part#^abc]]\n\n- one ^abc\n"
    assert read(tmp_path, {"yard.md": "![[part#^2]]"}, "yard.md") == "![[part#^2]]\n\n- two ^2\n"
    touching = {"part.md": "Its end^2\n\nMore.", "yard.md": "![[part#^2]]"}
    assert read(tmp_path, touching, "yard.md") == "![[part#^2]]\n\nIts end^2\n"


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    for name, text in {"part.md": "# One\r\n\r\nfoo\r\n", "yard.md": "See\r\n\r\n![[part]]\r\n"}.items():
        (tmp_path / name).write_bytes(text.encode())
    assert read(tmp_path, {}, "yard.md") == "See\n\n![[part]]\n\n**One**\n\nfoo\n\n"
    assert Transclusion(["a.md"], str).fill("alone\r\n![[b]]", "a.md") == "alone\r\n![[b]]"


def test_pictures_take_no_room_and_code_in_a_list_shows_nothing() -> None:
    shown = Transclusion(["a.md", "b.md"], {"b.md": "Here."}.__getitem__)
    assert shown.fill("![[p.png]]\n" * 201 + "![[b]]", "a.md").endswith("![[b]]\n\nHere.\n")
    code = "- item\n\n  ```md\n  ![[b]]\n  ```\n\n```\n![[b]]"  # the last has no end
    assert shown.fill(code, "a.md") == code


def test_a_file_that_cannot_be_read_is_tried_once() -> None:
    def fail(name: str) -> str:
        tried.append(name)
        raise UnreadableFile("it hangs")

    tried: list[str] = []
    shown = Transclusion(["a.md", "b.md"], fail)
    for _ in range(3):
        assert shown.fill("![[b]]\n\n![[b]]", "a.md") == "![[b]]\n\n![[b]]"
    assert tried == ["b.md"]


def test_whatever_is_shown_ends(tmp_path: Path) -> None:
    kinds = ["![[{}]]", "![[{}#Part]]", "![[{}#^id]]", "# Part", "word ^id", "```", "include::{}.md[]", "[x](#{})"]
    for seed in range(40):
        draw = random.Random(seed)
        names = [f"{folder}{name}" for folder in ("", "f/", "f/g/") for name in "abc"]
        files = {
            f"{name}.md": "\n\n".join(draw.choice(kinds).format(draw.choice(names)) for _ in range(6)) for name in names
        }
        shown = Transclusion(files, files.__getitem__)
        for name, text in files.items():
            assert len(shown.fill(text, name)) <= len(text) + 2 * MAX_CHARACTERS, (seed, name)
