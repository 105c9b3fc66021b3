"""Requests are written as OpenAPI's styles say, and no value means more than itself."""

import json
from email import message_from_bytes
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.tools.bounds import MAX_URL_BYTES
from runs.tools.credentials import Applied
from runs.tools.http_request import Plan, RequestInvalid, plan_request

LIST, OBJECT = ["blue", "black"], {"R": 100, "G": 200}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def parameter(name: str, place: str, style: str, explode: bool, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "style": style,
        "explode": explode,
        "reserved": False,
        "content": None,
        "arg": name,
    } | more


def plan(
    path: str = "/x",
    parameters: list[dict[str, Any]] | None = None,
    arguments: dict[str, Any] | None = None,
    body: dict[str, Any] | None = None,
    applied: Applied | None = None,
) -> Plan:
    binding = {"method": "POST", "path": path, "parameters": parameters or [], "body": body, "server": None}
    return plan_request(binding, "https://api.example/v1/", arguments or {}, applied or Applied(), {})


def headers(made: Plan) -> dict[str, str]:
    return {name.decode().lower(): value.decode() for name, value in made.headers}


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, LIST, "blue,black"),
        ("simple", False, OBJECT, "R,100,G,200"),
        ("simple", True, OBJECT, "R=100,G=200"),
        ("label", False, "blue", ".blue"),
        ("label", False, LIST, ".blue,black"),
        ("label", True, LIST, ".blue.black"),
        ("label", True, OBJECT, ".R=100.G=200"),
        ("label", False, OBJECT, ".R,100,G,200"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, LIST, ";color=blue,black"),
        ("matrix", True, LIST, ";color=blue;color=black"),
        ("matrix", True, OBJECT, ";R=100;G=200"),
        ("matrix", False, OBJECT, ";color=R,100,G,200"),
        ("simple", False, True, "true"),
        ("simple", False, 1.5, "1.5"),
    ],
)
def test_path_styles(style: str, explode: bool, value: Any, expected: str) -> None:
    made = plan("/a/{color}", [parameter("color", "path", style, explode)], {"color": value})
    assert made.url == f"https://api.example/v1/a/{expected}"


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, "a b&c", "color=a%20b%26c"),
        ("form", True, LIST, "color=blue&color=black"),
        ("form", False, LIST, "color=blue,black"),
        ("form", True, OBJECT, "R=100&G=200"),
        ("form", False, OBJECT, "color=R,100,G,200"),
        ("spaceDelimited", False, LIST, "color=blue%20black"),
        ("pipeDelimited", False, LIST, "color=blue%7Cblack"),
        ("pipeDelimited", True, LIST, "color=blue&color=black"),
        (
            "deepObject",
            True,
            {"R": 100, "in": {"x": [1, 2]}},
            "color%5BR%5D=100&color%5Bin%5D%5Bx%5D=1&color%5Bin%5D%5Bx%5D=2",
        ),
        ("form", True, None, ""),
        ("form", True, [], ""),
    ],
)
def test_query_styles(style: str, explode: bool, value: Any, expected: str) -> None:
    made = plan("/a", [parameter("color", "query", style, explode)], {"color": value})
    assert urlsplit(made.url).query == expected


def test_reserved_characters_may_stay_but_never_end_the_value() -> None:
    made = plan("/a", [parameter("q", "query", "form", True, reserved=True)], {"q": "a/b?c&d=e#f"})
    assert urlsplit(made.url).query == "q=a/b?c%26d%3De%23f"


def test_headers_cookies_and_json_parameters() -> None:
    parameters = [
        parameter("X-List", "header", "simple", False),
        parameter("session", "cookie", "form", True),
        parameter("filter", "query", "form", True, content="application/json"),
    ]
    made = plan("/a", parameters, {"X-List": [1, 2], "session": "a;b", "filter": {"a": [1]}})
    assert headers(made) == {"x-list": "1,2", "cookie": "session=a%3Bb"}
    assert parse_qsl(urlsplit(made.url).query) == [("filter", '{"a":[1]}')]


def test_credentials_win_over_arguments_and_do_not_show() -> None:
    applied = Applied({"X-Key": "secret-1"}, [("key", "secret-2")], [("sid", "secret-3")])
    made = plan("/a", [parameter("X-Key", "header", "simple", False)], {"X-Key": "mine"}, applied=applied)
    assert headers(made) == {"x-key": "secret-1", "cookie": "sid=secret-3"}
    assert made.url.endswith("?key=secret-2")
    assert "secret" not in repr(made) + repr(applied)


