"""Calls of OpenAPI tools over HTTP: one request, and an outcome that never claims more than is known.

The rule for effects: until the first byte of the request may have been written, nothing happened (`Refused`, not
sent); from then on, only an answer says what happened, and without one the outcome is `Unknown`.
"""

import asyncio
import logging
import traceback
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx

from runs.domain.effects import EffectClass
from runs.tools.base import JSON, CallContext, CallOutcome, Refused, Succeeded, ToolSpec, Unknown, Unrepresentable
from runs.tools.bounds import (
    MAX_ERROR_BODY_BYTES,
    MAX_LOCATION_CHARS,
    MAX_REDIRECTS,
    MAX_RESPONSE_BYTES,
)
from runs.tools.credentials import Credentials, CredentialsMissing
from runs.tools.http_client import EFFECT, LOCATION
from runs.tools.http_request import Plan, RequestInvalid, plan_request
from runs.tools.http_response import Answer, AnswerBroken, AnswerTooLarge, ValueUnreadable, read_answer, value_of
from runs.tools.netguard import AddressGuard, AddressRefused

log = logging.getLogger(__name__)

_REDIRECTS: Final = frozenset([301, 302, 303, 307, 308])
_STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_OURS: Final = {
    "Accept": "application/json, text/*;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": "executor-site",
}


@dataclass(slots=True)
class _Progress:
    """How far a call has come: the evidence for its outcome."""

    effect: bool
    sent: bool = False
    """A request has been, or may have been, written."""
    connected_anew: bool = False
    status: int | None = None

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """httpcore's trace hook. Called before the first byte is written, so `sent` never lags behind."""
        if event == "connection.connect_tcp.started":
            self.connected_anew = True
        elif event == "http11.send_request_headers.started":
            self.sent = True

    def failed(self, code: str, what: str) -> CallOutcome:
        """The outcome of a call that ends without a whole answer."""
        if not self.sent:
            return Refused("upstream_unreachable", f"The upstream could not be reached: {what}.", sent=False)
        if self.status is not None:
            what = f"status {self.status} was received, then {what}"
        if not self.effect:
            return Refused(code, f"The upstream gave no answer: {what}.", status=self.status)
        return Unknown(code, f"The request was sent, but no whole answer came: {what}. It may have taken effect.")


