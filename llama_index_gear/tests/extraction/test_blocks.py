"""Blocks and sentences of passages: what has structure, and what only looks as if it had."""

from __future__ import annotations

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear.extraction.blocks import Kind, read_blocks, tell_markdown
from llama_index_gear.extraction.inline import Link
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.extraction.sentences import Form, split_pieces, split_sentences
from llama_index_gear.nodes import read_triples

PAGE = """---
title: Yard
---
# Osthafen **Yard**

The [north _crane_](crane.md "A crane") is old &amp; tall,
and `crane.start()` starts it.

- [ ] ask **Nora** Blum
  - then [Paul][p]

> Wait.

| Name | Town |
|:--|---|
| [[people/nora-blum\\|Nora Blum]] | Bremen |

```sh
# Start it
./start.sh
```

[p]: paul.md
"""


def pairs(text: str, title: str = "Page") -> list[tuple[str, str]]:
    return [(triple.subject, triple.object) for triple in MentionTripleExtractor().extract(text, title)]


def names(text: str) -> list[str]:
    return [name for _, name in pairs(text)]


def sentences(text: str) -> list[str]:
    return [" ".join(sentence.words) for sentence in split_sentences(text)]


def test_the_blocks_of_a_page() -> None:
    blocks = read_blocks(PAGE, is_markdown=True)
    path = ("Osthafen Yard",)
    assert [(block.kind, block.text, block.path) for block in blocks] == [
        (Kind.HEADING, "Osthafen Yard", ()),
        (Kind.PARAGRAPH, "The north crane is old & tall, and `crane.start()` starts it.", path),
        (Kind.ITEM, "ask Nora Blum", path),
        (Kind.ITEM, "then Paul", path),
        (Kind.PARAGRAPH, "Wait.", path),
        (Kind.HEAD, "Name | Town", path),
        (Kind.ROW, "Nora Blum | Bremen", path),
        (Kind.CODE, "# Start it ./start.sh", path),
    ]
    assert [block.level for block in blocks] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert [block.head for block in blocks if block.kind is Kind.ROW] == [("Name", "Town")]
    links = [link for block in blocks for link in block.links]
    assert [(link.text, link.target, link.is_page) for link in links] == [
        ("north crane", "crane.md", False),
        ("Paul", "paul.md", False),
        ("Nora Blum", "Nora Blum", True),
    ]
    assert [PAGE[link.start : link.end] for link in links] == ["north _crane_", "Paul", "Nora Blum"]
    for block in blocks:
        assert len(block.plain) == block.end - block.start


@pytest.mark.parametrize("is_markdown", [True, False, None])
def test_every_word_has_its_place_in_the_passage(is_markdown: bool | None) -> None:
    for sentence in split_sentences(PAGE.replace("\n", "\r\n"), is_markdown=is_markdown):
        for word, (start, end) in zip(sentence.words, sentence.places, strict=True):
            own = PAGE.replace("\n", "\r\n")[start:end]
            assert own == word or own.replace("&amp;", "&").translate(str.maketrans("", "", "*_")) == word


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("M*A*S*H and 2*3*4", "M*A*S*H and 2*3*4"),
        ("un**believ**able, ~~gone~~, snake_case", "unbelievable, gone, snake_case"),
        (r"a \* b \[c] &copy; AT&T", "a * b [c] © AT&T"),
        ("H<sub>2</sub>O<br>is <Nora> here <Card x='1'>now</Card>", "H2O is <Nora> here now"),
        ("![A crane](a.png) and <https://a.example>", "A crane and <https://a.example>"),
        (
            "see {ref}`the guide <g>` and :func:`~a.start`, `Ida <https://i.example>`_",
            "see the guide and `a.start`, Ida",
        ),
        ("by link:https://a.example/x[the archive], xref:p.adoc[Paul] <<team,Ida>>", "by the archive, Paul Ida"),
        (r"\textbf{Nora} shows \cite{blum2020} it", "Nora shows it"),
        ("Nora {#n .Big} is {{% ref %}} here[^1] and [Paul][p]", "Nora is here and Paul"),
        ("`[[x]] {#a}` stays", "`[[x]] {#a}` stays"),
        (
            "see @fig-crane, @tbl-2 [see @Kern2020, p. 3] by @nora on a@tip-x.example",
            "see , by @nora on a@tip-x.example",
        ),
        ("`r nrow(Cranes)` of `{python} x` and `rm x`", "of and `rm x`"),
        ("ends here](https://a.example/b) and goes on", "ends here and goes on"),
        ("| a <!-- x --> b |", "a b"),
        ("Nora %%ask Paul Kern%% is here, 10 %, 5 %. ^crane-1", "Nora is here, 10 %, 5 %."),
        ("10 ^6 parts, x^a1b2\nin Visby ^a1b2c3", "10 ^6 parts, x^a1b2 in Visby"),
    ],
)
def test_markup_is_no_word(text: str, plain: str) -> None:
    (block,) = read_blocks(text)
    assert block.text == plain
    assert len(block.plain) == len(text)


