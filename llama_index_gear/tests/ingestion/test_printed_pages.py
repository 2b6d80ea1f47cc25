"""Pages as they are printed: titles, headings that are none, running heads and feet, tables that go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llama_index_gear.ingestion.printed_pages import continue_tables, drop_running_lines, print_title, read_page


def make_piece(text: str, size: float, box: tuple[float, float, float, float]) -> Any:
    left, right, top, bottom = box
    return SimpleNamespace(
        text=text, font_size=size, bbox=SimpleNamespace(left=left, right=right, top=top, bottom=bottom)
    )


BODY = make_piece("Nora Blum founded the yard in Bremen, and her sons paint its cranes.", 10, (50, 350, 600, 625))


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("Page 12 Yard News No. 52", (40, 560, 760, 772)),  # a running head: at the left, in the middle, at the right
        ("DATE PAYEE AMOUNT", (40, 120, 300, 760)),  # heads of columns of a page that is turned
    ],
)
def test_what_stands_apart_is_no_title_and_no_heading(text: str, box: tuple[float, float, float, float]) -> None:
    piece = make_piece(text, 12, box)
    page = f"# {text}\n\n{BODY.text}"
    assert print_title(page, [piece, BODY]) == page
    assert read_page(page, [piece, BODY]) == f"{text}\n\n{BODY.text}"


def test_a_title_of_two_lines_stays() -> None:
    piece = make_piece("The Cranes of Bremen and the Yards of the Weser", 20, (50, 330, 700, 748))
    page = f"# {piece.text}\n\n{BODY.text}"
    assert read_page(print_title(page, [piece, BODY]), [piece, BODY]) == page


@pytest.mark.parametrize(
    "text",
    [
        "his page is left blank.",
        "\x84 They appoint cranes",
        "• Cranes",
        "Appendix 5 Page 8 of 11",
        "of the yard;",
        "[ÉÇÉÜtuÄx VöÅtÜt",
    ],
)
def test_a_piece_of_a_sentence_or_list_is_no_title_and_no_heading(text: str) -> None:
    piece = make_piece(text, 20, (50, 300, 700, 722))
    page = f"# {text}\n\n{BODY.text}"
    assert print_title(page, [piece, BODY]) == page
    assert read_page(page, [piece, BODY]) == f"{text}\n\n{BODY.text}"


def test_a_row_of_values_is_no_heading() -> None:
    page = "## Home Loan 6.53% – 6.03%\n\n## 3. Results of 2019 and 2020\n\n## 4 Hall 7"
    assert read_page(page, []) == "Home Loan 6.53% – 6.03%\n\n## 3. Results of 2019 and 2020\n\n## 4 Hall 7"


def test_running_heads_and_feet_stand_on_one_page_and_leave_their_numbers() -> None:
    pages = [
        f"**{number} Yard News** / Vol. 85\n\n## Hall {number}\n\nNora painted crane {letter}.\n\n"
        f"It rained on {letter}.\n\n# Yard\n\nE:\\YARD\\7{number}.SGM"
        for number, letter in enumerate("abcdef")
    ]
    first, *others = drop_running_lines(pages)
    assert first == pages[0]
    for number, (text, letter) in enumerate(zip(others, "bcdef", strict=True), start=1):
        rest = f"## Hall {number}\n\nNora painted crane {letter}.\n\nIt rained on {letter}.\n\n7{number}"
        assert text == f"{number}\n\n{rest}"


def test_what_two_pages_or_tables_share_stays() -> None:
    pages = ["Yard\n\nNora.\n\nEnd", "Yard\n\nPaul.\n\nEnd"]
    assert drop_running_lines(pages) == pages
    pages = [f"| name | town |\n| --- | --- |\n| Nora | Bremen {number} |" for number in range(5)]
    assert drop_running_lines(pages) == pages


def test_headings_that_return_on_few_pages_stay() -> None:
    pages = [
        f"# {'Results' if number % 2 else f'Part {chr(65 + number)}'}\n\n{chr(97 + number)}." for number in range(8)
    ]
    assert drop_running_lines(pages) == pages


def test_a_table_that_goes_on_has_the_head_of_the_page_before() -> None:
    first = "Staff\n\n| name | since |\n| --- | --- |\n| Nora | 01/02/2015 |"
    pages = continue_tables(
        [first, "| Paul | 03/04/2016 |\n| --- | --- |\n| Ida | 05/06/2017 |", "| 7 | 8 | 9 |\n|---|---|---|"]
    )
    assert pages[0] == first
    assert pages[1] == "| name | since |\n| --- | --- |\n| Paul | 03/04/2016 |\n| Ida | 05/06/2017 |"
    assert pages[2] == "|  |  |  |\n|---|---|---|\n| 7 | 8 | 9 |"


def test_a_column_of_values_alone_has_no_head() -> None:
    assert continue_tables(["| 5 |\n|---|\n| 6 |"]) == ["|  |\n|---|\n| 5 |\n| 6 |"]


def test_a_head_of_names_and_years_stays() -> None:
    page = "| sort | 2019 | 2020 |\n| --- | --- | --- |\n| cranes | 1 | 2 |"
    assert continue_tables([page, page]) == [page, page]


def test_the_scale_of_an_axis_is_no_title() -> None:
    for words, mark in (("Relative Load 0 2 4 6", "##"), ("Chapter 6 – The Cranes of 2024", "#")):
        piece = make_piece(words, 20, (50, 300, 700, 722))
        assert print_title(f"## {words}\n\n{BODY.text}", [piece, BODY]).split("\n")[0] == f"{mark} {words}"


def test_what_heads_another_page_too_is_no_title() -> None:
    piece = make_piece("52 Reference Tables", 20, (50, 300, 700, 722))
    page = f"# 52 Reference Tables\n\n{BODY.text}"
    for other in (
        "# Reference Tables 53\n\nMore.",
        "More.\n\n55 | Reference Tables",
        "It.\n\n# Reference Tables\n\nMore.",
    ):
        assert print_title(page, [piece, BODY], [other]) == f"52 Reference Tables\n\n{BODY.text}"
    for other in ("# Reference Tables of Bremen", "More.\n\nReference Tables\n\nMore.", ""):
        assert print_title(page, [piece, BODY], [other]) == page
    title = make_piece("The Cranes of Bremen", 20, (50, 300, 700, 722))
    page = f"# {title.text}\n\n{BODY.text}"
    assert print_title(page, [title, BODY], [f"{title.text}\n\nMore."]) == page
    assert print_title(page, [title, BODY], [f"# {title.text}\n\nMore."]) == page.removeprefix("# ")


def test_a_line_that_counts_as_the_pages_do_is_no_heading() -> None:
    pages = ["a\n\n# 52 Yard Tables", "b\n\n# Cranes of 2021 53", "c\n\n**54 Yard Tables**", "d\n\n# Cranes of 2021 55"]
    kept = ["a\n\n52 Yard Tables", "b\n\nCranes of 2021 53", "c\n\n**54 Yard Tables**", "d\n\nCranes of 2021 55"]
    assert drop_running_lines(pages) == kept
    quoted = [f"# {number} Tab\n\nIt is # {number} Tab here." for number in (5, 6)]
    assert drop_running_lines(quoted) == [page.removeprefix("# ") for page in quoted]
    chapters = ["# Chapter 1\n\nx", "# Chapter 2\n\ny", "z\n\n# 3 Cranes", "# 9 Cranes\n\nz"]
    assert drop_running_lines(chapters) == chapters
