"""A document's schemas as JSON Schema 2020-12, with what is reachable from a tool as its local `$defs`.

Each schema is translated once and shared by all tools; nobody may change it afterwards. Translation goes from
one definition to the next by a work list, so recursive schemas end, and what is malformed in a schema is left out
rather than failing the operation: a schema here describes and checks, the upstream has the last word.
"""

from dataclasses import dataclass, field
from typing import Any

from runs.tools.base import JSON
from runs.tools.bounds import MAX_SCHEMA_DEPTH, MAX_SCHEMA_TEXT_CHARS
from runs.tools.errors import DocumentError
from runs.tools.openapi_defs import cut_circles, definition_name, local_ref
from runs.tools.openapi_keywords import (
    PLAIN_KEYWORDS,
    SAME_INSTANCE,
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    clean_types,
    plain_value,
)
from runs.tools.openapi_refs import Document


@dataclass(slots=True)
class Fragment:
    """A translated schema and what it leads to."""

    body: JSON
    refs: set[str] = field(default_factory=set)
    """Names of the definitions it refers to directly."""
    size: int = 0
    """Values in it, definitions not counted."""
    sensitive: bool = False
    """Something in it, definitions not counted, is marked as secret."""
    links: list[tuple[str, dict[str, JSON]]] = field(default_factory=list)
    """References that apply to the very value the schema applies to: circles of them would check for ever."""
    error: DocumentError | None = None


class Schemas:
    """The schemas of one document, for inputs (`readOnly` properties left out) or for outputs."""

    def __init__(self, document: Document, *, inputs: bool) -> None:
        self._document = document
        self._inputs = inputs
        self.definitions: dict[str, Fragment] = {}
        self._todo: list[tuple[str, str]] = []

    def translate(self, schema: JSON, where: str) -> Fragment:
        """The schema and its definitions, translated. Raises DocumentError for what cannot be represented."""
        fragment = Fragment({})
        fragment.body = self._schema(schema, where, 1, True, fragment)
        self._define_all()
        return fragment

    def finish(self) -> None:
        """Cuts circles of definitions; call once, after everything is translated and before it is used."""
        cut_circles({name: fragment.links for name, fragment in self.definitions.items()})

    def _define_all(self) -> None:
        while self._todo:
            name, ref = self._todo.pop()
            fragment = self.definitions[name]
            try:
                target = self._document.at(ref)
                if isinstance(target, dict) and "$ref" in target:
                    self._document.follow(target, ref)
                fragment.body = self._schema(target, ref, 1, True, fragment)
            except DocumentError as exc:
                fragment.error = exc

    def _schema(self, schema: JSON, where: str, depth: int, same: bool, into: Fragment) -> JSON:
        """`same`: the schema applies to the same value as the fragment's root does."""
        into.size += 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise DocumentError("spec_invalid", "a schema is not an object", where)
        if depth > MAX_SCHEMA_DEPTH:
            raise DocumentError("spec_invalid", f"a schema is nested more than {MAX_SCHEMA_DEPTH} levels", where)
        if schema.get("format") == "password" or schema.get("x-sensitive") is True:
            into.sensitive = True
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema, where, depth, same, into)
        return self._body(schema, where, depth, same, into)

    def _reference(self, schema: dict[str, Any], where: str, depth: int, same: bool, into: Fragment) -> dict[str, JSON]:
        ref = schema["$ref"]
        name = definition_name(ref)
        if name not in self.definitions:
            if not ref.startswith("#"):
                self._document.at(ref)
            self.definitions[name] = Fragment({})
            self._todo.append((name, ref))
        into.refs.add(name)
        link: dict[str, JSON] = {"$ref": local_ref(name)}
        if same:
            into.links.append((name, link))
        result = link
        siblings = {key: value for key, value in schema.items() if key not in ("$ref", "nullable")}
        if self._document.modern and siblings:
            # A dict of its own: cutting the link must not take the siblings away.
            result = self._body(siblings, where, depth + 1, same, into)
            result["allOf"] = [link, *result.get("allOf", [])]
        elif isinstance(schema.get("description"), str):
            into.size += 1
            result = {"allOf": [link], "description": schema["description"][:MAX_SCHEMA_TEXT_CHARS]}
        if schema.get("nullable") is True:
            return {"anyOf": [result, {"type": "null"}]}
        return result

    def _body(self, schema: dict[str, Any], where: str, depth: int, same: bool, into: Fragment) -> dict[str, JSON]:
        out: dict[str, JSON] = {}
        for key, value in schema.items():
            if key in PLAIN_KEYWORDS:
                kept, size = PLAIN_KEYWORDS[key](value)
                if size:
                    out[key] = kept
                    into.size += size
            elif key in SCHEMA_KEYWORDS and isinstance(value, (dict, bool)):
                out[key] = self._schema(value, where, depth + 1, same and key in SAME_INSTANCE, into)
            elif key in SCHEMA_LIST_KEYWORDS and isinstance(value, list) and value:
                inner = same and key in SAME_INSTANCE
                out[key] = [self._schema(item, where, depth + 1, inner, into) for item in value]
            elif key == "properties" and isinstance(value, dict):
                out[key] = self._properties(value, where, depth, into)
            elif key in SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
                inner = same and key in SAME_INSTANCE
                out[key] = {str(k): self._schema(v, where, depth + 1, inner, into) for k, v in value.items()}
        self._finish_body(schema, out, where, depth, into)
        return out

    def _properties(self, properties: dict[str, Any], where: str, depth: int, into: Fragment) -> dict[str, JSON]:
        return {
            name: self._schema(schema, where, depth + 1, False, into)
            for name, schema in properties.items()
            if not (self._inputs and self.read_only(schema))
        }

    def read_only(self, schema: JSON) -> bool:
        """Whether only the server gives the property, said at the place itself or behind its reference."""
        if not isinstance(schema, dict):
            return False
        if "readOnly" not in schema and isinstance(schema.get("$ref"), str):
            try:
                schema, _ = self._document.follow(schema, "")
            except DocumentError:
                # Reported with its place where the reference itself is translated.
                return False
        return schema.get("readOnly") is True

    def _finish_body(
        self, schema: dict[str, Any], out: dict[str, JSON], where: str, depth: int, into: Fragment
    ) -> None:
        if isinstance(schema.get("items"), list) and schema["items"]:
            out["prefixItems"] = [self._schema(item, where, depth + 1, False, into) for item in schema["items"]]
        if "example" in schema and "examples" not in out:
            example, size = plain_value(schema["example"])
            if size:
                out["examples"] = [example]
                into.size += size
        properties = schema.get("properties")
        if self._inputs and isinstance(properties, dict) and isinstance(out.get("required"), list):
            out["required"] = [name for name in out["required"] if name not in properties or name in out["properties"]]
        clean_types(schema, out)
