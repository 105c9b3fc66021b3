"""A real HTTP/1.1 server on a loopback port whose answers are written byte by byte, faults included."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Number of the connection it came on."""


Handler = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Upstream:
    handler: Handler
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    received: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has been read completely."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while request := await _read(reader, number):
                self.requests.append(request)
                self.received.set()
                await self.handler(request, writer)
                await writer.drain()
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, number: int) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, target, headers, body, number)


def answer(body: bytes = b"{}", *, status: str = "200 OK", headers: dict[str, str] | None = None) -> bytes:
    described = {"Content-Type": "application/json", "Content-Length": str(len(body))} | (headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in described.items() if value)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def answering(body: bytes = b"{}", *, status: str = "200 OK", headers: dict[str, str] | None = None) -> Handler:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(body, status=status, headers=headers))

    return handler


@asynccontextmanager
async def upstream(handler: Handler) -> AsyncIterator[Upstream]:
    server = Upstream(handler)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()
