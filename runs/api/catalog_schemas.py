"""The bodies of /tools, /sources, /connections and /policies."""

from typing import Annotated, Any, Literal

from ninja import Schema
from pydantic import Field, StringConstraints

from runs.api.schemas import Body
from runs.domain import limits
from runs.domain.effects import Approver, EffectClass, PolicyAction

Limit = Annotated[int, Field(ge=1, le=limits.PAGE_MAX)]
Offset = Annotated[int, Field(ge=0, le=limits.OFFSET_MAX)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.NAME_CHARS)]
Query = Annotated[str, StringConstraints(max_length=limits.QUERY_CHARS)]


class PolicyBrief(Schema):
    action: PolicyAction
    approver: Approver


class ToolBrief(Schema):
    address: str
    description: str
    effect: EffectClass
    source: str
    policy: PolicyBrief


class ToolPage(Schema):
    tools: list[ToolBrief]
    total: int


class PolicyReason(PolicyBrief):
    reason: str


class ConnectionNeed(Schema):
    needed: bool = Field(description="Whether a call fails without credentials.")
    alternatives: list[list[str]] = Field(description="Security schemes; all of one list are needed together.")
    present: bool = Field(description="Whether there are credentials that your own runs can use.")


class ToolDetail(Schema):
    address: str
    source: str
    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    effect: EffectClass
    policy: PolicyReason
    connection: ConnectionNeed


class SourceHead(Schema):
    name: str
    kind: Literal["openapi", "python"]
    title: str
    base_url: str
    spec_url: str
    honours_key: bool
    created_at: str
    refreshed_at: str


class SourceBrief(SourceHead):
    tools: int
    ungranted: int = Field(description="Tools that wait for a review.")


class SourcePage(Schema):
    sources: list[SourceBrief]
    total: int


class SourceTool(Schema):
    address: str
    description: str
    effect: EffectClass
    granted: bool


class Skipped(Schema):
    where: str
    why: str


class SourceOut(SourceHead):
    security: dict[str, Any] = Field(description="The security schemes a connection may have values for.")
    skipped: list[Skipped]
    tools: list[SourceTool]


class SourceDetail(SourceOut):
    total: int = Field(description="Of the tools; they come in pages.")


class SourceRefreshed(SourceOut):
    added: list[str] = Field(description="New tools, which nobody can call before they are granted.")
    changed: list[str]
    removed: list[str]


class ConnectionIn(Body):
    source: Name
    values: dict[str, str] = Field(min_length=1, max_length=limits.SECRETS_PER_CONNECTION)
    shared: bool = Field(False, description="For everybody's runs; needs the scope admin.")
    name: Name = "default"


class ConnectionOut(Schema):
    id: str
    source: str
    name: str
    shared: bool
    owner: str | None
    schemes: list[str] = Field(description="What it has values for; the values are never shown.")
    created_at: str
    created_by: str | None


class ConnectionPage(Schema):
    connections: list[ConnectionOut]
    total: int


class PolicyIn(Body):
    pattern: str = Field(min_length=1, max_length=255, description="`*` or `source.tool`, with `*` as wildcard.")
    action: PolicyAction
    approver: Approver = Approver.OWNER
    position: int = Field(100, ge=0, le=limits.POSITION_MAX, description="The lowest matching position decides.")


class PolicyOut(Schema):
    id: str
    pattern: str
    action: PolicyAction
    approver: Approver
    position: int
    created_at: str
    created_by: str | None


class PolicyPage(Schema):
    policies: list[PolicyOut]
    total: int
