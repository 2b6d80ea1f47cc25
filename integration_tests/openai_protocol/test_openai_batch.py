"""Extraction through OpenAI's Batch API over real HTTP: submit, wait, collect, resume, and failures."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import BaseNode, TextNode
from openai_server import OpenAIServer, Reply

from llama_index_gear import ExtractionSchema, GeARTripleExtractor, GeARVectorStore
from llama_index_gear.errors import ArgumentError, BatchError
from llama_index_gear.extraction.openai_batch import OpenAIBatch
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import WordEmbedding


def make_passages(count: int) -> list[TextNode]:
    return [TextNode(id_=f"p{n}", text=f"Text{n} is here.", metadata={"title": f"Title {n}"}) for n in range(count)]


def state_fact(body: dict[str, Any]) -> Reply:
    """Return one fact of the passage."""
    name = body["messages"][-1]["content"].split("\n#####\n")[1].partition("\n\n")[2].split()[0]
    return Reply(json.dumps({"entities": [name], "triples": [[name, "is", "here"]]}))


def make_extractor(batch: OpenAIBatch, **arguments: Any) -> GeARTripleExtractor:
    return GeARTripleExtractor(batch.llm, **arguments)


def list_subjects(nodes: list[BaseNode]) -> list[list[str]]:
    return [[triple.subject for triple in read_triples(node)] for node in nodes]


@pytest.fixture
def batch(server: OpenAIServer, tmp_path: Path) -> Iterator[OpenAIBatch]:
    with closing(OpenAIBatch(server.llm(), tmp_path)) as made:
        yield made


def test_a_whole_ingest(server: OpenAIServer, tmp_path: Path) -> None:
    """A pipeline fills a store and `retry_failed` completes it; after that no request is made."""
    server.answer = state_fact
    batch = OpenAIBatch(server.llm(), tmp_path / "batch")
    extract = make_extractor(batch)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding())
    nodes = make_passages(5)
    IngestionPipeline(transformations=[extract, WordEmbedding()], vector_store=store).run(nodes=nodes)
    assert extract.ledger.outcomes == {"failed": 5}
    assert "waits for its batch" in extract.ledger.failures[0][2]
    assert (batch.status.waiting, batch.status.under_way, batch.status.answered) == (5, 0, 0)
    assert server.requests == [] and server.batches == []
    assert batch.submit().under_way == 5
    assert batch.submit().under_way == 5 == batch.collect().under_way
    assert len(server.batches) == 1
    lines = server.batch_requests(server.batches[0]["id"])
    assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
    server.end_batches()
    status = batch.wait(interval=0.01)
    assert (status.waiting, status.under_way, status.answered, status.problems) == (0, 0, 5, ())
    assert status.prompt_tokens > 500 and status.completion_tokens > 5
    ledger = extract.retry_failed(store)
    assert (ledger.outcomes, ledger.prompt_tokens) == ({"extracted": 5}, status.prompt_tokens)
    assert list_subjects(store.get_nodes([node.node_id for node in nodes])) == [[f"Text{n}"] for n in range(5)]
    asked = len(server.requests)
    again = GeARTripleExtractor(server.llm())(store.get_nodes())  # the model without the batch
    assert len(server.requests) == asked and all(list_subjects(again))
    store.close()
    batch.close()


def test_what_is_asked_is_what_the_model_would_have_asked(server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = state_fact
    llm = server.llm(temperature=0.3, max_tokens=77, additional_kwargs={"seed": 7})
    GeARTripleExtractor(llm)(make_passages(1))
    batch = OpenAIBatch(llm, tmp_path)
    make_extractor(batch)(make_passages(1))
    batch.submit()
    (line,) = server.batch_requests(server.batches[0]["id"])
    assert line["body"] == server.requests[0]
    assert (line["body"]["max_tokens"], line["body"]["seed"]) == (77, 7)
    batch.close()


def test_a_schema_is_in_its_requests_and_holds_its_answers(server: OpenAIServer, batch: OpenAIBatch) -> None:
    server.answer = state_fact
    extract = make_extractor(batch, kg_schema=ExtractionSchema(relation_types=["was"]))
    nodes = extract(make_passages(2))
    batch.submit()
    lines = server.batch_requests(server.batches[0]["id"])
    assert all("as written here: was;" in line["body"]["messages"][-1]["content"] for line in lines)
    server.end_batches()
    batch.wait(interval=0.01)
    assert list_subjects(extract(nodes)) == [[], []], "the answers say that something is"
    assert (extract.ledger.outcomes, extract.ledger.refused) == ({"no facts": 2}, 2)


def lose(batch: OpenAIBatch, server: OpenAIServer) -> None:
    """Leave a folder as a call does that was killed when its batch was made, and before it noted that."""
    with batch._lock, batch._database as database:
        database.execute("UPDATE request SET batch = ?", (server.batches[0]["metadata"]["gear_part"],))
        database.execute("DELETE FROM batch")


def test_it_goes_on_in_another_process(server: OpenAIServer, tmp_path: Path) -> None:
    """Another process resumes from the folder; a submit that died before it noted its batch is not paid for twice."""
    server.answer = state_fact
    first = OpenAIBatch(server.llm(), tmp_path)
    make_extractor(first)(make_passages(3))
    first.submit()
    lose(first, server)
    first.close()
    second = OpenAIBatch(server.llm(), tmp_path)
    assert second.status.waiting == 3 == second.collect().waiting
    make_extractor(second)(make_passages(4))  # one more, meanwhile
    assert second.submit().under_way == 4
    assert [len(server.batch_requests(batch["id"])) for batch in server.batches] == [1, 3]
    server.end_batches()
    assert second.collect().answered == 4
    second.close()
    third = OpenAIBatch(server.llm(), tmp_path)
    assert third.collect().answered == 4
    assert list_subjects(make_extractor(third)(make_passages(3))) == [["Text0"], ["Text1"], ["Text2"]]
    third.close()


def test_a_batch_is_found_again_however_many_the_account_made_since(server: OpenAIServer, batch: OpenAIBatch) -> None:
    server.answer = state_fact
    make_extractor(batch)(make_passages(3))
    batch.submit()
    lose(batch, server)
    for number in range(350):
        server._create_batch({"status": "completed", "metadata": None if number % 2 else {"gear_part": "part x"}})
    assert (batch.submit().under_way, len(server.batches)) == (3, 351)
    server.end_batches()
    assert batch.collect().answered == 3
    make_extractor(batch)(make_passages(4))
    assert (batch.submit().under_way, len(server.batches)) == (1, 352)


def test_a_batch_that_was_never_made_is_made_once_whatever_the_server_lists(
    server: OpenAIServer, batch: OpenAIBatch
) -> None:
    """A list that begins again and again ends the search, and nothing is paid for that may have been paid for."""
    make_extractor(batch)(make_passages(3))
    batch.submit()
    lose(batch, server)
    server.pages_batches = False
    for _ in range(100):
        server._create_batch({"status": "completed", "metadata": {}})
    with pytest.raises(BatchError, match="the same 100 batches again"):
        batch.submit()
    assert (batch.status.waiting, len(server.batches)) == (3, 101)
    for made in server.batches[:100]:
        del server._batches[made["id"]]
    assert (batch.submit().under_way, len(server.batches)) == (3, 1)
    lose(batch, server)
    server._batches.clear()
    assert (batch.submit().under_way, len(server.batches)) == (3, 1)  # all are listed, and it is not among them


class Lossy(httpx.HTTPTransport):
    """A transport that loses the server's answer to a number of batch creations."""

    lost, before, left = 0, False, 1

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_made = request.method == "POST" and request.url.path.endswith("/batches")
        if is_made and self.before and self.left:
            self.left -= 1
            raise httpx.ConnectError("lost", request=request)
        response = super().handle_request(request)
        if is_made and self.left:
            self.left -= 1
            raise httpx.ReadError("lost", request=request)
        return response


