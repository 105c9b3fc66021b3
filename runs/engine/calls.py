"""One tool call on its way: what it is, whether it may be made, and where it stands.

`classify` decides before anything is asked or sent: unknown tools, wrong arguments and policies end here.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.domain.effects import Approver, CallSite, EffectClass, PolicyAction, effect_key
from runs.drivers.base import Answer, Called, Raised, Returned
from runs.engine import answers, builtins
from runs.engine.checkpoint import CallRecord
from runs.engine.context import RunIdentity
from runs.tools.arguments import ArgumentsInvalid, validate_arguments
from runs.tools.base import ToolSpec
from runs.tools.bounds import MAX_ARGUMENTS_BYTES
from runs.tools.catalog import Catalog
from runs.tools.values import NotJSON, to_json_beside

NO_IO = "programs have no files, environment or network of their own; every effect is a tool call"


@dataclass(slots=True)
class Question:
    """What a person is asked about a call."""

    kind: str
    message: str
    approver: Approver
    schema: dict[str, Any] | None = None
    url: str | None = None
    pause_id: UUID | None = None
    """Set once it is a row."""
    expires_at: str | None = None


@dataclass(slots=True)
class Call:
    record: CallRecord
    classified: bool = False
    spec: ToolSpec | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    answer: Answer | None = None
    question: Question | None = None
    sleep_s: float | None = None
    task: "asyncio.Task[None] | None" = None
    lost: str | None = None
    """Why nobody knows whether this call happened."""

    @property
    def index(self) -> int:
        return self.record.index

    @property
    def must_start(self) -> bool:
        """A tool call that was let through and has not been sent by us yet."""
        return self.spec is not None and not (self.answer or self.question or self.task or self.lost)

    @property
    def is_read(self) -> bool:
        return self.spec is not None and self.spec.effect is EffectClass.READ


def unknown_name(step: Called) -> Raised | None:
    """The error for a plain name that is neither a built-in of ours nor anything else: no argument is looked at."""
    if "." in step.name or step.is_os or step.name in builtins.NAMES:
        return None
    return Raised("NameError", f"name {step.name!r} is not defined; find tools with search_tools(query)")


async def record_of(step: Called) -> CallRecord | Raised:
    """The call with its arguments as JSON; a value that has no JSON form is the program's error."""
    try:
        return CallRecord(
            step.index,
            step.name,
            [await _json(value) for value in step.args],
            {name: await _json(value) for name, value in step.kwargs.items()},
        )
    except NotJSON as error:
        return Raised("TypeError", f"invalid_arguments: {step.name}: {error}")


async def _json(value: object) -> Any:
    return await to_json_beside(value, at_once_bytes=limits.VALUE_AT_ONCE_BYTES, max_bytes=MAX_ARGUMENTS_BYTES)


def classify(call: Call, identity: RunIdentity, catalog: Catalog, *, approved: bool) -> None:
    """Decide what the call is. `approved`: a person has accepted this very call before."""
    call.classified = True
    name, record = call.record.name, call.record
    if name in ("time.sleep", "asyncio.sleep"):
        name = "sleep"
    if name in builtins.NAMES:
        _classify_builtin(call, builtins.call(name, record.args, record.kwargs, catalog))
        return
    spec = catalog.find(name)
    if spec is None:
        known = name.partition(".")[0] in catalog.sources
        text = builtins.not_found(name, catalog) if known else NO_IO
        call.answer = Raised("AttributeError" if known else "PermissionError", text)
        return
    try:
        call.arguments = validate_arguments(spec, record.args, record.kwargs)
    except ArgumentsInvalid as error:
        call.answer = Raised("TypeError", f"invalid_arguments: {error.message}")
        return
    decision = catalog.decision(spec)
    if decision.action is PolicyAction.BLOCK:
        call.answer = answers.refused("tool_blocked", f"{spec.address} is blocked by a policy")
        return
    call.spec = spec
    site = CallSite(identity.lineage.hex, 0, call.index, spec.address)
    call.key = effect_key(site, call.arguments)
    if decision.action is PolicyAction.REQUIRE_APPROVAL and not approved and identity.auto_approved_by is None:
        call.question = Question("approval", f"Allow {spec.address}?", decision.approver)


def _classify_builtin(call: Call, served: object) -> None:
    match served:
        case builtins.Question():
            call.question = Question(served.kind, served.message, Approver.OWNER, served.schema, served.url)
        case builtins.Sleep():
            call.sleep_s = served.seconds
        case Returned() | Raised():
            call.answer = served
        case _:
            raise TypeError(f"a built-in answered {served!r}")


def redacted(call: Call) -> dict[str, Any]:
    """What is kept and shown of the arguments: those marked as secret are not."""
    sensitive = call.spec.sensitive if call.spec is not None else frozenset()
    return {name: "[redacted]" if name in sensitive else value for name, value in call.arguments.items()}


def decided(call: Call, pause: dict[str, Any]) -> bool:
    """Take a person's decision on the call's question. True: the call itself may now be made."""
    decision = pause["decision"]
    if decision == "accept":
        if pause["kind"] == "approval":
            return True
        call.answer = Returned(pause["content"] if pause["kind"] == "form" else True)
    else:
        code = "approval_expired" if decision == "expired" else "approval_declined"
        text = {
            "expired": "nobody decided in time",
            "decline": "a person declined",
            "cancel": "a person cancelled the question",
            "withdrawn": "the question was withdrawn",
        }[decision]
        if pause.get("reason"):
            text += f": {pause['reason']}"
        call.answer = answers.refused(code, f"{pause['tool']}: {text}")
    call.classified = True
    call.question = None
    return False
