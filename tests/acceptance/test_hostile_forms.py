"""Schemas and answers from strangers: nothing is fetched, nothing hangs, and the site goes on answering (E17, E19)."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support.site import Site, module_site


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from module_site(request, tmp_path_factory, "web")


def asked(site: Site, schema: str) -> str:
    answer = site.client().execute(f"return ask('x', schema={schema})")
    assert answer["status"] == "paused", answer
    return str(answer["execution"]["id"])


@pytest.mark.acceptance_id("E19")
def test_a_schema_that_refers_elsewhere_is_never_fetched(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        called = threading.Event()

        def accept() -> None:
            try:
                listener.accept()[0].close()
            except OSError:
                return
            called.set()

        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        execution = asked(site, f"{{'properties': {{'a': {{'$ref': '{url}'}}}}}}")
        reply = site.client().resume_reply(execution, content={"a": 5})
        assert (reply.status, reply.code) == (422, "content_invalid")
        assert not called.is_set()
        listener.shutdown(socket.SHUT_RDWR)
    assert site.client().resume_reply(execution, "decline").status == 200


@pytest.mark.acceptance_id("E17")
def test_a_catastrophic_pattern_costs_nothing(site: Site) -> None:
    execution = asked(site, "{'type': 'object', 'properties': {'a': {'type': 'string', 'pattern': '(a+)+$'}}}")
    reply = site.client().resume_reply(execution, content={"a": "a" * 40 + "!"})
    assert (reply.status, reply.code) == (422, "content_invalid")
    assert site.client().healthy()


@pytest.mark.parametrize("schema", ["{'$ref': '#'}", "{'$defs': {'a': {'$ref': '#/$defs/a'}}, '$ref': '#/$defs/a'}"])
def test_a_schema_that_nothing_can_be_checked_against_is_the_programs_error(site: Site, schema: str) -> None:
    answer = site.client().execute(
        f"try:\n    ask('x', schema={schema})\nexcept ValueError as error:\n    told = str(error)\ntold"
    )
    assert "cannot be used" in answer["result"]


@pytest.mark.acceptance_id("E18")
def test_state_that_cannot_be_kept_fails_at_once_with_its_code(site: Site) -> None:
    answer = site.client().execute("x = ['y' * 1000 for i in range(36000)]\nask('big')")
    assert answer["error"]["code"] == "checkpoint_too_large", answer


def test_another_host_name_and_another_method_are_answered_by_the_contract(site: Site) -> None:
    foreign = site.client().ask("GET", "/runs", headers={"Host": "evil.example"})
    assert (foreign.status, foreign.code) == (400, "invalid_request")
    method = site.client().ask("PUT", "/executions", json={})
    assert (method.status, method.code, method.headers["Allow"]) == (405, "method_not_allowed", "POST")
