"""The runs this process works on right now: what its heartbeat renews, and where a request to stop arrives."""

from collections.abc import Iterable
from uuid import UUID

from runs.engine.ends import Stop
from runs.engine.execution import Execution


class ActiveRuns:
    def __init__(self) -> None:
        self._executions: dict[UUID, Execution] = {}

    def add(self, execution: Execution) -> None:
        run_id = execution.identity.run_id
        self._executions[run_id] = execution
        execution.done.add_done_callback(lambda _: self._forget(run_id, execution))

    def _forget(self, run_id: UUID, execution: Execution) -> None:
        if self._executions.get(run_id) is execution:
            del self._executions[run_id]

    def __len__(self) -> int:
        return len(self._executions)

    def ids(self) -> list[UUID]:
        return list(self._executions)

    async def apply_beat(self, renewed: Iterable[tuple[UUID, bool]], asked: Iterable[UUID], *, asked_at: float) -> None:
        """Take a heartbeat's answer: stop what somebody asked to stop, and what is no longer ours.

        `renewed`: run and whether it was asked to stop, of those whose lease was renewed; `asked`: those whose
        lease should have been; `asked_at`: `hold.now()` before the heartbeat was sent.
        """
        ours = dict(renewed)
        for run_id in asked:
            execution = self._executions.get(run_id)
            if execution is None or execution.done.done():
                continue
            if run_id not in ours:
                await execution.stop(Stop.LOST)
                continue
            execution.hold.confirm(asked_at)
            if ours[run_id]:
                await execution.stop(Stop.CANCEL)

    async def cancel(self, run_id: UUID) -> bool:
        """Stop this run if this process works on it."""
        execution = self._executions.get(run_id)
        if execution is None:
            return False
        await execution.stop(Stop.CANCEL)
        return True
