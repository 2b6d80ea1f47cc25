"""The plan of the house: the imports that each folder may have, and the public names."""

import ast
import importlib
import inspect
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import llama_index_gear

PACKAGE = Path(llama_index_gear.__file__).parent

# A folder imports from itself and from the folders that its row names, all of them above it. "" holds what stands
# beside the folders, and knows none of them.
FOLDERS = {
    "": "",
    "llm": "",
    "embeddings": "",
    "trace": "llm",
    "store": "trace",
    "knowledge_graph": "store",
    "extraction": "llm store",
    "ingestion": "store extraction",
    "ranking": "store",
    "expansion": "llm store knowledge_graph ranking",
    "agents": "llm store expansion trace",
    "retrievers": "llm store knowledge_graph ranking expansion trace agents",
    "query_engines": "llm store knowledge_graph trace agents retrievers",
    "postprocessors": "llm store knowledge_graph extraction ranking expansion",
    "cli": "llm embeddings store extraction ingestion ranking retrievers trace",
}
QDRANT = {"store", "knowledge_graph"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "tests")
ENTRY = PACKAGE / "__init__.py"
"""The front door, which opens to every room when the first name is asked for."""


def _get_name(path: Path) -> str:
    """Return a module's name, without that of the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def _get_folder(name: str) -> str:
    """Return the top-level folder of a module; "" for one that stands beside the folders."""
    first = name.split(".")[0]
    return first if (PACKAGE / first / "__init__.py").exists() else ""


def _find_imports(path: Path) -> set[str]:
    """Return every module that a file imports, at any depth; a name imported from the package counts as a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            whole = node.module in (None, "llama_index_gear")
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if whole else {str(node.module)}
    return found


def _find_own_imports(path: Path) -> set[str]:
    """Return the modules of this package that a module imports."""
    prefix = "llama_index_gear."
    return {name.removeprefix(prefix) for name in _find_imports(path) if name.startswith(prefix)}


def test_every_folder_is_on_the_plan() -> None:
    assert {_get_folder(_get_name(path)) for path in MODULES} == set(FOLDERS)


def test_the_plan_runs_one_way() -> None:
    folders = list(FOLDERS)
    for number, folder in enumerate(folders):
        assert set(FOLDERS[folder].split()) <= set(folders[:number]), folder


@pytest.mark.parametrize("path", [path for path in MODULES if path != ENTRY], ids=_get_name)
def test_a_module_knows_only_what_the_row_of_its_folder_allows(path: Path) -> None:
    folder = _get_folder(_get_name(path))
    assert {_get_folder(name) for name in _find_own_imports(path)} <= {"", folder, *FOLDERS[folder].split()}
    engines = {name for name in _find_imports(path) if name.split(".")[0] in ("qdrant_client", "qdrant_edge")}
    assert not engines or folder in QDRANT


def test_no_import_goes_round() -> None:
    graph = {_get_name(path): _find_own_imports(path) for path in MODULES if path != ENTRY}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("path", MODULES, ids=_get_name)
def test_a_flow_is_named_as_one_and_asks_by_name(path: Path) -> None:
    """A flow's name ends in `_flow`, and it asks a single request by `ask`; only the module `flow` yields otherwise."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.returns is not None and _get_name(path) != "flow":
            is_flow = not {"blocking"} & set(map(ast.unparse, node.decorator_list))
            assert node.name.endswith("_flow") == (is_flow and ast.unparse(node.returns).startswith("Flow[")), node.name
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.List) and _get_name(path) != "flow":
            assert len(node.value.elts) > 1, f"line {node.lineno}: yield from ask(…)"


@pytest.mark.parametrize("path", MODULES, ids=_get_name)
def test_no_flow_calls_the_engine_past_the_filters_of_a_store(path: Path) -> None:
    """The rooms that bind filters and tenants call it. `ingestion` tells the calls that it refuses by their type."""
    if _get_folder(_get_name(path)) not in {"store", "knowledge_graph"}:
        called = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        assert not {"QdrantCall"} & {ast.unparse(node.func) for node in called}


def test_all_is_what_can_be_imported_and_each_says_what_it_is() -> None:
    imported = [node for node in ast.walk(ast.parse(ENTRY.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = {
        alias.name for node in imported for alias in node.names if str(node.module).startswith("llama_index_gear.")
    }
    assert sorted(llama_index_gear.__all__) == sorted(names) and names <= set(dir(llama_index_gear))
    public = {name: getattr(llama_index_gear, name) for name in names}
    for node in imported:
        for alias in node.names:
            if alias.name in names:
                assert public[alias.name] is getattr(importlib.import_module(str(node.module)), alias.name)
    for name in names:
        value = public[name]
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.startswith("llama_index_gear."), name
            text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
            assert text and len(text) > 30 and not text.startswith(f"{name}("), name
        else:
            assert name.isupper(), name


def test_a_dependency_that_breaks_at_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise AttributeError("module 'numpy' has no attribute 'float_'")

    assert "Triple" in dir(llama_index_gear)
    monkeypatch.delattr(llama_index_gear, "Triple")
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ImportError, match="cannot be imported: module 'numpy' has no attribute 'float_'"):
        getattr(llama_index_gear, "Triple")  # noqa: B009
