"""Issuing and revoking bearer tokens. A token is shown once, to whoever asked for it, and never again."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.models import Scope, Token
from runs.store.tokens import token_revoke, token_store
from runs.store.users import user_create, user_find

PREFIX = "exs_"
"""Lets scanners of leaked secrets recognise one of ours."""
_RANDOM_BYTES = 32
"""256 bits: 43 URL-safe characters, which nobody guesses, so a plain hash of them can be stored."""


def make_token() -> str:
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def token_issue(
    *,
    username: str,
    scopes: Sequence[str],
    name: str = "",
    expires_days: int | None = None,
    create_user: bool = False,
) -> tuple[Token, str]:
    """The stored row and the token itself. `create_user` makes a missing user, without a password.

    Raises Refusal not_found (user) or invalid_request; nothing is stored then.
    """
    wanted = list(dict.fromkeys(scopes))
    unknown = [scope for scope in wanted if scope not in Scope.values]
    if unknown or not wanted:
        known = ", ".join(Scope.values)
        raise Refusal("invalid_request", f"Unknown scope {', '.join(unknown) or '(none)'}; the scopes are {known}.")
    if expires_days is not None and not 1 <= expires_days <= limits.TOKEN_DAYS_MAX:
        raise Refusal("invalid_request", f"A token expires in 1 to {limits.TOKEN_DAYS_MAX} days, or never.")
    name = name.strip() or "command line"
    if len(name) > limits.NAME_CHARS or not name.isprintable():
        raise Refusal("invalid_request", f"A token's name has up to {limits.NAME_CHARS} printable characters.")
    user = user_find(username)
    if user is None and create_user:
        if not 0 < len(username) <= limits.USERNAME_CHARS or not username.isprintable():
            raise Refusal("invalid_request", f"A user name has 1 to {limits.USERNAME_CHARS} printable characters.")
        user = user_create(username)
    if user is None:
        raise Refusal("not_found", f"There is no user {username!r}.")
    if not user.is_active:
        raise Refusal("invalid_request", f"The user {username!r} is not active.")
    token = make_token()
    row = token_store(token=token, user_id=user.pk, name=name, scopes=wanted, expires_days=expires_days)
    return row, token


def token_end(token_id: str) -> Token:
    """Revoke a token; again is harmless. Raises Refusal not_found."""
    try:
        row = token_revoke(UUID(token_id))
    except ValueError:
        row = None
    if row is None:
        raise Refusal("not_found", f"There is no token {token_id}.")
    return row


def token_list() -> list[Token]:
    """The newest first, bounded; never with anything a token could be made from."""
    tokens = Token.objects.select_related("user").defer("digest").order_by("-created_at", "-id")
    return list(tokens[: limits.TOKENS_LISTED])


def token_state(token: Token) -> str:
    """valid, expired or revoked."""
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= datetime.now(UTC):
        return "expired"
    return "valid"
