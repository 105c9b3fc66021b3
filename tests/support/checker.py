"""The invariants, checked from outside: rows against the sink's file, the process table and the callers' transcript.

`violations(site)` may be asked at any time; `assert_sound(site)` first gives what is on its way a bounded time to
arrive. Nothing in here asks the product: it reads what the world saw.
"""

from collections import defaultdict
from typing import Any

from runs.domain.states import HELD, TERMINAL
from runs.drivers.identity import started_ticks
from tests.support.site import Site, eventually

RECOVERY_S = 10.0
"""How long after a crash a run may be neither final, nor paused, nor worked on."""
CLOCKS_S = 0.005
"""One machine, one clock; statement_timestamp and time.time() round differently."""
FINAL = {state.value for state in TERMINAL}
_HELD = {state.value for state in HELD}

_RUNS = """
SELECT r.id::text, r.state, r.epoch, r.event_seq, r.wake_at, r.error_code, r.purged_at,
    r.lease_expires_at > now() AS leased, p.pid, p.started_ticks, o.status AS outcome, o.body AS outcome_body
FROM runs_run r LEFT JOIN runs_process p ON p.id = r.process_id
    LEFT JOIN runs_settledoutcome o ON o.id = r.outcome_id"""
_EFFECTS = """
SELECT key, run_id::text AS run, tool, effect, honours_key, state, answer,
    extract(epoch FROM reserved_at)::float8 AS reserved_at FROM runs_effect WHERE effect <> 'read'"""


def assert_sound(site: Site, *, within_s: float = RECOVERY_S, errors: bool = True) -> None:
    """Every run has come to rest, and no promise is broken. `errors`: no process reported a defect either."""
    try:
        eventually(lambda: not _fresh(site, restless(site)), within_s, "every run comes to rest")
    except AssertionError as late:
        found = _fresh(site, restless(site))
        site.reported.update(found)
        raise AssertionError("\n".join(found)) from late
    found = violations(site) + (site.logged_errors() if errors else [])
    fresh = _fresh(site, found)
    site.reported.update(found)
    assert not fresh, "\n".join(fresh[:20])


def _fresh(site: Site, found: list[str]) -> list[str]:
    """Those that no earlier test of a shared site was failed for."""
    return [one for one in found if one not in site.reported]


def restless(site: Site) -> list[str]:
    """Runs that are neither final, nor paused, nor asleep, nor held by a living process."""
    found = []
    for run in site.rows(_RUNS):
        held = run["state"] in _HELD and run["leased"] and _lives(run)
        if not (held or run["state"] in FINAL or run["state"] == "paused" or run["wake_at"] is not None):
            found.append(f"run {run['id']} is {run['state']} and nobody works on it")
    return found


def _lives(run: dict[str, Any]) -> bool:
    return run["pid"] is not None and started_ticks(run["pid"]) == run["started_ticks"]


def violations(site: Site) -> list[str]:
    runs = {run["id"]: run for run in site.rows(_RUNS)}
    effects = {effect["key"]: effect for effect in site.rows(_EFFECTS)}
    return [
        *_sent_at_most_once(site, effects),
        *_reserved_before_sent(site, effects),
        *_told_as_it_was(site, effects),
        *_closed_when_final(site, runs),
        *_whole_histories(site, runs),
        *_acknowledged(site, runs),
        *(f"an orphan: {seen}" for seen in site.orphans()),
    ]


def _only_once(effect: dict[str, Any]) -> bool:
    """Not one of those that the machine may send again under the same key."""
    return effect["effect"] == "effect" and not effect["honours_key"]


def _sent_at_most_once(site: Site, effects: dict[str, Any]) -> list[str]:
    """By key, and by what the test named it: a key that changes between two sends hides nothing."""
    by_key, by_ref = defaultdict(list), defaultdict(list)
    for line in site.sink.lines():
        effect = effects.get(line["key"])
        if line["kind"] in ("effect", "put"):
            by_ref[line["ref"]].append(line)
            if effect is not None and _only_once(effect):
                by_key[line["key"]].append(line)
    found = [f"key {key} was sent {len(lines)} times" for key, lines in by_key.items() if len(lines) > 1]
    for ref, lines in by_ref.items():
        if len({line["key"] for line in lines}) > 1:
            found.append(f"{ref} was sent under {len({line['key'] for line in lines})} keys")
    return found


