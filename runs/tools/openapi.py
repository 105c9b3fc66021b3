"""OpenAPI 3.0 and 3.1 documents as tools. What one operation gets wrong costs that operation, not the document."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from runs.domain.effects import EffectClass
from runs.tools.base import JSON, ToolSpec
from runs.tools.bounds import (
    MAX_DESCRIPTION_CHARS,
    MAX_INPUT_SCHEMA_NODES,
    MAX_OPERATIONS,
    MAX_OUTPUT_SCHEMA_NODES,
    MAX_SKIPPED,
)
from runs.tools.errors import DocumentError
from runs.tools.openapi_body import WHOLE, Body, encoding_of, read_body
from runs.tools.openapi_defs import gather
from runs.tools.openapi_names import argument_names, tool_names
from runs.tools.openapi_params import Parameter, read_parameters
from runs.tools.openapi_parse import parse_document
from runs.tools.openapi_refs import Document, pointer
from runs.tools.openapi_schema import Fragment, Schemas
from runs.tools.openapi_security import Alternatives, operation_security, read_schemes, secret_places
from runs.tools.openapi_servers import override_address, root_address

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_READING: Final = frozenset(["get", "head", "options"])
EFFECT_EXTENSION: Final = "x-executor-effect"


@dataclass(frozen=True, slots=True)
class Skipped:
    """One operation that was not imported, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class OpenAPIImport:
    """A document's tools, by name, and what it says about itself."""

    tools: tuple[ToolSpec, ...]
    base_url: str
    title: str
    version: str
    security: dict[str, JSON]
    """Every security scheme by name: what an admin may add a connection for."""
    skipped: tuple[Skipped, ...]


@dataclass(slots=True)
class _Draft:
    """An operation read, before names and definitions are known."""

    method: str
    path: str
    operation: dict[str, Any]
    parameters: list[Parameter]
    body: Body | None
    security: Alternatives
    server: str | None
    output: Fragment | None
    where: str = field(default="")


def import_document(
    text: bytes,
    *,
    source: str,
    base_url: str | None,
    document_url: str | None = None,
    trust_effects: bool = False,
) -> OpenAPIImport:
    """The document's operations as tools of `source`. Raises DocumentError where the document as a whole is unusable.

    The same operations get the same names whatever their order. `trust_effects` lets the document's
    `x-executor-effect` decide effect classes: only for documents whose author may say so.
    """
    return _Importer(parse_document(text), source, base_url, document_url, trust_effects).run()


