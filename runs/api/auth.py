"""Who asks: a bearer token, or the admin's session with a CSRF token. Also the rate limit, per principal."""

from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.crypto import constant_time_compare
from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import FixedWindowRateLimiter

from executor_site.orm import orm_read
from executor_site.scope import of_request
from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.services.authenticate import principal_of_header

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_limiter = FixedWindowRateLimiter(MemoryStorage())
_per_minute = RateLimitItemPerMinute(settings.RATE_PER_MINUTE)


class _Csrf(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> Any:
        """Hand the reason back instead of Django's HTML page."""
        return reason


def csrf_refusal(request: HttpRequest) -> str | None:
    """Why the request's CSRF token does not do, or None."""
    check = _Csrf(lambda _request: None)  # type: ignore[arg-type]
    check.process_request(request)
    reason: Any = check.process_view(request, None, (), {})  # type: ignore[arg-type]
    return None if reason is None else str(reason)


async def authenticate(request: HttpRequest) -> Principal:
    """Ninja's auth callable for every endpoint. Raises Refusal: unauthorized, csrf_failed, rate_limited."""
    header = request.headers.get("Authorization")
    principal = await (_session(request) if header is None else principal_of_header(of_request(request), header))
    await rate_limited(principal)
    return principal


async def _session(request: HttpRequest) -> Principal:
    principal = await orm_read(session_principal, request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    if principal is None:
        raise Refusal("unauthorized", "Send Authorization: Bearer <token>, or log in to the admin.")
    if request.method not in _SAFE and (reason := csrf_refusal(request)) is not None:
        raise Refusal("csrf_failed", reason)
    return principal


def session_principal(session_key: str | None) -> Principal | None:
    """The person behind the admin's session cookie, by the same checks as Django's own."""
    if not session_key:
        return None
    session = SessionStore(session_key)
    user = get_user_model().objects.filter(pk=session.get(SESSION_KEY, "0"), is_active=True).first()
    if user is None or not constant_time_compare(session.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash()):
        return None
    return Principal.of_session(user)


async def rate_limited(principal: Principal) -> None:
    """Count one request of this principal in this process. Raises Refusal rate_limited."""
    if not await _limiter.hit(_per_minute, str(principal.token_id or principal.user_id)):
        raise Refusal("rate_limited", retry_after_s=5)
