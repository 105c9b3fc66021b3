"""Pauses over HTTP: asked, decided once, by the right person, replayed, expired (section E, 3 to 12 and 22)."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.checker import assert_sound
from tests.support.client import at_once
from tests.support.site import Site, eventually, module_site

CONTRACT = {"id", "kind", "message", "tool", "args", "expires_at", "approve_url"}


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from module_site(request, tmp_path_factory, "web", "cluster")


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    yield shared
    assert_sound(shared)


@pytest.fixture
def ref() -> str:
    return uuid4().hex


def gated(ref: str, *, source: str = "shop", amount: int = 5) -> str:
    return f"import {source}\n{source}.create_charge(amount={amount}, ref={ref!r})['charged']"


def paused(site: Site, code: str, token: str = "ann", **fields: Any) -> dict[str, Any]:
    answer = site.client(token).execute(code, **fields)
    assert answer["status"] == "paused", answer
    return answer


def pending(site: Site, run_id: str) -> list[dict[str, Any]]:
    return [pause for pause in site.client().run(run_id)["pauses"] if pause["state"] == "pending"]


@pytest.mark.acceptance_id("E1")
def test_a_plain_success_asks_nobody(site: Site) -> None:
    count = "SELECT count(*) AS n FROM runs_pausedexecution WHERE decision IS NULL"
    before = site.rows(count)
    answer = site.client().execute("import free\n[free.get_item(id='7')['name'], inputs['x']]", inputs={"x": 3})
    assert answer == {"status": "completed", "run_id": answer["run_id"], "result": ["item 7", 3], "logs": []}
    assert site.rows(count) == before
    assert site.client().run(answer["run_id"])["state"] == "succeeded"


@pytest.mark.acceptance_id("E2")
@pytest.mark.parametrize(
    ("broken", "code"), [("x = = 1", "syntax_error"), ("class A(B):\n    pass", "unsupported_construct")]
)
def test_a_program_that_cannot_start_fails_at_once_and_calls_nothing(
    site: Site, ref: str, broken: str, code: str
) -> None:
    answer = site.client().execute(f"import free\nfree.create_charge(amount=1, ref={ref!r})\n{broken}")
    assert (answer["status"], answer["error"]["code"], answer["error"]["line"]) == ("failed", code, 3)
    assert answer["retry_safe"] is True
    assert site.sink.count(ref) == 0
    assert not site.client().effects(answer["run_id"])


@pytest.mark.acceptance_id("E3")
def test_a_gated_call_pauses_with_all_a_person_needs(site: Site, ref: str) -> None:
    answer = paused(site, gated(ref))
    execution = answer["execution"]
    assert execution.keys() >= CONTRACT
    assert execution["id"].startswith("exec_")
    assert (execution["kind"], execution["tool"]) == ("approval", "shop.create_charge")
    assert execution["args"] == {"amount": 5, "ref": ref}
    assert execution["approve_url"].endswith(f"/approve/{execution['id']}")
    assert isinstance(answer["instructions"], str)
    shown = site.client().execution(execution["id"])
    assert (shown["state"], shown["tool"], shown["outcome"]) == ("pending", "shop.create_charge", None)
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E3")
@pytest.mark.parametrize("arguments", ["amount='five', ref={ref!r}", "ref={ref!r}", "amount=1, ref={ref!r}, more=1"])
def test_bad_arguments_reach_neither_a_person_nor_the_network(site: Site, ref: str, arguments: str) -> None:
    answer = site.client().execute(f"import shop\nshop.create_charge({arguments.format(ref=ref)})")
    assert answer["status"] == "failed", answer
    assert answer["error"]["code"] == "invalid_arguments"
    assert answer["retry_safe"] is True
    assert not site.client().run(answer["run_id"])["pauses"]
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E4")
def test_a_second_question_after_a_resume_is_a_second_pause(site: Site, ref: str) -> None:
    call = "shop.create_charge(amount={}, ref={!r})"
    first = paused(site, f"import shop\n{call.format(1, ref + '-1')}\n{call.format(2, ref + '-2')}\n'both'")
    second = site.client().resume(first["execution"]["id"])
    assert second["status"] == "paused"
    assert second["execution"]["id"] != first["execution"]["id"]
    assert (site.sink.count(ref + "-1"), site.sink.count(ref + "-2")) == (1, 0)
    done = site.client().resume(second["execution"]["id"])
    assert (done["status"], done["result"]) == ("completed", "both")
    assert (site.sink.count(ref + "-1"), site.sink.count(ref + "-2")) == (1, 1)


@pytest.mark.acceptance_id("E4")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_questions_at_once_are_both_listed_and_answerable_in_any_order(
    site: Site, ref: str, order: tuple[int, int]
) -> None:
    refs = [f"{ref}-{number}" for number in range(2)]
    calls = ", ".join(f"shop.create_charge(amount=1, ref={one!r})" for one in refs)
    answer = paused(site, f"import asyncio, shop\n[a['ref'] for a in await asyncio.gather({calls})]")
    by_ref = {pause["args"]["ref"]: pause["id"] for pause in pending(site, answer["run_id"])}
    assert by_ref.keys() == set(refs)
    half = site.client().resume(by_ref[refs[order[0]]])
    assert (half["status"], half["execution"]["id"]) == ("paused", by_ref[refs[order[1]]])
    done = site.client().resume(by_ref[refs[order[1]]])
    assert done["result"] == refs
    assert [site.sink.count(one) for one in refs] == [1, 1]


@pytest.mark.acceptance_id("E4")
def test_two_questions_answered_at_the_same_moment_are_both_taken(site: Site, ref: str) -> None:
    refs = [f"{ref}-{number}" for number in range(2)]
    calls = ", ".join(f"shop.create_charge(amount=1, ref={one!r})" for one in refs)
    answer = paused(site, f"import asyncio, shop\nlen(await asyncio.gather({calls}))")
    executions = [pause["id"] for pause in pending(site, answer["run_id"])]
    at_once([lambda one=one: site.client().resume_reply(one) for one in executions])
    assert site.wait_state(answer["run_id"], "succeeded", "failed", "unconfirmed") == "succeeded"
    assert [site.sink.count(one) for one in refs] == [1, 1]


@pytest.mark.acceptance_id("E5")
def test_an_accepted_call_runs_once_and_the_program_goes_on(site: Site, ref: str) -> None:
    answer = paused(site, gated(ref, amount=9))
    done = site.client().resume(answer["execution"]["id"])
    assert (done["status"], done["result"]) == ("completed", 9)
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E5")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refused_call_never_runs_and_the_program_sees_it(site: Site, ref: str, action: str) -> None:
    code = (
        f"import shop\ntry:\n    shop.create_charge(amount=1, ref={ref!r})\n"
        "except PermissionError as error:\n    said = str(error)\nsaid"
    )
    answer = paused(site, code)
    done = site.client().resume(answer["execution"]["id"], action, reason="too dear")
    assert done["status"] == "completed", done
    assert "approval_declined" in done["result"]
    assert "too dear" in done["result"]
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E5")
def test_a_refusal_the_program_does_not_catch_fails_with_its_code(site: Site, ref: str) -> None:
    done = site.client().resume(paused(site, gated(ref))["execution"]["id"], "decline")
    assert (done["status"], done["error"]["code"]) == ("failed", "approval_declined")
    assert done["retry_safe"] is True
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E6")
def test_64_resumes_at_once_get_one_outcome_and_one_effect(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref))["execution"]["id"]
    answers = at_once([lambda: site.client().resume(execution) for _ in range(64)])
    assert answers[0]["status"] == "completed"
    assert all(answer == answers[0] for answer in answers)
    assert site.client().resume(execution) == answers[0]
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E6", "E7")
def test_of_opposite_decisions_at_once_one_wins_and_the_others_are_told(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref))["execution"]["id"]
    replies = at_once(
        [lambda n=n: site.client().resume_reply(execution, ("accept", "decline")[n % 2]) for n in range(16)]
    )
    decision = site.client().execution(execution)["decision"]
    for number, reply in enumerate(replies):
        if ("accept", "decline")[number % 2] == decision:
            assert reply.status == 200
        else:
            assert (reply.status, reply.code) == (409, "decided_differently")
    site.transcript.decisions[execution] = decision
    assert site.sink.count(ref) == (1 if decision == "accept" else 0)


@pytest.mark.acceptance_id("E7")
def test_another_decision_on_a_settled_pause_changes_nothing(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref))["execution"]["id"]
    done = site.client().resume(execution)
    for action in ("decline", "cancel"):
        reply = site.client().ask("POST", f"/executions/{execution}/resume", json={"action": action})
        assert (reply.status, reply.code) == (409, "decided_differently")
    assert site.client().resume(execution) == done
    assert site.client().execution(execution)["decision"] == "accept"
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E7")
def test_an_unknown_pause_and_another_owners_are_the_same_404(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref))["execution"]["id"]
    bodies = []
    for one in (execution, f"exec_{uuid4()}", "exec_nonsense", "nonsense"):
        for method, path, body in (("GET", "", None), ("POST", "/resume", {"action": "accept"})):
            reply = site.client("bob").ask(method, f"/executions/{one}{path}", json=body)
            assert reply.status == 404
            reply.body["error"].pop("correlation_id")
            bodies.append(reply.body)
    assert all(body == bodies[0] for body in bodies)
    assert site.client().execution(execution)["state"] == "pending"


@pytest.mark.acceptance_id("E8")
def test_a_failure_is_replayed_as_that_failure(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref) + "\nraise ValueError('after all')")["execution"]["id"]
    first = site.client().resume(execution)
    assert (first["status"], first["error"]["code"]) == ("failed", "program_error")
    assert first["effects"] == {"settled": 1, "unknown": 0}
    assert first["retry_safe"] is False
    assert site.client().resume(execution) == first
    assert site.client().execution(execution)["outcome"] == first
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E9")
def test_the_pause_of_a_cancelled_run_answers_the_runs_outcome(site: Site, ref: str) -> None:
    answer = paused(site, gated(ref))
    assert site.client().cancel(answer["run_id"])["state"] == "cancelled"
    execution = answer["execution"]["id"]
    assert site.client().execution(execution)["state"] == "settled"
    for action in ("accept", "decline"):
        assert site.client().resume(execution, action) == {"status": "cancelled", "run_id": answer["run_id"]}
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E9")
def test_the_other_question_of_a_program_that_ended_answers_its_end(site: Site, ref: str) -> None:
    refs = [f"{ref}-{number}" for number in range(2)]
    calls = ", ".join(f"shop.create_charge(amount=1, ref={one!r})" for one in refs)
    answer = paused(site, f"import asyncio, shop\nawait asyncio.gather({calls})")
    first, second = (pause["id"] for pause in pending(site, answer["run_id"]))
    failed = site.client().resume(first, "decline")
    assert (failed["status"], failed["error"]["code"]) == ("failed", "approval_declined")
    assert not pending(site, answer["run_id"])
    assert site.client().resume(second) == failed
    assert [site.sink.count(one) for one in refs] == [0, 0]


@pytest.mark.acceptance_id("E11")
def test_the_token_that_ran_the_code_cannot_approve_without_the_scope(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref), token="ann-runs")["execution"]["id"]
    reply = site.client("ann-runs").resume_reply(execution)
    assert (reply.status, reply.code) == (403, "insufficient_scope")
    assert site.client().execution(execution)["state"] == "pending"
    assert site.sink.count(ref) == 0
    assert site.client("ann").resume(execution)["status"] == "completed"


@pytest.mark.acceptance_id("E11")
def test_a_staff_approval_needs_a_staff_user_and_names_them(site: Site, ref: str) -> None:
    execution = paused(site, gated(ref, source="staffed"))["execution"]["id"]
    reply = site.client("ann").resume_reply(execution)
    assert (reply.status, reply.code) == (403, "forbidden")
    assert site.client("sam").resume(execution, reason="seen")["status"] == "completed"
    shown = site.client().execution(execution)
    assert (shown["decided_by"], shown["decided_via"], shown["reason"]) == ("sam", "api", "seen")
    assert shown["decided_at"]
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E11")
@pytest.mark.parametrize(
    ("loss", "status"),
    [
        ("UPDATE runs_token SET revoked_at = now() WHERE name = '{name}'", 401),
        ("UPDATE runs_token SET expires_at = now() WHERE name = '{name}'", 401),
        ("UPDATE runs_token SET scopes = ARRAY['run'] WHERE name = '{name}'", 403),
    ],
)
def test_someone_who_lost_the_right_meanwhile_is_refused(site: Site, ref: str, loss: str, status: int) -> None:
    name = f"temp-{ref[:8]}"
    site.write(
        "INSERT INTO runs_token (id, name, digest, scopes, user_id) SELECT gen_random_uuid(), %s, sha256(%s::bytea),"
        " ARRAY['run', 'approve'], id FROM auth_user WHERE username = 'ann'",
        name,
        name,
    )
    execution = paused(site, gated(ref), token=name)["execution"]["id"]
    site.write(loss.format(name=name))
    assert site.client(name).resume_reply(execution).status == status
    assert site.client().execution(execution)["state"] == "pending"
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E12")
def test_an_expired_pause_is_410_and_the_program_sees_the_refusal(site: Site, ref: str) -> None:
    code = (
        f"import shop\ntry:\n    shop.create_charge(amount=1, ref={ref!r})\n"
        "except PermissionError as error:\n    said = str(error)\nsaid"
    )
    answer = paused(site, code)
    execution = answer["execution"]["id"]
    site.write(
        "UPDATE runs_pausedexecution SET expires_at = now() - interval '1 s' WHERE run_id = %s", answer["run_id"]
    )
    reply = site.client().resume_reply(execution)
    assert (reply.status, reply.code) == (410, "pause_expired")
    assert site.sink.count(ref) == 0
    site.sweep()
    assert site.wait_state(answer["run_id"], "succeeded", "failed") == "succeeded"
    assert "approval_expired" in site.client().run(answer["run_id"])["outcome"]["result"]
    assert site.client().execution(execution)["state"] == "expired"
    assert site.client().resume_reply(execution).status == 410
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("E17")
def test_waiting_for_people_is_not_compute_time(site: Site, ref: str) -> None:
    calls = "\n".join(f"shop.create_charge(amount=1, ref='{ref}-{n}')" for n in range(3))
    answer = paused(site, f"import shop\n{calls}\n'done'", timeout_s=0.5)
    for _ in range(3):
        asked = time.monotonic()
        eventually(lambda asked=asked: time.monotonic() - asked > 0.6)  # a person takes longer than the budget
        answer = site.client().resume(answer["execution"]["id"])
    assert (answer["status"], answer["result"]) == ("completed", "done")


@pytest.mark.acceptance_id("E22")
def test_after_retention_a_settled_pause_says_so_and_an_unknown_one_stays_unknown(site: Site, ref: str) -> None:
    answer = paused(site, gated(ref))
    execution = answer["execution"]["id"]
    site.client().resume(execution)
    site.write("UPDATE runs_run SET finished_at = now() - interval '100 days' WHERE id = %s", answer["run_id"])
    site.sweep()
    for action in ("accept", "decline"):
        reply = site.client().ask("POST", f"/executions/{execution}/resume", json={"action": action})
        assert reply.status in (409, 410), reply.body
        assert reply.code in ("already_settled", "decided_differently")
    assert site.client().resume_reply(execution).code == "already_settled"
    shown = site.client().execution(execution)
    assert shown["state"] == "settled"
    assert ref not in str(shown)
    assert site.client().resume_reply(f"exec_{uuid4()}").code == "not_found"
    assert site.sink.count(ref) == 1


# -- forms ---------------------------------------------------------------------------------------------------

SIZE = "{'type': 'object', 'properties': {'size': {'enum': ['S', 'M']}}, 'required': ['size']}"


@pytest.mark.acceptance_id("E3", "E5")
def test_a_form_is_answered_with_content_that_fits_its_schema(site: Site) -> None:
    answer = paused(site, f"ask('Which size?', schema={SIZE})['size']")
    execution = answer["execution"]
    assert (execution["kind"], execution["message"]) == ("form", "Which size?")
    assert execution["requested_schema"]["properties"]["size"] == {"enum": ["S", "M"]}
    for content in (None, {}, {"size": "XL"}, "S", ["S"]):
        reply = site.client().ask(
            "POST", f"/executions/{execution['id']}/resume", json={"action": "accept", "content": content}
        )
        assert (reply.status, reply.code) == (422, "content_invalid")
    assert site.client().execution(execution["id"])["state"] == "pending"
    done = site.client().resume(execution["id"], content={"size": "M"})
    assert (done["status"], done["result"]) == ("completed", "M")
    assert site.client().resume(execution["id"], content={"size": "M"}) == done
    other = site.client().ask(
        "POST", f"/executions/{execution['id']}/resume", json={"action": "accept", "content": {"size": "S"}}
    )
    assert (other.status, other.code) == (409, "decided_differently")