class HttpInvoker:
    """Calls tools over the process's one client. Stateless: safe for any number of calls at once."""

    def __init__(self, client: httpx.AsyncClient, guard: AddressGuard) -> None:
        self._client = client
        self._guard = guard

    async def invoke(
        self,
        spec: ToolSpec,
        base_url: str,
        arguments: dict[str, JSON],
        credentials: Credentials,
        context: CallContext,
    ) -> CallOutcome:
        """Calls the tool once, within `context.timeout_s` seconds. Arguments must be validated already.

        Raises nothing but CancelledError; no secret of `credentials` is in the outcome.
        """
        headers = _OURS | {"X-Run-Id": context.run_id}
        if spec.effect is not EffectClass.READ:
            headers["Idempotency-Key"] = context.idempotency_key
        try:
            applied = credentials.apply(spec.binding["security"], spec.source)
            plan = plan_request(spec.binding, base_url, arguments, applied, headers)
            self._guard.check_url(plan.url)
        except CredentialsMissing as exc:
            return Refused("connection_missing", str(exc), sent=False)
        except RequestInvalid as exc:
            return Refused("invalid_arguments", credentials.scrub(f"{spec.address}: {exc}"), sent=False)
        except AddressRefused as exc:
            return Refused("address_refused", _refused(exc), sent=False)
        outcome = await self._within(plan, spec.effect is not EffectClass.READ, context.timeout_s)
        return credentials.scrub_outcome(outcome)

    async def _within(self, plan: Plan, effect: bool, timeout_s: float) -> CallOutcome:
        progress = _Progress(effect)
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                return await self._call(plan, progress)
        except TimeoutError:
            return progress.failed("upstream_timeout", f"the call took longer than {timeout_s:g} s")
        except AddressRefused as exc:
            # Also of a redirect's target, which only reads come to.
            return Refused("address_refused", _refused(exc), sent=progress.sent)
        except httpx.TimeoutException as exc:
            return progress.failed("upstream_timeout", _named(exc))
        except httpx.HTTPError as exc:
            return progress.failed("upstream_error", _named(exc))
        except httpx.InvalidURL:
            return progress.failed("upstream_error", "the address cannot be used")
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not turn a sent effect into "never happened"
            # Without the exception's text, which may repeat what was sent.
            trace = "".join(traceback.format_tb(exc.__traceback__))
            log.error("unexpected %s in a call over HTTP\n%s", type(exc).__name__, trace)
            return progress.failed("internal_error", f"an unexpected {type(exc).__name__} on our side")

    async def _call(self, plan: Plan, progress: _Progress) -> CallOutcome:
        """The request and, for reads, its redirects and one repetition over a fresh connection."""
        repeated = False
        redirects = 0
        while True:
            progress.connected_anew, progress.status = False, None
            try:
                response = await self._send(plan, progress)
            except _STALE:
                # An idle connection that the server had closed; a read can simply be asked again.
                if progress.effect or progress.connected_anew or repeated:
                    raise
                repeated = True
                continue
            try:
                progress.status = response.status_code
                location: str | None = response.extensions.get(LOCATION)
                if response.status_code not in _REDIRECTS or location is None:
                    return await self._outcome(plan, response, progress)
                if progress.effect or redirects >= MAX_REDIRECTS:
                    return _not_followed(response.status_code, location, progress.effect)
                redirects += 1
                plan = _redirected(plan, response.status_code, location)
                self._guard.check_url(plan.url)
            finally:
                await response.aclose()

    async def _send(self, plan: Plan, progress: _Progress) -> httpx.Response:
        request = self._client.build_request(
            plan.method,
            plan.url,
            headers=plan.headers,
            content=plan.content,
            extensions={"trace": progress.trace, EFFECT: progress.effect},
        )
        return await self._client.send(request, stream=True)

    async def _outcome(self, plan: Plan, response: httpx.Response, progress: _Progress) -> CallOutcome:
        status = response.status_code
        if not 200 <= status < 300:
            return await self._refusal(response)
        answer = Answer(bytearray())
        try:
            await read_answer(response, MAX_RESPONSE_BYTES, answer)
        except AnswerTooLarge:
            return Unrepresentable(f"the answer is larger than {MAX_RESPONSE_BYTES} bytes", status)
        except AnswerBroken as exc:
            return Unrepresentable(str(exc), status)
        try:
            value = value_of(response.headers.get("content-type", ""), bytes(answer.data))
        except ValueUnreadable as exc:
            return Unrepresentable(str(exc), status)
        return Succeeded(value, status)

    async def _refusal(self, response: httpx.Response) -> Refused:
        """The answer says that the call failed; its body is shown as far as it came."""
        answer = Answer(bytearray())
        note = ""
        try:
            await read_answer(response, MAX_ERROR_BODY_BYTES, answer)
        except AnswerTooLarge:
            note = "…"
        except (AnswerBroken, httpx.HTTPError):
            # The status has said it already; a body that breaks off changes nothing about the outcome.
            note = "… (the answer broke off)"
        body = bytes(answer.data).decode("utf-8", "replace") + note
        reason = response.reason_phrase[:100]
        message = f"The upstream answered {response.status_code} {reason}".rstrip() + "."
        return Refused("upstream_error", message, response.status_code, body or None)


def _not_followed(status: int, location: str, effect: bool) -> Refused:
    why = "an effect is never sent to a second place" if effect else f"more than {MAX_REDIRECTS} redirects"
    return Refused(
        "upstream_error",
        f"The upstream answered {status} and points to {_cut_location(location)}, which was not followed: {why}.",
        status,
    )


def _cut_location(location: str) -> str:
    """Without query and fragment, where upstreams put one-time tokens."""
    return location.partition("?")[0].partition("#")[0][:MAX_LOCATION_CHARS]


def _redirected(plan: Plan, status: int, location: str) -> Plan:
    """The next request. Another origin gets nothing but the question: no credentials, cookies, arguments or run id."""
    try:
        url = urljoin(plan.url, location).partition("#")[0]
    except ValueError:
        raise AddressRefused("the redirect's address cannot be read") from None
    same = _origin(url) == _origin(plan.url)
    headers = plan.headers if same else [(name.encode(), value.encode()) for name, value in _OURS.items()]
    if status == 303 or (status in (301, 302) and plan.method == "POST"):
        headers = [(name, value) for name, value in headers if name.lower() != b"content-type"]
        return Plan("HEAD" if plan.method == "HEAD" else "GET", url, headers, None)
    return Plan(plan.method, url, headers, plan.content if same else None)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        raise AddressRefused("the redirect's address cannot be read") from None


def _refused(exc: AddressRefused) -> str:
    return f"The address is not allowed: {exc}. An admin can list it in UPSTREAM_ALLOW."


def _named(exc: Exception) -> str:
    """What failed, by its class: the texts of these exceptions may repeat what was sent."""
    return {
        "ConnectError": "the connection failed",
        "ConnectTimeout": "no connection in time",
        "PoolTimeout": "too many calls are waiting for a connection",
        "ReadError": "the connection broke",
        "WriteError": "the connection broke",
        "RemoteProtocolError": "the connection ended or its content was not HTTP",
    }.get(type(exc).__name__, type(exc).__name__)
