"""A key-blind upstream in a process of its own: what it received is what the world saw.

It never deduplicates: every effect that arrives is one more line of its file, in the order of arrival, written
before it is answered. It outlives the product's processes. Faults are switched on by the test for one `ref` (the
`ref` of a charge, the `id` of a thing or item) and last until they are switched off. Standard library only.

As a script it serves (`python sink.py --file F`) and prints its port; `Sink` starts and asks it.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote

FLOOD_BYTES = 64_000_000
CHUNK = b"x" * 65_536
LONGEST_WAIT_S = 60.0

_TEXT = {"type": "string"}
_ANSWER = {"200": {"description": "done"}}


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": schema}


def _body(**properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }
    return {"required": True, "content": {"application/json": {"schema": schema}}}


DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Sink", "version": "1"},
    "paths": {
        "/items/{id}": {
            "get": {"operationId": "get_item", "parameters": [_parameter("id", "path", _TEXT)], "responses": _ANSWER}
        },
        "/slow": {
            "get": {
                "operationId": "get_slow",
                "parameters": [_parameter("ms", "query", {"type": "integer"})],
                "responses": _ANSWER,
            }
        },
        "/charges": {
            "post": {
                "operationId": "create_charge",
                "requestBody": _body(amount={"type": "integer", "minimum": 1}, ref=_TEXT),
                "responses": _ANSWER,
            }
        },
        "/things/{id}": {
            "put": {
                "operationId": "put_thing",
                "parameters": [_parameter("id", "path", _TEXT)],
                "requestBody": _body(value=_TEXT),
                "responses": _ANSWER,
            }
        },
    },
}


# -- the service ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Reply:
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    length: int | None = None
    """What Content-Length says; None: the truth."""


class Service:
    """Answers one connection's requests one after the other."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._received: list[dict[str, Any]] = []
        self._faults: dict[str, dict[str, Any]] = {}
        self._released: dict[str, asyncio.Event] = {}
        self._arrived = asyncio.Condition()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (request := await _read(reader)) is not None and await self._answer(request, writer):
                pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        path, _, query = request.target.partition("?")
        if path.startswith("/_"):
            await _write(writer, Reply(200, json.dumps(await self._control(path, query, request.body)).encode()))
            return True
        kind, ref, reply = _serve(request, path, query)
        await self._note(kind, ref, request)
        if kind == "slow":
            await asyncio.sleep(int(ref) / 1000)
        return await self._with_fault(self._faults.get(ref, {"kind": "none"}), ref, reply, writer)

    async def _note(self, kind: str, ref: str, request: Request) -> None:
        line = {
            "kind": kind,
            "ref": ref,
            "key": request.headers.get("idempotency-key", ""),
            "run": request.headers.get("x-run-id", ""),
            "at": time.time(),
        }
        self._file.write(json.dumps(line) + "\n")
        async with self._arrived:
            self._received.append(line)
            self._arrived.notify_all()

    async def _with_fault(self, fault: dict[str, Any], ref: str, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        match fault["kind"]:
            case "none":
                pass
            case "hold":
                await self._release_of(ref).wait()
            case "flood":
                await _write(writer, Reply(200, b'"', length=FLOOD_BYTES + 2))
                for _ in range(FLOOD_BYTES // len(CHUNK)):
                    writer.write(CHUNK)
                    await writer.drain()
                return False
            case "close":
                return False
            case "short":
                reply.length = len(reply.body) + 100
                await _write(writer, reply)
                return False
            case "long":
                reply.length = max(0, len(reply.body) - 5)
            case "broken_json":
                reply.body = b'{"charged": '
            case "redirect":
                reply = Reply(307, b"", (("Location", fault["to"]),))
            case "status":
                reply = Reply(fault["status"], fault.get("body", "").encode())
            case other:
                raise LookupError(other)
        await _write(writer, reply)
        return fault["kind"] != "long"

    def _release_of(self, ref: str) -> asyncio.Event:
        return self._released.setdefault(ref, asyncio.Event())

    async def _control(self, path: str, query: str, body: bytes) -> Any:
        given = {name: values[0] for name, values in parse_qs(query).items()}
        match path:
            case "/_received":
                return self._received
            case "/_fault":
                fault = json.loads(body)
                self._faults[fault.pop("ref")] = fault
            case "/_mend":
                self._faults.pop(given["ref"], None)
            case "/_release":
                self._faults.pop(given["ref"], None)
                self._release_of(given["ref"]).set()
            case "/_wait":
                async with self._arrived:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(
                            self._arrived.wait_for(lambda: self._count(given["ref"]) >= int(given["count"])),
                            float(given["seconds"]),
                        )
                return self._count(given["ref"])
        return "ok"

    def _count(self, ref: str) -> int:
        return sum(1 for line in self._received if line["ref"] == ref)


def _serve(request: Request, path: str, query: str) -> tuple[str, str, Reply]:
    """The kind of call, its ref and its honest answer."""
    name = unquote(path.rpartition("/")[2])
    if request.method == "GET" and path.startswith("/items/"):
        return "read", name, _json({"id": name, "name": f"item {name}"})
    if request.method == "GET" and path == "/slow":
        return "slow", parse_qs(query)["ms"][0], _json({"slept": True})
    if request.method == "POST" and path == "/charges":
        given = json.loads(request.body)
        return "effect", given["ref"], _json({"charged": given["amount"], "ref": given["ref"]})
    if request.method == "PUT" and path.startswith("/things/"):
        return "put", name, _json({"id": name, **json.loads(request.body)})
    return "unknown", path, Reply(404, b'{"error": "no such thing"}')


def _json(value: Any) -> Reply:
    return Reply(200, json.dumps(value).encode())


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    length = len(reply.body) if reply.length is None else reply.length
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers)]
    writer.write("\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode() + reply.body)
    await writer.drain()


async def _main(path: Path) -> None:
    server = await asyncio.start_server(Service(path).connection, "127.0.0.1", 0, limit=8_000_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- the test's side -----------------------------------------------------------------------------------------


class Sink:
    """A running sink, as the test sees it."""

    def __init__(self, process: "subprocess.Popen[str]", path: Path) -> None:
        assert process.stdout is not None
        self._path = path
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def lines(self) -> list[dict[str, Any]]:
        """Everything received, in order, from the file."""
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def of(self, ref: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["ref"] == ref]

    def count(self, ref: str) -> int:
        return len(self.of(ref))

    def fault(self, ref: str, kind: str, **more: Any) -> None:
        """From now on, calls with this ref get: hold, flood, close, short, long, broken_json, redirect, status."""
        self._ask("/_fault", json.dumps({"ref": ref, "kind": kind, **more}).encode())

    def mend(self, ref: str) -> None:
        self._ask(f"/_mend?ref={quote(ref)}")

    def release(self, ref: str) -> None:
        """Answer the calls that are held, and hold no more."""
        self._ask(f"/_release?ref={quote(ref)}")

    def wait_for(self, ref: str, count: int = 1, within_s: float = 20.0) -> None:
        """Return when this many calls with this ref have arrived."""
        found = self._ask(f"/_wait?ref={quote(ref)}&count={count}&seconds={within_s}")
        assert found >= count, f"{found} of {count} calls with ref {ref} arrived in {within_s} s"

    def _ask(self, target: str, body: bytes | None = None) -> Any:
        with urllib.request.urlopen(self.url + target, body, timeout=LONGEST_WAIT_S) as answer:
            return json.load(answer)


@contextlib.contextmanager
def running_sink(directory: Path) -> Iterator[Sink]:
    path = directory / "sink.jsonl"
    path.touch()
    argv = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--file", str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Sink(process, path)
        finally:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, required=True)
    asyncio.run(_main(parser.parse_args().file))
