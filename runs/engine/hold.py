"""How sure this process is that it still holds its run: a process that slept past its lease must not send.

Time is CLOCK_BOOTTIME, which also counts while the machine is suspended. A confirmation counts from *before* the
statement that confirmed it was sent.
"""

import asyncio
import time

from runs.domain import limits
from runs.domain.guards import may_send

_LOOK_AGAIN_S = 0.05
_PATIENCE_S = 3 * limits.HOUSEKEEPING_S
"""How long a call waits for the next heartbeat to confirm the hold before it is given up unsent."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Hold:
    def __init__(self) -> None:
        self._confirmed_at = now()

    def confirm(self, asked_at: float) -> None:
        """The database said that the run was ours, to a statement sent at `asked_at`."""
        self._confirmed_at = max(self._confirmed_at, asked_at)

    @property
    def is_fresh(self) -> bool:
        return may_send(reserved_for_s=now() - self._confirmed_at, send_within_s=limits.SEND_WITHIN_S)

    async def sure(self) -> bool:
        """Whether the hold is fresh, or becomes so with the next heartbeat."""
        patience = now() + _PATIENCE_S
        while not self.is_fresh:
            if now() > patience:
                return False
            await asyncio.sleep(_LOOK_AGAIN_S)
        return True
