"""OpenAI's Batch API in the place of single calls: requests are collected, answered within a day, and then replayed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, SupportsIndex

import httpx
import openai
from llama_index.llms.openai import OpenAI

from llama_index_gear.errors import BatchError, check_counts, check_kind, check_numbers
from llama_index_gear.fork_safety import free_in_child
from llama_index_gear.llm.client import NOT_ANSWERED_YET

_ENDPOINT: Final = "/v1/chat/completions"
_ENDED = ("completed", "failed", "expired", "cancelled")
_NAME = "gear_part"  # under which a batch's metadata names the requests that were put together for it
_PART = "part "  # before that name, where a request's batch will stand
_RECENT = 100  # batches that are looked through for one that was made by a call that then died
_PATIENCE = 600.0  # seconds to wait for another call that submits or collects
_TABLES = """
CREATE TABLE IF NOT EXISTS request (key TEXT PRIMARY KEY, body TEXT NOT NULL, batch TEXT, reply TEXT, problem TEXT);
CREATE TABLE IF NOT EXISTS batch (id TEXT PRIMARY KEY, status TEXT NOT NULL, problem TEXT);
"""


@dataclass(frozen=True)
class BatchStatus:
    """How far requests have come.

    Attributes:
        waiting: collected and not submitted, or submitted in vain (see `problems`): `submit` sends them.
        under_way: submitted, not answered yet.
        answered: answered; asking again is for nothing.
        prompt_tokens: of the answers, as the server counts them.
        completion_tokens: likewise.
        problems: what became of batches and requests that came to nothing, each once, in the server's words.

    """

    waiting: int
    under_way: int
    answered: int
    prompt_tokens: int
    completion_tokens: int
    problems: tuple[str, ...]


class OpenAIBatch:
    """A language model whose calls are collected in a folder and answered by OpenAI's Batch API, at half the price.

    Give `batch.llm` to whatever asks a model, a `GeARTripleExtractor` above all. A request that is not answered yet
    fails at once, and is noted; `submit` sends what is noted, `collect` fetches answers; then the same request is
    answered from the folder. What is asked is what the model's own class would have sent, functions included, so that
    records and caches of the extractor hold for `llm` and `batch.llm` alike.

        from llama_index_gear.extraction.openai_batch import OpenAIBatch

        batch = OpenAIBatch(llm, "./batch")
        extractor = GeARTripleExtractor(batch.llm)
        extractor(nodes)            # or a whole pipeline: its passages are stored without triples
        batch.submit()
        batch.wait()                # or, in another process, hours later: batch.collect()
        nodes = extractor(nodes)    # or extractor.retry_failed(store)

    An extractor's `max_cost` counts answers as they are replayed, not what `submit` pays: for that there is `estimate`.
    Where passages share calls (`passages_per_call`), go on with `retry_failed`, which knows who shared which.

    A reply that can't be read is asked for again, which is another request: go round once more, or finish with `llm`.
    All state is in the folder: a killed call is mended by repeating it, and submits nothing twice. Calls of several
    threads or processes wait for one another.

    Args:
        llm: LlamaIndex's `OpenAI` (or a subclass) for a server with `/v1/files` and `/v1/batches`.
        folder: where requests and answers are kept; made if missing.
        client: an `openai.OpenAI` for the server. Default: the model's own.
        requests_per_batch: at most. Default 50,000, OpenAI's limit.
        bytes_per_batch: at most. Default 190,000,000, below OpenAI's limit of 200 MB.

    Raises:
        ArgumentError: `llm` is no `OpenAI`, or a number is below 1.
        BatchError: (from `submit`, `collect`) the server's answers contradict what was sent, or another such call has
            been under way for ten minutes.

    """

    def __init__(
        self,
        llm: OpenAI,
        folder: str | Path,
        *,
        client: openai.OpenAI | None = None,
        requests_per_batch: int = 50_000,
        bytes_per_batch: int = 190_000_000,
    ) -> None:
        check_kind(OpenAI, hint="LlamaIndex's OpenAI, or a subclass of it", llm=llm)
        check_kind((str, Path), hint="write the folder's path", folder=folder)
        check_kind(openai.OpenAI, hint="write openai.OpenAI(…)", optional=True, client=client)
        check_counts(requests_per_batch=requests_per_batch)
        check_counts(most=2**31, bytes_per_batch=bytes_per_batch)
        self._limits = requests_per_batch, bytes_per_batch
        self._client = client or llm._get_client()
        self._turn = free_in_child(threading.Lock())
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(self._folder / "batch.sqlite", check_same_thread=False)
        self._database.executescript(_TABLES)
        self.llm: OpenAI = llm.model_copy(update={"reuse_client": True, "max_retries": 0})
        self.llm._client = self.llm._aclient = None
        self.llm._http_client = httpx.Client(transport=_Collecting(self))
        self.llm._async_http_client = httpx.AsyncClient(transport=_Collecting(self))
        kind = type(llm)  # LlamaIndex would leave the clients out of a copy, which would ask the server at full price
        self.llm.__class__ = type(kind.__name__, (_OfOneProcess, kind), {"__module__": kind.__module__})

    def close(self) -> None:
        """Close the folder's file."""
        self._database.close()

    @property
    def status(self) -> BatchStatus:
        """How far requests have come, as of the last `submit` or `collect`."""
        with self._turn, self._database as database:
            counts = dict(
                database.execute(
                    "SELECT CASE WHEN reply IS NOT NULL THEN 'answered' WHEN batch IS NULL OR batch LIKE ? THEN "
                    "'waiting' ELSE 'under way' END AS state, count(*) FROM request GROUP BY state",
                    (f"{_PART}%",),
                )
            )
            tokens = database.execute(
                "SELECT coalesce(sum(json_extract(reply, '$.usage.prompt_tokens')), 0), "
                "coalesce(sum(json_extract(reply, '$.usage.completion_tokens')), 0) FROM request"
            ).fetchone()
            problems = database.execute(
                "SELECT DISTINCT problem FROM (SELECT problem FROM batch UNION ALL SELECT problem FROM request WHERE "
                "reply IS NULL) WHERE problem IS NOT NULL ORDER BY problem"
            )
            return BatchStatus(
                counts.get("waiting", 0),
                counts.get("under way", 0),
                counts.get("answered", 0),
                tokens[0],
                tokens[1],
                tuple(problem for (problem,) in problems),
            )

    def submit(self) -> BatchStatus:
        """Send what waits, in as many batches as its size asks for."""
        lock = self._lock_file()
        try:
            self._wait_alone(lock)
            while part := self._begun() or self._put_together():
                batch_id = self._sent(part)
                with self._turn, self._database as database:
                    database.execute("INSERT OR REPLACE INTO batch VALUES (?, 'validating', NULL)", (batch_id,))
                    database.execute("UPDATE request SET batch = ? WHERE batch = ?", (batch_id, part))
        finally:
            lock.close()
        return self.status

    def collect(self) -> BatchStatus:
        """Ask how the batches stand, and fetch what is answered of those that have ended.

        What can't be fetched of one batch keeps nothing from being fetched of the others; then its error is raised.
        """
        errors: list[Exception] = []
        lock = self._lock_file()
        try:
            self._wait_alone(lock)
            with self._turn, self._database as database:
                open_ = database.execute(
                    "SELECT DISTINCT batch FROM request WHERE batch NOT LIKE ? AND reply IS NULL", (f"{_PART}%",)
                ).fetchall()
            for (batch_id,) in open_:
                try:
                    self._look_after(batch_id)
                except Exception as error:  # noqa: BLE001 - raised below
                    errors.append(error)
        finally:
            lock.close()
        if errors:
            raise errors[0]
        return self.status

    def wait(self, interval: float = 60.0) -> BatchStatus:
        """`collect` every `interval` seconds until nothing is under way."""
        _check_interval(interval)
        while (status := self.collect()).under_way:
            time.sleep(interval)
        return status

    async def asubmit(self) -> BatchStatus:
        """`submit`, without blocking the event loop."""
        return await asyncio.to_thread(self.submit)

    async def acollect(self) -> BatchStatus:
        """`collect`, without blocking the event loop."""
        return await asyncio.to_thread(self.collect)

    async def async_wait(self, interval: float = 60.0) -> BatchStatus:
        """`wait`, without blocking the event loop."""
        _check_interval(interval)
        while True:
            status = await self.acollect()
            if not status.under_way:
                return status
            await asyncio.sleep(interval)

    def answer(self, content: bytes) -> dict[str, Any] | None:
        """The answer to a request, by its body; None, and the request is noted, if there is none yet."""
        body = json.dumps(json.loads(content), sort_keys=True, ensure_ascii=False)
        key = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        with self._turn, self._database as database:
            found = database.execute("SELECT reply FROM request WHERE key = ?", (key,)).fetchone()
            if found is None:
                database.execute("INSERT INTO request (key, body) VALUES (?, ?)", (key, body))
        return None if found is None or found[0] is None else json.loads(found[0])

    def _begun(self) -> str | None:
        """A part that an earlier call put together, and died before it noted its batch."""
        with self._turn, self._database as database:
            found = database.execute("SELECT batch FROM request WHERE batch LIKE ? LIMIT 1", (f"{_PART}%",)).fetchone()
        return None if found is None else str(found[0])

    def _put_together(self) -> str | None:
        """Note which of the waiting requests go into the next batch, as many as it may hold; None if none waits."""
        most, most_bytes = self._limits
        keys: list[str] = []
        size = 0
        with self._turn, self._database as database:
            waiting = "SELECT key, body FROM request WHERE batch IS NULL AND reply IS NULL ORDER BY key LIMIT ?"
            for key, body in database.execute(waiting, (most,)):
                size += len(_line(key, body))
                if keys and size > most_bytes:
                    break
                keys.append(key)
            part = f"{_PART}{uuid.uuid4().hex}"
            database.executemany("UPDATE request SET batch = ? WHERE key = ?", [(part, key) for key in keys])
        return part if keys else None

    def _sent(self, part: str) -> str:
        """The id of the batch that asks this part: of a call that died before it could note it, or a new one."""
        for number, batch in enumerate(self._client.batches.list(limit=_RECENT)):
            if (batch.metadata or {}).get(_NAME) == part:
                return batch.id
            if number + 1 >= _RECENT:
                break
        with self._turn, self._database as database:
            requests = database.execute(
                "SELECT key, body FROM request WHERE batch = ? ORDER BY key", (part,)
            ).fetchall()
        content = ("requests.jsonl", b"".join(_line(*request) for request in requests), "application/jsonl")
        file = self._client.files.create(file=content, purpose="batch")
        # Not tried again by the client: a batch whose making was not heard of would be made, and paid for, twice.
        batch = self._client.with_options(max_retries=0).batches.create(
            input_file_id=file.id, endpoint=_ENDPOINT, completion_window="24h", metadata={_NAME: part}
        )
        return batch.id

    def _look_after(self, batch_id: str) -> None:
        """Fetch what a batch says if it has ended; the requests of one that is gone wait again."""
        try:
            batch = self._client.batches.retrieve(batch_id)
        except Exception as error:
            if getattr(error, "status_code", None) != 404:
                raise
            with self._turn, self._database as database:
                problem = f"batch {batch_id} is not known to the server"
                database.execute("UPDATE batch SET status = 'gone', problem = ? WHERE id = ?", (problem, batch_id))
                database.execute("UPDATE request SET batch = NULL WHERE batch = ? AND reply IS NULL", (batch_id,))
            return
        if batch.status in _ENDED:
            self._fetch(batch)

    def _fetch(self, batch: Any) -> None:
        """Note what a batch that has ended says; what it does not answer waits again."""
        said = [f"{error.code}: {error.message}" for error in (batch.errors.data or [])] if batch.errors else []
        replies, problems = [], []
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id is None:
                continue
            for line in filter(None, self._client.files.content(file_id).text.split("\n")):
                answer = json.loads(line)
                response = answer.get("response") or {}
                if response.get("status_code") == 200:
                    replies.append((json.dumps(response["body"]), answer["custom_id"], batch.id))
                else:
                    error = answer.get("error") or (response.get("body") or {}).get("error") or {}
                    words = f"{response.get('status_code', '')} {error.get('code')}: {error.get('message')}".strip()
                    problems.append((words, answer["custom_id"], batch.id))
        with self._turn, self._database as database:
            for column, answers in (("reply", replies), ("problem", problems)):
                for answer in answers:
                    written = f"UPDATE request SET {column} = ? WHERE key = ? AND batch = ?"
                    if database.execute(written, answer).rowcount != 1:
                        raise BatchError(f"batch {batch.id} answers {answer[1]!r}, which it was not asked")
            problem = None if batch.status == "completed" else f"batch {batch.status}" + "".join(f": {s}" for s in said)
            database.execute("UPDATE batch SET status = ?, problem = ? WHERE id = ?", (batch.status, problem, batch.id))
            database.execute("UPDATE request SET batch = NULL WHERE batch = ? AND reply IS NULL", (batch.id,))

    def _lock_file(self) -> sqlite3.Connection:
        """A connection to be closed by its owner, at once in `finally`: an interrupt would leave a context entered."""
        return sqlite3.connect(self._folder / "lock.sqlite", timeout=_PATIENCE, isolation_level=None)

    def _wait_alone(self, lock: sqlite3.Connection) -> None:
        """Have no other thread or process submit or collect before `lock` is closed; one that dies isn't waited for.

        Raises:
            BatchError: another one has done so for very long.

        """
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise BatchError(f"another call submits or collects in {self._folder}: try again later") from error


