"""One operation of a document: its parameters, body, security and answer, read and bound to argument names."""

from dataclasses import dataclass
from typing import Any

from runs.tools.base import JSON
from runs.tools.bounds import MAX_DESCRIPTION_CHARS
from runs.tools.errors import DocumentError
from runs.tools.openapi_body import WHOLE, Body, encoding_of, read_body
from runs.tools.openapi_names import argument_names
from runs.tools.openapi_params import Parameter, read_parameters
from runs.tools.openapi_refs import Document
from runs.tools.openapi_schema import Fragment, Schemas
from runs.tools.openapi_security import Alternatives, operation_security, read_schemes, secret_places
from runs.tools.openapi_servers import override_address


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation read, before names of tools and definitions are known."""

    method: str
    path: str
    where: str
    declared: dict[str, Any]
    parameters: list[Parameter]
    body: Body | None
    security: Alternatives
    server: str | None
    output: Fragment | None

    @property
    def operation_id(self) -> str | None:
        declared = self.declared.get("operationId")
        return declared if isinstance(declared, str) else None


@dataclass(frozen=True, slots=True)
class Bound:
    """An operation's arguments by name, and how a request is made of them."""

    fragments: dict[str, Fragment]
    required: list[str]
    dependent: dict[str, list[str]]
    """For an optional body taken apart: which arguments each of its arguments needs beside it."""
    binding: dict[str, JSON]


class OperationReader:
    """Reads the operations of one document."""

    def __init__(self, document: Document, base: str, explicit_base: str | None) -> None:
        self.schemes = read_schemes(document)
        self.inputs = Schemas(document, inputs=True)
        self.outputs = Schemas(document, inputs=False)
        self._document = document
        self._base = base
        self._explicit_base = explicit_base

    def read(self, method: str, path: str, item: dict[str, Any], path_where: str) -> Operation:
        """Raises DocumentError where a request made from it would be wrong."""
        where = f"{path_where}/{method}"
        declared, _ = self._document.follow(item[method], where)
        security = operation_security(self._document, declared, self.schemes)
        lists = (
            (item.get("parameters"), f"{path_where}/parameters"),
            (declared.get("parameters"), f"{where}/parameters"),
        )
        parameters = read_parameters(self._document, self.inputs, lists, secret_places(security))
        missing = _placeholders(path) - {p.name for p in parameters if p.place == "path"}
        if missing:
            raise DocumentError("spec_invalid", f"the path's {', '.join(sorted(missing))} is no parameter", where)
        taken = frozenset(argument_names((p.place, p.name) for p in parameters).values())
        request_body = declared.get("requestBody")
        return Operation(
            method,
            path,
            where,
            declared,
            parameters,
            read_body(self._document, self.inputs, request_body, f"{where}/requestBody", taken),
            security,
            override_address(declared.get("servers") or item.get("servers"), self._base, self._explicit_base),
            self._output(declared, where),
        )

    def _output(self, operation: dict[str, Any], where: str) -> Fragment | None:
        """The schema of the success answer, where it is JSON and can be represented."""
        responses = operation.get("responses")
        if not isinstance(responses, dict):
            return None
        for status in sorted(str(status) for status in responses if str(status).startswith("2")):
            try:
                response, at = self._document.follow(responses.get(status), f"{where}/responses/{status}")
                content = response.get("content")
                for media, described in content.items() if isinstance(content, dict) else ():
                    if encoding_of(media) == "json" and isinstance(described, dict) and "schema" in described:
                        return self.outputs.translate(described["schema"], f"{at}/content/{media}/schema")
            except DocumentError:
                # Answers are described, not checked: an operation can be called without.
                return None
        return None


def bind(operation: Operation) -> Bound:
    """The operation's arguments, named."""
    body = operation.body
    keys = [(p.place, p.name) for p in operation.parameters]
    in_body = [] if body is None else [WHOLE] if body.whole is not None else list(body.properties)
    names = argument_names([*keys, *(("body", name) for name in in_body)])
    fragments = {names[p.place, p.name]: p.fragment for p in operation.parameters}
    required = [names[p.place, p.name] for p in operation.parameters if p.required]
    dependent: dict[str, list[str]] = {}
    binding: dict[str, JSON] = {
        "kind": "openapi",
        "method": operation.method.upper(),
        "path": operation.path,
        "parameters": [p.binding | {"arg": names[p.place, p.name]} for p in operation.parameters],
        "body": None,
        "security": operation.security,
        "server": operation.server,
    }
    if body is not None:
        arguments = {names["body", name]: name for name in in_body}
        parts = {WHOLE: body.whole} if body.whole is not None else body.properties
        fragments |= {argument: parts[name] for argument, name in arguments.items()}
        wanted = in_body if body.whole is not None else body.required_properties
        wanted = [names["body", name] for name in wanted]
        if body.required:
            required += wanted
        elif body.whole is None and wanted:
            dependent = dict.fromkeys(arguments, wanted)
        binding["body"] = {
            "media": body.media,
            "encoding": body.encoding,
            "required": body.required,
            "whole": body.whole is not None,
            "arguments": arguments,
            "files": list(body.files),
        }
    return Bound(fragments, required, dependent, binding)


def _placeholders(path: str) -> set[str]:
    return {part.partition("}")[0] for part in path.split("{")[1:]}


def describe(operation: Operation) -> str:
    """Summary and description, bounded; marked where deprecated; method and path where there is no text."""
    summary, text = (str(operation.declared.get(key) or "").strip() for key in ("summary", "description"))
    parts = [part for part in (summary, text if text != summary else "") if part]
    mark = "Deprecated. " if operation.declared.get("deprecated") is True else ""
    description = mark + ("\n\n".join(parts) or f"{operation.method.upper()} {operation.path}")
    if len(description) <= MAX_DESCRIPTION_CHARS:
        return description
    return description[: MAX_DESCRIPTION_CHARS - 1] + "…"
