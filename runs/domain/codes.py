"""The error registry: one frozen row a code. Retry policy, metrics category, alert route, headline, HTTP status
and `retry_safe` are derived from it and written nowhere else.

Pure. Rule: spec/design.md, "The error registry". `Retry` has no value that means "after the gate".
"""

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    USER = "user"
    TRANSIENT = "transient"
    INFRA = "infra"
    CRASH = "crash"
    POLICY = "policy"


class Retry(StrEnum):
    NEVER = "never"
    BEFORE_GATE = "before_gate"


class Alert(StrEnum):
    NONE = "none"
    OPS = "ops"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Code:
    name: str
    category: Category
    headline: str
    operator_action: str
    http: int
    retry: Retry = Retry.NEVER
    alert: Alert = Alert.NONE
    retry_safe: bool = False
    """For an answer that is not a run's: whether sending the same request again can do no harm.
    A run's own answer takes it from the ledger instead."""


_NOTHING = "Nothing to do; the caller corrects the request."
_PROGRAM = "Nothing to do; the program's author reads the message and the line."

_U, _T, _I, _C, _P = Category.USER, Category.TRANSIENT, Category.INFRA, Category.CRASH, Category.POLICY

_ROWS: tuple[Code, ...] = (
    # Requests
    Code("invalid_json", _U, "The body is not JSON", _NOTHING, 400, retry_safe=True),
    Code("invalid_request", _U, "The request does not fit the contract", _NOTHING, 422, retry_safe=True),
    Code("invalid_cursor", _U, "The page cursor is not one of ours", _NOTHING, 400, retry_safe=True),
    Code("unauthorized", _U, "No valid credentials", "Issue a token or log in.", 401, retry_safe=True),
    Code("forbidden", _U, "Not allowed", "Grant the scope or role if it should be.", 403, retry_safe=True),
    Code(
        "insufficient_scope",
        _U,
        "The token lacks a scope",
        "Issue a token with it if it should.",
        403,
        retry_safe=True,
    ),
    Code("csrf_failed", _U, "The CSRF check failed", _NOTHING, 403, retry_safe=True),
    Code("not_found", _U, "There is no such thing here", _NOTHING, 404, retry_safe=True),
    Code("method_not_allowed", _U, "The method is not served here", _NOTHING, 405, retry_safe=True),
    Code("idempotency_conflict", _U, "This idempotency key named another request", _NOTHING, 409),
    Code("decided_differently", _U, "The pause was decided otherwise", "See who decided and when.", 409),
    Code("state_conflict", _U, "The run's state does not allow this", "Reload the run and look again.", 409),
    Code("name_taken", _U, "The name is in use", _NOTHING, 409),
    Code(
        "pause_expired",
        _P,
        "The pause expired before a decision",
        "Ask for the run again if it is still wanted.",
        410,
    ),
    Code(
        "already_settled",
        _U,
        "Settled long ago; its data was removed by retention",
        "See the audit trail.",
        410,
    ),
    Code("payload_too_large", _U, "The body is over the limit", _NOTHING, 413, retry_safe=True),
    Code("unsupported_media_type", _U, "The body must be JSON", _NOTHING, 415, retry_safe=True),
    Code(
        "content_invalid",
        _U,
        "The content does not fit the requested schema; the pause stays open",
        _NOTHING,
        422,
        retry_safe=True,
    ),
    Code(
        "rate_limited",
        _T,
        "Too many requests",
        "Raise RATE_PER_MINUTE if the caller is right.",
        429,
        retry_safe=True,
    ),
    Code(
        "unavailable",
        _T,
        "Not able to take work now",
        "See /readyz: draining, or the database is away.",
        503,
        alert=Alert.OPS,
        retry_safe=True,
    ),
    Code(
        "overloaded",
        _T,
        "All places for inline runs are taken",
        "Add web processes or raise INLINE_PER_PROCESS.",
        503,
        alert=Alert.OPS,
        retry_safe=True,
    ),
    Code(
        "internal_error",
        _C,
        "An unexpected error",
        "Find the correlation id in the log.",
        500,
        alert=Alert.PAGE,
    ),
    # Sources
    Code(
        "spec_invalid",
        _U,
        "The document is not an OpenAPI document we can read",
        _NOTHING,
        422,
        retry_safe=True,
    ),
    Code(
        "spec_unsupported",
        _U,
        "This kind or version of document is not supported",
        _NOTHING,
        422,
        retry_safe=True,
    ),
    Code("spec_too_large", _U, "The document is over the limit", _NOTHING, 413, retry_safe=True),
    Code(
        "spec_unreachable",
        _T,
        "The document could not be fetched",
        "Check the address from this host.",
        422,
        retry_safe=True,
    ),
    Code(
        "address_refused",
        _P,
        "The address is private, loopback or link-local",
        "List it in UPSTREAM_ALLOW if it is meant.",
        422,
        retry_safe=True,
    ),
    # Programs
    Code("syntax_error", _U, "The program has a syntax error", _PROGRAM, 200, retry_safe=True),
    Code(
        "unsupported_construct",
        _U,
        "The program uses Python that is not supported here",
        _PROGRAM,
        200,
        retry_safe=True,
    ),
    Code("program_error", _U, "The program raised an error", _PROGRAM, 200),
    Code("result_not_json", _U, "The result is not JSON", _PROGRAM, 200),
    Code("result_too_large", _U, "The result is over the limit", _PROGRAM, 200),
    Code("output_limit_exceeded", _U, "The program printed too much", _PROGRAM, 200),
    Code(
        "compute_time_exceeded",
        _U,
        "The program used up its compute time",
        "Raise timeout_s if it is right.",
        200,
    ),
    Code("memory_exceeded", _U, "The program used up its memory", _PROGRAM, 200),
    Code("recursion_exceeded", _U, "The program recursed too deeply", _PROGRAM, 200),
    Code("too_many_calls", _U, "The program made too many tool calls", _PROGRAM, 200),
    Code("checkpoint_too_large", _U, "The program's state is too large to pause", _PROGRAM, 200),
    # Tools
    Code("tool_not_found", _U, "There is no such tool", _PROGRAM, 200),
    Code("invalid_arguments", _U, "The arguments do not fit the tool's schema", _PROGRAM, 200),
    Code("tool_blocked", _P, "A policy blocks this tool", "Change the policy if it should be allowed.", 200),
    Code("approval_declined", _P, "A person declined the call", "See who and why in the timeline.", 200),
    Code("approval_expired", _P, "Nobody approved the call in time", "See the pending approvals' ages.", 200),
    Code(
        "connection_missing",
        _U,
        "The tool needs a connection that is not there",
        "Add the connection for its source.",
        200,
    ),
    Code(
        "upstream_error",
        _T,
        "The tool's service answered with an error",
        "See the status and the service's own log.",
        200,
    ),
    Code("upstream_timeout", _T, "The tool's service did not answer in time", "Check the service.", 200),
    Code(
        "upstream_unreachable",
        _T,
        "The tool's service could not be reached",
        "Check the address and the network.",
        200,
        alert=Alert.OPS,
    ),
    Code(
        "tool_failed",
        _C,
        "The tool itself failed",
        "Find the correlation id in the log.",
        200,
        alert=Alert.OPS,
    ),
    # Runs and hosts
    Code(
        "attempts_exhausted",
        _I,
        "It never got to start",
        "Check sandboxes and workers, then run it again.",
        200,
        alert=Alert.OPS,
    ),
    Code(
        "sandbox_start_failed",
        _I,
        "The sandbox did not start; nothing has run",
        "Check the host; the machine tries again.",
        200,
        Retry.BEFORE_GATE,
        Alert.OPS,
    ),
    Code(
        "sandbox_crashed",
        _C,
        "The sandbox died in the middle",
        "Look at the host's memory; settled effects are in the ledger.",
        200,
        alert=Alert.OPS,
    ),
    Code(
        "sandbox_liveness_unconfirmed",
        _C,
        "It may still be running",
        "Verify the sandbox, then resolve the run.",
        200,
        alert=Alert.PAGE,
    ),
    Code(
        "checkpoint_invalid",
        _C,
        "The stored checkpoint failed its check",
        "Do not resume; compare keys and backups.",
        200,
        alert=Alert.PAGE,
    ),
    Code(
        "effect_unknown",
        _C,
        "An effect may or may not have happened",
        "Ask the tool's service, then resolve the run.",
        200,
        alert=Alert.PAGE,
    ),
    Code(
        "server_restart",
        _C,
        "The server went away in the middle",
        "See the ledger for what was sent.",
        200,
        alert=Alert.OPS,
    ),
    Code("resolved_failed", _P, "An operator accepted it as failed", "See the reason in the timeline.", 200),
)

