"""The lines of the command line in README and guide run word for word, in a shell, and print what README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository import EXAMPLES, ROOT


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command, and no model's key; its folder has `docs`."""
    program = tmp_path / "bin" / "llama-index-gear"
    program.parent.mkdir()
    lines = [f"#!{sys.executable}", "import sys", "from llama_index_gear.cli.main import main", "sys.exit(main())"]
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    (tmp_path / "docs").symlink_to(EXAMPLES / "docs")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "OLLAMA_"))}
    paths = f"{program.parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": paths, "PYTHONPATH": os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")])}


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    options = ["bash", "-e", "-o", "pipefail", "-c", command]
    done = subprocess.run(
        options, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_prints_what_it_shows(tmp_path: Path, shell: dict[str, str]) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert len(steps) == 2
    for command, shown in steps:
        assert run(command, tmp_path, shell) == shown


def test_the_guide_runs(tmp_path: Path, shell: dict[str, str]) -> None:
    text = (EXAMPLES / "guides" / "command_line.md").read_text("utf-8")
    printed = [run(block, tmp_path, shell) for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)]
    assert len(printed) == 4
    assert re.match(r"(\d+) passages \(0 for nothing\): \1 calls, .* cost 0\.\d+\n", printed[1])
    assert "J. Robert Oppenheimer" in printed[0] and "Max Born" in (tmp_path / "answer.json").read_text("utf-8")
    assert "recall, in percent, of 2 questions" in printed[-1] and "\nGraphRetriever against " in printed[-1]


def test_an_error_is_one_line_and_a_code(tmp_path: Path, shell: dict[str, str]) -> None:
    command = [str(tmp_path / "bin" / "llama-index-gear"), "ask", "Who?", "--store", "storr"]
    done = subprocess.run(command, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: no store in storr: fill one with `llama-index-gear index DIR --store storr`\n"
