"""Answers over HTTP: read within a bound, decoded, and turned into values."""

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from runs.tools.base import JSON
from runs.tools.bounds import READ_CHUNK_BYTES

_GZIP_OR_ZLIB, _RAW_DEFLATE = 47, -15
"""zlib's window bits: the first detects the header itself, the second has none."""


class AnswerTooLarge(Exception):
    """The answer is larger than the bound; it was not read further."""


class AnswerBroken(Exception):
    """The answer's compression cannot be undone."""


class ValueUnreadable(Exception):
    """The answer came whole, but is not what its content type says; the message says why."""


@dataclass(slots=True)
class Answer:
    """As much of an answer's content as has been read."""

    data: bytearray
    complete: bool = False


async def read_answer(response: httpx.Response, limit: int, answer: Answer) -> None:
    """Fills `answer` with the decoded content. Raises AnswerTooLarge (with the first `limit` bytes in `answer`),
    AnswerBroken, and httpx's errors where the connection fails on the way.
    """
    decoder = _decoder(response.headers.get("content-encoding", ""))
    async for chunk in response.aiter_raw():
        for piece in decoder.feed(chunk):
            room = limit - len(answer.data)
            answer.data += piece[:room]
            if len(piece) > room:
                raise AnswerTooLarge
    if not decoder.finished:
        raise AnswerBroken("the compressed answer ends too early")
    answer.complete = True


def value_of(content_type: str, data: bytes) -> JSON:
    """The value of a whole answer. Raises ValueUnreadable.

    JSON → its value, texts → str, nothing → None, all else → `{"content_type", "base64"}`.
    """
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    if not data.strip() and (not data or _is_json(kind) or not kind):
        return None
    if _is_json(kind):
        return parse_json(data)
    if _is_text(kind):
        return _decode(data, parameters)
    if not kind:
        return _untyped(data)
    return {"content_type": kind, "base64": base64.b64encode(data).decode()}


def parse_json(data: bytes) -> JSON:
    """Raises ValueUnreadable for what is no JSON, NaN and nesting that Python cannot follow included."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueUnreadable("its JSON is nested too deep") from None
    except ValueError as exc:
        # Only the place: the message of some decoders repeats the text.
        place = f" (at character {exc.pos})" if isinstance(exc, json.JSONDecodeError) else ""
        raise ValueUnreadable(f"its content is not valid JSON{place}") from None


def _refuse_constant(name: str) -> JSON:
    raise ValueError(name)


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(
        ("/xml", "+xml", "/javascript", "/yaml", "/x-yaml", "/x-ndjson", "/x-www-form-urlencoded", "/graphql")
    )


def _decode(data: bytes, parameters: str) -> str:
    charset = next((value.strip().strip("\"'") for name, _, value in _pairs(parameters) if name == "charset"), "utf-8")
    try:
        return data.decode(charset, "replace")
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace")


def _pairs(parameters: str) -> Iterator[tuple[str, str, str]]:
    for part in parameters.split(";"):
        name, equals, value = part.partition("=")
        yield name.strip().lower(), equals, value


def _untyped(data: bytes) -> JSON:
    """No content type: JSON where it is JSON, else text, else bytes."""
    try:
        return parse_json(data)
    except ValueUnreadable:
        # A guess that failed, not an answer that is broken.
        pass
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"content_type": "application/octet-stream", "base64": base64.b64encode(data).decode()}


class _Identity:
    finished = True

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk


class _Inflate:
    """Decompresses piece by piece: httpx's own decoder unfolds a whole chunk at once, a thousandfold if it must."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._started = False

    @property
    def finished(self) -> bool:
        return self._inflate.eof or not self._started

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        try:
            yield from self._pieces(chunk)
        except zlib.error:
            if self._started:
                raise AnswerBroken("the compressed answer is damaged") from None
            # Some servers send deflate without the header that the standard asks for.
            self._inflate = zlib.decompressobj(_RAW_DEFLATE)
            try:
                yield from self._pieces(chunk)
            except zlib.error:
                raise AnswerBroken("the compressed answer is damaged") from None

    def _pieces(self, chunk: bytes) -> Iterator[bytes]:
        rest = chunk
        while rest and not self._inflate.eof:
            piece = self._inflate.decompress(rest, READ_CHUNK_BYTES)
            self._started = True
            rest = self._inflate.unconsumed_tail
            yield piece
            if not piece and not rest:
                return


def _decoder(encoding: str) -> _Identity | _Inflate:
    match encoding.strip().lower():
        case "" | "identity":
            return _Identity()
        case "gzip" | "x-gzip" | "deflate":
            return _Inflate()
        case other:
            raise AnswerBroken(f"compressed as {other[:40]!r}, which was not asked for")
