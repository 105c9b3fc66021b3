"""/metrics: what Prometheus reads, and who may."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.asgi import Site, database_url, problem, site, transactional_db
from tests.support.pg import conn, rows

__all__ = ["conn", "database_url", "rows", "site", "transactional_db"]

ABROAD = ("198.51.100.7", 40_000)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.acceptance_id("S5")
async def test_the_figures_are_those_of_the_database(site: Site, conn: Any) -> None:
    nobody = await site.client()
    agent = await site.client("run")
    await agent.post("/api/v1/executions", json={"code": "1 + 1"})
    await agent.post("/api/v1/executions", json={"code": "raise ValueError('no')"})
    asked = await agent.post("/api/v1/executions", json={"code": "ask('Which size?')", "wait_s": 20})
    assert asked.json()["status"] == "paused"
    answer = await nobody.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    found = samples(answer.text)
    assert found["executor_runs", (("state", "succeeded"),)] == 1
    assert found["executor_runs", (("state", "paused"),)] == 1
    assert found["executor_runs", (("state", "unconfirmed"),)] == 0
    failed = (("category", "user"), ("code", "program_error"), ("state", "failed"))
    assert found["executor_runs_finished_last_hour", failed] == 1
    assert found["executor_run_duration_seconds", (("quantile", "0.5"),)] > 0
    assert found["executor_approvals_pending", ()] == 1
    assert found["executor_approvals_oldest_age_seconds", ()] >= 0
    for name in ("executor_queued_oldest_age_seconds", "executor_effects_unknown", "executor_reaps_total"):
        assert found[name, ()] == 0
    assert found["executor_process_inline_places", ()] > 0
    assert any(name == "executor_build_info" for name, _ in found)


async def test_an_empty_site_has_figures_too(site: Site) -> None:
    nobody = await site.client()
    found = samples((await nobody.get("/metrics")).text)
    assert found["executor_runs", (("state", "queued"),)] == 0
    assert not any(name == "executor_run_duration_seconds" for name, _ in found)


async def test_from_elsewhere_it_takes_an_operators_token(site: Site) -> None:
    stranger = await site.client(address=ABROAD)
    agent = await site.client("run", address=ABROAD)
    operator = await site.client("operate", user="boss", address=ABROAD)
    assert problem(await stranger.get("/metrics")) == (401, "unauthorized")
    assert problem(await agent.get("/metrics")) == (403, "insufficient_scope")
    assert (await operator.get("/metrics")).status_code == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
async def test_a_proxy_on_this_host_does_not_open_it_to_everybody(site: Site, header: str) -> None:
    behind = await site.client()
    assert problem(await behind.get("/metrics", headers={header: "198.51.100.7"})) == (401, "unauthorized")


async def test_it_is_only_read(site: Site) -> None:
    nobody = await site.client()
    assert problem(await nobody.post("/metrics")) == (405, "method_not_allowed")
