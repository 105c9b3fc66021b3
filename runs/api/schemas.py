"""The bodies of the HTTP contract: exact names, bounds, unknown fields refused. Source of the OpenAPI document."""

from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import ConfigDict, Field, StringConstraints, field_validator

from runs.domain import limits
from runs.services.program_text import check_code, check_inputs

Wait = Annotated[float, Field(ge=0, le=limits.WAIT_MAX_S, description="Seconds to wait for an answer.")]
Timeout = Annotated[
    float, Field(gt=0, le=limits.COMPUTE_MAX_S, description="Seconds of compute time, waiting excluded.")
]
Reason = Annotated[str, StringConstraints(max_length=limits.REASON_CHARS)]


class Body(Schema):
    model_config = ConfigDict(extra="forbid")


class ExecuteIn(Body):
    code: str = Field(min_length=1, description="Python; may stand in a Markdown fence.")
    language: Literal["python"] = "python"
    inputs: dict[str, Any] = Field(default_factory=dict, description="Available to the program as `inputs`.")
    timeout_s: Timeout = limits.COMPUTE_DEFAULT_S
    wait_s: Wait = limits.WAIT_DEFAULT_S

    _code = field_validator("code")(check_code)
    _inputs = field_validator("inputs")(check_inputs)


class RunIn(Body):
    code: str = Field(min_length=1)
    language: Literal["python"] = "python"
    inputs: dict[str, Any] = Field(default_factory=dict)
    timeout_s: Timeout = limits.COMPUTE_DEFAULT_S

    _code = field_validator("code")(check_code)
    _inputs = field_validator("inputs")(check_inputs)


class ResumeIn(Body):
    action: Literal["accept", "decline", "cancel"]
    content: Any = Field(None, description="The answer to a form; must fit its requested_schema.")
    reason: Reason | None = None
    wait_s: Wait = limits.WAIT_DEFAULT_S


class EffectWordIn(Body):
    key: str = Field(max_length=100)
    happened: bool
    result: Any = Field(None, description="What the call would have answered, for a run that goes on.")


class ResolveIn(Body):
    decision: Literal["succeeded", "failed", "go_on", "run_again"]
    reason: Annotated[str, StringConstraints(min_length=1, max_length=limits.REASON_CHARS, strip_whitespace=True)]
    effects: list[EffectWordIn] = Field(default_factory=list, max_length=limits.CALLS_PER_RUN)
    result: Any = Field(None, description="The run's result, for `succeeded`.")


class ErrorDetail(Schema):
    code: str
    message: str
    detail: Any = None
    correlation_id: str


class ErrorOut(Schema):
    error: ErrorDetail


class ProgramError(Schema):
    code: str
    message: str
    line: int | None = None


class EffectCounts(Schema):
    settled: int
    unknown: int


class ExecutionOut(Schema):
    id: str
    kind: Literal["approval", "form", "url"]
    message: str
    tool: str
    args: Any
    requested_schema: Any = None
    url: str | None = None
    expires_at: str
    approve_url: str


class CompletedOut(Schema):
    status: Literal["completed"]
    run_id: str
    result: Any
    logs: list[str]
    emitted: list[Any] | None = None
    truncated: dict[str, Any] | None = None


class FailedOut(Schema):
    status: Literal["failed"]
    run_id: str
    error: ProgramError
    retry_safe: bool
    effects: EffectCounts
    logs: list[str]


class PausedOut(Schema):
    status: Literal["paused"]
    run_id: str
    execution: ExecutionOut
    instructions: str


class RunningOut(Schema):
    status: Literal["running"]
    run_id: str
    events_url: str


class CancelledOut(Schema):
    status: Literal["cancelled"]
    run_id: str


class EffectName(Schema):
    key: str
    tool: str
    state: str


class UnconfirmedOut(Schema):
    status: Literal["unconfirmed"]
    run_id: str
    error: ProgramError
    retry_safe: Literal[False]
    effects: list[EffectName]
    operator_url: str


ResultOut = Annotated[
    CompletedOut | FailedOut | PausedOut | RunningOut | CancelledOut | UnconfirmedOut, Field(discriminator="status")
]


class PauseOut(Schema):
    id: str
    run_id: str
    state: Literal["pending", "settled", "expired"]
    kind: Literal["approval", "form", "url"]
    message: str
    tool: str
    args: Any
    requested_schema: Any = None
    url: str | None = None
    approver: Literal["owner", "staff"]
    created_at: str
    expires_at: str
    approve_url: str
    decision: str | None = None
    reason: str | None = None
    decided_by: str | None = None
    decided_via: str | None = None
    decided_at: str | None = None
    outcome: Any = Field(None, description="The result union of the run's next stop after the decision.")


class CancelOut(Schema):
    run_id: str
    state: str
    stopping: bool


class RunSummary(Schema):
    id: str
    kind: str
    state: str
    origin: str
    owner: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    error_code: str | None
    stopping: bool


class RunPage(Schema):
    runs: list[RunSummary]
    next_cursor: str | None = None


class EventOut(Schema):
    seq: int
    kind: str
    at: str
    data: Any


class EventList(Schema):
    events: list[EventOut]


class EffectOut(Schema):
    key: str
    tool: str
    effect: str
    state: str
    call: int
    args: Any
    reserved_at: str
    settled_at: str | None
    duration_ms: float | None
    ok: bool | None
    status: int | None
    answer: Any


class EffectList(Schema):
    effects: list[EffectOut]


class RunDetail(RunSummary):
    code: str
    inputs: Any
    timeout_s: float
    outcome: Any = None
    pauses: list[PauseOut]
    timeline: list[EventOut]