def _reserved_before_sent(site: Site, effects: dict[str, Any]) -> list[str]:
    found = []
    for line in site.sink.lines():
        if line["kind"] not in ("effect", "put"):
            continue
        effect = effects.get(line["key"])
        if effect is None:
            found.append(f"{line['ref']} was sent under {line['key'] or 'no key'}, which no ledger row has")
        elif effect["run"] != line["run"]:
            found.append(f"{line['ref']} was sent for run {line['run']}; its row is of {effect['run']}")
        elif _only_once(effect) and effect["reserved_at"] > line["at"] + CLOCKS_S:
            found.append(f"{line['ref']} was sent before it was reserved")
    return found


def _told_as_it_was(site: Site, effects: dict[str, Any]) -> list[str]:
    """The ledger never claims a sending that the world did not see, nor denies one that it did."""
    sent = {line["key"] for line in site.sink.lines()}
    found = []
    for key, effect in effects.items():
        if effect["state"] != "settled":
            continue
        claimed = (effect["answer"] or {}).get("sent", True)
        if claimed and key not in sent and "kind" in (effect["answer"] or {}):
            found.append(f"{effect['tool']} is settled as sent ({effect['answer']}); the sink never saw {key}")
        if not claimed and key in sent:
            found.append(f"{effect['tool']} is settled as not sent; the sink saw {key}")
    return found


def _closed_when_final(site: Site, runs: dict[str, Any]) -> list[str]:
    found = []
    for run in runs.values():
        if run["state"] in FINAL and run["outcome"] is None:
            found.append(f"run {run['id']} is {run['state']} without an outcome")
    for row in site.rows(
        "SELECT e.key, e.state, r.id, r.state AS run_state FROM runs_effect e JOIN runs_run r ON r.id = e.run_id"
        " WHERE e.state <> 'settled' AND r.finished_at IS NOT NULL"
    ):
        if row["run_state"] != "unconfirmed" or row["state"] != "unknown":
            found.append(f"run {row['id']} is {row['run_state']} while {row['key']} is {row['state']}")
    for row in site.rows(
        "SELECT r.id, r.state, count(*) AS n FROM runs_pausedexecution p JOIN runs_run r ON r.id = p.run_id"
        " WHERE p.decision IS NULL AND r.finished_at IS NOT NULL GROUP BY 1, 2"
    ):
        found.append(f"run {row['id']} is {row['state']} with {row['n']} open questions")
    for row in site.rows(
        "SELECT r.id, r.state FROM runs_run r WHERE r.state = 'paused' AND NOT EXISTS"
        " (SELECT FROM runs_pausedexecution p WHERE p.run_id = r.id AND p.decision IS NULL)"
    ):
        found.append(f"run {row['id']} is paused and nobody is asked anything")
    return found


def _whole_histories(site: Site, runs: dict[str, Any]) -> list[str]:
    found = []
    for row in site.rows("SELECT run_id::text AS run, array_agg(seq ORDER BY seq) AS seqs FROM runs_event GROUP BY 1"):
        if row["seqs"] != list(range(1, runs[row["run"]]["event_seq"] + 1)):
            found.append(f"run {row['run']} counts {runs[row['run']]['event_seq']} events and has {row['seqs']}")
    for row in site.rows("SELECT run_id::text AS run, epoch FROM runs_attempt WHERE ended_at IS NULL"):
        run = runs[row["run"]]
        if run["state"] not in _HELD or run["epoch"] != row["epoch"]:
            found.append(
                f"attempt {row['epoch']} of run {row['run']} is open; the run is {run['state']}, {run['epoch']}"
            )
    return found


def _acknowledged(site: Site, runs: dict[str, Any]) -> list[str]:
    """Whatever a caller was told of is there, and final answers are what is stored."""
    found = []
    pauses = {row["id"]: row for row in site.rows("SELECT 'exec_' || id AS id, decision FROM runs_pausedexecution")}
    for answer in site.transcript.answers:
        run = runs.get(answer["run_id"])
        if run is None:
            found.append(f"run {answer['run_id']} was acknowledged ({answer['status']}) and is gone")
            continue
        final = answer["status"] in ("completed", "failed", "cancelled") and run["purged_at"] is None
        if final and answer != run["outcome_body"]:
            found.append(f"a caller was told {answer}; stored is {run['outcome_body']}")
        if answer["status"] == "paused" and answer["execution"]["id"] not in pauses:
            found.append(f"{answer['execution']['id']} was acknowledged and is gone")
    for execution, decision in site.transcript.decisions.items():
        if pauses.get(execution, {}).get("decision") not in (decision, "withdrawn"):
            found.append(f"{execution} was acknowledged as {decision}; stored is {pauses.get(execution)}")
    return found
