"""OpenAPI 3.0 and 3.1 documents as tools. What one operation gets wrong costs that operation, not the document."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from runs.domain.effects import EffectClass
from runs.tools.base import JSON, ToolSpec
from runs.tools.bounds import (
    FULL_SCHEMA_OPERATIONS,
    MAX_DESCRIPTION_CHARS,
    MAX_INPUT_SCHEMA_NODES,
    MAX_OPERATIONS,
    MAX_OUTPUT_SCHEMA_NODES,
    MAX_SKIPPED,
    MIN_SCHEMA_NODES,
)
from runs.tools.errors import DocumentError
from runs.tools.openapi_defs import gather
from runs.tools.openapi_names import tool_names
from runs.tools.openapi_operation import Operation, OperationReader, bind, describe
from runs.tools.openapi_parse import parse_document
from runs.tools.openapi_refs import Document, pointer
from runs.tools.openapi_schema import Fragment
from runs.tools.openapi_servers import root_address

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
        self.base = root_address(root.get("servers"), base_url, document_url)
        self.trust = trust
        self.reader = OperationReader(self.document, self.base, base_url)
        self.skipped: list[Skipped] = []
        self.skips = 0
        self.halvings = 0

    def run(self) -> OpenAPIImport:
        operations = list(self._operations())
        self.reader.inputs.finish()
        self.reader.outputs.finish()
        self.halvings = max(0, (len(operations) - 1).bit_length() - (FULL_SCHEMA_OPERATIONS - 1).bit_length())
        names = tool_names([(o.method, o.path, o.operation_id) for o in operations])
        tools: list[ToolSpec] = []
        for operation, name in zip(operations, names, strict=True):
            try:
                tools.append(self._tool(operation, name))
            except DocumentError as exc:
                self._skip(operation.where, exc)
        if self.skips > len(self.skipped):
            self.skipped.append(Skipped("#/paths", f"and {self.skips - len(self.skipped)} more operations"))
        info = self.document.root.get("info")
        info = info if isinstance(info, dict) else {}
        return OpenAPIImport(
            tuple(sorted(tools, key=lambda spec: spec.name)),
            self.base,
            str(info.get("title", ""))[:MAX_DESCRIPTION_CHARS],
            str(info.get("version", ""))[:MAX_DESCRIPTION_CHARS],
            self.reader.schemes,
            tuple(self.skipped),
        )

    def _skip(self, where: str, exc: DocumentError) -> None:
        self.skips += 1
        if self.skips <= MAX_SKIPPED:
            at = f" (at {exc.where[:300]})" if exc.where and exc.where != where else ""
            self.skipped.append(Skipped(where, f"{exc.message}{at}"))

    def _operations(self) -> Iterator[Operation]:
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
                    yield self.reader.read(method, path, found, where)
                except DocumentError as exc:
                    self._skip(f"{where}/{method}", exc)

    def _path_item(self, item: JSON, where: str) -> dict[str, Any]:
        found, _ = self.document.follow(item, where)
        # Beside a reference, a path's own keywords hold over those of the place referred to.
        own = {key: value for key, value in item.items() if key != "$ref"} if isinstance(item, dict) else {}
        return found | own

    def _tool(self, operation: Operation, name: str) -> ToolSpec:
        bound = bind(operation)
        fragments, inputs = bound.fragments, self.reader.inputs.definitions
        refs = {ref for fragment in fragments.values() for ref in fragment.refs}
        budget = self._budget(MAX_INPUT_SCHEMA_NODES) - sum(fragment.size for fragment in fragments.values())
        definitions, secret = gather(refs, inputs, budget)
        schema: dict[str, JSON] = {
            "type": "object",
            "properties": {argument: fragment.body for argument, fragment in fragments.items()},
            "additionalProperties": False,
        }
        if bound.required:
            schema["required"] = bound.required
        if bound.dependent:
            schema["dependentRequired"] = bound.dependent
        if definitions:
            schema["$defs"] = definitions
        sensitive = {
            argument
            for argument, fragment in fragments.items()
            if fragment.sensitive or (secret and gather(fragment.refs, inputs, budget)[1])
        }
        return ToolSpec(
            source=self.source,
            name=name,
            description=describe(operation),
            input_schema=schema,
            output_schema=self._output_schema(operation.output),
            effect=self._effect(operation),
            binding=bound.binding,
            sensitive=frozenset(sensitive),
        )

    def _output_schema(self, output: Fragment | None) -> dict[str, JSON] | None:
        if output is None or not isinstance(output.body, dict) or output.size > MAX_OUTPUT_SCHEMA_NODES:
            return None
        try:
            definitions, _ = gather(
                output.refs, self.reader.outputs.definitions, self._budget(MAX_OUTPUT_SCHEMA_NODES) - output.size
            )
        except DocumentError:
            # As above: a broken description of the answer is no reason to lose the tool.
            return None
        return output.body | {"$defs": definitions} if definitions else output.body

    def _budget(self, values: int) -> int:
        """A tool's bound, halved for each doubling of a large document: in steps, so that a refresh that adds a few
        operations changes no schema."""
        return max(MIN_SCHEMA_NODES, values >> self.halvings)

    def _effect(self, operation: Operation) -> EffectClass:
        claimed = operation.declared.get(EFFECT_EXTENSION)
        if self.trust and isinstance(claimed, str) and claimed in list(EffectClass):
            return EffectClass(claimed)
        return EffectClass.READ if operation.method in _READING else EffectClass.EFFECT


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