def test_what_only_obsidian_reads_is_no_block() -> None:
    note = (
        "It is here.\n\n%%\nTo do: Paul Kern\n\nand Bremen\n%%\n\n```dataview\nLIST file.ctime\n```\n\n^crane-1\n\nEnd."
    )
    assert [block.text for block in read_blocks(note, is_markdown=True)] == ["It is here.", "End."]
    cells = "%%\nx = Crane(3);\n%%\n"
    assert "Crane(3);" in " ".join(block.text for block in read_blocks(cells, is_markdown=False))


@pytest.mark.parametrize(
    "text",
    [
        '[tabs]\n====\nJava::\n+\n[source, java]\n----\nnew PumpBuilder("north").start(Osthafen);\n----\n====\n',
        "[source,cypher]\n--\nMATCH (p:Person {name: 'Nora Blum'}) RETURN p\n--\n\nPaul Kern checks it.\n",
        '[cols="1,4"]\n|===\n| Name | Town\n\n| Nora Blum | Bremen\n|===\n',
        "[NOTE]\n====\nNora Blum checks the pump.\n====\n\nPaul Kern paints in Bremen.\n",
        "Name: Nora Blum\n---\nName: Paul Kern\nEmployer: Weserkran GmbH\n",
        "Nora Blum opened the meeting.\n----------\nPaul Kern reported on Weserkran GmbH.\n",
        "The harbour of Visby is old.\n==========\nOld Roads (Ida Falk)\n\nThe road to Uppsala is paved.\n",
        "- call Nora Blum\n---\nPaul Kern paints in Bremen.\n",
        "See you in Bremen.\n-- \nNora Blum\nWeserkran GmbH",
        "owner: Nora Blum\n---\nname: crane\nowner: Paul Kern\n",
        " name      | town\n-----------+--------\n Nora Blum | Bremen\n",
    ],
)
def test_a_rule_makes_no_heading(text: str) -> None:
    assert {subject for subject, _ in pairs(text)} <= {"Page"}


@pytest.mark.parametrize(
    "text",
    [
        "# Owner: Nora Blum\nservice: pump\nhost: pg-main-03\n# Paul Kern asked for this\nregion: Bremen\n",
        "#!/bin/bash\n# Author: Nora Blum\nscp plan.pdf pg-main-03:/srv\n",
        "# Copyright 2025 Osthafen AG\nclass PumpService:\n    # Nora Blum wrote this\n    def restart(self):\n"
        "        return Weser.connect()\n",
        "Start it:\n\n    # Start Osthafen\n    ./start.sh\n\nNora Blum checks it.\n",
        "Start it::\n\n    # Correct:\n    crane.start(Slow)\n\nNora Blum checks it.\n",
        "Start it:\n\n----\n# Start Osthafen\n./start.sh north\n----\n\nNora Blum checks it.\n",
        "# Nora Blum maintains this\nFROM debian:12\nRUN apt-get install -y curl\n",
        "# Owner Nora Blum\n[server]\nhost = pg-main-03\nport = 5432\n",
        "# Osthafen builds\n*.o\nbuild/\n# Bremen\nout/\n",
        "#+BEGIN_SRC python\n# Start Osthafen\nx = 1\n#+END_SRC\n\nNora Blum checks it.",
        "pump.start()\n# Stop Osthafen\npump.stop()\n```\n\nNora Blum checks it.",  # begins inside of code
    ],
)
def test_a_comment_is_no_heading(text: str) -> None:
    assert {subject for subject, _ in pairs(text)} <= {"Page"}


