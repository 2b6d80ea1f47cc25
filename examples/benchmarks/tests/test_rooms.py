"""The plan of the benchmarks: which folder may import which, as their README says."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from repository import BENCHMARKS

COMMANDS = ""
ROOMS = {
    "baselines": set[str](),
    "reporting": set[str](),
    "harness": {"baselines"},
    "peers": set[str](),
    COMMANDS: {"baselines", "harness", "peers", "reporting"},
}
TESTS = BENCHMARKS / "tests"
FILES = [path for path in BENCHMARKS.rglob("*.py") if not path.is_relative_to(TESTS)]
MODULES = {".".join(path.relative_to(BENCHMARKS).with_suffix("").parts): path for path in FILES}


def get_room(module: str) -> str:
    return module.rpartition(".")[0]


def find_imports(path: Path) -> set[str]:
    """Return every module of the benchmarks that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names & MODULES.keys()


def test_every_file_is_in_a_room_that_is_on_the_plan() -> None:
    assert {get_room(module) for module in MODULES} == ROOMS.keys()


def test_a_room_knows_itself_and_what_the_plan_allows() -> None:
    known = {(get_room(module), get_room(name)) for module, path in MODULES.items() for name in find_imports(path)}
    assert {(room, other) for room, other in known if room != other} == {
        (room, other) for room, others in ROOMS.items() for other in others
    }


def test_no_import_goes_round() -> None:
    TopologicalSorter({module: find_imports(path) for module, path in MODULES.items()}).prepare()
