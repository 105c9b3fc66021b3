"""The database's own guards, generated from the transition table: what the store must not do, nobody can.

`statements()` is what the migration runs; a test compares it with what the database holds and walks every pair
of states against it.
"""

from runs.domain.states import NOT_STARTED, RunState, arrows

_CATALOG_TABLES = ("runs_source", "runs_tool", "runs_connection", "runs_policy")


def _sql_list(values: list[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def run_guard() -> str:
    pairs = _sql_list(sorted(f"{source}>{target}" for source, target in arrows()))
    initial = _sql_list([RunState.QUEUED, RunState.RUNNING])
    not_started = _sql_list(sorted(NOT_STARTED))
    return f"""
CREATE OR REPLACE FUNCTION runs_guard_run() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state NOT IN ({initial}) THEN
            RAISE EXCEPTION 'run_transition: a run cannot begin as %', NEW.state USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state || '>' || NEW.state) NOT IN ({pairs}) THEN
        RAISE EXCEPTION 'run_transition: % to % is not in the table', OLD.state, NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.epoch < OLD.epoch THEN
        RAISE EXCEPTION 'run_epoch_never_falls: % to %', OLD.epoch, NEW.epoch USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.command_started_at IS NOT NULL AND NEW.command_started_at IS DISTINCT FROM OLD.command_started_at THEN
        RAISE EXCEPTION 'run_started_once: command_started_at is set' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.command_started_at IS NOT NULL AND NEW.state IN ({not_started}) THEN
        RAISE EXCEPTION 'run_not_started_before_gate' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.event_seq < OLD.event_seq THEN
        RAISE EXCEPTION 'run_events_only_grow' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.kind <> OLD.kind OR NEW.owner_id <> OLD.owner_id OR NEW.lineage <> OLD.lineage THEN
        RAISE EXCEPTION 'run_identity_fixed' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $guard$;
CREATE OR REPLACE TRIGGER runs_guard_run BEFORE INSERT OR UPDATE ON runs_run
    FOR EACH ROW EXECUTE FUNCTION runs_guard_run();
"""


def event_guard() -> str:
    """Events never change; they go only with retention, which says so in its own transaction."""
    return """
CREATE OR REPLACE FUNCTION runs_guard_event() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('executor.retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'event_never_changes: % refused', TG_OP USING ERRCODE = 'check_violation';
END $guard$;
CREATE OR REPLACE TRIGGER runs_guard_event BEFORE UPDATE OR DELETE ON runs_event
    FOR EACH ROW EXECUTE FUNCTION runs_guard_event();
"""


def effect_guard() -> str:
    """A settled effect stays settled under the same key, and its call stays what it was."""
    return """
CREATE OR REPLACE FUNCTION runs_guard_effect() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
    IF OLD.state = 'settled' AND NEW.state <> 'settled' THEN
        RAISE EXCEPTION 'effect_settled_once: %', OLD.key USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.key <> OLD.key OR NEW.run_id <> OLD.run_id OR NEW.tool <> OLD.tool THEN
        RAISE EXCEPTION 'effect_identity_fixed: %', OLD.key USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $guard$;
CREATE OR REPLACE TRIGGER runs_guard_effect BEFORE UPDATE ON runs_effect
    FOR EACH ROW EXECUTE FUNCTION runs_guard_effect();
"""


def pause_guard() -> str:
    """A decision, once stored, is never another one."""
    return """
CREATE OR REPLACE FUNCTION runs_guard_pause() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
    IF OLD.decision IS NOT NULL AND (NEW.decision IS DISTINCT FROM OLD.decision
            OR NEW.decided_by_id IS DISTINCT FROM OLD.decided_by_id
            OR NEW.decided_at IS DISTINCT FROM OLD.decided_at) THEN
        RAISE EXCEPTION 'pause_decided_once: %', OLD.id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $guard$;
CREATE OR REPLACE TRIGGER runs_guard_pause BEFORE UPDATE ON runs_pausedexecution
    FOR EACH ROW EXECUTE FUNCTION runs_guard_pause();
"""


def catalog_guard() -> str:
    """Every change of the catalog raises its version, so no process serves a stale one and no caller can forget."""
    triggers = "".join(
        f"CREATE OR REPLACE TRIGGER runs_catalog_changed AFTER INSERT OR UPDATE OR DELETE ON {table}\n"
        "    FOR EACH STATEMENT EXECUTE FUNCTION runs_catalog_changed();\n"
        for table in _CATALOG_TABLES
    )
    return f"""
INSERT INTO runs_catalogversion (id, version) VALUES (1, 1) ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION runs_catalog_changed() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
    INSERT INTO runs_catalogversion AS c (id, version) VALUES (1, 1)
        ON CONFLICT (id) DO UPDATE SET version = c.version + 1;
    RETURN NULL;
END $guard$;
{triggers}"""


def statements() -> list[str]:
    return [run_guard(), event_guard(), effect_guard(), pause_guard(), catalog_guard()]