def test_a_heading_may_stand_on_its_text() -> None:
    text = "# Osthafen\nNora Blum works here.\n## Team North\nPaul Kern leads it."
    assert pairs(text) == [("Osthafen", "Nora Blum"), ("Team North", "Paul Kern")]


@pytest.mark.parametrize(
    "matter",
    [
        "---\ntitle: >-\n  Ida Falk\n  in Visby\n'tags': [\n  Rome\n]\n---\n",
        '+++\ntitle = """Ida Falk"""\n"quoted" = "Visby"\ntags = [\n"Rome",\n]\n+++\n',
        '{\n  "title": "Ida Falk",\n  "author": {"name": "Visby"}\n}\n\n',
        ';;;\n{\n  "title": "Ida Falk"\n}\n;;;\n',
    ],
)
def test_front_matter_of_any_kind_is_no_text(matter: str) -> None:
    for text in (matter, matter.replace("\n", "\r\n")):
        page = TextNode(text=f"{text}# Osthafen\n\nThere Paul Kern paints.\n", metadata={"file": "a.md"})
        assert [triple.object for triple in read_triples(MentionTripleExtractor()([page])[0])] == ["Paul Kern"]


def test_json_that_begins_another_text_stays() -> None:
    assert names('{\n  "name": "Ida Falk"\n}\n\nThere Paul Kern paints.\n') == ["Ida Falk", "Paul Kern"]


@pytest.mark.parametrize(
    ("metadata", "known"),
    [
        ({"file_name": "a.md"}, True),
        ({"file": "notes/a.markdown"}, True),
        ({"file_type": "text/markdown"}, True),
        ({"file_path": "C:\\a\\deploy.yaml"}, False),
        *(({"file": f"app/{name}"}, False) for name in ("Dockerfile", "Dockerfile.dev", "Makefile", "Jenkinsfile")),
        *(({"file": f"app/{name}"}, False) for name in (".env.local", ".gitignore", "CODEOWNERS", "hosts")),
        *(({"file": name}, False) for name in ("requirements-dev.txt", "robots.txt", "CMakeLists.txt", "env.example")),
        *(({"file": name}, False) for name in ("PKGBUILD", "SConstruct", "app.dockerfile", "BUILD.bazel", "a.coffee")),
        *(({"file": name}, None) for name in ("README", "CHANGES", "my file", "notes.txt", "profile")),
        ({"file": "Makefile.md"}, True),
        ({"file_name": "a.txt"}, None),
        ({}, None),
    ],
)
def test_a_file_s_name_tells_markdown_from_code(metadata: dict[str, str], known: bool | None) -> None:
    assert tell_markdown(metadata) is known


