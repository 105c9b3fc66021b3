"""A client of the HTTP API that remembers what it was told: its transcript is what "acknowledged" means.

Every request has a connection of its own, so a killed server costs exactly the requests it was serving.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

PATIENCE_S = 60.0
"""A bound for a broken build, never a duration a passing test waits."""

T = TypeVar("T")


@dataclass(slots=True)
class Transcript:
    """What callers were told, over every client of one site."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the result union, in the order of their arrival."""
    decisions: dict[str, str] = field(default_factory=dict)
    """Execution id → the decision whose request was answered with a result."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Any
    headers: httpx.Headers

    @property
    def code(self) -> str | None:
        """The error's code, or None."""
        return self.body["error"]["code"] if isinstance(self.body, dict) and "error" in self.body else None


class Client:
    def __init__(self, base_url: str, token: str | None, transcript: Transcript) -> None:
        self.base_url = base_url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._transcript = transcript
        self._http = httpx.Client(
            base_url=base_url,
            headers=self._headers,
            timeout=PATIENCE_S,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, **options: Any) -> Reply:
        """One request; `path` without the API's prefix. Raises httpx.TransportError where the server went away."""
        answer = self._http.request(method, f"/api/v1{path}", **options)
        try:
            body = answer.json()
        except ValueError:
            body = answer.text
        reply = Reply(answer.status_code, body, answer.headers)
        if isinstance(body, dict) and "status" in body and "run_id" in body:
            self._transcript.answers.append(body)
        return reply

    # -- the main job ----------------------------------------------------------------------------------------

    def execute_reply(self, code: str, *, key: str | None = None, **fields: Any) -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.ask("POST", "/executions", json={"code": code, **fields}, headers=headers)

    def execute(self, code: str, *, key: str | None = None, **fields: Any) -> dict[str, Any]:
        return served(self.execute_reply(code, key=key, **fields))

    def resume_reply(self, execution_id: str, action: str = "accept", **fields: Any) -> Reply:
        reply = self.ask("POST", f"/executions/{execution_id}/resume", json={"action": action, **fields})
        if reply.status == 200:
            self._transcript.decisions[execution_id] = action
        return reply

    def resume(self, execution_id: str, action: str = "accept", **fields: Any) -> dict[str, Any]:
        return served(self.resume_reply(execution_id, action, **fields))

    def enqueue(self, code: str, *, key: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {} if key is None else {"Idempotency-Key": key}
        return served(self.ask("POST", "/runs", json={"code": code, **fields}, headers=headers), 202)

    def execution(self, execution_id: str) -> dict[str, Any]:
        return served(self.ask("GET", f"/executions/{execution_id}"))

    def run(self, run_id: str) -> dict[str, Any]:
        return served(self.ask("GET", f"/runs/{run_id}"))

    def effects(self, run_id: str) -> list[dict[str, Any]]:
        return list(served(self.ask("GET", f"/runs/{run_id}/effects"))["effects"])

    def cancel(self, run_id: str) -> dict[str, Any]:
        return served(self.ask("POST", f"/runs/{run_id}/cancel"))

    def healthy(self) -> bool:
        return self._http.get("/healthz").status_code == 200

    # -- misfortunes -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def sent(self, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
        """A POST whose caller leaves without reading the answer, at the end of the block."""
        payload = json.dumps(body).encode()
        with self.raw(path, len(payload)) as connection:
            connection.sendall(payload)
            yield connection

    @contextlib.contextmanager
    def raw(self, path: str, length: int | None) -> Iterator[socket.socket]:
        """The head of a POST; the body is the caller's. `length` None: chunked."""
        parts = urlsplit(self.base_url)
        head = [f"POST /api/v1{path} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
        head += ["Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"]
        head += [f"{name}: {value}" for name, value in self._headers.items()]
        with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S) as connection:
            connection.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
            yield connection


def served(reply: Reply, status: int = 200) -> Any:
    """The body of an answer that must be one."""
    assert reply.status == status, f"{reply.status}: {reply.body}"
    return reply.body


def unless_cut(work: Callable[[], T]) -> T | None:
    """What `work` answers, or None where the server went away in the middle of it."""
    try:
        return work()
    except httpx.TransportError:
        return None


def at_once(work: Sequence[Callable[[], T]]) -> list[T]:
    """All of it at the same time, each in a thread of its own; the results in order."""
    with ThreadPoolExecutor(max_workers=len(work)) as pool:
        return [future.result() for future in [pool.submit(one) for one in work]]


@contextlib.contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start `work`; the block gets a callable that waits for its result."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(work).result