@pytest.mark.parametrize("before", [True, False])
def test_a_batch_whose_making_was_not_heard_of_is_not_made_again(
    server: OpenAIServer, tmp_path: Path, before: bool
) -> None:
    server.answer = state_fact
    transport = Lossy()
    transport.before = before
    client = openai.OpenAI(api_key="k", base_url=server.base_url, http_client=httpx.Client(transport=transport))
    batch = OpenAIBatch(server.llm(), tmp_path, client=client)
    make_extractor(batch)(make_passages(3))
    with pytest.raises(openai.APIConnectionError):
        batch.submit()
    assert batch.status.waiting == 3 and len(server.batches) == (0 if before else 1)
    make_extractor(batch)(make_passages(5))
    assert batch.submit().under_way == 5
    assert [len(server.batch_requests(made_batch["id"])) for made_batch in server.batches] == [2, 3]
    batch.close()


def test_calls_at_the_same_time_wait_for_one_another(server: OpenAIServer, tmp_path: Path) -> None:
    """Threads wait for one another, and so do two objects on one folder, as in two processes."""
    server.answer = state_fact
    batches = [OpenAIBatch(server.llm(), tmp_path) for _ in range(2)]
    make_extractor(batches[0])(make_passages(9))
    with ThreadPoolExecutor(4) as pool:
        assert [status.under_way for status in pool.map(OpenAIBatch.submit, 2 * batches)] == [9] * 4
        assert len(server.batches) == 1
        server.script(Reply(status=500, text="overloaded"))
        server.end_batches()
        assert [status.answered for status in pool.map(OpenAIBatch.collect, 2 * batches)] == [8] * 4
    for batch in batches:
        batch.close()