def test_in_a_markdown_file_its_own_rules_count() -> None:
    text = "Nora Blum and others\n---\nIda came.\n\n# Osthafen Yard\nhost: a\nport: Bremen\n"
    (node,) = MentionTripleExtractor()([TextNode(text=text, metadata={"title": "Page", "file_name": "a.md"})])
    assert [(triple.subject, triple.object) for triple in read_triples(node)] == [
        ("Nora Blum and others", "Ida"),
        ("Osthafen Yard", "Bremen"),
    ]
    for name in ("a.yaml", "Dockerfile"):
        (node,) = MentionTripleExtractor()([TextNode(text=text, metadata={"title": "Page", "file_name": name})])
        assert {triple.subject for triple in read_triples(node)} == {"Page"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("We met [[Nora Blum|Nora]] today.", ["Nora Blum"]),
        ("We met [[people/nora-blum|Nora Blum]] today.", ["Nora Blum"]),
        ("See [[Osthafen#History]] for more.", ["Osthafen"]),
        ("See [[Osthafen#History|its history]] for more.", ["Osthafen"]),
        ("The size depends on [[Plans and storage limits|your plan]].", ["Plans and storage limits"]),
        ("It rests on [[quantum annealing]] alone.", ["quantum annealing"]),
        ("| owner |\n|---|\n| [[people/nora-blum\\|Nora Blum]] |", ["Nora Blum"]),
        (
            "![[Pump plan.pdf]] is of [[Projects/Osthafen.md|the yard]], [[#Plans]] apart.",
            ["Pump plan.pdf", "Osthafen"],
        ),
    ],
)
def test_a_wikilink_names_its_page(text: str, wanted: list[str]) -> None:
    found = names(text)
    assert [name for name in found if name != "Plans"] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('<Tabs groupId="os">\n<TabItem value="Linux">\n\nAsk Nora Blum.\n\n</TabItem>\n</Tabs>', ["Nora Blum"]),
        (".. note::\n\n   Nora Blum wrote this.\n\n.. _Osthafen:\n", ["Nora Blum"]),
        ('## Yard {#Yard .Big}\n\nNora Blum works {: .Note } here.\n{: .Callout title="Hint"}\n', ["Nora Blum"]),
        ('{{< figure src="Yard.png" title="Yard" >}}\nNora Blum is in.', ["Nora Blum"]),
        ("<!-- Ida Falk:\n\ntodo -->\nPaul Kern is in.\n<script>\nvar Foo = Bar;\n</script>", ["Paul Kern"]),
        (":::note\nAsk Nora Blum.\n:::", ["Nora Blum"]),
        ("```{r}\n#| label: fig_yard\n#| fig-cap: 'Of Visby'\nplot_cranes()\n```", ["plot_cranes()"]),
        ("$$\nF_x = m_{Rome}\n$$ {#eq-load}\n\nAsk Nora Blum.\n\n  $$ G_y $$\n", ["Nora Blum"]),
        ("echo $$ in Rome\n\n$$ in Visby", ["Rome", "Visby"]),
        (
            "```{tip} Of Ida Falk\n:class: big\nAsk Nora Blum.\n```\n\n(yard-a)=\n```sh\nOsthafen\n```",
            ["Ida Falk", "Nora Blum"],
        ),
    ],
)
def test_furniture_is_no_text(text: str, wanted: list[str]) -> None:
    assert names(text) == wanted


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[03.03.25, 09:15:01] Nora Blum: The crane is here\n[03.03.25, 09:16:22] Paul Kern: Who installs it", 2),
        ("03/03/2025, 09:15 - Nora Blum: The crane is here\n03/03/2025, 09:16 - Paul Kern: Who installs it", 2),
        ("2025-03-03 09:15 <nora> the crane is here\n2025-03-03 09:16 <paul> who installs it", 2),
        ("2025-03-03: Nora Blum opened the yard\n2025-03-04: Paul Kern came\n2025-03-05: It rained in Bremen", 3),
        ("a1b2c3d Nora Blum: fix the crane\nb2c3d4e Paul Kern: paint the hall\nc3d4e5f Nora Blum: add the pump", 3),
        ("Mar  3 09:15:01 north sshd[12]: key for nora\nMar  3 09:15:02 north sshd[12]: Session opened", 2),
        ("[3/3/25 9:15 AM] Nora Blum: The crane is here\n[3/3/25 9:16 AM] Paul Kern: Who installs it", 2),
        ('10.0.0.1 - - [03/Mar/2025] "GET /a" 200\n10.0.0.2 - - [03/Mar/2025] "GET /b" 200', 2),
        ("INFO  2025-03-03 09:15:01 [main] Started by Nora\nWARN  2025-03-03 09:15:02 [main] Pump hot", 2),
        ("March 3, 2025 - Nora Blum came\nMarch 14, 2025 - Paul Kern left\nApril 5, 2025 - It rained", 3),
        ("3. März 2025: Nora Blum kam\n14. Dezember 2025: Paul Kern ging", 2),
        ("He came to the old harbour of Visby on the third of March, in\n2025 and then\nwent on", 1),
    ],
)
def test_lines_that_begin_alike_are_sentences(text: str, count: int) -> None:
    assert len(sentences(text)) == count


def test_the_stamp_of_a_line_is_no_name() -> None:
    text = "2025-03-03T09:15:01Z INFO Started by Nora Blum\n2025-03-03T09:15:02Z WARN Pump hot at Osthafen"
    assert names(text) == ["Nora Blum", "Osthafen"]
    assert names("[03-Mar-25 09:15 AM] nora: it is here\n[03-Mar-25 09:16 AM] paul: no") == ["nora", "paul"]


def test_a_page_that_is_set_in_is_prose() -> None:
    page = "NAME\n       crane - lifts what Nora Blum loads\n\n       It is kept by the people of Weserkran GmbH.\n"
    assert {sentence.form for sentence in split_sentences(page)} == {Form.PROSE}