class _Importer:
    def __init__(
        self, root: dict[str, JSON], source: str, base_url: str | None, document_url: str | None, trust: bool
    ) -> None:
        self.document = Document(root, _version(root))
        self.source = source
        self.explicit_base = base_url
        self.base = root_address(root.get("servers"), base_url, document_url)
        self.trust = trust
        self.schemes = read_schemes(self.document)
        self.inputs = Schemas(self.document, inputs=True)
        self.outputs = Schemas(self.document, inputs=False)
        self.skipped: list[Skipped] = []
        self.skips = 0

    def run(self) -> OpenAPIImport:
        drafts = list(self._drafts())
        self.inputs.finish()
        self.outputs.finish()
        names = tool_names([(draft.method, draft.path, _operation_id(draft.operation)) for draft in drafts])
        tools: list[ToolSpec] = []
        for draft, name in zip(drafts, names, strict=True):
            try:
                tools.append(self._tool(draft, name))
            except DocumentError as exc:
                self._skip(draft.where, exc)
        if self.skips > len(self.skipped):
            self.skipped.append(Skipped("#/paths", f"and {self.skips - len(self.skipped)} more operations"))
        info = self.document.root.get("info")
        info = info if isinstance(info, dict) else {}
        return OpenAPIImport(
            tuple(sorted(tools, key=lambda spec: spec.name)),
            self.base,
            str(info.get("title", ""))[:MAX_DESCRIPTION_CHARS],
            str(info.get("version", ""))[:MAX_DESCRIPTION_CHARS],
            self.schemes,
            tuple(self.skipped),
        )

    def _skip(self, where: str, exc: DocumentError) -> None:
        self.skips += 1
        if self.skips <= MAX_SKIPPED:
            at = f" (at {exc.where[:300]})" if exc.where and exc.where != where else ""
            self.skipped.append(Skipped(where, f"{exc.message}{at}"))

    def _drafts(self) -> Iterator[_Draft]:
        paths = self.document.root.get("paths", {})
        if not isinstance(paths, dict):
            raise DocumentError("spec_invalid", "`paths` is not an object", "#/paths")
        count = 0
        for path, item in paths.items():
            if not path.startswith("/"):
                continue
            where = pointer("paths", path)
            try:
                found = self._path_item(item, where)
            except DocumentError as exc:
                self._skip(where, exc)
                continue
            for method in _METHODS:
                if method not in found:
                    continue
                count += 1
                if count > MAX_OPERATIONS:
                    raise DocumentError("spec_too_large", f"more than {MAX_OPERATIONS} operations", "#/paths")
                try:
                    yield self._draft(method, path, found, where)
                except DocumentError as exc:
                    self._skip(f"{where}/{method}", exc)

    def _path_item(self, item: JSON, where: str) -> dict[str, Any]:
        found, _ = self.document.follow(item, where)
        # Beside a reference, a path's own keywords hold over those of the place referred to.
        own = {key: value for key, value in item.items() if key != "$ref"} if isinstance(item, dict) else {}
        return found | own

    def _draft(self, method: str, path: str, item: dict[str, Any], path_where: str) -> _Draft:
        where = f"{path_where}/{method}"
        operation, _ = self.document.follow(item[method], where)
        security = operation_security(self.document, operation, self.schemes)
        lists = (
            (item.get("parameters"), f"{path_where}/parameters"),
            (operation.get("parameters"), f"{where}/parameters"),
        )
        parameters = read_parameters(self.document, self.inputs, lists, secret_places(security))
        for name in _placeholders(path) - {p.name for p in parameters if p.place == "path"}:
            raise DocumentError("spec_invalid", f"the path's {{{name}}} is no parameter", where)
        taken = argument_names((p.place, p.name) for p in parameters)
        # Compared as argument names: `item-id` in the path and `item_id` in the body are one keyword.
        body = read_body(self.document, self.inputs, operation.get("requestBody"), f"{where}/requestBody", frozenset())
        if body is not None and body.whole is None:
            flat = argument_names(("body", name) for name in body.properties)
            if set(flat.values()) & set(taken.values()):
                body = read_body(
                    self.document,
                    self.inputs,
                    operation.get("requestBody"),
                    f"{where}/requestBody",
                    frozenset(body.properties),
                )
        servers = operation.get("servers") or item.get("servers")
        server = override_address(servers, self.base, self.explicit_base)
        return _Draft(
            method, path, operation, parameters, body, security, server, self._output(operation, where), where
        )

    def _output(self, operation: dict[str, Any], where: str) -> Fragment | None:
        """The schema of the success answer, where it is JSON and can be represented."""
        responses = operation.get("responses")
        if not isinstance(responses, dict):
            return None
        for status in sorted(str(status) for status in responses if str(status).startswith("2")):
            try:
                response, at = self.document.follow(responses.get(status), f"{where}/responses/{status}")
                content = response.get("content")
                for media, described in content.items() if isinstance(content, dict) else ():
                    if encoding_of(media) == "json" and isinstance(described, dict) and "schema" in described:
                        return self.outputs.translate(described["schema"], f"{at}/content/{media}/schema")
            except DocumentError:
                # Answers are described, not checked: an operation can be called without.
                return None
        return None

    def _tool(self, draft: _Draft, name: str) -> ToolSpec:
        fragments, required, dependent, binding = _arguments(draft)
        refs = {ref for fragment in fragments.values() for ref in fragment.refs}
        budget = MAX_INPUT_SCHEMA_NODES - sum(fragment.size for fragment in fragments.values())
        definitions, secret = gather(refs, self.inputs.definitions, budget)
        schema: dict[str, JSON] = {
            "type": "object",
            "properties": {argument: fragment.body for argument, fragment in fragments.items()},
            "additionalProperties": False,
        }
        if required:
            schema["required"] = required
        if dependent:
            schema["dependentRequired"] = dependent
        if definitions:
            schema["$defs"] = definitions
        sensitive = {
            argument
            for argument, fragment in fragments.items()
            if fragment.sensitive or (secret and gather(fragment.refs, self.inputs.definitions, budget)[1])
        }
        return ToolSpec(
            source=self.source,
            name=name,
            description=_description(draft.operation, draft.method, draft.path),
            input_schema=schema,
            output_schema=self._output_schema(draft.output),
            effect=self._effect(draft),
            binding=binding,
            sensitive=frozenset(sensitive),
        )

    def _output_schema(self, output: Fragment | None) -> dict[str, JSON] | None:
        if output is None or not isinstance(output.body, dict) or output.size > MAX_OUTPUT_SCHEMA_NODES:
            return None
        try:
            definitions, _ = gather(output.refs, self.outputs.definitions, MAX_OUTPUT_SCHEMA_NODES - output.size)
        except DocumentError:
            # As above: a broken description of the answer is no reason to lose the tool.
            return None
        return output.body | {"$defs": definitions} if definitions else output.body

    def _effect(self, draft: _Draft) -> EffectClass:
        if self.trust and draft.operation.get(EFFECT_EXTENSION) in list(EffectClass):
            return EffectClass(draft.operation[EFFECT_EXTENSION])
        return EffectClass.READ if draft.method in _READING else EffectClass.EFFECT


