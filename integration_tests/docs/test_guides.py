"""Every code block of every guide runs word for word, and every link leads somewhere."""

from __future__ import annotations

import importlib.resources
import json
import os
import pkgutil
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import TextNode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from openai_server import OpenAIServer, Reply
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from qdrant_client import QdrantClient
from repository import BENCHMARKS, EXAMPLES, ROOT

import llama_index_gear
from llama_index_gear import ExternalTripleStore, GeARVectorStore, LightEmbedding, Triple, attach_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

GUIDES = sorted((EXAMPLES / "guides").glob("*.md"))
CODE = [*GUIDES, EXAMPLES / "llamaindex_docs_entry.md"]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *CODE, *sorted(BENCHMARKS.glob("*.md"))]
PAGES += [EXAMPLES / "data" / "README.md"]


def state_fact(prompt: str) -> str:
    """Return a reply that states one fact of the passage in the prompt."""
    words = prompt.rsplit("\n#####\n", 2)[1].partition("\n\n")[2].split()
    return json.dumps({"entities": [], "triples": [[words[0], "is told of in", words[-1]]]})


def reply_to_guide(body: dict[str, Any], step: str) -> Reply:
    """State a fact where one is extracted; call an agent's tool, then repeat what it returned; else give a step."""
    if "tools" not in body:
        prompt = body["messages"][-1]["content"]
        return Reply(state_fact(prompt) if prompt.startswith("You turn a passage into facts") else step)
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return Reply(results[0]) if results else Reply(tool_arguments='{"input": "Where was the director of Jaws born?"}')


def fill_collection(embed_model: BaseEmbedding) -> QdrantClient:
    """Return a client of a collection that LlamaIndex's own store made."""
    client = QdrantClient(":memory:")
    texts = {"Stephen Curry": "Stephen Curry is the son of Dell Curry.", "Dell": "Dell Curry played for Virginia Tech."}
    nodes = [TextNode(text=text, metadata={"file_name": f"{title}.txt"}) for title, text in texts.items()]
    QdrantVectorStore("docs", client=client).add(list(embed_model(nodes)))
    return client


def fill_store(names: dict[str, Any]) -> None:
    """Add a store on a server, with two passages, and another model."""
    names.update(client=QdrantClient(":memory:"), other_model=names["embed_model"])
    names["embed_model"] = WordEmbedding(16)
    names["store"] = GeARVectorStore("docs", client=names["client"], embed_model=names["embed_model"])
    said = Triple("Jaws", "was directed by", "Steven Spielberg")
    nodes = [TextNode(text="Jaws was directed by Steven Spielberg."), TextNode(text="Jaws is a film.")]
    names["store"].add(names["embed_model"]([attach_triples(nodes[0], [said]), nodes[1]]))


def script_every_method() -> ScriptedLLM:
    """Return a model that replies as the page on the API needs."""
    fact = '{"triples": [["Dell Curry", "played for", "Virginia Tech"]]}'
    step = {"needed": [2, 1], "facts": [["Dell Curry", "played for", "Virginia Tech"]]}
    script = ["At Virginia Tech.", json.dumps({**step, "answerable": True, "answer": "Virginia Tech"})]
    script += [script[-1], '{"follows": true}', *2 * ['{"follows": false, "missing": "who his father is"}']]
    script += ['{"triples": [["Stephen Curry", "son of", "?father"], ["?father", "played for", "?team"]]}']
    script += ['{"facts": [{"clue": 1, "triple": ["Stephen Curry", "son of", "Dell Curry"]}]}', '{"facts": []}']
    script += [fact, '{"sufficient": true}', "[1]", "Virginia Tech [1]"]
    return ScriptedLLM(script)


def make_names(guide: str, server: OpenAIServer) -> dict[str, Any]:
    """Return the names that a guide uses without defining them."""
    names: dict[str, Any] = {"embed_model": LightEmbedding(), "llm": ScriptedLLM(otherwise=state_fact)}
    if guide == "api":
        names["llm"] = script_every_method()
    elif guide == "start":
        names["client"] = fill_collection(names["embed_model"])
    elif guide == "operate_and_scale":
        fill_store(names)
    elif guide in ("choose", "llamaindex_docs_entry"):
        names["llm"] = ScriptedLLM(otherwise=lambda _: "Aurelio")
    elif guide == "agents_and_models":
        step = json.dumps({"needed": [1, 2], "facts": [], "answerable": True, "answer": "Cincinnati"})
        server.answer, server.ends_batches = lambda body: reply_to_guide(body, step), True
        names.update(llm=server.llm(), openai_llm=server.llm(), exporter=InMemorySpanExporter())
    return names