@pytest.mark.parametrize("value", ["", ".", "..", None, []])
def test_a_path_parameter_that_would_mean_another_path_is_refused(value: Any) -> None:
    with pytest.raises(RequestInvalid):
        plan("/items/{id}", [parameter("id", "path", "simple", False)], {"id": value})


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\x00b", "\x7f"])
def test_a_header_cannot_be_split(value: str) -> None:
    with pytest.raises(RequestInvalid):
        plan("/a", [parameter("X-A", "header", "simple", False)], {"X-A": value})


def test_an_address_over_the_bound_is_refused() -> None:
    with pytest.raises(RequestInvalid, match="longer than"):
        plan("/a", [parameter("q", "query", "form", True)], {"q": "x" * MAX_URL_BYTES})


@given(TEXT, st.sampled_from(["simple", "label", "matrix"]), st.booleans(), st.booleans())
def test_a_path_value_stays_one_segment_and_reads_back(text: str, style: str, explode: bool, many: bool) -> None:
    value = [text, text] if many else text
    try:
        made = plan("/items/{id}/end", [parameter("id", "path", style, explode)], {"id": value})
    except RequestInvalid:
        assert text in ("", ".", "..")
        return
    # What httpx sends is what counts: it normalises dot segments and quotes by itself.
    target = httpx.URL(made.url).raw_path.decode()
    segments = target.split("/")
    assert segments[:3] == ["", "v1", "items"]
    assert segments[4:] == ["end"]
    assert "?" not in target
    assert "#" not in target
    if style == "simple" and not many:
        assert unquote(segments[3]) == text


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4))
def test_query_values_read_back_whatever_they_hold(values: dict[str, str]) -> None:
    made = plan("/a", [parameter(name, "query", "form", True) for name in values], values)
    target = httpx.URL(made.url).raw_path.decode()
    assert parse_qsl(urlsplit(target).query, keep_blank_values=True) == list(values.items())


def encoded(
    encoding: str, media: str, arguments: dict[str, Any], whole: bool = False, files: list[str] | None = None
) -> tuple[bytes, str]:
    names = {"body": "body"} if whole else {name: name for name in arguments}
    body = {
        "media": media,
        "encoding": encoding,
        "required": True,
        "whole": whole,
        "arguments": names,
        "files": files or [],
    }
    made = plan("/a", [], arguments, body)
    assert made.content is not None
    return made.content, headers(made)["content-type"]


def test_json_bodies() -> None:
    assert encoded("json", "application/json", {"a": 1, "b": None}) == (b'{"a":1,"b":null}', "application/json")
    assert encoded("json", "*/*", {"body": [1]}, whole=True) == (b"[1]", "application/json")


def test_form_bodies() -> None:
    content, _ = encoded(
        "form", "application/x-www-form-urlencoded", {"a": [1, 2], "b": {"c": True}, "d": None, "e": "&"}
    )
    assert parse_qsl(content.decode()) == [("a", "1"), ("a", "2"), ("b", '{"c":true}'), ("e", "&")]


def test_text_and_binary_bodies() -> None:
    assert encoded("text", "text/plain", {"body": "hé"}, whole=True) == ("hé".encode(), "text/plain; charset=utf-8")
    assert encoded("binary", "application/octet-stream", {"body": "AP8="}, whole=True)[0] == b"\x00\xff"
    with pytest.raises(RequestInvalid, match="base64"):
        encoded("binary", "application/octet-stream", {"body": "no!"}, whole=True)


def test_multipart_bodies() -> None:
    arguments = {
        "note": 'say "hi"',
        "meta": {"a": 1},
        "file": {"filename": 'x"\r\n.txt', "text": "hello"},
        "files": ["AP8=", "AQ=="],
    }
    content, kind = encoded("multipart", "multipart/form-data", arguments, files=["file", "files"])
    message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + content)
    parts: list[Any] = message.get_payload()  # type: ignore[assignment]
    seen = [(p.get_param("name", header="content-disposition"), p.get_payload(decode=True)) for p in parts]
    assert seen == [
        ("note", b'say "hi"'),
        ("meta", b'{"a":1}'),
        ("file", b"hello"),
        ("files", b"\x00\xff"),
        ("files", b"\x01"),
    ]
    assert json.loads(seen[1][1]) == {"a": 1}
    assert parts[2].get_filename() == "x%22%0D%0A.txt"


def test_an_optional_body_without_arguments_is_left_out() -> None:
    body = {
        "media": "application/json",
        "encoding": "json",
        "required": False,
        "whole": False,
        "arguments": {"a": "a"},
        "files": [],
    }
    assert plan("/a", [], {}, body).content is None
    assert plan("/a", [], {}, body | {"required": True}).content == b"{}"