@pytest.mark.parametrize(
    "text", [PAGE, "", "\n\n  x. Y is.  ", "Ask Ann. Then [go](https://a.example/b.c).\n\n    code\n\n* a\n* b"]
)
def test_pieces_are_the_text(text: str) -> None:
    assert "".join(split_pieces(text)) == text


def test_an_item_and_a_fence_begin_a_piece() -> None:
    text = "Ask.\n\n- [a](https://a.example/b)\n- [c](https://c.example/d)\n\n```\nx = 1\n```\n"
    assert split_pieces(text) == [
        "Ask.\n\n",
        "- [a](https://a.example/b)\n",
        "- [c](https://c.example/d)\n\n",
        "```\nx = 1\n```\n",
    ]


def test_a_link_knows_its_text_and_target() -> None:
    (block,) = read_blocks("See [the *old* yard](<yard plan.md> 'x').")
    assert block.links == (Link("the old yard", "yard plan.md", 5, 19),)


def test_a_line_in_bold_is_a_heading() -> None:
    assert names("**Bugfixes**\n\n- Nora Blum came.\n\n__Api Changes:__\n\nIda Falk came.") == ["Nora Blum", "Ida Falk"]
    assert names("**Nora Blum**: leads.\n\n**Ida Falk came.**\n\n- **Paul Kern**") == [
        "Nora Blum",
        "Ida Falk",
        "Paul Kern",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Press ![[crane.svg#icon]] in ![[Osthafen]] or ![[Yard.PNG|Nora]].", ["Osthafen"]),
        ('The {{< img src="a.jpg"\nalt="Nora Blum" >}} of {{% ref "Ida" %}} Bremen.', ["Bremen"]),
        (":page-tags: [crane, Nora]\n:revdate: May 2013, Nora\nifndef::x[:y: Nora]\n\nIda Falk came.", ["Ida Falk"]),
        (":Author: Nora Blum\n:returns: the crane of Ida Falk", ["Nora Blum", "Ida Falk"]),
        ("::\n\n    .. py:function:: Nora\n\n    pump_id = 1", ["pump_id"]),
    ],
)
def test_what_a_program_puts_in_is_no_name(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize("mark", ["[!TIP]", "[!IMPORTANT]-", "[!my-note]+ wait"])
def test_the_kind_of_a_callout_is_no_name(mark: str) -> None:
    assert pairs(f"> {mark}\n> Ask Nora Blum first.") == [("Page", "Nora Blum")]


@pytest.mark.parametrize("is_markdown", [True, None])
@pytest.mark.parametrize("blank", ["    ", "\t"])
def test_items_of_a_list_whose_beginning_is_in_another_passage_are_items(blank: str, is_markdown: bool | None) -> None:
    lines = [
        "- Cranes",
        "::- Blue [one](a.md)",
        ":::- of Nora",
        "::- Red",
        ":- Yards",
        "::- North",
        "- ## Bremen",
        "  old",
    ]
    text = "\n".join(line.replace(":", blank) for line in lines)
    found = list(split_sentences(text, is_markdown=is_markdown))
    said = ["Cranes", "Blue one", "of Nora", "Red", "Yards", "North", "Bremen", "old"]
    assert [sentence.join(0, 9) for sentence in found] == said
    assert all(text[start:end] in text for sentence in found for start, end in sentence.places)
    assert [text[sentence.start :].startswith(sentence.words[0]) for sentence in found] == [True] * len(said)


def test_a_tab_of_a_line_that_goes_on_moves_no_letter() -> None:
    assert sentences("- The crane\n  of Nora\n\t\tand Paul\n- ## Bremen") == ["The crane of Nora and Paul", "Bremen"]


def test_code_of_an_item_stays_code() -> None:
    text = "- Write:\n\n      - name: crane\n        run: start\n\n- Go on."
    assert [one.kind for one in read_blocks(text, is_markdown=True)] == [Kind.ITEM, Kind.CODE, Kind.ITEM]


def test_what_follows_a_link_by_a_name_of_two_lines_keeps_its_place() -> None:
    text = "The [crane\nof Nora][the\nold one] came.\nHere."
    found = list(split_sentences(text))
    assert [sentence.join(0, 9) for sentence in found] == ["The crane of Nora", "came.", "Here."]
    assert [text[start:end] for sentence in found for start, end in sentence.places] == [
        word for sentence in found for word in sentence.words
    ]