def stop_tracing() -> None:
    if LlamaIndexInstrumentor().is_instrumented_by_opentelemetry:
        LlamaIndexInstrumentor().uninstrument()


@pytest.mark.filterwarnings("ignore:28 of 47 passages are longer:UserWarning")  # choose.md has whole pages
# OpenInference's handler calls pydantic's old names; as an error that would lose a span.
@pytest.mark.filterwarnings("ignore:The `(json|dict|copy)` method is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning")  # operate_and_scale.md is about servers
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # LlamaIndex's agents cause them
@pytest.mark.parametrize("guide", CODE, ids=lambda path: path.stem)
def test_the_code_of_a_guide_runs(
    guide: Path,
    server: OpenAIServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("OPENAI_API_BASE", server.base_url)
    request.addfinalizer(stop_tracing)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    names = make_names(guide.stem, server)
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    for block in blocks:
        exec(block, names)  # the guide's own code
    out = capsys.readouterr().out
    said = {
        "agents_and_models": (
            "Cincinnati [1][2]\n[1] ",
            "'] answered\n",
            "2 calls",
            "BatchStatus(waiting=0, under_way=0, answered=2",
            "2 passages (2 extracted;",
        ),
        "api": (
            "Dell Curry",
            "\nAt Virginia Tech.\n",
            "path: Dell Curry — played for",
            "\nVirginia Tech [1][2] ['",
            "I don't know. Not found: Dell Curry, played for, ?team. ['?team']\n",
        ),
        "choose": (
            "\nMachines with names\n",
            "is about “Team Otter”, which “ledger-sync” names: ",
            "24 questions: recall@5",
        ),
        "ingest": ("0 passages, 0 triples: in order",),
        "filters_and_security": ("divided by 'customer'",),
        "start": ("2 passages: 2 new or changed", "\nDell [["),
        "llamaindex_docs_entry": ("BASIC [['John Kemeny', ", "\nAurelio\n"),
    }
    assert [words for words in said.get(guide.stem, ()) if not blocks or words not in out] == [], out
    if guide.stem == "api":
        assert str(names["response"]) == "I don't know. Not found: Dell Curry, played for, ?team."
        assert out.endswith("Not found: Dell Curry, played for, ?team. ['?team']\n") and names["llm"].remaining == 0
    if guide.stem == "agents_and_models":
        spans = {span.name for span in names["exporter"].get_finished_spans()}
        assert spans >= {"gear.step", "gear.base_search", "gear.llm.select"}
    for value in names.values():
        if isinstance(value, GeARVectorStore | ExternalTripleStore):
            value.close()


@pytest.mark.parametrize("guide", CODE, ids=lambda path: path.stem)
def test_a_guide_has_no_code_but_what_runs(guide: Path) -> None:
    """A guide has no indented code and no other kind of fence than these tests run; commands stand in ```bash."""
    text = guide.read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n.*?^```$", text, re.DOTALL | re.MULTILINE)
    assert set(blocks) <= {"python", "bash"} and text.count("```") == 2 * len(blocks) and "~~~" not in text
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^(?: {4}|\t).*", prose, re.MULTILINE) == []


def test_a_guide_that_runs_nothing_is_known() -> None:
    assert {path.stem for path in CODE if "```python" not in path.read_text("utf-8")} == {"promises"}


def test_guides_are_few_and_short() -> None:
    """Users have seven guides of at most 1,200 words each, besides their code; promises are for contributors."""
    words = {
        path.stem: len(re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL).split())
        for path in GUIDES
        if path.stem != "promises"
    }
    assert len(words) == 7 and max(words.values()) <= 1200, words


