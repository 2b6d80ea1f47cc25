"""The links that a page's metadata say: found in bounded time, whatever the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_index_gear.ingestion.stated_links import read_links
from llama_index_gear.tests.growth import assert_linear


@pytest.mark.parametrize(("target", "links"), [("https://web.example/{}", 0), ("page-{}.html", 1_000)])
def test_a_page_of_many_anchors_is_read_in_linear_time(tmp_path: Path, target: str, links: int) -> None:
    def write(size: int) -> tuple[Path, str]:
        words = [f"Bookmark number {n} of many." for n in range(size)]
        anchors = (f'<a href="{target.format(n)}">{word}</a>' for n, word in enumerate(words))
        path = tmp_path / f"{size}.html"
        path.write_text("\n".join(anchors), "utf-8")
        return path, "\n".join(words)

    assert len(read_links(*write(60_000)).get("links", [])) == links
    assert_linear(lambda page: read_links(*page), write, 20_000)