CODES: dict[str, Code] = {row.name: row for row in _ROWS}
RUN_CODES: tuple[str, ...] = tuple(sorted(row.name for row in _ROWS if row.http == 200))
"""The codes a run may carry; the database's CHECK lists the same names."""


class UnknownCode(LookupError):
    """A code that is not in the registry was used: a defect of ours."""


def code(name: str) -> Code:
    try:
        return CODES[name]
    except KeyError:
        raise UnknownCode(name) from None


def retry_allowed(name: str, *, started: bool, worker_setting: bool = True) -> bool:
    """Whether the machine may try again: never after the gate; a worker's own setting can only narrow it."""
    return not started and code(name).retry is Retry.BEFORE_GATE and worker_setting


def code_of_stage(*, started: bool) -> str:
    """The code of an unexpected exception comes from the stage it struck in, never from its class."""
    return "sandbox_liveness_unconfirmed" if started else "sandbox_start_failed"


class Refusal(Exception):
    """A request answered with a code of the registry instead of a result.

    The message is public: no secret, path or traceback. `detail` is JSON for a machine.
    """

    def __init__(
        self,
        code_name: str,
        message: str | None = None,
        detail: object = None,
        retry_after_s: int | None = None,
    ) -> None:
        self.code = code(code_name)
        self.message = message or self.code.headline
        self.detail = detail
        self.retry_after_s = retry_after_s
        super().__init__(f"{code_name}: {self.message}")
