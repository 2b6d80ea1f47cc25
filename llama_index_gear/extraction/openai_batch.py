"""OpenAI's Batch API in place of single calls: requests are collected, answered within a day, and replayed."""

from __future__ import annotations

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

from llama_index_gear.errors import BatchError, check_counts, check_kind, check_numbers, read_path
from llama_index_gear.llm.client import NOT_ANSWERED_YET
from llama_index_gear.resources import free_in_child

_ENDPOINT: Final = "/v1/chat/completions"
_ENDED = ("completed", "failed", "expired", "cancelled")
_PART_KEY = "gear_part"  # key in a batch's metadata: the name of the part, the group of requests that it answers
_PART_PREFIX = "part "  # of a part's name, which a request has in place of its batch until that is known
_LISTED_BATCHES = 100  # batches a page of those that the server lists, its limit
_LOCK_TIMEOUT = 600.0  # seconds to wait for another call to submit or collect
_TABLES = """
CREATE TABLE IF NOT EXISTS request (key TEXT PRIMARY KEY, body TEXT NOT NULL, batch TEXT, reply TEXT, problem TEXT);
CREATE TABLE IF NOT EXISTS batch (id TEXT PRIMARY KEY, status TEXT NOT NULL, problem TEXT);
"""


@dataclass(frozen=True)
class BatchStatus:
    """The number of requests in each state.

    Attributes:
        waiting: requests that `submit` will send: not submitted yet, or submitted without success (see `problems`).
        under_way: requests that are submitted and not answered yet.
        answered: answered requests; repeating one costs nothing.
        prompt_tokens: prompt tokens of the answers, as the server counts them.
        completion_tokens: completion tokens of the answers, as the server counts them.
        problems: errors of failed batches and requests, each once, in the server's words.

    """

    waiting: int
    under_way: int
    answered: int
    prompt_tokens: int
    completion_tokens: int
    problems: tuple[str, ...]


