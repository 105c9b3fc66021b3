"""What a fresh site needs before its first request: an admin, two tokens, the demo source, the periodic sweep.

Repeatable: whatever is there and works is left alone, whatever is missing is made, and each repair is told. A lost
`credentials.json` gets new tokens (the lost ones end); a person's password is never changed.
"""

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runs.demo.place import HOST, demo_port, document
from runs.domain import limits
from runs.models import Token
from runs.services.credentials_file import NAME, credentials_read, credentials_write
from runs.services.tokens import make_token, token_state
from runs.store.access import token_digest
from runs.store.catalog import Imported
from runs.store.first_start import demo_create, demo_move
from runs.store.schedules import schedule_ensure
from runs.store.tokens import token_store, tokens_revoke_named
from runs.store.users import superuser_create, superuser_first, user_find
from runs.tools.openapi import import_document

if TYPE_CHECKING:
    from django.contrib.auth.models import User

DEMO = "demo"
ADMIN = "admin"
SCOPES = {"token": ["run"], "operator_token": ["run", "approve", "operate", "admin"]}
"""The tokens by their key in the file. The first cannot approve: an agent must not decide its own calls."""
SWEEP, SWEEP_MINUTES = "runs.jobs.sweep", 1
_PASSWORD_BYTES = 15
"""120 bits, 20 characters: long for a guesser, short enough to type once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the settings say of this site."""

    var_dir: Path
    base_url: str
    port: int
    demo: bool
    demo_port: int | None


def first_start(site: Site, tell: Callable[[str], object]) -> dict[str, str]:
    """What the file holds now. Each step commits by itself, and a start that was cut off is completed by the next."""
    site.var_dir.mkdir(parents=True, exist_ok=True)
    before = credentials_read(site.var_dir)
    user, password = _admin(before, tell)
    content = {"base_url": site.base_url, "username": user.get_username(), "password": password}
    for key, scopes in SCOPES.items():
        content[key] = _token(user, key, scopes, before.get(key, ""), tell)
    if site.demo:
        content["demo_url"] = _demo(site, user.pk, tell)
    schedule_ensure(function=SWEEP, minutes=SWEEP_MINUTES)
    if content != before:
        credentials_write(site.var_dir, content)
        tell(f"Wrote {site.var_dir / NAME}")
    return content


def _admin(before: dict[str, str], tell: Callable[[str], object]) -> tuple["User", str]:
    """The superuser and the password, which is empty where only the person knows it."""
    known = user_find(before["username"]) if "username" in before else None
    user = known if known is not None and known.is_superuser and known.is_active else superuser_first()
    if user is None:
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        user = superuser_create(_free_name(), password)
        tell(f"Made the superuser {user.get_username()!r}")
        return user, password
    name, password = user.get_username(), before.get("password", "")
    if before.get("username") == name and password and user.check_password(password):
        return user, password
    # Each time: without it the banner shows an empty password and does not say why.
    tell(f"The password of {name!r} is not known here. To set a new one: python manage.py changepassword {name}")
    return user, ""


def _free_name() -> str:
    """Never somebody's who is there already: a user is not made a superuser behind their back."""
    name, number = ADMIN, 1
    while user_find(name) is not None:
        number += 1
        name = f"{ADMIN}{number}"
    return name


def _token(user: "User", key: str, scopes: list[str], token: str, tell: Callable[[str], object]) -> str:
    """The file's token if it still works, else a new one; others of ours that nobody has any more are ended."""
    if token:
        row = Token.objects.filter(digest=token_digest(token), user=user).first()
        if row is not None and token_state(row) == "valid" and row.scopes == scopes:
            return token
    # With the host's name: another host over the same database keeps its own pair.
    name = f"first start: {key} ({socket.gethostname()})"[: limits.NAME_CHARS]
    ended = tokens_revoke_named(user.pk, name)
    token = make_token()
    token_store(token=token, user_id=user.pk, name=name, scopes=scopes, expires_days=None)
    if ended:
        tell(f"Made a new {key} and revoked the one that was lost")
    return token


def _demo(site: Site, by: int, tell: Callable[[str], object]) -> str:
    """The demo's address. Raises OSError where an asked-for DEMO_PORT is taken."""
    url = f"http://{HOST}:{demo_port(site.var_dir, site.demo_port, site.port)}"
    found = import_document(document(), source=DEMO, base_url=url)
    if demo_create(name=DEMO, imported=Imported(found.tools, found.title, found.base_url, found.security), by=by):
        tell(f"Made the source {DEMO!r} for {url}")
    elif demo_move(name=DEMO, base_url=url):
        tell(f"The source {DEMO!r} is at {url} now")
    return url
