"""The first start makes what is missing, the second changes nothing, and what was lost is made good and told."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django_q.models import Schedule

from runs.demo.place import bound_socket, demo_port
from runs.models import Policy, Source, Token
from runs.services.first_start import Site, first_start
from runs.services.tokens import token_state
from runs.store.access import token_digest

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


class Start:
    """One start after the other on one var directory."""

    def __init__(self, var_dir: Path) -> None:
        self.var_dir = var_dir
        self.told: list[str] = []

    def __call__(self, **changes: Any) -> dict[str, Any]:
        self.told = []
        given = {
            "var_dir": self.var_dir,
            "base_url": "http://127.0.0.1:8000",
            "port": 8000,
            "demo": True,
            "demo_port": 0,
        }
        first_start(Site(**(given | changes)), self.told.append)
        return dict(json.loads(self.file.read_text()))

    @property
    def file(self) -> Path:
        return self.var_dir / "credentials.json"


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(tmp_path / "var")


def token_of(text: str) -> Token:
    return Token.objects.get(digest=token_digest(text))


def test_the_first_start_makes_all_there_is_to_know(start: Start) -> None:
    known = start()
    assert list(known) == ["base_url", "username", "password", "token", "operator_token", "demo_url"]
    assert start.file.stat().st_mode & 0o777 == 0o600
    user = User.objects.get()
    assert (known["username"], user.is_superuser, user.is_staff) == ("admin", True, True)
    assert user.check_password(known["password"])
    assert token_of(known["token"]).scopes == ["run"]
    assert token_of(known["operator_token"]).scopes == ["run", "approve", "operate", "admin"]
    assert list(start.var_dir.glob(".credentials*")) == []


def test_the_demo_source_shows_both_ways(start: Start) -> None:
    known = start()
    source = Source.objects.get(name="demo")
    assert source.base_url == known["demo_url"]
    tools = {tool.name: tool.effect for tool in source.tools.filter(granted=True)}
    assert tools == {"get_item": "read", "get_slow": "read", "create_charge": "effect", "create_note": "effect"}
    policies = {policy.pattern: policy.action for policy in Policy.objects.all()}
    assert policies == {"demo.create_note": "allow", "demo.create_charge": "require_approval"}


def test_a_second_start_changes_nothing(start: Start) -> None:
    known = start()
    before = (start.file.stat().st_mtime_ns, Token.objects.count(), Schedule.objects.count(), Policy.objects.count())
    assert start() == known
    assert start.told == []
    after = (start.file.stat().st_mtime_ns, Token.objects.count(), Schedule.objects.count(), Policy.objects.count())
    assert after == before


def test_the_sweep_is_scheduled_once_every_minute(start: Start) -> None:
    start()
    start()
    schedule = Schedule.objects.get()
    assert (schedule.func, schedule.schedule_type, schedule.minutes) == ("runs.jobs.sweep", "I", 1)


def test_a_lost_file_gets_new_tokens_and_the_lost_ones_end(start: Start) -> None:
    lost = start()
    start.file.unlink()
    known = start()
    assert known["token"] != lost["token"]
    assert token_state(token_of(known["token"])) == "valid"
    assert token_state(token_of(lost["token"])) == token_state(token_of(lost["operator_token"])) == "revoked"
    assert known["password"] == ""
    assert any("changepassword admin" in line for line in start.told)
    assert User.objects.get().check_password(lost["password"])


def test_a_broken_file_is_like_a_lost_one(start: Start) -> None:
    start()
    start.file.write_text("{")
    assert token_state(token_of(start()["token"])) == "valid"


def test_a_file_of_another_database_is_made_anew(start: Start) -> None:
    old = start()
    Token.objects.all().delete()
    Source.objects.all().delete()
    User.objects.all().delete()
    known = start()
    assert User.objects.get().check_password(known["password"])
    assert known["token"] != old["token"]
    assert token_state(token_of(known["operator_token"])) == "valid"


def test_a_revoked_token_is_replaced(start: Start) -> None:
    old = start()
    token = token_of(old["token"])
    token.revoked_at = token.created_at
    token.save()
    known = start()
    assert known["token"] != old["token"]
    assert known["operator_token"] == old["operator_token"]


def test_a_password_that_a_person_changed_is_theirs(start: Start) -> None:
    start()
    user = User.objects.get()
    user.set_password("changed by a person")
    user.save()
    assert start()["password"] == ""
    assert User.objects.get().check_password("changed by a person")


def test_an_existing_superuser_is_kept(start: Start) -> None:
    User.objects.create_superuser("root", password="only root knows it")
    known = start()
    assert (known["username"], known["password"]) == ("root", "")
    assert User.objects.count() == 1


def test_nobody_is_made_a_superuser_behind_their_back(start: Start) -> None:
    User.objects.create_user("admin")
    assert start()["username"] == "admin2"
    assert not User.objects.get(username="admin").is_superuser


def test_another_port_shows_in_the_address(start: Start) -> None:
    known = start()
    moved = start(base_url="http://127.0.0.1:9000", port=9000)
    assert moved == known | {"base_url": "http://127.0.0.1:9000"}


def test_a_site_without_demo_has_none(start: Start) -> None:
    assert "demo_url" not in start(demo=False)
    assert not Source.objects.exists()


def test_the_demo_moves_from_a_port_that_somebody_took(start: Start) -> None:
    before = start()["demo_url"]
    with bound_socket(int(before.rpartition(":")[2])):
        moved = start()["demo_url"]
    assert moved != before
    assert Source.objects.get().base_url == moved


def test_a_policy_that_an_admin_changed_is_kept(start: Start) -> None:
    start()
    Policy.objects.filter(pattern="demo.create_note").update(action="block")
    start()
    assert Policy.objects.get(pattern="demo.create_note").action == "block"


def test_the_port_beside_the_sites_own_is_the_first_choice(tmp_path: Path) -> None:
    with bound_socket(0) as taken:
        beside = taken.getsockname()[1] - 1
        other = demo_port(tmp_path / "a", None, beside)
        assert other != beside + 1
    assert demo_port(tmp_path / "b", None, beside) == beside + 1
    with bound_socket(0) as taken, pytest.raises(OSError, match="DEMO_PORT"):
        demo_port(tmp_path / "c", taken.getsockname()[1], 8000)
