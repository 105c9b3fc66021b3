"""Rows for tests of pages, through Django's own connection (`db`): any state can be the start.

Past the triggers, not past the constraints: what the database could never hold is not shown either.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.utils import timezone

from runs.domain.states import CODED, HELD, NOT_STARTED, TERMINAL, RunState
from runs.models import Attempt, Effect, Event, PausedExecution, Process, Run, SettledOutcome


@contextlib.contextmanager
def past_the_triggers() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("SET session_replication_role = origin")


def user(
    name: str,
    *,
    staff: bool = False,
    superuser: bool = False,
    operates: bool = False,
) -> User:
    """Without a password: hashing one takes half a second."""
    made = User.objects.create_user(name, is_staff=staff or superuser, is_superuser=superuser)
    if operates:
        made.user_permissions.add(Permission.objects.get(codename="operate_run"))
    return made


PASSWORD = "correct horse battery"


def process() -> Process:
    return Process.objects.create(role="web", host="host-1", boot_id="boot", pid_namespace=1, pid=4242, started_ticks=1)


def run(owner: User, state: str = "running", *, created: datetime | None = None, **columns: Any) -> Run:
    now = timezone.now()
    kind = RunState(state)
    run_id = columns.pop("id", uuid4())
    code = columns.pop("error_code", "program_error" if kind in CODED else None)
    made = Run(
        id=run_id,
        state=state,
        owner=owner,
        lineage=run_id,
        created_at=created or now - timedelta(minutes=3),
        updated_at=now,
        timeout_s=30,
        error_code=code,
        command_started_at=None if kind in NOT_STARTED else now - timedelta(minutes=3),
        finished_at=now if kind in TERMINAL else None,
        process=process() if kind in HELD else None,
        lease_expires_at=now + timedelta(minutes=1) if kind in HELD else None,
        **{"origin": "inline", "code": "1 + 1", "event_seq": 1, **columns},
    )
    with past_the_triggers():
        made.save(force_insert=True)
    return made


def events(of: Run, *kinds: tuple[str, dict[str, Any]]) -> None:
    for seq, (kind, data) in enumerate(kinds, start=1):
        Event.objects.create(run=of, seq=seq, kind=kind, data=data)


def outcome(of: Run, body: dict[str, Any]) -> SettledOutcome:
    made = SettledOutcome.objects.create(run=of, seq=of.event_seq, status=body["status"], body=body)
    with past_the_triggers():
        Run.objects.filter(id=of.id).update(outcome=made)
    of.outcome = made
    return made


def pause(of: Run, **columns: Any) -> PausedExecution:
    now = timezone.now()
    return PausedExecution.objects.create(
        run=of,
        **{
            "call_index": 1,
            "kind": "approval",
            "tool": "demo.create_charge",
            "args": {"amount": 5, "ref": "A-1"},
            "message": "Allow demo.create_charge?",
            "approver": "owner",
            "created_at": now - timedelta(minutes=2),
            "expires_at": now + timedelta(days=1),
            **columns,
        },
    )


def effect(of: Run, index: int = 1, **columns: Any) -> Effect:
    return Effect.objects.create(
        run=of,
        **{
            "key": f"{of.id.hex[:8]}-0-{index}-{uuid4().hex}",
            "epoch": 1,
            "call_index": index,
            "tool": "demo.create_charge",
            "effect": "effect",
            "args": {"amount": 5},
            "state": "settled",
            "settled_at": timezone.now(),
            "answer": {"kind": "succeeded", "value": {"id": index}},
            "ok": True,
            "status": 201,
            "duration_ms": 12.5,
            **columns,
        },
    )


def attempt(of: Run, epoch: int = 1) -> Attempt:
    return Attempt.objects.create(run=of, epoch=epoch, process=process(), ended_at=timezone.now(), ended_by="pause")
