"""The execution engine of one scope: built for one request or job, over its own connection, shut down before it.

Rule: spec/design.md, section 5. A wrapper that lacks one of the methods can be neither type-checked nor built.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.engine.active import ActiveRuns
from runs.engine.broker import Broker
from runs.engine.checkpoint import FORMAT, BrokerState, CheckpointInvalid
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.ends import Stop
from runs.engine.execution import Execution
from runs.engine.hold import Hold
from runs.engine.journal import Journal
from runs.store.claim import Loaded, run_load, run_resume
from runs.store.pauses import pause_find, pauses_pending
from runs.store.transition import Moved


class EngineClosed(Exception):
    """The scope has ended; its engine takes no more work."""


class CheckpointRefused(Exception):
    """The run was claimed and its stored checkpoint failed its check; nothing of it was run."""

    def __init__(self, loaded: Loaded, epoch: int) -> None:
        self.loaded = loaded
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class ProgramText:
    code: str
    inputs: Mapping[str, Any]


class ExecutionEngine(ABC):
    @abstractmethod
    async def execute(self, identity: RunIdentity, program: ProgramText) -> Execution:
        """Run a stored, running run whose approvals a named operator has given beforehand."""

    @abstractmethod
    async def execute_with_pause(self, identity: RunIdentity, program: ProgramText) -> Execution:
        """Run a stored, running run; it pauses where a person has to decide."""

    @abstractmethod
    async def resume(self, run_id: UUID) -> Execution | None:
        """Claim a suspended run under a new epoch and go on from its checkpoint. None: somebody else has it.

        The claim is committed on return. Raises CheckpointRefused.
        """

    @abstractmethod
    async def go_on(self, run_id: UUID) -> Execution:
        """Go on with a run that this process has just claimed (its new epoch is committed)."""

    @abstractmethod
    async def get_paused_execution(self, pause_id: UUID) -> dict[str, Any] | None:
        """A pause with its run's owner and state, whichever process made it."""

    @abstractmethod
    async def paused_execution_count(self, *, owner_id: int | None = None) -> int:
        """Open pauses, of one owner's runs or of all."""

    @abstractmethod
    async def shutdown(self, *, within_s: float | None = None) -> None:
        """Interrupt sandbox work, wait until it has unwound, hand unfinished runs on. Repeatable.

        Calls in flight are awaited and settled: for `within_s`, or their own time-out where None is given. An
        effect still open then is unknown, and its run is a person's work.
        """


class RunEngine(ExecutionEngine):
    def __init__(self, context: EngineContext, active: ActiveRuns) -> None:
        self._context = context
        self._active = active
        self._executions: set[Execution] = set()
        self._closed = False

    async def execute(self, identity: RunIdentity, program: ProgramText) -> Execution:
        if identity.auto_approved_by is None:
            raise ValueError("a run without pauses needs the operator who approved it")
        return self._begin(identity, program)

    async def execute_with_pause(self, identity: RunIdentity, program: ProgramText) -> Execution:
        return self._begin(identity, program)

    def _begin(self, identity: RunIdentity, program: ProgramText) -> Execution:
        journal, hold = Journal(BrokerState()), Hold()
        execution = Execution(
            self._context,
            identity,
            code=program.code,
            inputs=program.inputs,
            journal=journal,
            broker=Broker(self._context, identity, journal, hold=hold),
            hold=hold,
        )
        return self._track(execution)

    async def resume(self, run_id: UUID) -> Execution | None:
        moved = await run_resume(self._context.conn, run_id=run_id, process=self._context.process_id, format=FORMAT)
        if not isinstance(moved, Moved):
            return None
        return await self.go_on(run_id)

    async def go_on(self, run_id: UUID) -> Execution:
        loaded = await run_load(self._context.conn, run_id)
        if loaded is None:
            raise LookupError(f"run {run_id} was claimed and is gone")
        run = loaded.run
        state, snapshot = BrokerState(), None
        if loaded.checkpoint is not None:
            try:
                snapshot, state = self._context.checkpoints.open(run_id, loaded.checkpoint)
            except CheckpointInvalid as error:
                raise CheckpointRefused(loaded, run["epoch"]) from error
        identity = RunIdentity(
            run_id, run["epoch"], run["owner_id"], run["lineage"], run["timeout_s"], run["auto_approved_by"]
        )
        journal = Journal(state)
        hold = Hold()
        broker = Broker(
            self._context, identity, journal, hold=hold, effects=loaded.effects.values(), pauses=loaded.pauses.values()
        )
        return self._track(
            Execution(
                self._context,
                identity,
                code=run["code"],
                inputs=run["inputs"],
                journal=journal,
                broker=broker,
                hold=hold,
                snapshot=snapshot,
                decisions=run["decisions"],
            )
        )

    def _track(self, execution: Execution) -> Execution:
        if self._closed:
            raise EngineClosed
        self._executions.add(execution)
        self._active.add(execution)
        return execution

    async def get_paused_execution(self, pause_id: UUID) -> dict[str, Any] | None:
        return await pause_find(self._context.conn, pause_id)

    async def paused_execution_count(self, *, owner_id: int | None = None) -> int:
        return await pauses_pending(self._context.conn, owner_id)

    async def shutdown(self, *, within_s: float | None = None) -> None:
        self._closed = True
        working = [execution for execution in self._executions if not execution.done.done()]
        if working:
            await asyncio.gather(*(execution.stop(Stop.SCOPE, within_s=within_s) for execution in working))
        for execution in self._executions:
            await execution.wait()
        self._executions.clear()
