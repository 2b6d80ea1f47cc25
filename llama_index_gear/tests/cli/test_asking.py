"""`ask`: passages with their chains; with a model an agent's steps, answer and citations."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click import ClickException

from llama_index_gear import RankingWeights
from llama_index_gear.cli import models, store_folder
from llama_index_gear.cli.any_openai import AnyOpenAI
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

Runner = Callable[..., Any]
QUESTION = "Where was the granddaughter of Oppenheimer's adviser born?"

STEPS = [
    '{"needed": [], "facts": [["Max Born", "adviser of", "Oppenheimer"]], "answerable": false, '
    '"query": "Who is a granddaughter of Max Born?"}',
    '{"needed": [1], "facts": [], "answerable": true, "answer": "Cambridge"}',
]


def test_passages_come_with_the_triples_that_lead_to_them(run: Runner, docs: Path) -> None:
    run("index", "docs", "--store", "s")
    asked = run("ask", QUESTION, "--store", "s")
    assert asked.code == 0 and asked.err == ""
    assert " people/Olivia.txt\n   ↳ J. Robert Oppenheimer — " in asked.out
    assert " — Max Born\n   ↳ Olivia — Her mother, Irene, was a daughter of Max Born. — Max Born\n" in asked.out
    assert "   Olivia was born in Cambridge, England." in asked.out
    assert len(run("ask", QUESTION, "--store", "s", "--top-k", "1").out.split("\n1. ")) == 1


def test_a_passage_is_shown_where_it_speaks_of_the_question(run: Runner, docs: Path) -> None:
    def ask(text: str) -> list[str]:
        (docs / "Long.txt").write_text(text, "utf-8")
        run("index", "docs", "--store", "s")
        lines: list[str] = run("ask", "Who built the toll bridge?", "--store", "s").out.splitlines()
        return lines[next(place for place, line in enumerate(lines) if line.endswith("Long.txt")) + 1 :]

    filling = "The valley has a mild climate and many orchards. " * 12
    bridge = "Its builder was J. R. Hale. He built the toll bridge. It fell."
    shown = ask(f"# Long\n\n{filling}\n\n{bridge}\n\n{filling}")
    assert shown[0].startswith("   … ") and bridge in " ".join(map(str.strip, shown))
    assert ask(f"# Long\n\n{bridge}")[0] == f"   {bridge}"


def test_what_is_shown_of_a_passage_is_a_part_of_its_file(run: Runner, docs: Path) -> None:
    text = (
        "Nora Blum keeps the plans at link:https://osthafen.example/docs/plans/north[the archive], with read/write"
        " access for **client/server** teams of the graph-expanded yard.\n"
    )
    (docs / "Nora Blum.txt").write_text(text, "utf-8")
    run("index", "docs", "--store", "s")
    asked = run("ask", "Where does Nora Blum keep the plans?", "--store", "s")
    assert text.strip() in " ".join(asked.out.split())


def test_json_holds_the_same(run: Runner, docs: Path) -> None:
    run("index", "docs", "--store", "s")
    values = json.loads(run("ask", QUESTION, "--store", "s", "--json").out)
    assert values["question"] == QUESTION and len(values["passages"]) == 4
    (olivia,) = [passage for passage in values["passages"] if passage["title"] == "Olivia"]
    assert olivia["id"] == "people/Olivia.txt-0" and olivia["file"] == "people/Olivia.txt"
    assert olivia["chain"][-1][0] == "Olivia" and olivia["ranks"] and olivia["reasons"]


def test_weights_rank(run: Runner, docs: Path, tmp_path: Path) -> None:
    run("index", "docs", "--store", "s")
    RankingWeights({"tied": 1.0}).save(tmp_path / "w.json")
    scores = []
    for options in ([], ["--weights", "w.json"]):
        values = json.loads(run("ask", QUESTION, "--store", "s", "--json", *options).out)
        scores.append([passage["score"] for passage in values["passages"]])
    assert scores[0] != scores[1]
    assert run("ask", QUESTION, "--store", "s", "--weights", "none.json").code == 2


def test_with_a_model_the_agent_works_aloud_and_cites(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(models, "open_llm", lambda name: ScriptedLLM(STEPS))
    asked = run("ask", QUESTION, "--store", "s", "--html", "t.html")
    assert asked.code == 0 and asked.out.startswith(
        f"step 1: {QUESTION}\n   noted: Max Born — adviser of — Oppenheimer\n"
    )
    assert "step 2: Who is a granddaughter of Max Born?\n\nCambridge [1]\n\n[1] " in asked.out
    assert "\nanswered; 2 calls of the model\nThe search as a page: t.html\n" in asked.out
    assert "granddaughter of Max Born" in (tmp_path / "t.html").read_text("utf-8")
    values = json.loads(run("ask", QUESTION, "--store", "s", "--json").out)
    assert values["answer"] == "Cambridge [1]" and values["model_calls"] == 2 and values["stopped"] == "answered"
    assert values["citations"]["1"] == values["passages"][0]["id"]


def test_a_model_without_an_answer_is_told_of_beside_the_passages(
    run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(models, "open_llm", lambda name: ScriptedLLM(otherwise=lambda _: "<think>hm</think>"))
    asked = run("ask", QUESTION, "--store", "s")
    assert asked.code == 1 and "The language model gave no answer. The passages that were found: [1] " in asked.out
    assert "people/Olivia.txt" in asked.out
    told = run("ask", QUESTION, "--store", "s", "--json")
    values = json.loads(told.out)
    assert told.code == 1 and values["warning"] and values["citations"]["1"] == values["passages"][0]["id"]


def test_the_environment_limits_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert models.open_llm("any").max_tokens == 2_048  # type: ignore[union-attr]
    monkeypatch.setenv("OPENAI_MAX_TOKENS", "9000")
    assert models.open_llm("any").max_tokens == 9_000  # type: ignore[union-attr]
    monkeypatch.setenv("OPENAI_MAX_TOKENS", "many")
    with pytest.raises(ClickException, match="OPENAI_MAX_TOKENS is no number of tokens: 'many'"):
        models.open_llm("any")


def test_a_page_needs_a_model(run: Runner, docs: Path) -> None:
    refused = run("ask", QUESTION, "--html", "t.html")
    assert refused.code == 2 and "needs a model" in refused.err and refused.err.count("\n") == 1


def test_the_environment_names_the_model(monkeypatch: pytest.MonkeyPatch, run: Runner, tmp_path: Path) -> None:
    (tmp_path / "gear_store").mkdir()
    assert models.open_llm() is None
    refused = run("ask", QUESTION, "--llm", "gpt-4o")
    assert refused.code == 1 and "Set OPENAI_API_KEY, or OPENAI_BASE_URL" in refused.err
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    local = models.open_llm("some-model")
    assert isinstance(local, AnyOpenAI) and local.api_base == "http://localhost:1/v1"
    assert local.metadata.model_name == "some-model" and models.open_llm("none") is None
    monkeypatch.setenv("OPENAI_MODEL", "named")
    chosen = models.open_llm()
    assert chosen is not None and chosen.metadata.model_name == "named"


def test_ollama_needs_its_package(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gear_store").mkdir()
    monkeypatch.setitem(__import__("sys").modules, "llama_index.llms.ollama", None)
    refused = run("ask", QUESTION, "--llm", "ollama/llama3.2")
    assert refused.code == 1 and refused.err == "error: for Ollama's models: pip install llama-index-llms-ollama\n"


@pytest.fixture
def refuse() -> Iterator[Callable[[int], str]]:
    """Start a server that answers every request with a status; return its host and port."""
    servers = []

    def start(status: int) -> str:
        class Refusal(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.dumps({"error": {"message": f"refused with {status}"}}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Refusal))
        Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


AWAY = "error: no model's server answers at {} ({}): start it, or correct the address ({}"
KEY = (
    "error: the model's server at {} ({}) refuses the key: set OPENAI_API_KEY to one of its own (AuthenticationError: "
)
BUSY = "error: the model's server at {} (OPENAI_BASE_URL) is asked too often: wait, and repeat the command (RateLimitE"
PATH = "error: the model's server at {} ({}) knows no such model, or no such path: "


@pytest.mark.parametrize(
    ("variable", "status", "said"),
    [
        ("OPENAI_BASE_URL", 0, AWAY.format("{}", "OPENAI_BASE_URL", "APIConnectionError: Connection error.)\n")),
        ("OPENAI_BASE_URL", 401, KEY.format("{}", "OPENAI_BASE_URL")),
        ("OPENAI_API_BASE", 401, KEY.format("{}", "OPENAI_API_BASE")),
        ("OPENAI_BASE_URL", 404, PATH.format("{}", "OPENAI_BASE_URL") + "the address mostly ends in /v1"),
        ("OPENAI_BASE_URL", 400, "error: the model's server at {} (OPENAI_BASE_URL): BadRequestError: "),
        ("OPENAI_BASE_URL", 429, BUSY),
        ("OLLAMA_HOST", 0, AWAY.format("{}", "OLLAMA_HOST", "ConnectionError: ")),
        ("OLLAMA_HOST", 404, PATH.format("{}", "OLLAMA_HOST") + "`ollama list` shows the models"),
    ],
)
def test_a_model_s_server_is_named_with_what_names_it(
    run: Runner,
    docs: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuse: Callable[[int], str],
    variable: str,
    status: int,
    said: str,
) -> None:
    address = refuse(status) if status else "127.0.0.1:1"
    if variable == "OLLAMA_HOST":
        pytest.importorskip("llama_index.llms.ollama", reason="needs llama-index-llms-ollama")
        monkeypatch.setenv("OLLAMA_MODEL", "any")
    else:
        address = f"http://{address}/v1"
        monkeypatch.setenv("OPENAI_API_KEY", "a key")
    run("index", "docs", "--store", "s")
    monkeypatch.setattr("llama_index_gear.llm.client.MAX_RETRIES", 0)
    monkeypatch.setenv(variable, address)
    failed = run("ask", QUESTION, "--store", "s")
    assert failed.code == 1 and failed.err.count("\n") == 1 and failed.err.startswith(said.format(address))


@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("OPENAI_BASE_URL", "localhost:8000/v1"),
        ("OPENAI_BASE_URL", "http://"),
        ("OPENAI_BASE_URL", "http://local host/v1"),
        ("OPENAI_BASE_URL", "http://localhost:port/v1"),
        ("OLLAMA_HOST", "localhost:port"),
        ("OLLAMA_HOST", "ftp://localhost"),
    ],
)
def test_what_is_no_address_is_refused(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, address: str
) -> None:
    if variable == "OLLAMA_HOST":
        pytest.importorskip("llama_index.llms.ollama", reason="needs llama-index-llms-ollama")
        monkeypatch.setenv("OLLAMA_MODEL", "any")
    (tmp_path / "gear_store").mkdir()
    monkeypatch.setenv(variable, address)
    refused = run("ask", QUESTION)
    example = "http://localhost:8000/v1" if variable == "OPENAI_BASE_URL" else "http://localhost:11434"
    said = f"error: {variable} is no address of a server: {address!r}; write {example}, say\n"
    assert (refused.code, refused.err) == (1, said)


def test_the_graph_around_a_name_is_a_page(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: pytest.fail("it takes seconds, for nothing"))
    drawn = run("graph", "max born", "--store", "s", "--html", "g.html")
    assert (drawn.code, drawn.out) == (0, "The graph as a page: g.html\n")
    assert "The graph around Max Born" in (tmp_path / "g.html").read_text("utf-8")
    wrong = run("graph", "Max Bron", "--store", "s", "--html", "g.html")
    assert wrong.code == 1 and "near it are 'Max Born'" in wrong.err


class Keyboard(io.StringIO):
    """A terminal's input."""

    def isatty(self) -> bool:
        return True