def _arguments(
    draft: _Draft,
) -> tuple[dict[str, Fragment], list[str], dict[str, list[str]], dict[str, JSON]]:
    """Fragments by argument, required arguments, those required with others, and the binding."""
    body = draft.body
    keys = [(p.place, p.name) for p in draft.parameters]
    in_body = [] if body is None else [WHOLE] if body.whole is not None else list(body.properties)
    names = argument_names([*keys, *(("body", name) for name in in_body)])
    fragments = {names[p.place, p.name]: p.fragment for p in draft.parameters}
    required = [names[p.place, p.name] for p in draft.parameters if p.required]
    dependent: dict[str, list[str]] = {}
    binding: dict[str, JSON] = {
        "kind": "openapi",
        "method": draft.method.upper(),
        "path": draft.path,
        "parameters": [p.binding | {"arg": names[p.place, p.name]} for p in draft.parameters],
        "body": None,
        "security": draft.security,
        "server": draft.server,
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
            dependent = {argument: wanted for argument in arguments}
        binding["body"] = {
            "media": body.media,
            "encoding": body.encoding,
            "required": body.required,
            "whole": body.whole is not None,
            "arguments": arguments,
            "files": list(body.files),
        }
    return fragments, required, dependent, binding


def _version(root: dict[str, JSON]) -> tuple[int, int]:
    declared = str(root.get("openapi", ""))
    if "swagger" in root:
        raise DocumentError(
            "spec_unsupported", "Swagger 2 documents are not supported; convert it to OpenAPI 3", "#/swagger"
        )
    if not declared:
        raise DocumentError("spec_invalid", "the document has no `openapi` version", "#/openapi")
    for version in ((3, 0), (3, 1)):
        if declared == f"{version[0]}.{version[1]}" or declared.startswith(f"{version[0]}.{version[1]}."):
            return version
    raise DocumentError("spec_unsupported", f"OpenAPI {declared[:20]!r} is not supported; 3.0 and 3.1 are", "#/openapi")


def _operation_id(operation: dict[str, Any]) -> str | None:
    declared = operation.get("operationId")
    return declared if isinstance(declared, str) else None


def _placeholders(path: str) -> set[str]:
    return {part.partition("}")[0] for part in path.split("{")[1:]}


def _description(operation: dict[str, Any], method: str, path: str) -> str:
    """Summary and description, bounded; marked where deprecated; method and path where there is no text."""
    summary, text = (str(operation.get(key) or "").strip() for key in ("summary", "description"))
    parts = [part for part in (summary, text if text != summary else "") if part]
    mark = "Deprecated. " if operation.get("deprecated") is True else ""
    description = mark + ("\n\n".join(parts) or f"{method.upper()} {path}")
    if len(description) <= MAX_DESCRIPTION_CHARS:
        return description
    return description[: MAX_DESCRIPTION_CHARS - 1] + "…"
