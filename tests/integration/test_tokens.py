"""Tokens from the command line: printed alone and once, stored as a digest, scoped, revocable."""

import io
import re

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from runs.domain.codes import Refusal
from runs.models import Token
from runs.services.tokens import token_issue, token_state
from runs.store.access import token_digest

pytestmark = pytest.mark.django_db


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("token", *args, stdout=out)
    return out.getvalue()


def test_the_token_is_printed_alone_and_only_its_digest_is_kept() -> None:
    printed = run("create", "--user", "ann", "--create-user", "--scope", "run", "--scope", "approve")
    assert re.fullmatch(r"exs_[A-Za-z0-9_-]{43}\n", printed)
    token = Token.objects.get()
    assert bytes(token.digest) == token_digest(printed.strip())
    assert (token.user.username, token.scopes, token_state(token)) == ("ann", ["run", "approve"], "valid")
    assert not any(printed.strip() in str(value) for value in vars(token).values())


def test_a_made_user_cannot_log_in() -> None:
    run("create", "--user", "ann", "--create-user")
    user = User.objects.get(username="ann")
    assert not user.has_usable_password()
    assert (user.is_staff, user.is_superuser) == (False, False)


def test_an_existing_user_is_left_as_they_are() -> None:
    User.objects.create_user("ann", password="long-enough-password", is_staff=True)
    run("create", "--user", "ann", "--create-user")
    user = User.objects.get()
    assert user.is_staff
    assert user.check_password("long-enough-password")


@pytest.mark.parametrize(
    "args",
    [
        ("--user", "nobody"),
        ("--user", "ann", "--scope", "everything"),
        ("--user", "ann", "--expires-days", "0"),
        ("--user", "ann", "--expires-days", "99999"),
        ("--user", "ann", "--name", "x" * 101),
        ("--user", "gone"),
        ("--user", "", "--create-user"),
    ],
)
def test_what_cannot_be_issued_is_an_error_and_nothing_is_stored(args: tuple[str, ...]) -> None:
    User.objects.create_user("ann")
    User.objects.create_user("gone", is_active=False)
    with pytest.raises(CommandError):
        run("create", *args)
    assert not Token.objects.exists()


def test_a_token_expires_by_the_databases_clock() -> None:
    run("create", "--user", "ann", "--create-user", "--expires-days", "3")
    token = Token.objects.get()
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).total_seconds() == pytest.approx(3 * 86_400, abs=60)


def test_revoking_is_final_and_repeatable() -> None:
    run("create", "--user", "ann", "--create-user")
    token = Token.objects.get()
    run("revoke", str(token.pk))
    token.refresh_from_db()
    first = token.revoked_at
    run("revoke", str(token.pk))
    token.refresh_from_db()
    assert (token_state(token), token.revoked_at) == ("revoked", first)
    for unknown in ("nonsense", "00000000-0000-4000-8000-000000000000"):
        with pytest.raises(CommandError):
            run("revoke", unknown)


def test_the_list_names_every_token_and_shows_none() -> None:
    printed = run("create", "--user", "ann", "--create-user", "--name", "laptop").strip()
    listed = run("list")
    assert "ann" in listed
    assert "laptop" in listed
    assert printed not in listed


def test_a_token_has_a_scope() -> None:
    User.objects.create_user("ann")
    with pytest.raises(Refusal):
        token_issue(username="ann", scopes=[])
