"""Secrets of a connection: put into a request as the operation's security says, and kept out of all else."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, quote_plus

from runs.tools.base import JSON, CallOutcome, Refused, Succeeded, Unknown, Unrepresentable

HIDDEN: Final = "[hidden]"
_MIN_HIDDEN_CHARS: Final = 4
"""Shorter secrets are hidden only where they stand alone: `1` or `yes` would turn every text into noise."""


class CredentialsMissing(Exception):
    """No alternative of the operation's security can be met; the message names the schemes."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What the credentials add to a request."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: list[tuple[str, str]] = field(default_factory=list, repr=False)
    cookies: list[tuple[str, str]] = field(default_factory=list, repr=False)


class Credentials:
    """The secrets of one connection by scheme name. A `basic` secret is `user:password`."""

    __slots__ = ("_forms", "_values")

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = {name: value for name, value in (values or {}).items() if value}
        self._forms = _forms(self._values.values())

    def __repr__(self) -> str:
        return f"Credentials({', '.join(sorted(self._values)) or 'none'})"

    def apply(self, security: list[dict[str, JSON]], source: str) -> Applied:
        """The first alternative whose schemes are all there; an empty alternative only if no other can be met.

        Raises CredentialsMissing.
        """
        if not security:
            return Applied()
        for alternative in security:
            if alternative and all(self._usable(name, scheme) for name, scheme in alternative.items()):
                return self._apply(alternative)
        if {} in security:
            return Applied()
        wanted = " or ".join(" and ".join(sorted(alternative)) for alternative in security[:5])
        raise CredentialsMissing(
            f"The source {source!r} needs a connection with the credential {wanted}, and none is set up for you. "
            "Ask an admin to add it under Connections."
        )

    def _usable(self, name: str, scheme: dict[str, str]) -> bool:
        return name in self._values and scheme["kind"] != "unsupported"

    def _apply(self, alternative: dict[str, JSON]) -> Applied:
        applied = Applied()
        for name, scheme in alternative.items():
            secret = self._values[name]
            match scheme["kind"]:
                case "bearer":
                    applied.headers["Authorization"] = f"Bearer {secret}"
                case "basic":
                    applied.headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
                case "header":
                    applied.headers[scheme["name"]] = secret
                case "query":
                    applied.query.append((scheme["name"], secret))
                case "cookie":
                    applied.cookies.append((scheme["name"], secret))
        return applied

    def scrub(self, text: str) -> str:
        """The text without any form of the secrets."""
        if text in self._values.values():
            return HIDDEN
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def scrub_json(self, value: JSON) -> JSON:
        """The value with every text and key scrubbed, without recursion; the value itself may be changed."""
        if not self._values:
            return value
        holder: list[JSON] = [value]
        todo: list[JSON] = [holder]
        while todo:
            node = todo.pop()
            if isinstance(node, list):
                node[:] = [self.scrub(item) if isinstance(item, str) else item for item in node]
                todo.extend(item for item in node if isinstance(item, (list, dict)))
            else:
                items = [
                    (self.scrub(key), self.scrub(item) if isinstance(item, str) else item) for key, item in node.items()
                ]
                node.clear()
                node.update(items)
                todo.extend(item for item in node.values() if isinstance(item, (list, dict)))
        return holder[0]

    def scrub_outcome(self, outcome: CallOutcome) -> CallOutcome:
        """The outcome as it may leave the invoker: an upstream that echoes a secret does not get it stored."""
        if not self._values:
            return outcome
        match outcome:
            case Succeeded():
                return replace(outcome, value=self.scrub_json(outcome.value))
            case Unrepresentable():
                return replace(outcome, reason=self.scrub(outcome.reason))
            case Refused():
                body = None if outcome.body is None else self.scrub(outcome.body)
                return replace(outcome, message=self.scrub(outcome.message), body=body)
            case Unknown():
                return replace(outcome, message=self.scrub(outcome.message))


def _forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Every way a secret may be written in an answer, the longest first."""
    forms: set[str] = set()
    for secret in secrets:
        parts = {secret, secret.partition(":")[2] or secret}
        for part in parts:
            encoded = base64.b64encode(part.encode()).decode()
            urlsafe = base64.urlsafe_b64encode(part.encode()).decode()
            forms |= {part, quote(part, safe=""), quote(part), quote_plus(part), encoded, encoded.rstrip("=")}
            forms |= {urlsafe, urlsafe.rstrip("="), json.dumps(part)[1:-1]}
            forms.add(json.dumps(part, ensure_ascii=False)[1:-1])
    return tuple(sorted((form for form in forms if len(form) >= _MIN_HIDDEN_CHARS), key=len, reverse=True))
