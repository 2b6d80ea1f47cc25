"""The links that a page's metadata say: found in bounded time, whatever the page."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from llama_index_gear.ingestion.stated_links import read_links


@pytest.mark.parametrize(("target", "links"), [("https://web.example/{}", 0), ("page-{}.html", 1_000)])
def test_a_page_of_many_anchors_is_read_in_bounded_time(tmp_path: Path, target: str, links: int) -> None:
    words = [f"Bookmark number {n} of many." for n in range(60_000)]
    anchors = (f'<a href="{target.format(n)}">{word}</a>' for n, word in enumerate(words))
    path = tmp_path / "bookmarks.html"
    path.write_text("\n".join(anchors), "utf-8")
    start = time.process_time()
    assert len(read_links(path, "\n".join(words)).get("links", [])) == links
    assert time.process_time() - start < 10  # a second, where nothing else runs