class OpenAIBatch:
    """Collects an LLM's calls in a folder and has them answered by OpenAI's Batch API, at half the price.

    Give `batch.llm` to anything that calls an LLM, above all to a `GeARTripleExtractor`. A request that is not answered
    yet fails at once, and is stored in the folder. `submit` sends the stored requests, and `collect` fetches answers.
    After that, the same request is answered from the folder. Requests are the ones that the LLM's own class would send,
    so that records and caches of the extractor hold for `llm` and `batch.llm` alike.

        from llama_index_gear.extraction.openai_batch import OpenAIBatch

        batch = OpenAIBatch(llm, "./batch")
        extractor = GeARTripleExtractor(batch.llm)
        extractor(nodes)            # or a whole pipeline: its passages are stored without triples
        batch.submit()
        batch.wait()                # or, in another process, hours later: batch.collect()
        nodes = extractor(nodes)    # or extractor.retry_failed(store)

    An extractor's `max_cost` counts answers when they are replayed, not when `submit` pays for them: call `estimate`
    before.

    A reply that can't be read is asked for again by a new request: submit and collect once more, or finish with `llm`.
    All state is in the folder. A killed call is repeated without submitting anything twice: its batch is looked for
    among all batches of the account. Calls of several threads or processes wait for one another.

    Args:
        llm: LlamaIndex's `OpenAI` (or a subclass) for a server with `/v1/files` and `/v1/batches`.
        folder: folder of the requests and answers; it is made if missing.
        client: an `openai.OpenAI` for the server. Default: the LLM's own client.
        requests_per_batch: highest number of requests in a batch. Default 50,000, OpenAI's limit.
        bytes_per_batch: highest size of a batch in bytes. Default 190,000,000, below OpenAI's limit of 200 MB.

    Raises:
        ArgumentError: `llm` is no `OpenAI`, or a number is below 1.
        BatchError: (from `submit`, `collect`) the server's answers contradict the requests, or another such call has
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
        place = read_path(hint="write the folder's path", folder=folder)
        check_counts(requests_per_batch=requests_per_batch)
        check_counts(most=2**31, bytes_per_batch=bytes_per_batch)
        self._limits = requests_per_batch, bytes_per_batch
        self._client = client or llm._get_client()
        self._lock = free_in_child(threading.Lock())
        self._folder = place
        self._folder.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(self._folder / "batch.sqlite", check_same_thread=False)
        self._database.executescript(_TABLES)
        self.llm: OpenAI = llm.model_copy(update={"reuse_client": True, "max_retries": 0})
        self.llm._client = self.llm._aclient = None
        self.llm._http_client = httpx.Client(transport=_BatchTransport(self))
        self.llm._async_http_client = httpx.AsyncClient(transport=_BatchTransport(self))
        kind = type(llm)  # LlamaIndex would leave the clients out of a copy, which would ask the server at full price
        self.llm.__class__ = type(kind.__name__, (_OfOneProcess, kind), {"__module__": kind.__module__})

    def close(self) -> None:
        """Close the folder's database."""
        self._database.close()

    @property
    def status(self) -> BatchStatus:
        """Number of requests in each state, as of the last `submit` or `collect`."""
        with self._lock, self._database as database:
            counts = dict(
                database.execute(
                    "SELECT CASE WHEN reply IS NOT NULL THEN 'answered' WHEN batch IS NULL OR batch LIKE ? THEN "
                    "'waiting' ELSE 'under way' END AS state, count(*) FROM request GROUP BY state",
                    (f"{_PART_PREFIX}%",),
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
        """Send the waiting requests, in as many batches as their number and size need."""
        lock = self._open_lock()
        try:
            self._acquire(lock)
            while True:
                if part := self._find_unsent_part():
                    batch_id = self._find_batch(part) or self._submit_part(part)
                elif part := self._assign_part():
                    batch_id = self._submit_part(part)
                else:
                    break
                with self._lock, self._database as database:
                    database.execute("INSERT OR REPLACE INTO batch VALUES (?, 'validating', NULL)", (batch_id,))
                    database.execute("UPDATE request SET batch = ? WHERE batch = ?", (batch_id, part))
        finally:
            lock.close()
        return self.status

    def collect(self) -> BatchStatus:
        """Query the state of the batches, and fetch the answers of those that have ended.

        An error of one batch doesn't keep the others from being fetched. The first error is raised at the end.
        """
        errors: list[Exception] = []
        lock = self._open_lock()
        try:
            self._acquire(lock)
            with self._lock, self._database as database:
                pending = database.execute(
                    "SELECT DISTINCT batch FROM request WHERE batch NOT LIKE ? AND reply IS NULL", (f"{_PART_PREFIX}%",)
                ).fetchall()
            for (batch_id,) in pending:
                try:
                    self._update_batch(batch_id)
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

    def answer(self, content: bytes) -> dict[str, Any] | None:
        """Return the answer to a request, by its body. Without an answer, store the request and return None."""
        body = json.dumps(json.loads(content), sort_keys=True, ensure_ascii=False)
        key = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock, self._database as database:
            row = database.execute("SELECT reply FROM request WHERE key = ?", (key,)).fetchone()
            if row is None:
                database.execute("INSERT INTO request (key, body) VALUES (?, ?)", (key, body))
        return None if row is None or row[0] is None else json.loads(row[0])

    def _find_unsent_part(self) -> str | None:
        """Return a part whose call was killed before it stored the part's batch; None if there is none."""
        with self._lock, self._database as database:
            row = database.execute(
                "SELECT batch FROM request WHERE batch LIKE ? LIMIT 1", (f"{_PART_PREFIX}%",)
            ).fetchone()
        return None if row is None else str(row[0])

    def _assign_part(self) -> str | None:
        """Assign to a new part as many waiting requests of one model as a batch may hold; return None if none waits."""
        max_requests, max_bytes = self._limits
        keys: list[str] = []
        size = 0
        with self._lock, self._database as database:
            waiting = (
                "WITH waiting AS (SELECT key, body, json_extract(body, '$.model') AS model FROM request WHERE batch IS "
                "NULL AND reply IS NULL) SELECT key, body FROM waiting WHERE model IS (SELECT model FROM waiting ORDER "
                "BY key LIMIT 1) ORDER BY key LIMIT ?"
            )
            for key, body in database.execute(waiting, (max_requests,)):
                size += len(_format_line(key, body))
                if keys and size > max_bytes:
                    break
                keys.append(key)
            part = f"{_PART_PREFIX}{uuid.uuid4().hex}"
            database.executemany("UPDATE request SET batch = ? WHERE key = ?", [(part, key) for key in keys])
        return part if keys else None

    def _find_batch(self, part: str) -> str | None:
        """Return the id of the batch that a killed call made of a part, among all of the account; None: it made none.

        Raises:
            BatchError: the server lists the same batches again and again, and says that there are more.

        """
        seen: set[str] = set()
        for page in self._client.batches.list(limit=_LISTED_BATCHES).iter_pages():
            for batch in page.data:
                if (batch.metadata or {}).get(_PART_KEY) == part:
                    return batch.id
            ids = {batch.id for batch in page.data}
            if ids <= seen:
                if page.has_more:
                    raise BatchError(
                        f"the server lists the same {len(seen)} batches again and says that there are more: whether it "
                        "has the requests of a call that was killed cannot be told, and they might be paid for twice"
                    )
                break
            seen |= ids
        return None

    def _submit_part(self, part: str) -> str:
        """Make the part's batch, and return its id. If the server refuses it, its requests wait for another part."""
        try:
            return self._send_part(part)
        except openai.BadRequestError:
            with self._lock, self._database as database:
                database.execute("UPDATE request SET batch = NULL WHERE batch = ?", (part,))
            raise

    def _send_part(self, part: str) -> str:
        """Make the part's batch, and return its id."""
        with self._lock, self._database as database:
            requests = database.execute(
                "SELECT key, body FROM request WHERE batch = ? ORDER BY key", (part,)
            ).fetchall()
        content = ("requests.jsonl", b"".join(_format_line(*request) for request in requests), "application/jsonl")
        file = self._client.files.create(file=content, purpose="batch")
        # No retry by the client: if only the response was lost, the batch would be made, and paid for, twice.
        batch = self._client.with_options(max_retries=0).batches.create(
            input_file_id=file.id, endpoint=_ENDPOINT, completion_window="24h", metadata={_PART_KEY: part}
        )
        return batch.id

    def _update_batch(self, batch_id: str) -> None:
        """Fetch the answers of a batch if it has ended. If the server has lost it, its requests wait again."""
        try:
            batch = self._client.batches.retrieve(batch_id)
        except Exception as error:
            if getattr(error, "status_code", None) != 404:
                raise
            with self._lock, self._database as database:
                problem = f"batch {batch_id} is not known to the server"
                database.execute("UPDATE batch SET status = 'gone', problem = ? WHERE id = ?", (problem, batch_id))
                database.execute("UPDATE request SET batch = NULL WHERE batch = ? AND reply IS NULL", (batch_id,))
            return
        if batch.status in _ENDED:
            self._fetch(batch)

    def _fetch(self, batch: Any) -> None:
        """Store the answers of a batch that has ended. The requests that it does not answer wait again."""
        errors = [f": {error.code}: {error.message}" for error in (batch.errors.data or [])] if batch.errors else []
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
        with self._lock, self._database as database:
            for column, answers in (("reply", replies), ("problem", problems)):
                for answer in answers:
                    update = f"UPDATE request SET {column} = ? WHERE key = ? AND batch = ?"
                    if database.execute(update, answer).rowcount != 1:
                        raise BatchError(f"batch {batch.id} answers {answer[1]!r}, which it was not asked")
            problem = None if batch.status == "completed" else f"batch {batch.status}{''.join(errors)}"
            database.execute("UPDATE batch SET status = ?, problem = ? WHERE id = ?", (batch.status, problem, batch.id))
            database.execute("UPDATE request SET batch = NULL WHERE batch = ? AND reply IS NULL", (batch.id,))

    def _open_lock(self) -> sqlite3.Connection:
        """Open the connection that is the lock. Close it in `finally`: an interrupt could skip an `__exit__`."""
        return sqlite3.connect(self._folder / "lock.sqlite", timeout=_LOCK_TIMEOUT, isolation_level=None)

    def _acquire(self, lock: sqlite3.Connection) -> None:
        """Keep other threads and processes from submitting or collecting until `lock` is closed, or this process dies.

        Raises:
            BatchError: another call has held the lock for ten minutes.

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


class _BatchTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers a client's requests from a batch's folder. A request without an answer is stored, and refused."""

    def __init__(self, batch: OpenAIBatch) -> None:
        self._batch = batch

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, await request.aread())

    def _answer(self, request: httpx.Request, content: bytes) -> httpx.Response:
        if not request.url.path.endswith("/chat/completions") or json.loads(content).get("stream"):
            return _to_error(f"a batch answers whole chat completions, not {request.url.path} or streams")
        answer = self._batch.answer(content)
        return _to_error("waits for its batch: submit(), then collect()") if answer is None else _to_response(answer)


def _check_interval(interval: float) -> None:
    check_numbers("0 or more seconds", lambda seconds: seconds >= 0, interval=interval)


def _format_line(key: str, body: str) -> bytes:
    """Format a request as a line of a batch's file."""
    line = {"custom_id": key, "method": "POST", "url": _ENDPOINT, "body": json.loads(body)}
    return json.dumps(line).encode() + b"\n"


def _to_response(answer: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json=answer)


def _to_error(message: str) -> httpx.Response:
    return httpx.Response(400, json={"error": {"message": message, "type": "batch", "code": NOT_ANSWERED_YET}})