class _OfOneProcess:
    """Refuses to be pickled and to be copied deeply."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise BatchError(
            "a batch's model writes into the batch's folder from its own process alone: let the pipeline run in one "
            "process, where the extractor makes num_workers calls at once"
        )


class _Collecting(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers a client's requests from what was collected; what wasn't is noted, and refused."""

    def __init__(self, batch: OpenAIBatch) -> None:
        self._batch = batch

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, await request.aread())

    def _answer(self, request: httpx.Request, content: bytes) -> httpx.Response:
        if not request.url.path.endswith("/chat/completions") or json.loads(content).get("stream"):
            return _refusal(f"a batch answers whole chat completions, not {request.url.path} or streams")
        answer = self._batch.answer(content)
        return _refusal("waits for its batch: submit(), then collect()") if answer is None else _accepted(answer)


def _check_interval(interval: float) -> None:
    check_numbers("0 or more seconds", lambda seconds: seconds >= 0, interval=interval)


def _line(key: str, body: str) -> bytes:
    """A request in a batch's file."""
    line = {"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": json.loads(body)}
    return json.dumps(line).encode() + b"\n"


def _accepted(answer: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=answer)


def _refusal(message: str) -> httpx.Response:
    return httpx.Response(400, json={"error": {"message": message, "type": "batch", "code": NOT_ANSWERED_YET}})
