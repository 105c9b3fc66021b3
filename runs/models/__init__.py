"""The schema: constraints and reads. Rows of runs are written by runs/store alone."""

from runs.models.access import Policy, Scope, Token
from runs.models.catalog import CatalogVersion, Connection, Source, Tool
from runs.models.execution import Checkpoint, PausedExecution, SettledOutcome
from runs.models.ledger import Effect, Event, Output
from runs.models.process import Process
from runs.models.run import Attempt, Run

__all__ = [
    "Attempt",
    "CatalogVersion",
    "Checkpoint",
    "Connection",
    "Effect",
    "Event",
    "Output",
    "PausedExecution",
    "Policy",
    "Process",
    "Run",
    "Scope",
    "SettledOutcome",
    "Source",
    "Token",
    "Tool",
]
