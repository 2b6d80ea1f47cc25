"""An endless line is counted, not kept, and reading goes on behind it."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.knowledge_graph import triples_file
from llama_index_gear.knowledge_graph.triples_file import Position, TriplesFile, read_lines

LIMIT = 200
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triples_file, "MAX_LINE", LIMIT)


def write_lines(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(PACK[path.suffix if path.suffix in PACK else ""](b"".join(lines)))
    return path


def make_line(size: int) -> bytes:
    """Return the line of a triple that has this size, its end included."""
    return b"a\tis\t" + b"b" * (size - 6) + b"\n"


@pytest.mark.parametrize("suffix", PACK)
def test_a_line_that_is_too_long_is_malformed_and_the_others_are_read(tmp_path: Path, suffix: str) -> None:
    sizes = [LIMIT + 1, 20, LIMIT, 10 * LIMIT, 3 * (LIMIT + 1), 20, 2 * LIMIT]
    lines = [make_line(size) for size in sizes]
    file = TriplesFile(write_lines(tmp_path / f"graph.tsv{suffix}", [*lines, b"c" * 1000]))
    assert [6 + len(triple.triple.object) for triple in file] == [20, LIMIT, 20]
    assert (file.report.lines, file.report.kept, file.report.malformed) == (8, 3, 5)
    assert file.report.examples == [f"line {number}: longer than 200 bytes" for number in (1, 4, 5, 7, 8)]


@given(st.lists(st.integers(1, 3 * LIMIT), max_size=12), st.booleans(), st.sampled_from(list(PACK)))
def test_reading_goes_on_from_any_line(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], is_cut: bool, suffix: str
) -> None:
    lines = [b"x" * (size - 1) + b"\n" for size in sizes]
    if is_cut and sizes and sizes[-1] > 1:
        lines[-1] = b"x" * sizes[-1]
    path = write_lines(tmp_path_factory.mktemp("lines") / f"graph.tsv{suffix}", lines)
    position, seen, stops = Position(), [], []
    for line in read_lines(path, False, "", position):
        seen.append(line)
        stops.append(replace(position))
    assert seen == [line if len(line) <= LIMIT else b"" for line in lines]
    assert [stop.lines for stop in stops] == list(range(1, len(lines) + 1))
    for number, stop in enumerate(stops, start=1):
        assert list(read_lines(path, False, "", replace(stop))) == seen[number:]


class Endless:
    """A stream of one line of a gigabyte, which is never held whole, then a short line."""

    def __init__(self) -> None:
        self.left = [2**30, 6]
        self.asked: list[int] = []

    def readline(self, size: int) -> bytes:
        self.asked.append(size)
        if not self.left:
            return b""
        given = min(size, self.left[0])
        self.left[0] -= given
        if self.left[0]:
            return b"x" * given
        self.left.pop(0)
        return b"x" * (given - 1) + b"\n"


def test_no_more_of_a_line_is_asked_for_at_once_than_may_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triples_file, "MAX_LINE", 2**20)
    stream = Endless()
    assert list(triples_file._split_lines(stream)) == [(b"", 2**30), (b"xxxxx\n", 6)]  # type: ignore[arg-type]
    assert set(stream.asked) == {2**20 + 1}