def find_links(page: Path) -> list[str]:
    """Return the targets of a page's links, except those in its code."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def is_on_the_web(target: str) -> bool:
    return target.startswith(("https://", "http://"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in find_links(page):
        if is_on_the_web(target):
            continue  # see below
        path, _, anchor = target.partition("#")
        linked = page if not path else (page.parent / path).resolve()
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                target
            )


def fetch_status(address: str) -> int:
    """Return the status that a server answers to HEAD or, where HEAD is an error, to GET."""
    with httpx.Client(follow_redirects=True, timeout=30.0) as client:
        status = client.head(address).status_code
        return status if status < 400 else client.get(address).status_code


@pytest.mark.skipif("CHECK_LINKS" not in os.environ, reason="needs the web: CHECK_LINKS=1")
@pytest.mark.parametrize(
    "address", sorted({target for page in PAGES for target in find_links(page) if is_on_the_web(target)})
)
def test_every_link_to_the_web_is_answered(address: str) -> None:
    assert fetch_status(address) < 400


def test_a_dead_link_would_be_noticed(server: OpenAIServer) -> None:
    assert (fetch_status(f"{server.base_url}/models"), fetch_status(f"{server.base_url}/gone")) == (200, 404)


def test_how_much_of_a_prompt_stands_before_what_changes() -> None:
    """Every prompt begins with what doesn't change; those that extract or read, with as much as the guide says."""
    modules = [importlib.import_module(module.name) for module in
               pkgutil.walk_packages(llama_index_gear.__path__, "llama_index_gear.")
               if not module.name.startswith("llama_index_gear.tests")]  # fmt: skip
    prompts = {name: value for module in modules for name, value in vars(module).items()
               if isinstance(value, BasePromptTemplate)}  # fmt: skip
    assert len(prompts) > 12
    long = {"EXTRACT", "READ", "GIST", "READ_AND_REASON", "DECOMPOSE", "RESOLVE"}
    shares: dict[bool, list[float]] = {True: [], False: []}
    for name, prompt in prompts.items():
        pieces = re.split("|".join(f"{{{variable}}}" for variable in prompt.template_vars), prompt.get_template())
        shares[name.removesuffix("_PROMPT") in long].append(100 * len(pieces[0]) / len("".join(pieces)))
    least, most = min(shares[True]), max(shares[True])
    assert len(shares[True]) == len(long)
    guide = (EXAMPLES / "guides" / "agents_and_models.md").read_text("utf-8")
    assert f"{least:.0f} to {most:.0f} % of a prompt" in guide
    assert min(shares[False]) > 25


def test_every_guide_is_linked() -> None:
    """README links those for users, CONTRIBUTING those for contributors."""
    readme, contributing = ((ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md"))
    assert [path.stem for path in GUIDES if f"examples/guides/{path.name}" not in readme] == ["promises"]
    assert "examples/guides/promises.md" in contributing and "examples/llamaindex_docs_entry.md" in contributing


def test_every_test_file_that_a_guide_names_is_there() -> None:
    for guide in GUIDES:
        for name in re.findall(r"`((?:[\w/]+/)?test_\w+\.py)`", guide.read_text("utf-8")):
            there = [*ROOT.glob(f"llama_index_gear/tests/**/{name}"), *ROOT.glob(f"integration_tests/**/{name}")]
            assert there or (ROOT / name).exists(), f"{guide.name}: {name}"


def test_every_unit_test_that_ci_names_is_there() -> None:
    names = re.findall(r"unit_tests/([\w/.]+)", (ROOT / ".ci" / "run").read_text("utf-8"))
    assert names and not [name for name in names if not (ROOT / "llama_index_gear" / "tests" / name).exists()]


def test_json_lines_are_split_at_line_feeds_alone() -> None:
    """`str.splitlines` cuts a value at U+2028 and at seven other characters that JSON allows in a text."""
    careless = re.compile(r"(?=.*splitlines)(?:.*jsonl|.*json\.loads\(line\)|.*map\(json\.loads)")
    folders = [ROOT / "llama_index_gear", ROOT / "integration_tests", EXAMPLES]
    files = [path for folder in folders for kind in ("py", "md", "ipynb") for path in folder.rglob(f"*.{kind}")]
    assert len(files) > 100
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        if path != Path(__file__)
        for line in path.read_text("utf-8").split("\n")
        if careless.match(line)
    ]
    assert not wrong
