"""A pass over a whole store holds one page of it in memory, whatever the store's size."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_index_gear.extraction import llm_extractor as extract
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.store import average_length
from llama_index_gear.store import check_and_repair as store_check
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

SMALL = WordEmbedding(16)
PAGE, FEW = 4, 16  # passages
LONG = "in the beginning " * 1_200  # some 20 kB, so that texts and not names are what is counted


class Forgetful(ScriptedLLM):
    """A model that states a fact of each passage and keeps no prompt."""

    def _next(self, prompt: str) -> str:
        return '{"triples": [["Ada", "was", "here"]]}'


def retry_failed(store: GeARVectorStore, _: Path) -> int:
    return GeARTripleExtractor(Forgetful(), num_workers=1).retry_failed(store).outcomes["extracted"]


def check(store: GeARVectorStore, _: Path) -> int:
    report = store.check(sample_size=PAGE)
    assert report.ok
    return report.passages


def copy_to(store: GeARVectorStore, folder: Path) -> int:
    target = GeARVectorStore.from_path(folder, embed_model=SMALL, batch_size=PAGE)
    copied = store.copy_to(target)
    target.close()
    return copied


@pytest.mark.long
@pytest.mark.parametrize("call", [retry_failed, check, copy_to])
def test_memory_does_not_grow_with_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[GeARVectorStore, Path], int]
) -> None:
    """Four times the passages have about the same peak; holding all of them would make it four times as high.

    The lowest of three peaks counts: as threads take turns, a page is at times still held when the next one is read.
    """
    monkeypatch.setattr(Collections.page_flow, "__kwdefaults__", {"limit": PAGE, "offset": None})
    monkeypatch.setattr(extract, "_PAGE", PAGE)
    monkeypatch.setattr(store_check, "_PAGE", PAGE)
    monkeypatch.setattr(average_length, "_PAGE", PAGE)

    def measure_peak(count: int, folder: Path) -> int:
        nodes = [TextNode(id_=f"p{number}", text=f"passage {number}: {LONG}") for number in range(count)]
        failing = GeARTripleExtractor(ScriptedLLM([TimeoutError("down")] * count), max_retries=0)
        store = GeARVectorStore.from_path(folder / "store", embed_model=SMALL, batch_size=PAGE)
        store.add(SMALL(failing(nodes)))
        tracemalloc.start()
        assert call(store, folder / "copy") == count
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        store.close()
        return highest

    measure_peak(PAGE, tmp_path / "first")  # loads what is loaded once, such as a tokenizer
    few, many = (min(measure_peak(count, tmp_path / f"{count}-{n}") for n in range(3)) for count in (FEW, 4 * FEW))
    assert many < 1.25 * few, (few, many)