def test_questions_are_read_from_a_pipe_line_by_line(run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that cannot be answered does not end the others; the exit code tells of it."""
    run("index", "docs", "--store", "s")
    alone = [run("ask", question, "--store", "s") for question in (QUESTION, "Who makes toys?")]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n\n  Who makes toys? \n"))
    piped = run("ask", "--store", "s")
    assert (piped.code, piped.err) == (0, "")
    assert piped.out == f"? {QUESTION}\n{alone[0].out}? Who makes toys?\n{alone[1].out}"
    monkeypatch.setattr("sys.stdin", io.StringIO("a" * 100_001 + "\nWho makes toys?"))
    piped = run("ask", "--store", "s", "--json")
    assert piped.code == 1 and piped.err.startswith("error: ") and piped.err.count("\n") == 1
    assert [json.loads(line)["question"] for line in piped.out.strip().split("\n")] == ["Who makes toys?"]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run("ask", "--store", "s") == (0, "", "")


def test_questions_are_typed_at_a_prompt_and_the_model_is_loaded_once(
    run: Runner, docs: Path, embedding: WordEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    loaded: list[str] = []

    def load(name: str) -> WordEmbedding:
        loaded.append(name)
        return embedding

    monkeypatch.setattr(store_folder, "load_embedding", load)
    monkeypatch.setattr("sys.stdin", Keyboard(f"{QUESTION}\n\nWho makes toys?\n"))
    typed = run("ask", "--store", "s")
    assert typed.code == 0 and typed.out.count("? 1. ") == 2 and len(loaded) == 1


def test_a_page_is_of_one_question(run: Runner, docs: Path) -> None:
    refused = run("ask", "--html", "t.html")
    assert refused.code == 2 and "give it on the command line" in refused.err
