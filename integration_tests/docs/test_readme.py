"""The README's code runs as it stands and prints what the page shows; every promise has its test."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from repository import BENCHMARKS, EXAMPLES, ROOT

from llama_index_gear import GeARVectorStore
from llama_index_gear.ingestion.files import PARSER
from llama_index_gear.ingestion.reading_process import ReadingProcess

README = (ROOT / "README.md").read_text("utf-8")
PROMISES = (EXAMPLES / "guides" / "promises.md").read_text("utf-8")
DOCS = EXAMPLES / "docs"
QUESTION = "When did the family of the designer of BASIC flee to New York?"


def test_the_code_runs_on_a_folder_and_prints_the_chain_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code runs twice on one folder: the second run replaces what the first one stored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(DOCS)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    printed = []
    for _ in range(2):
        names: dict[str, Any] = {}
        exec(code, names)  # the README's own code
        printed.append(capsys.readouterr().out)
        store: GeARVectorStore = names["store"]
        assert {node.metadata["title"] for node in store.get_nodes()} == {path.stem for path in DOCS.iterdir()}
        index = VectorStoreIndex.from_vector_store(store, embed_model=names["embed_model"])
        plain = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=2)
        found = [result.metadata["title"] for result in plain.retrieve(QUESTION)]
        store.close()
    assert printed == [shown, shown]
    assert "BASIC" in found and "John Kemeny" not in found


def test_the_folder_holds_forty_files_of_three_kinds() -> None:
    assert Counter(path.suffix for path in DOCS.iterdir()) == {".txt": 12, ".md": 20, ".pdf": 8}
    for path in DOCS.glob("*.md"):
        assert path.read_text("utf-8").startswith(f"# {path.stem}\n")
    with ReadingProcess(PARSER) as process:
        pdfs = {path.stem: process.read(path, path.name) for path in DOCS.glob("*.pdf")}
    assert {name: title for name, (title, *_) in pdfs.items()} == {name: name for name in pdfs}
    assert sorted(len(pages) for _, pages, _ in pdfs.values()) == [1] * 5 + [2] * 3


def test_the_text_files_are_passages_of_the_sample() -> None:
    rows = [json.loads(line) for line in (EXAMPLES / "data" / "corpus.jsonl").read_text("utf-8").strip().split("\n")]
    texts = {f"{row['title']}.txt": f"{row['text']}\n" for row in rows}
    names = [path.name for path in DOCS.glob("*.txt")]
    assert {name: (DOCS / name).read_text("utf-8") for name in names}.items() <= texts.items()


def test_what_the_readme_quotes_stands_in_the_folder() -> None:
    for title in ("John Kemeny", "BASIC"):
        (row,) = [line for line in README.splitlines() if line.startswith(f"| *{title}* | ")]
        text = (DOCS / f"{title}.md").read_text("utf-8")
        parts = [part.strip(' ".|') for part in row.split(" | ")[1].replace("**", "").split("…")]
        assert any(parts) and all(part in text for part in parts), title


@pytest.mark.parametrize("heading", ["Quickstart", "Tests"])
def test_a_stranger_finds_commands_that_run_as_they_stand(heading: str) -> None:
    """The first block below the heading names extras and scripts that there are, and nothing to be filled in."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", README, re.MULTILINE | re.DOTALL)
    block = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[0]
    commands = [part.strip() for line in block.splitlines() for part in line.partition("#")[0].split("&&")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (named,) = re.findall(r'pip install -e "\.\[([\w,]+)\]"', commands[0])
    assert set(named.split(",")) <= extras.keys()
    for command in commands[1:]:
        assert command == "pytest" or (ROOT / command.removeprefix("python ")).is_file(), command
    assert len(commands) == 2


def test_the_readme_is_short() -> None:
    """The README has at most a thousand words besides its code."""
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) <= 1000


def test_every_promise_has_its_test() -> None:
    rows = [row.split("|")[1:3] for row in PROMISES.splitlines() if row.startswith("|")]
    promises = rows[2:]
    assert len(promises) >= 9
    files = [*ROOT.glob("llama_index_gear/tests/**/*.py"), *ROOT.glob("integration_tests/*/*.py")]
    files += [BENCHMARKS / "soak.py", BENCHMARKS / "tests" / "test_figures.py"]
    held = {path.name for path in files}
    for path in files:
        held |= set(re.findall(r"def (test_\w+)", path.read_text("utf-8")))
    for promise, tests in promises:
        named = re.findall(r"`([\w.]+)`", tests)
        assert promise.strip() and named and set(named) <= held, promise


def test_contributors_are_shown_every_folder() -> None:
    """The tree in the README names the folders that exist, and no other."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tree = page.split("| folder of `llama_index_gear/` |")[1].split("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)/` \|", tree, re.MULTILINE))
    package = ROOT / "llama_index_gear"
    assert named == {path.parent.name for path in package.glob("*/__init__.py")}
