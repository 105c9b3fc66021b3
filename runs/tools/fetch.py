"""Downloads of documents by address, for `spec_url`: guarded, bounded, never with credentials."""

import asyncio
from urllib.parse import urljoin

import httpx

from runs.tools.bounds import FETCH_TIMEOUT_S, MAX_DOCUMENT_BYTES, MAX_REDIRECTS
from runs.tools.errors import DocumentError
from runs.tools.http_client import LOCATION
from runs.tools.http_response import Answer, AnswerBroken, AnswerTooLarge, read_answer
from runs.tools.netguard import AddressGuard, AddressRefused


async def fetch_document(
    url: str, guard: AddressGuard, client: httpx.AsyncClient, *, timeout_s: float = FETCH_TIMEOUT_S
) -> bytes:
    """The document's bytes. Raises DocumentError: `spec_unreachable`, `address_refused` or `spec_too_large`.

    `client` is `make_client`'s; up to three redirects are followed, each one's address checked.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _fetch(url, guard, client)
    except AddressRefused as exc:
        raise DocumentError("address_refused", f"the address is not allowed: {exc}", _shown(url)) from None
    except TimeoutError:
        raise DocumentError("spec_unreachable", f"no whole answer within {timeout_s:g} s", _shown(url)) from None
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise DocumentError("spec_unreachable", f"it cannot be read ({type(exc).__name__})", _shown(url)) from exc


async def _fetch(url: str, guard: AddressGuard, client: httpx.AsyncClient) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        guard.check_url(url)
        request = client.build_request(
            "GET",
            url,
            headers={
                "Accept": "application/json, application/yaml, */*",
                "Accept-Encoding": "gzip, deflate",
                "User-Agent": "executor-site",
            },
        )
        response = await client.send(request, stream=True)
        try:
            location: str | None = response.extensions.get(LOCATION)
            if not response.is_redirect or location is None:
                return await _content(response, url)
            try:
                url = urljoin(url, location)
            except ValueError:
                raise AddressRefused("the redirect's address cannot be read") from None
        finally:
            await response.aclose()
    raise DocumentError("spec_unreachable", f"more than {MAX_REDIRECTS} redirects", _shown(url))


async def _content(response: httpx.Response, url: str) -> bytes:
    if response.status_code != 200:
        raise DocumentError("spec_unreachable", f"the server answered {response.status_code}", _shown(url))
    answer = Answer(bytearray())
    try:
        await read_answer(response, MAX_DOCUMENT_BYTES, answer)
    except AnswerTooLarge:
        raise DocumentError(
            "spec_too_large", f"the document is larger than {MAX_DOCUMENT_BYTES} bytes", _shown(url)
        ) from None
    except AnswerBroken as exc:
        raise DocumentError("spec_unreachable", str(exc), _shown(url)) from exc
    return bytes(answer.data)


def _shown(url: str) -> str:
    """Without query, where keys stand, and without user name and password."""
    bare = url.partition("?")[0].partition("#")[0]
    scheme, separator, rest = bare.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"[:300]
