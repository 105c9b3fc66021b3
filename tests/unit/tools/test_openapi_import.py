"""Documents become tools: arguments, bindings, schemas, servers, security, and what is skipped and why."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from runs.domain.effects import EffectClass
from runs.tools.arguments import ArgumentsInvalid, validate_arguments
from runs.tools.base import ToolSpec
from runs.tools.errors import DocumentError
from runs.tools.openapi import OpenAPIImport, import_document

BASE = "https://api.example.com"


def document(paths: dict[str, Any], version: str = "3.0.3", **more: Any) -> bytes:
    root = {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": paths} | more
    return json.dumps(root).encode()


def imported(paths: dict[str, Any], version: str = "3.0.3", **more: Any) -> OpenAPIImport:
    return import_document(document(paths, version, **more), source="demo", base_url=BASE)


def one(operation: dict[str, Any], path: str = "/items", method: str = "get", **more: Any) -> ToolSpec:
    result = imported({path: {method: operation}}, **more)
    assert result.skipped == ()
    return result.tools[0]


def parameter(name: str, place: str = "query", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"}} | more


def body(schema: dict[str, Any], media: str = "application/json", required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {media: {"schema": schema}}}}


def components(**schemas: Any) -> dict[str, Any]:
    return {"components": {"schemas": schemas}}


def test_an_operation_becomes_a_tool() -> None:
    tool = one(
        {
            "operationId": "getItem",
            "summary": "One item",
            "description": "By its id.",
            "deprecated": True,
            "parameters": [
                parameter("id", "path", required=True, description="The id."),
                parameter("X-Trace", "header"),
                parameter("expand", schema={"type": "array", "items": {"enum": ["a", "b"]}}),
            ],
            "responses": {"200": {"content": {"application/json": {"schema": {"type": "object"}}}}},
        },
        "/items/{id}",
    )
    assert (tool.address, tool.effect) == ("demo.get_item", EffectClass.READ)
    assert tool.description == "Deprecated. One item\n\nBy its id."
    assert list(tool.input_schema["properties"]) == ["id", "x_trace", "expand"]
    assert tool.input_schema["required"] == ["id"]
    assert tool.input_schema["additionalProperties"] is False
    assert tool.input_schema["properties"]["id"] == {"type": "string", "description": "The id."}
    assert tool.output_schema == {"type": "object"}
    assert validate_arguments(tool, ["7"], {"x_trace": "t", "expand": ["a"]})


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("get", "read"),
        ("head", "read"),
        ("options", "read"),
        ("post", "effect"),
        ("put", "effect"),
        ("delete", "effect"),
    ],
)
def test_the_method_gives_the_effect_class(method: str, effect: str) -> None:
    assert one({}, method=method).effect == effect


def test_a_document_decides_effect_classes_only_where_it_is_trusted() -> None:
    text = document({"/a": {"post": {"x-executor-effect": "read"}, "get": {"x-executor-effect": "nonsense"}}})
    plain = import_document(text, source="demo", base_url=BASE)
    trusted = import_document(text, source="demo", base_url=BASE, trust_effects=True)
    assert [tool.effect for tool in plain.tools] == ["read", "effect"]
    assert [tool.effect for tool in trusted.tools] == ["read", "read"]


def test_parameters_of_the_operation_override_those_of_the_path() -> None:
    shared = [
        parameter("id", "path", required=True),
        parameter("limit", schema={"type": "string"}),
        parameter("X-A", "header"),
    ]
    own = [parameter("limit", schema={"type": "integer"}), parameter("x-a", "header", schema={"type": "boolean"})]
    tool = imported({"/i/{id}": {"parameters": shared, "get": {"parameters": own}}}).tools[0]
    kinds = {name: schema["type"] for name, schema in tool.input_schema["properties"].items()}
    assert kinds == {"id": "string", "limit": "integer", "x_a": "boolean"}


def test_one_name_in_two_places_becomes_two_arguments() -> None:
    tool = one({"parameters": [parameter("id"), parameter("id", "path", required=True)]}, "/i/{id}")
    assert {(p["in"], p["arg"]) for p in tool.binding["parameters"]} == {("path", "id"), ("query", "id_query")}


def test_headers_that_belong_to_the_server_are_no_arguments() -> None:
    names = ["Accept", "content-type", "Authorization", "Host", "Idempotency-Key", "X-Run-Id", "X-Mine"]
    tool = one({"parameters": [parameter(name, "header", required=True) for name in names]})
    assert list(tool.input_schema["properties"]) == ["x_mine"]


def test_an_object_body_is_taken_apart_into_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "ref": {"type": "string"}},
        "required": ["amount"],
    }
    tool = one(body(schema), method="post")
    assert tool.input_schema["required"] == ["amount"]
    assert tool.binding["body"]["arguments"] == {"amount": "amount", "ref": "ref"}


def test_a_body_whose_names_collide_with_a_parameter_stays_whole() -> None:
    schema = {"type": "object", "properties": {"item_id": {"type": "integer"}}}
    tool = one(body(schema) | {"parameters": [parameter("item-id", "path", required=True)]}, "/i/{item-id}", "post")
    assert list(tool.input_schema["properties"]) == ["item_id", "body"]
    assert tool.binding["body"]["whole"] is True


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {}},
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}},
        {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "string"}]},
        {"type": "object", "properties": {"a": {}}, "nullable": True},
    ],
)
def test_a_body_that_is_more_than_an_object_with_properties_stays_whole(schema: dict[str, Any]) -> None:
    assert list(one(body(schema), method="post").input_schema["properties"]) == ["body"]


def test_all_of_plain_objects_is_taken_apart() -> None:
    schema = {
        "allOf": [{"$ref": "#/components/schemas/Base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]
    }
    base = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tool = one(body(schema), method="post", **components(Base=base))
    assert tool.input_schema["required"] == ["a", "b"]


def test_an_optional_body_needs_its_required_members_only_together() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"]}
    tool = one(body(schema, required=False), method="post")
    assert validate_arguments(tool, [], {}) == {}
    with pytest.raises(ArgumentsInvalid):
        validate_arguments(tool, [], {"b": 1})


def test_the_server_s_own_properties_are_no_inputs() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"$ref": "#/components/schemas/Id"}, "name": {"type": "string"}},
        "required": ["id", "name"],
    }
    more = components(Id={"type": "integer", "readOnly": True})
    tool = one(body(schema) | {"parameters": [parameter("id", "path", required=True)]}, "/i/{id}", "put", **more)
    assert tool.input_schema["required"] == ["id", "name"]
    assert tool.binding["body"]["arguments"] == {"name": "name"}


@pytest.mark.parametrize(
    ("media", "encoding"),
    [
        ("application/vnd.api+json", "json"),
        ("application/x-www-form-urlencoded", "form"),
        ("multipart/form-data", "multipart"),
        ("text/plain", "text"),
        ("application/octet-stream", "binary"),
        ("application/xml", "text"),
        ("*/*", "json"),
    ],
)
def test_media_types_have_encodings(media: str, encoding: str) -> None:
    tool = one(body({"type": "object", "properties": {"a": {"type": "string"}}}, media), method="post")
    assert tool.binding["body"]["encoding"] == encoding


def test_of_several_media_types_the_most_structured_is_sent() -> None:
    content = {"text/plain": {}, "multipart/form-data": {}, "application/json": {"schema": {"type": "object"}}}
    assert one({"requestBody": {"content": content}}, method="post").binding["body"]["media"] == "application/json"


def test_files_of_a_multipart_body_are_base64_or_described() -> None:
    schema = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}, "note": {"type": "string"}},
    }
    tool = one(body(schema, "multipart/form-data"), method="post")
    assert tool.binding["body"]["files"] == ["file"]
    assert validate_arguments(tool, [], {"file": b"\x00", "note": "n"}) == {"file": "AA==", "note": "n"}
    assert validate_arguments(tool, [], {"file": {"filename": "a.txt", "text": "hello"}})


def test_openapi_3_0_keywords_read_as_json_schema_2020_12() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "nullable": True, "example": "x"},
            "b": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "c": {"allOf": [{"$ref": "#/components/schemas/C"}], "nullable": True},
            "d": {"type": "string", "enum": ["x"], "nullable": True},
            "e": {"$ref": "#/components/schemas/C", "nullable": True},
        },
    }
    tool = one(body(schema), method="post", **components(C={"type": "integer"}))
    properties = tool.input_schema["properties"]
    assert properties["a"] == {"type": ["string", "null"], "examples": ["x"]}
    assert properties["b"] == {"type": "number", "exclusiveMinimum": 0}
    Draft202012Validator.check_schema(tool.input_schema)
    assert validate_arguments(tool, [], {"a": None, "b": 0.1, "c": None, "d": None, "e": None})
    for wrong in ({"b": 0}, {"c": "x"}, {"d": "y"}, {"e": "x"}):
        with pytest.raises(ArgumentsInvalid):
            validate_arguments(tool, [], wrong)


def test_openapi_3_1_siblings_of_a_reference_hold() -> None:
    both = {"$ref": "#/components/schemas/A", "allOf": [{"maxLength": 2}]}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A", "maxLength": 2}, "b": both}}
    tool = one(body(schema), method="post", version="3.1.0", **components(A={"type": "string"}))
    assert validate_arguments(tool, [], {"a": "xx"})
    with pytest.raises(ArgumentsInvalid):
        validate_arguments(tool, [], {"a": "xxx"})
    for wrong in ("xxx", 1):
        with pytest.raises(ArgumentsInvalid):
            validate_arguments(tool, [], {"b": wrong})


def test_malformed_keywords_are_left_out_rather_than_the_operation() -> None:
    schema = {
        "type": "any",
        "required": True,
        "enum": "x",
        "minimum": "0",
        "properties": {"a": {"type": "file"}},
        "pattern": 3,
    }
    tool = one({"parameters": [parameter("a", schema=schema)]})
    Draft202012Validator.check_schema(tool.input_schema)
    assert validate_arguments(tool, [], {"a": "anything"})


@pytest.mark.acceptance_id("T12")
def test_recursive_schemas_become_local_definitions_of_what_is_reachable() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/components/schemas/Node"}},
        "additionalProperties": False,
    }
    schema = {"type": "object", "properties": {"root": {"$ref": "#/components/schemas/Node"}}}
    tool = one(body(schema), method="post", **components(Node=node, Unused={"type": "string"}))
    assert set(tool.input_schema["$defs"]) == {"Node"}
    assert validate_arguments(tool, [], {"root": {"next": {"next": {}}}})
    with pytest.raises(ArgumentsInvalid):
        validate_arguments(tool, [], {"root": {"next": {"x": 1}}})


@pytest.mark.acceptance_id("T12")
@pytest.mark.timeout(10)
def test_circles_that_a_validator_would_run_in_for_ever_are_cut() -> None:
    pet = {"oneOf": [{"$ref": "#/components/schemas/Cat"}], "discriminator": {"propertyName": "kind"}}
    cat = {
        "allOf": [
            {"$ref": "#/components/schemas/Pet"},
            {"type": "object", "properties": {"claws": {"type": "integer"}}},
        ]
    }
    schema = {"type": "object", "properties": {"pet": {"$ref": "#/components/schemas/Pet"}}}
    tool = one(body(schema), method="post", **components(Pet=pet, Cat=cat))
    assert validate_arguments(tool, [], {"pet": {"claws": 3}})


@pytest.mark.acceptance_id("T12")
@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "operation",
    [
        {"parameters": [{"$ref": "#/components/parameters/A"}]},
        {"parameters": [parameter("a", schema={"$ref": "#/components/schemas/A"})]},
        body({"$ref": "#/components/schemas/Self"}),
        {"requestBody": {"$ref": "#/components/requestBodies/B"}},
        {"parameters": [parameter("a", schema={"$ref": "https://evil.example/x.json"})]},
        {"parameters": [parameter("a", schema={"$ref": "file:///etc/passwd"})]},
        {"parameters": [parameter("a", schema={"items": {"$ref": "other.yaml#/X"}})]},
        {"parameters": [parameter("a", schema={"$ref": "#/components/schemas/Missing"})]},
        {"parameters": [parameter("a", style="deepObject", **{"in": "path"})]},
        {"parameters": [{"in": "query"}]},
        {"requestBody": {"required": True}},
    ],
)
def test_an_operation_that_cannot_be_represented_is_skipped_with_the_reason(operation: dict[str, Any]) -> None:
    more = {
        "components": {
            "parameters": {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}},
            "schemas": {
                "A": {"$ref": "#/components/schemas/B"},
                "B": {"$ref": "#/components/schemas/A"},
                "Self": {"$ref": "#/components/schemas/Self"},
            },
            "requestBodies": {"B": {"$ref": "#/components/requestBodies/B"}},
        }
    }
    result = imported({"/bad": {"post": operation}, "/good": {"get": {}}}, **more)
    assert [tool.name for tool in result.tools] == ["get_good"]
    assert [skipped.where for skipped in result.skipped] == ["#/paths/~1bad/post"]
    assert result.skipped[0].why


def test_a_path_parameter_that_nobody_describes_skips_the_operation() -> None:
    result = imported({"/i/{id}": {"get": {}}})
    assert "id" in result.skipped[0].why


def test_references_are_followed_wherever_they_stand() -> None:
    more = {
        "x-paths": {"item": {"post": {"operationId": "make", "parameters": [{"$ref": "#/components/parameters/P"}]}}},
        "components": {
            "parameters": {"P": {"$ref": "#/components/parameters/Q"}, "Q": parameter("q", schema={"$ref": "#/x-s/0"})},
        },
        "x-s": [{"type": "integer"}],
    }
    tool = imported({"/a": {"$ref": "#/x-paths/item"}}, **more).tools[0]
    assert (tool.name, list(tool.input_schema["properties"])) == ("make", ["q"])
    assert validate_arguments(tool, [3], {})


def test_a_broken_answer_costs_the_description_of_the_answer_only() -> None:
    answer = {"200": {"content": {"application/json": {"schema": {"$ref": "#/nowhere"}}}}}
    assert one({"responses": answer}).output_schema is None


def test_huge_schemas_are_cut_at_the_far_end() -> None:
    chain = {
        f"S{n}": {
            "type": "object",
            "properties": {f"p{k}": {"type": "string"} for k in range(40)}
            | {"n": {"$ref": f"#/components/schemas/S{n + 1}"}},
        }
        for n in range(200)
    } | {"S200": {"type": "string"}}
    tool = one(
        body({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/S0"}}}),
        method="post",
        **components(**chain),
    )
    assert 5 < len(tool.input_schema["$defs"]) < 60
    Draft202012Validator.check_schema(tool.input_schema)
    assert validate_arguments(tool, [], {"a": {"n": {"n": {}}}})


def test_secret_arguments_are_marked() -> None:
    schema = {
        "type": "object",
        "properties": {
            "password": {"type": "string", "format": "password"},
            "pin": {"type": "string", "x-sensitive": True},
            "card": {"$ref": "#/components/schemas/Card"},
            "plain": {"type": "string"},
        },
    }
    card = {"type": "object", "properties": {"cvc": {"type": "string", "x-sensitive": True}}}
    tool = one(body(schema), method="post", **components(Card=card))
    assert tool.sensitive == {"password", "pin", "card"}


SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "login": {"type": "http", "scheme": "Basic"},
    "token": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "digest": {"type": "http", "scheme": "digest"},
}


def test_security_is_bound_as_alternatives_of_schemes() -> None:
    security = [{"key": [], "token": []}, {"oauth": ["read"]}, {}]
    tool = one({"security": security}, components={"securitySchemes": SCHEMES}, security=[{"login": []}])
    assert tool.binding["security"] == [
        {"key": {"kind": "header", "name": "X-Key"}, "token": {"kind": "bearer"}},
        {"oauth": {"kind": "bearer"}},
        {},
    ]
    assert one({}, components={"securitySchemes": SCHEMES}, security=[{"login": []}]).binding["security"] == [
        {"login": {"kind": "basic"}}
    ]
    assert one({"security": []}, security=[{"login": []}]).binding["security"] == []


def test_schemes_are_reported_and_their_parameters_are_no_arguments() -> None:
    result = imported(
        {"/a": {"get": {"security": [{"key": []}], "parameters": [parameter("x-key", "header"), parameter("q")]}}},
        components={"securitySchemes": SCHEMES},
    )
    assert result.security["digest"]["kind"] == "unsupported"
    assert list(result.tools[0].input_schema["properties"]) == ["q"]


@pytest.mark.parametrize(
    ("servers", "base_url", "document_url", "expected"),
    [
        ([{"url": "https://a.example/v1/"}], None, None, "https://a.example/v1"),
        ([{"url": "https://a.example/v1"}], "http://b.example/x", None, "http://b.example/x"),
        ([{"url": "/v1"}], "http://b.example", None, "http://b.example/v1"),
        ([{"url": "/v1"}], "http://b.example/x", None, "http://b.example/x"),
        ([{"url": "/v1"}], None, "https://c.example/docs/openapi.json", "https://c.example/v1"),
        ([], None, "https://c.example/docs/openapi.json", "https://c.example"),
        (
            [{"url": "https://{region}.example/{v}", "variables": {"region": {"default": "eu"}, "v": {"default": 2}}}],
            None,
            None,
            "https://eu.example/2",
        ),
    ],
)
def test_the_base_address(servers: Any, base_url: str | None, document_url: str | None, expected: str) -> None:
    text = document({}, servers=servers)
    assert import_document(text, source="s", base_url=base_url, document_url=document_url).base_url == expected


@pytest.mark.parametrize(
    "server", ["ftp://x/y", "https://user:pw@x/", "https://{a}.example", "/only/relative", "http://[bad"]
)
def test_a_document_without_a_usable_address_is_refused(server: str) -> None:
    with pytest.raises(DocumentError) as caught:
        import_document(document({}, servers=[{"url": server}]), source="s", base_url=None)
    assert caught.value.code == "spec_invalid"


def test_servers_of_paths_and_operations_override_unless_the_address_is_explicit() -> None:
    paths = {
        "/a": {"servers": [{"url": "https://up.example"}], "get": {}, "post": {"servers": [{"url": "/v2"}]}},
        "/b": {"get": {}},
    }
    text = document(paths, servers=[{"url": "https://a.example/v1"}])
    own = {tool.name: tool.binding["server"] for tool in import_document(text, source="s", base_url=None).tools}
    assert own == {"get_a": "https://up.example", "post_a": "https://a.example/v2", "get_b": None}
    explicit = import_document(text, source="s", base_url="http://test.example/")
    assert {tool.binding["server"] for tool in explicit.tools} == {None}


@pytest.mark.parametrize(
    ("root", "code"),
    [
        ({"swagger": "2.0", "paths": {}}, "spec_unsupported"),
        ({"openapi": "4.0.0", "paths": {}}, "spec_unsupported"),
        ({"openapi": "3.10.0", "paths": {}}, "spec_unsupported"),
        ({"paths": {}}, "spec_invalid"),
        ({"openapi": "3.0.0", "paths": []}, "spec_invalid"),
    ],
)
def test_other_documents_are_refused_with_a_clear_code(root: dict[str, Any], code: str) -> None:
    with pytest.raises(DocumentError) as caught:
        import_document(json.dumps(root).encode(), source="s", base_url=BASE)
    assert caught.value.code == code


def test_a_reordered_document_gives_the_same_tools() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A"}}}
    paths = {
        f"/{name}/{{id}}": {
            method: {"operationId": "same", "parameters": [parameter("id", "path", required=True)]}
            | (body(schema) if method == "post" else {})
            for method in ("get", "post")
        }
        for name in ("x", "y", "z-1", "z_1")
    }
    schemas = {
        "A": {"oneOf": [{"$ref": "#/components/schemas/B"}]},
        "B": {"allOf": [{"$ref": "#/components/schemas/A"}]},
    }
    first = imported(paths, **components(**schemas))
    shuffled = list(paths.items())
    random.Random(3).shuffle(shuffled)
    reordered = {path: dict(reversed(item.items())) for path, item in shuffled}
    second = imported(reordered, **components(**dict(reversed(schemas.items()))))
    assert first.tools == second.tools
    assert len({tool.name for tool in first.tools}) == 8


@pytest.mark.acceptance_id("T12")
@pytest.mark.timeout(60)
def test_a_document_of_sixteen_megabytes_imports() -> None:
    filler = "x" * 12_000
    item = {"type": "object", "description": filler, "properties": {"next": {"$ref": "#/components/schemas/S1"}}}
    paths = {f"/p{n}": {"post": body({"$ref": f"#/components/schemas/S{n}"})} for n in range(1_300)}
    text = document(paths, **components(**{f"S{n}": item for n in range(1_300)}))
    assert 15_000_000 < len(text) < 16 * 1024 * 1024
    result = import_document(text, source="demo", base_url=BASE)
    assert (len(result.tools), result.skipped) == (1_300, ())


def test_every_tool_is_plain_json_with_a_valid_schema() -> None:
    paths = {
        "/a/{id}": {
            "post": body({"type": "object", "properties": {"x": {"type": "integer"}}})
            | {"parameters": [parameter("id", "path")]}
        }
    }
    for tool in imported(paths).tools:
        Draft202012Validator.check_schema(tool.input_schema)
        json.dumps([tool.input_schema, tool.binding], allow_nan=False)


JUNK = st.sampled_from(
    [None, True, 7, "x", [], {}, [None], {"$ref": "#"}, {"$ref": 3}, {"$ref": "#/paths"}, {"a": "b"}]
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path] * bool(path) + [deeper for key, child in children for deeper in places(child, (*path, key))]


WHOLE = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "servers": [{"url": "/{v}", "variables": {"v": {"default": "v1"}}}],
    "security": [{"key": []}],
    "paths": {
        "/a/{id}": {
            "parameters": [parameter("id", "path", required=True, description="d")],
            "servers": [{"url": "https://x.example"}],
            "post": {
                "operationId": "make",
                "tags": ["t"],
                "parameters": [
                    {"$ref": "#/components/parameters/P"},
                    {"in": "cookie", "name": "c", "content": {"a/b": {}}},
                ],
                "responses": {"201": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S"}}}}},
            }
            | body({"$ref": "#/components/schemas/S"}, "multipart/form-data"),
        }
    },
    "components": {
        "parameters": {"P": parameter("p", style="deepObject", explode=True)},
        "schemas": {
            "S": {
                "type": ["object", "null"],
                "properties": {"a": {"enum": [1], "default": 1}, "f": {"type": "array", "items": {"format": "binary"}}},
                "required": ["a"],
                "allOf": [{"properties": {"s": {"$ref": "#/components/schemas/S", "description": "again"}}}],
                "dependentRequired": {"a": ["f"]},
            }
        },
        "securitySchemes": {"key": SCHEMES["key"]},
    },
}


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(places(WHOLE)), JUNK), min_size=1, max_size=4))
def test_whatever_is_wrong_with_a_document_is_told_as_such(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    root = json.loads(json.dumps(WHOLE))
    for path, junk in changes:
        node = root
        try:
            for step in path[:-1]:
                node = node[step]
            node[path[-1]] = json.loads(json.dumps(junk))
        except (KeyError, IndexError, TypeError):
            continue
    try:
        result = import_document(json.dumps(root).encode(), source="s", base_url=BASE)
    except DocumentError:
        return
    for tool in result.tools:
        Draft202012Validator.check_schema(tool.input_schema)