def test_what_a_thread_has_written_half_no_other_finishes(server: OpenAIServer, batch: OpenAIBatch) -> None:
    """One thread asks the model while another notes an answer and fails; neither completes the other's write."""
    make_extractor(batch)(make_passages(1))
    asking = threading.Thread(target=batch.answer, args=(b'{"messages": []}',))
    with pytest.raises(BatchError, match="half"), batch._lock, batch._database as database:
        database.execute("UPDATE request SET problem = 'half'")
        asking.start()
        asking.join(timeout=0.2)
        raise BatchError("half of it")
    asking.join(timeout=60)
    assert (batch.status.waiting, batch.status.problems) == (2, ())


def test_who_waits_for_another_call_too_long_is_told(
    server: OpenAIServer, batch: OpenAIBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.extraction.openai_batch._LOCK_TIMEOUT", 0.01)
    lock = batch._open_lock()
    batch._acquire(lock)
    with pytest.raises(BatchError, match="another call"):
        batch.submit()
    lock.close()
    assert batch.submit().waiting == 0


def test_a_batch_that_the_server_forgot_stops_no_other(server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = state_fact
    batch = OpenAIBatch(server.llm(), tmp_path, requests_per_batch=2)
    make_extractor(batch)(make_passages(4))
    batch.submit()
    forgotten = server.batches[1]["id"]
    kept = server._batches.pop(forgotten)
    server.end_batches()
    status = batch.collect()
    assert (status.waiting, status.under_way, status.answered) == (2, 0, 2)
    assert status.problems == (f"batch {forgotten} is not known to the server",)
    assert batch.submit().under_way == 2
    server._batches[forgotten] = kept
    server.end_batches()
    assert batch.collect().answered == 4
    batch.close()


def test_a_batch_that_cannot_be_fetched_stops_no_other(server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = state_fact
    batch = OpenAIBatch(server.llm(), tmp_path, requests_per_batch=2)
    make_extractor(batch)(make_passages(4))
    batch.submit()
    server.end_batches()
    output = server._batches[server.batches[0]["id"]]["output_file_id"]
    kept = server._files.pop(output)
    with pytest.raises(openai.NotFoundError):
        batch.collect()
    assert batch.status.answered == 2
    server._files[output] = kept
    assert batch.collect().answered == 4
    batch.close()


def test_a_batch_is_no_larger_than_it_may_be(server: OpenAIServer, tmp_path: Path) -> None:
    server.answer = state_fact
    batch = OpenAIBatch(server.llm(), tmp_path / "a", requests_per_batch=2)
    make_extractor(batch)(make_passages(5))
    batch.submit()
    sizes = [len(server.batch_requests(made_batch["id"])) for made_batch in server.batches]
    assert sorted(sizes) == [1, 2, 2]
    line = max(len(json.dumps(request)) for request in server.batch_requests(server.batches[0]["id"]))
    small = OpenAIBatch(server.llm(), tmp_path / "b", bytes_per_batch=3 * line)
    make_extractor(small)(make_passages(12)[5:])
    small.submit()
    made = server.batches[: len(server.batches) - 3]
    assert len(made) >= 3
    assert sum(len(server.batch_requests(made_batch["id"])) for made_batch in made) == 7
    server.end_batches()
    assert batch.collect().answered == 5 and small.collect().answered == 7
    batch.close()
    small.close()


def test_a_batch_has_one_model(server: OpenAIServer, tmp_path: Path) -> None:
    batches = [OpenAIBatch(server.llm(model=name), tmp_path) for name in ("gpt-4o-mini", "gpt-4o")]
    for batch in batches:
        make_extractor(batch)(make_passages(3))
    assert batches[0].submit().under_way == 6
    models = [{line["body"]["model"] for line in server.batch_requests(made["id"])} for made in server.batches]
    assert sorted(map(sorted, models)) == [["gpt-4o"], ["gpt-4o-mini"]]
    server.answer = state_fact
    server.end_batches()
    assert batches[0].collect().answered == 6
    for batch in batches:
        assert all(list_subjects(make_extractor(batch)(make_passages(3))))
        batch.close()


def test_requests_that_the_server_refused_as_a_batch_wait_again(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do those of two models that an earlier version put into one batch."""
    batches = [OpenAIBatch(server.llm(model=name), tmp_path) for name in ("gpt-4o-mini", "gpt-4o")]
    for batch in batches:
        make_extractor(batch)(make_passages(2))
    with batches[0]._database as database:
        database.execute("UPDATE request SET batch = 'part of two models'")
    response = httpx.Response(400, request=httpx.Request("POST", "http://localhost"))

    def refuse(*_: Any, **__: Any) -> None:
        raise openai.BadRequestError("one model a batch", response=response, body=None)

    with monkeypatch.context() as patch:
        patch.setattr(openai.resources.Batches, "create", refuse)
        with pytest.raises(openai.BadRequestError):
            batches[0].submit()
    assert batches[0].status.waiting == 4
    assert batches[0].submit().under_way == 4 and len(server.batches) == 2
    for batch in batches:
        batch.close()


def test_what_fails_waits_again_and_says_why(server: OpenAIServer, batch: OpenAIBatch) -> None:
    extract = make_extractor(batch)
    extract(make_passages(3))
    batch.submit()
    server.script(Reply(status=500, text="overloaded"))
    server.answer = state_fact
    server.end_batches("expired", answered=2)
    status = batch.collect()
    assert (status.waiting, status.under_way, status.answered) == (2, 0, 1)
    assert status.problems == ("500 None: overloaded", "batch expired")
    assert sum(map(bool, list_subjects(extract(make_passages(3))))) == 1
    assert batch.submit().under_way == 2
    server.end_batches("failed", error="line 1 is not JSON")
    status = batch.collect()
    assert (status.waiting, status.answered) == (2, 1)
    assert "batch failed: invalid_json_line: line 1 is not JSON" in status.problems
    batch.submit()
    assert len(server.batches) == 3  # one that failed is not taken for the one that is to be made
    server.end_batches()
    assert batch.wait(0.01).answered == 3
    assert all(list_subjects(extract(make_passages(3))))


def test_a_batch_that_was_cancelled_has_ended(server: OpenAIServer, batch: OpenAIBatch) -> None:
    """Answers that a cancelled batch gave are kept; the rest waits again."""
    server.answer = state_fact
    make_extractor(batch)(make_passages(3))
    batch.submit()
    server.end_batches("cancelled", answered=1)
    status = batch.collect()
    assert (status.waiting, status.under_way, status.answered) == (2, 0, 1)
    assert status.problems == ("batch cancelled",)
    assert batch.submit().under_way == 2


def test_a_reply_that_cannot_be_read_is_asked_for_in_the_next_round(server: OpenAIServer, batch: OpenAIBatch) -> None:
    server.script(Reply("I would rather chat."))
    server.answer = state_fact
    extract = make_extractor(batch)
    for expected in (["failed"], ["failed"], ["extracted"]):
        nodes = extract(make_passages(1))
        assert list(extract.ledger.outcomes) == expected
        batch.submit()
        server.end_batches()
        batch.collect()
    assert list_subjects(nodes) == [["Text0"]]
    assert "could not be read" in server.requests[1]["messages"][-1]["content"]


def test_other_calls_are_refused_and_not_noted(server: OpenAIServer, batch: OpenAIBatch) -> None:
    with pytest.raises(Exception, match="whole chat completions"):
        list(batch.llm.stream_complete("Capital of France?"))
    with pytest.raises(Exception, match="waits for its batch"):
        batch.llm.complete("Capital of France?")
    assert batch.status.waiting == 1
    batch.submit()
    server.answer = lambda _: Reply("Paris,\u2028on the Seine\x85")  # characters at which a careless reader ends a line
    server.end_batches()
    batch.collect()
    assert batch.llm.complete("Capital of France?").text == "Paris,\u2028on the Seine\x85"


def test_an_answer_to_nothing_is_an_error(server: OpenAIServer, batch: OpenAIBatch) -> None:
    make_extractor(batch)(make_passages(1))
    batch.submit()
    server.answer = state_fact
    server.end_batches()
    with batch._lock, batch._database as database:
        database.execute("UPDATE request SET key = 'other'")
    with pytest.raises(BatchError, match="not asked"):
        batch.collect()
    assert batch.status.under_way == 1


def test_a_batch_s_model_is_of_its_process(server: OpenAIServer, tmp_path: Path) -> None:
    """A batch's model refuses to be pickled: LlamaIndex omits its clients, so a copy would ask the server itself."""
    batch = OpenAIBatch(server.llm(), tmp_path / "batch")
    extract = make_extractor(batch)
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(BatchError, match="pipeline run in one process"):
            copied(batch.llm)
    with pytest.raises(ArgumentError, match="llm can't be pickled"):
        pickle.dumps(extract)
    assert copy.deepcopy(extract).llm is batch.llm is extract.llm  # as before
    extract(make_passages(1))
    assert (batch.status.waiting, server.requests) == (1, [])
    batch.close()


def test_wrong_arguments(server: OpenAIServer, tmp_path: Path) -> None:
    for wrong in ({"requests_per_batch": 0}, {"bytes_per_batch": 0}):
        with pytest.raises(ArgumentError):
            OpenAIBatch(server.llm(), tmp_path, **wrong)  # type: ignore[arg-type]
