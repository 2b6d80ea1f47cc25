"""The plan of the house: which room may know which, and what the front door shows."""

import ast
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import llama_index_gear

PACKAGE = Path(llama_index_gear.__file__).parent

# Left to right: a room knows only rooms above its row, and of those only the ones that its row names.
ROOMS = {
    "errors": "",
    "forks": "",
    "text": "",
    "json_scan": "",
    "triple": "errors",
    "fusion": "errors",
    "steps": "triple errors",
    "expand": "triple errors steps",
    "pagerank": "triple errors steps",
    "storable": "errors",
    "edge_models": "errors storable",
    "edge_folder": "errors",
    "edge_shards": "errors edge_folder",
    "edge": "errors edge_models edge_folder edge_shards",
    "nodes": "triple errors",
    "reply": "triple errors text json_scan",
    "tenant": "errors nodes",
    "ledger": "triple nodes",
    "mentions": "triple nodes",
    "asking": "errors text",
    "cost": "errors",
    "batch": "errors forks asking",
    "extraction": "triple errors reply ledger asking text",
    "extract_calls": "triple asking ledger cost extraction",
    "extract_memory": "triple ledger",
    "extract": "triple errors nodes steps asking ledger cost extraction extract_calls extract_memory tenant",
    "graph_files": "triple errors",
    "wikidata_index": "",
    "wikidata_formats": "errors graph_files wikidata_index",
    "wikidata": "triple errors graph_files wikidata_index wikidata_formats",
    "turns": "errors forks",
    "connection": "errors forks steps edge turns",
    "store_layout": "triple errors nodes",
    "store_filters": "errors nodes store_layout",
    "store_ranking": "steps",
    "store_collections": "errors steps store_filters store_layout store_ranking",
    "store_triples": "triple errors steps store_filters store_layout store_collections",
    "store_reads": "errors fusion steps store_filters store_layout store_collections store_triples",
    "store_tenant": "errors steps store_layout store_collections tenant",
    "store_writes": (
        "triple errors nodes steps storable store_filters store_layout store_collections store_reads store_tenant "
        "tenant turns"
    ),
    "store_deletes": "errors steps store_filters store_layout store_collections tenant turns",
    "store_check": (
        "errors nodes steps store_filters store_layout store_collections store_reads store_writes store_deletes"
    ),
    "store_copy": "errors steps store_filters store_layout store_collections store_tenant store_writes turns",
    "store": (
        "triple errors steps edge connection store_collections store_triples store_reads store_writes store_deletes "
        "store_check store_copy tenant turns"
    ),
    "external_reads": "triple errors forks steps store_layout store_collections store_triples store_filters",
    "external": "triple errors steps edge connection store_layout store_collections store_triples external_reads",
    "read": "triple errors steps reply asking",
    "bm25": "errors",
    "sources": "errors steps store external asking",
    "walk": "triple errors nodes fusion steps expand pagerank read sources",
    "external_walk": "triple errors nodes steps expand read walk",
    "retriever": "errors expand pagerank external external_walk read store sources walk",
    "postprocessor": "errors expand pagerank read store sources walk",
    "evidence": "",
    "picture": "triple evidence",
    "trace": "evidence picture",
    "agent": "errors text steps evidence trace",
    "reason": "triple errors json_scan steps reply asking read",
    "found": "triple nodes fusion expand evidence trace",
    "gear": "triple nodes fusion steps sources reason walk evidence trace found",
    "unknowns": "triple",
    "learning": "triple unknowns",
    "thinking": "triple errors json_scan steps reply asking read unknowns learning",
    "t2rag": ("triple errors nodes fusion steps expand evidence trace sources found reason unknowns learning thinking"),
    "external_reason": "errors steps asking read reason reply",
    "external_gear": ("triple errors nodes steps reason evidence trace found gear external_walk external_reason"),
    "agent_retriever": "errors steps sources trace agent",
    "gear_retriever": "errors expand pagerank store sources read reason walk agent gear agent_retriever",
    "t2rag_retriever": "errors expand store sources agent agent_retriever thinking t2rag",
    "external_retriever": (
        "errors expand external store sources read agent agent_retriever external_gear external_reason external_walk"
    ),
    "agent_engine": "errors nodes asking trace agent_retriever",
    "engine": "asking evidence external store trace external_retriever gear_retriever t2rag_retriever agent_engine",
    "testing": "forks",
    "store_contract": "triple errors nodes steps store_layout store_check store testing",
}
QDRANT = {
    "edge",
    "edge_models",
    "edge_shards",
    "connection",
    "external",
    "external_reads",
    "store",
    "store_layout",
    "store_ranking",
    "store_check",
    "store_collections",
    "store_contract",
    "store_copy",
    "store_deletes",
    "store_filters",
    "store_reads",
    "store_triples",
    "store_writes",
}


def _imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it; a name imported from the package counts as a module of it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            whole = node.module in (None, "llama_index_gear")
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if whole else {str(node.module)}
    return found


def test_every_room_is_on_the_plan() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == {*ROOMS, "__init__"}


def test_the_plan_runs_one_way() -> None:
    rooms = list(ROOMS)
    for number, room in enumerate(rooms):
        assert set(ROOMS[room].split()) <= set(rooms[:number]), room


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_what_its_row_allows(room: str) -> None:
    imported = _imports(PACKAGE / f"{room}.py")
    inside = {name.removeprefix("llama_index_gear.") for name in imported if name.split(".")[0] == "llama_index_gear"}
    assert inside <= set(ROOMS[room].split())
    engines = {name for name in imported if name.split(".")[0] in ("qdrant_client", "qdrant_edge")}
    assert not engines or room in QDRANT


@pytest.mark.parametrize("room", [room for room in ROOMS if not room.startswith("edge")])  # whose forks are its own
def test_every_lock_is_free_in_a_forked_child(room: str) -> None:
    nodes = list(ast.walk(ast.parse((PACKAGE / f"{room}.py").read_text(encoding="utf-8"))))
    types = {id(node.annotation) for node in nodes if isinstance(node, ast.AnnAssign)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "free_in_child"]
    freed = {id(node) for call in calls for node in ast.walk(call)}
    for node in nodes:
        if ast.unparse(node) in {f"threading.{kind}" for kind in ("Lock", "RLock", "Condition", "Event", "Semaphore")}:
            assert id(node) in types | freed, ast.unparse(node)


def test_all_is_what_can_be_imported_and_each_says_what_it_is() -> None:
    public = {name: value for name, value in vars(llama_index_gear).items() if not name.startswith("_")}
    names = {name for name, value in public.items() if not isinstance(value, ModuleType)}
    assert sorted(llama_index_gear.__all__) == sorted(names)
    for name in names:
        value = public[name]
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.startswith("llama_index_gear."), name
            text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
            assert text and len(text) > 30 and not text.startswith(f"{name}("), name
        else:
            assert name.isupper(), name
