"""The lines of the command line in README and guide run word for word, in a shell, and print what README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from command_server import serve_command
from repository import EXAMPLES, ROOT


class Shell(NamedTuple):
    """A folder with `docs`, and an environment that finds the command, and no model's key."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: str) -> str:
        options = ["bash", "-e", "-o", "pipefail", "-c", command]
        done = subprocess.run(
            options, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def make_environment(programs: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "OLLAMA_"))}
    paths = f"{programs}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": paths, "PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, kept_vectors: Path) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("shell")
    (folder / "docs").symlink_to(EXAMPLES / "docs")
    (folder / "bin").mkdir()
    environment = make_environment(folder / "bin")
    with serve_command(folder / "bin" / "llama-index-gear", environment, kept_vectors):
        yield Shell(folder, environment)


@pytest.fixture(scope="module")
def readme(shell: Shell) -> list[tuple[str, str]]:
    """What the README shows of each of its commands, and what they print, in an empty folder."""
    (block,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    return [(shown, shell.run(command)) for command, shown in steps]


def test_the_readme_prints_what_it_shows(readme: list[tuple[str, str]]) -> None:
    assert len(readme) == 4
    for shown, printed in readme:
        assert printed == shown


@pytest.mark.long
def test_the_guide_runs(shell: Shell, readme: list[tuple[str, str]]) -> None:
    """After the README's commands, in the same folder: its first command is a second run of `index`."""
    text = (EXAMPLES / "guides" / "start.md").read_text("utf-8")
    printed = [shell.run(block) for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)]
    assert len(printed) == 4
    assert ": 0 new or changed" in printed[0] and "J. Robert Oppenheimer" in printed[0]
    assert re.match(r"(\d+) passages \(0 already extracted or blank\): \1 calls, .* cost 0\.\d+ in", printed[2])
    assert "Max Born" in (shell.folder / "answer.json").read_text("utf-8")
    assert "recall, in percent, of 2 questions" in printed[-1] and "\nGraphRetriever against " in printed[-1]


def test_no_example_stores_where_the_command_line_does() -> None:
    """Whoever tries an example and then the command line, in the same folder, has two stores."""
    paths = [*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.ipynb"), *EXAMPLES.rglob("*.md"), ROOT / "README.md"]
    opened = [
        (path.name, place)
        for path in paths
        for place in re.findall(r"(?:from_path\(|Path\()\\?\"(?:\./)?(\w+)[/\\\"]", path.read_text("utf-8"))
    ]
    assert len(opened) > 15
    assert {name for name, place in opened if place == "gear_store"} == {"start.md"}


def test_an_error_is_one_line_and_a_code(tmp_path: Path) -> None:
    """In a process of its own, which imports what it needs."""
    program = "import sys; from llama_index_gear.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "ask", "Who?", "--store", "storr"]
    environment = make_environment(tmp_path)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: no store in storr: fill one with `llama-index-gear index DIR --store storr`\n"
