"""`index --llm`: a model extracts the triples of files, what it costs is told before, and nothing is paid twice."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import CompletionResponse

from llama_index_gear import GeARVectorStore, read_triples
from llama_index_gear.cli import extracting, models
from llama_index_gear.nodes import without_links
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

Runner = Callable[..., Any]


class Model:
    """A model that states one fact of each passage; it counts its calls, and fails after some of them."""

    error: BaseException = ValueError("the model is ill")

    def __init__(self) -> None:
        self.calls = 0
        self.answers = 10**9  # calls before it fails
        self.verb = "is told of in"

    def open(self, name: str | None, **_: bool) -> ScriptedLLM | None:
        return None if name == "none" else ScriptedLLM(otherwise=self.reply)

    def reply(self, prompt: str) -> str:
        self.calls += 1
        if self.calls > self.answers:
            raise self.error
        words = prompt.rsplit("\n#####\n", 2)[1].split()
        return json.dumps({"entities": [], "triples": [[words[0], self.verb, words[-1]]]})


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = Model()
    monkeypatch.setattr(models, "open_llm", made.open)
    return made


def read_predicates(folder: Path) -> set[str]:
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        assert store.check().ok
        triples = [triple for node in store.get_nodes() for triple in without_links(read_triples(node))]
    return {triple.predicate for triple in triples}


def test_a_model_extracts_what_is_new_and_tells_the_cost_before(
    run: Runner, docs: Path, tmp_path: Path, model: Model, embedding: Any
) -> None:
    index = ("index", "docs", "--store", "s", "--llm", "any", "--price", "1", "2")
    estimate = run(*index, "--estimate")
    assert estimate.code == 0 and estimate.out.startswith("4 passages (0 already extracted or blank): 4 calls, ")
    assert (
        "cost 0.0" in estimate.out
        and "in the unit of the price" in estimate.out
        and model.calls == embedding.embedded == 0
        and not (tmp_path / "s").exists()
    )
    first = run(*index)
    assert first.code == 0 and "4 files, 4 passages: 4 new or changed, 0 deleted" in first.out
    tokens = re.search(
        r" (\d+) prompt and (\d+) completion tokens, cost (0\.\d+) in the unit of the price\n", first.err
    )
    assert tokens is not None and float(tokens[3]) > 0
    assert float(tokens[3]) == pytest.approx((int(tokens[1]) + 2 * int(tokens[2])) / 1e6, abs=5e-5)
    told, account = first.err.index("to extract: 4 passages"), first.err.index("extraction: 4 passages (4 extracted")
    assert told < account and model.calls == 4 and read_predicates(tmp_path / "s") == {model.verb}
    embedding.embedded = 0
    (docs / "Lego.txt").write_text("Lego makes bricks.")
    second = run(*index)
    assert (
        "1 new or changed" in second.out
        and "to extract: 4 passages (3 already extracted or blank): 1 call," in second.err
    )
    assert model.calls == 5 and embedding.embedded == 1  # the passage
    assert "0 new or changed" in run(*index).out and model.calls == 5


def test_another_model_or_schema_extracts_anew_and_rules_when_asked(
    run: Runner, docs: Path, tmp_path: Path, model: Model
) -> None:
    index = ("index", "docs", "--store", "s")
    run(*index)
    assert run(*index, "--llm", "any").code == 0 and model.calls == 4
    assert read_predicates(tmp_path / "s") == {model.verb}
    refused = run(*index)
    said = "error: the triples in s were extracted by any: go on with --llm any, or have all of them extracted by rule"
    assert refused.code == 1 and refused.err.endswith(f"{said} with --llm none\n")
    assert "4 new or changed" in run(*index, "--llm", "any", "--domain", "physicists").out and model.calls == 8
    assert "4 new or changed" in run(*index, "--llm", "none").out
    assert model.verb not in read_predicates(tmp_path / "s") and "0 new or changed" in run(*index).out


def test_a_run_goes_on_where_its_ceiling_was(run: Runner, docs: Path, model: Model) -> None:
    index = ("index", "docs", "--store", "s", "--llm", "any", "--price", "1", "1")
    stopped = run(*index, "--max-cost", "0")
    assert stopped.code == 1 and "4 over budget" in stopped.err and "4 new or changed" in stopped.out
    said = "stopped: more than max_cost=0.0 would have been spent; 4 passages are left, and the next run goes on\n"
    assert stopped.err.endswith(said) and "failed:" not in stopped.err and model.calls == 0
    done = run(*index)
    assert done.code == 0 and "4 extracted" in done.err and model.calls == 4


def test_a_failed_call_and_a_ceiling_leave_the_triples_that_are_there(
    run: Runner, docs: Path, tmp_path: Path, model: Model
) -> None:
    index = ("index", "docs", "--store", "s")
    run(*index)
    by_rule = read_predicates(tmp_path / "s")
    model.answers = 2
    failed = run(*index, "--llm", "any")
    assert failed.code == 1 and "2 new or changed" in failed.out and "2 extracted, 2 failed" in failed.err
    assert failed.err.count("2 failed") == 1 and "could not be extracted" not in failed.err, "it is said once"
    kept = read_predicates(tmp_path / "s")
    assert model.verb in kept and kept & by_rule
    stopped = run(*index, "--llm", "any", "--price", "1", "1", "--max-cost", "0")
    assert stopped.code == 1 and "0 new or changed" in stopped.out and read_predicates(tmp_path / "s") == kept
    model.answers = 10**9
    done = run(*index, "--llm", "any")
    assert done.code == 0 and "2 new or changed" in done.out and read_predicates(tmp_path / "s") == {model.verb}
    (docs / "Lego.txt").write_text("Lego makes bricks.")
    model.answers = 0
    assert "1 new or changed" in run(*index, "--llm", "any").out, "a text that changed has no use for old triples"


def test_a_passage_whose_links_alone_changed_costs_no_call_and_no_embedding(
    run: Runner, tmp_path: Path, model: Model, embedding: Any
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "yard.md").write_text("Grease is kept in [[crane]] all year.", "utf-8")
    (tmp_path / "docs" / "crane.md").write_text("# North Crane\n\nIt is tall.", "utf-8")
    run("index", "docs", "--store", "s", "--llm", "any")
    embedding.embedded, model.calls = 0, 0
    (tmp_path / "docs" / "crane.md").write_text("# South Crane\n\nIt is tall.", "utf-8")
    assert "2 new or changed" in run("index", "docs", "--store", "s", "--llm", "any").out
    assert model.calls == embedding.embedded == 1
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding()) as store:
        triples = [triple for node in store.get_nodes(["yard.md-0"]) for triple in read_triples(node)]
    assert [triple.object for triple in triples] == ["year.", "South Crane"]


def test_a_schema_that_refuses_most_is_told_of(run: Runner, docs: Path, model: Model) -> None:
    done = run("index", "docs", "--store", "s", "--llm", "any", "--relation-types", "born in")
    hint = "the schema refused most triples: wider --entity-types and --relation-types keep more\n"
    assert done.code == 0 and done.err.endswith(hint) and done.err.count("refused") == 2, "in the account, and here"


def test_ctrl_c_costs_few_passages(run: Runner, tmp_path: Path, model: Model) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(40):
        (tmp_path / "docs" / f"Town {number}.txt").write_text(f"Town {number} lies in Sweden.")
    model.answers, model.error = 35, KeyboardInterrupt()
    index = ("index", "docs", "--store", "s", "--llm", "any")
    stopped = run(*index, "--price", "1", "2")
    *_, paid, last = filter(None, stopped.err.splitlines())
    assert stopped.code == 1 and last.startswith("error: stopped; repeat the command")
    told = re.fullmatch(
        r"paid: 3[2-5] calls, (\d+) prompt and (\d+) completion tokens, cost (0\.\d+) in the unit .*", paid
    )
    assert told and float(told[3]) == pytest.approx((int(told[1]) + 2 * int(told[2])) / 1e6, abs=5e-5)
    model.answers = 10**9
    done = run(*index)
    assert done.code == 0 and ", 8 calls, " in done.err


def test_a_quota_that_is_used_up_ends_the_calls_and_the_next_run_goes_on(
    run: Runner, tmp_path: Path, model: Model
) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(70):
        (tmp_path / "docs" / f"Town {number}.txt").write_text(f"Town {number} lies in Sweden.")
    model.answers, model.error = 5, ValueError("Error code: 429: insufficient_quota")
    index = ("index", "docs", "--store", "s", "--llm", "any")
    ended = run(*index)
    assert ended.code == 1 and 13 <= model.calls <= 24, "of 70 passages, in three batches, four at a time"
    *_, last = ended.err.splitlines()
    left = 70 - model.calls
    assert last.startswith("stopped: the model's server had no quota left for ") and f"; {left} passages are" in last
    model.answers, model.calls = 10**9, 0
    assert run(*index).code == 0 and model.calls == 65


def test_an_estimate_needs_no_key(run: Runner, docs: Path) -> None:
    index = ("index", "docs", "--store", "s", "--llm", "gpt-4o-mini")
    estimate = run(*index, "--estimate")
    assert estimate.code == 0 and estimate.out.startswith("4 passages (0 already extracted or blank): 4 calls, ")
    refused = run(*index)
    assert refused.code == 1 and "Set OPENAI_API_KEY" in refused.err


def test_a_model_s_triples_are_known_without_a_note_of_it(
    run: Runner, docs: Path, tmp_path: Path, model: Model
) -> None:
    index = ("index", "docs", "--store", "s")
    run(*index, "--llm", "any")
    note = tmp_path / "s" / "index.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "llm": ""}))
    refused = run(*index)
    assert refused.code == 1 and "the triples in s were extracted by a model: go on with --llm NAME" in refused.err
    assert "4 new or changed" in run(*index, "--llm", "none").out and run(*index).code == 0


class CutOff(ScriptedLLM):
    """A model whose replies are cut off."""

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=super().complete(prompt).text, raw={"done_reason": "length"})


@pytest.mark.parametrize("reply", ["fails", "cut within a fact", "cut behind a fact", "no facts"])
def test_rules_are_refused_only_where_a_model_has_extracted(
    run: Runner, docs: Path, model: Model, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    index = ("index", "docs", "--store", "s")
    if reply == "fails":
        model.answers = 0
    else:
        fact = '{"entities": [], "triples": [' + {"cut behind a fact": '["Ada", "knows", "Bob"], ["A'}.get(reply, "")
        made: Any = ScriptedLLM if reply == "no facts" else CutOff
        answer = fact + "]}" if reply == "no facts" else fact
        monkeypatch.setattr(
            models, "open_llm", lambda name, **_: None if name == "none" else made(otherwise=lambda _: answer)
        )
    failed = run(*index, "--llm", "any")
    assert failed.code == (0 if reply == "no facts" else 1) and "4 new or changed" in failed.out
    again = run(*index)
    if reply in ("fails", "cut within a fact"):
        assert again.code == 0 and "4 new or changed" in again.out
        assert run(*index).code == 0 and "0 new or changed" in run(*index).out
    else:
        assert again.code == 1 and "were extracted by any: go on with --llm any" in again.err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_a_run_that_stored_nothing_leaves_the_note(
    run: Runner, docs: Path, tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    index = ("index", "docs", "--store", "s")
    run(*index)
    before = (tmp_path / "s" / "index.json").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(extracting.WatchedExtractor, "acall", fail)
        with pytest.raises(RuntimeError) if isinstance(error, RuntimeError) else nullcontext():
            assert run(*index, "--llm", "any").code == 1
    assert (tmp_path / "s" / "index.json").read_text() == before and run(*index).code == 0
    model.answers, model.error = 35, KeyboardInterrupt()
    for number in range(40):
        (docs / f"Town {number}.txt").write_text(f"Town {number} lies in Sweden.")
    assert run(*index, "--llm", "any").code == 1
    assert json.loads((tmp_path / "s" / "index.json").read_text())["llm"] == "any", "some passages were stored"


FACT = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "any",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": '{"triples": [["Ada", "knows", "Bob"]]}'},
            }
        ],
        "usage": {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320},
    }
)


class Server(ThreadingHTTPServer):
    """A server that answers each call with this status and body, after some seconds; it counts the calls.

    `good` is the number of calls before, which it answers with a fact: all of them before the others.
    """

    status, body, seconds, calls, good, answered = 200, "{}", 0.0, 0, 0, 0
    lock = threading.Condition()


class Answers(BaseHTTPRequestHandler):
    """The answers of `Server`."""

    server: Server

    def do_POST(self) -> None:
        with self.server.lock:
            self.server.calls += 1
            is_good = self.server.calls <= self.server.good
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.lock.wait_for(lambda: is_good or self.server.answered == self.server.good, timeout=30)
        time.sleep(self.server.seconds)
        with suppress(OSError):  # the client has gone
            self.send_response(200 if is_good else self.server.status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write((FACT if is_good else self.server.body).encode())
            self.wfile.flush()
        with self.server.lock:
            self.server.answered += is_good
            self.server.lock.notify_all()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, embedding: Any) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answers) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://me:secret@127.0.0.1:{made.server_port}/v1")
        yield made
        made.shutdown()


NO_QUOTA = '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'
NO_MONEY = '{"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}'


@pytest.mark.parametrize(("status", "body"), [(429, NO_QUOTA), (402, NO_MONEY)])
def test_a_used_up_quota_ends_a_run_after_eight_requests(
    run: Runner, tmp_path: Path, server: Server, status: int, body: str
) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(30):
        (tmp_path / "docs" / f"Town {number}.txt").write_text(f"Town {number} lies in Sweden.")
    server.status, server.body, server.good = status, body, 5
    ended = run("index", "docs", "--store", "s", "--llm", "any")
    *_, last = ended.err.splitlines()
    assert ended.code == 1 and last.startswith("stopped: the model's server had no quota left for ")
    late = 3  # calls under way beside the one that ends the run, and refusals that are read before the last answer
    assert 13 <= server.calls <= 13 + 2 * late, "no call is repeated"
    assert f"{30 - server.calls} passages are left" in last and "5 extracted" in ended.err
    assert f"{30 - server.calls} out of quota" in ended.err and "over budget" not in ended.err


@pytest.mark.parametrize(
    ("status", "body", "seconds", "said"),
    [
        (429, NO_QUOTA, 0.0, "has no quota left for the key"),
        (402, NO_MONEY, 0.0, "has no quota left for the key"),
        (404, '{"error": {"message": "no", "code": "x"}}', 0.0, "knows no such model"),
        (400, '{"error": {"message": "any is not a valid model ID", "code": 400}}', 0.0, "knows no such model"),
        (200, "{}", 1.0, "no model's server answers"),
    ],
)
def test_a_server_that_answers_no_call_is_called_once(
    run: Runner,
    docs: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    seconds: float,
    said: str,
) -> None:
    run("index", "docs", "--store", "s")
    server.status, server.body, server.seconds = status, body, seconds
    monkeypatch.setattr(models, "_TIMEOUT", 0.5 if seconds else 30.0)
    failed = run("index", "docs", "--store", "s", "--llm", "any")
    last = failed.err.splitlines()[-1]
    assert failed.code == 1 and said in last and f"://…@127.0.0.1:{server.server_port}/v1 (OPENAI_BASE_URL)" in last
    assert server.calls == 1 and "secret" not in failed.err + failed.out
    assert "0 new or changed" in run("index", "docs", "--store", "s").out


@pytest.mark.parametrize("address", ["ftp://me:secret@host/v1", "http://me:se/cret@host/v1", "me:secret@host"])
def test_a_password_is_not_printed(run: Runner, docs: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    refused = run("index", "docs", "--llm", "any")
    assert refused.code == 1 and "is no address of a server" in refused.err and "cret" not in refused.err


def test_a_server_that_is_away_ends_the_run_at_the_first_passage(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    before = (tmp_path / "s" / "index.json").read_text()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    for store in ("s", "new"):
        failed = run("index", "docs", "--store", store, "--llm", "any")
        said = "error: no model's server answers at http://127.0.0.1:1/v1 (OPENAI_BASE_URL): start it, or correct"
        assert failed.code == 1 and failed.err.splitlines()[-1].startswith(said)
    assert not (tmp_path / "new").exists() and (tmp_path / "s" / "index.json").read_text() == before
    assert "0 new or changed" in run("index", "docs", "--store", "s").out
    assert run("index", "docs", "--estimate").code == 2
