"""Every bound of the product, with its reason. Pure numbers; settings may lower or raise those marked (setting).

Units are in the names: _S seconds, _MS milliseconds, _BYTES bytes; the others count things.
"""

# -- programs ------------------------------------------------------------------------------------------------
CODE_BYTES = 1_000_000
"""Source text: far beyond what an agent writes, small enough to keep in a row and show on a page."""
CODE_READ_AT_ONCE_CHARS = 20_000
"""Source text up to this is read on the event loop (a few ms); a longer one in a thread."""
VALUE_AT_ONCE_BYTES = 50_000
"""A value up to this is turned into JSON on the event loop (about 10 ms); a larger one in a thread."""
INPUTS_BYTES = 1_000_000
COMPUTE_DEFAULT_S = 30.0
"""Compute time of a run, waiting excluded: as long as a caller will sit through."""
COMPUTE_MAX_S = 300.0
MEMORY_BYTES = 128_000_000
"""Sandbox heap. Monty's own worker needs 14 MB; 60 attack programs stayed under it (notes/monty.md)."""
RECURSION_DEPTH = 500
CALLS_PER_RUN = 1_000
"""Tool calls of a run over all its attempts; counted by us because a restore resets Monty's own count."""
CALLS_IN_FLIGHT = 32
"""Concurrent tool calls of one run: an agent's gather over a list must not exhaust the upstream."""
RESULT_BYTES = 1_000_000
"""A result over this ends the run with `result_too_large`; SSE events must stay under 1 MiB (notes/mcp-clients.md)."""
OUTPUT_KEPT_BYTES = 16_000_000
"""What is kept behind a handle of a result or log that was cut."""
LOG_BYTES = 64_000
"""Printed text in an answer; the rest is kept behind a handle up to LOG_KEPT_BYTES."""
LOG_KEPT_BYTES = 1_000_000
LOG_TOTAL_BYTES = 10_000_000
"""A program that prints more than this is ended with `output_limit_exceeded`."""
EMITTED_BYTES = 256_000
EMITTED_COUNT = 1_000
VALUE_DEPTH = 100
"""Nesting of any JSON value that crosses the sandbox's border."""
CHECKPOINT_BYTES = 32_000_000
"""A snapshot: a quarter of the sandbox's memory; larger state cannot be paused and fails with a code."""
SLEEP_MAX_S = 30 * 86_400.0
SLEEP_INLINE_S = 1.0
"""A sleep up to this keeps its sandbox; a longer one is checkpointed and gives it back."""
SESSION_HOLD_S = 0.25
"""A tool call slower than this gives the sandbox session back while it waits (a worker process is 14 MB)."""

# -- tool calls ----------------------------------------------------------------------------------------------
CALL_TIMEOUT_S = 60.0
"""One upstream call, from connect to the last byte."""
ERROR_MESSAGE_CHARS = 2_000

# -- pauses --------------------------------------------------------------------------------------------------
PAUSE_EXPIRES_S = 30 * 86_400
"""A question nobody answers for a month is refused by the sweep (setting)."""
PAUSES_PER_RUN = 200
MESSAGE_CHARS = 2_000
CONTENT_BYTES = 100_000
REASON_CHARS = 2_000

# -- processes and leases ------------------------------------------------------------------------------------
LEASE_S = 20.0
"""How long a silent process of another host keeps its runs; a dead one of this host is known at once."""
SEND_WITHIN_S = 10.0
"""A call is not sent if this passed since its reserve was committed: half a lease, so a process that was
stopped (SIGSTOP, a frozen VM) and woke up cannot send what the reaper already called unknown."""
DATABASE_AWAY_S = 15.0
"""How long a run in the middle waits for a lost database: less than a lease, so it is still ours when it is back."""
HOUSEKEEPING_S = 1.0
"""How often a process renews its leases and looks for requests to stop: a twentieth of the lease."""
ATTEMPTS_BEFORE_GATE = 5
ATTEMPTS_AFTER_CRASH = 10
"""Resumes of one run after lost hosts before it is given up: a program that kills its host must not do so for ever."""
SHUTDOWN_S = 5.0
"""A scope's end: interrupt, unwind, suspend. Calls in flight get what is left of their own time-out on top."""
DRAIN_S = 20.0

# -- waiting -------------------------------------------------------------------------------------------------
WAIT_DEFAULT_S = 120.0
"""How long POST /executions and …/resume wait for an answer before they say `running`."""
WAIT_MAX_S = 600.0
CATCH_UP_S = 1.0
"""The poll behind LISTEN/NOTIFY: a lost wake-up costs this much."""
SSE_HEARTBEAT_S = 15.0
"""Proxies and clients drop silent streams after 30 to 300 s (notes/mcp-clients.md)."""
SSE_QUEUE = 100
SSE_STREAMS_PER_PROCESS = 1_000

# -- HTTP ----------------------------------------------------------------------------------------------------
BODY_BYTES = 4_000_000
"""A request body: code and inputs of a megabyte each, escaped."""
SOURCE_BODY_BYTES = 40_000_000
"""POST /sources: a 16 MB document inside JSON escapes."""
PAGE_DEFAULT = 50
PAGE_MAX = 200
QUERY_CHARS = 500
IDEMPOTENCY_KEY_CHARS = 200
RATE_PER_MINUTE = 60_000
"""Requests of one principal in one process (setting): above what the fastest client measured here can do."""
INLINE_PER_PROCESS = 64
"""Inline executions at once in one web process; the next one is told to come back (setting)."""

# -- retention -----------------------------------------------------------------------------------------------
RETENTION_DAYS = 90
"""Finished runs keep code, result, events and checkpoint this long (setting); ids and outcomes' kinds stay."""
SWEEP_BATCH = 200
"""Rows one sweep transaction touches: short locks, and a sweep that dies loses little."""

# -- tokens --------------------------------------------------------------------------------------------------
TOKEN_DAYS_MAX = 3_650
"""Ten years: longer is "never", which is said by giving no expiry."""
TOKENS_LISTED = 1_000
"""Of `manage.py token list`: more do not fit a terminal."""
NAME_CHARS = 100
"""A name that a person gives to a token or a connection."""
USERNAME_CHARS = 150
"""Django's own bound."""

# -- sources, connections, policies --------------------------------------------------------------------------
IMPORT_HERE_BYTES = 256_000
"""A document up to this is imported in a thread (about 0.2 s of compute); a larger one in a process of its own,
because threads share the interpreter with every request."""
IMPORT_TIMEOUT_S = 120.0
"""One import with its commit: a 16 MB document needs 15 to 20 s on two busy cores."""
IMPORTS_WAITING = 4
"""Imports that wait for the one that runs; the next is told to come back."""
IMPORT_MEMORY_BYTES = 4_000_000_000
"""Address space of an importing process; a 16 MB document has 0.35 GB resident."""
URL_CHARS = 2_000
SOURCE_NAME_CHARS = 63
"""A module's name in agent code; also the column's width."""
SHOWN_DESCRIPTION_CHARS = 300
"""Of a tool in a list; the whole description is at the tool itself."""
SECRETS_PER_CONNECTION = 20
"""Security schemes of one source: documents declare one to five."""
SECRET_CHARS = 16_000
"""One secret: long enough for a signed token or a key file."""
POSITION_MAX = 1_000_000
POLICIES = 2_000
"""Policies of a site: every call of a tool for the first time walks all of them."""
OFFSET_MAX = 1_000_000
