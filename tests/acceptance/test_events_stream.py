"""A run's events over SSE: replayed after Last-Event-ID, followed live, ended cleanly, with no connection held."""

import json
import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

import httpx
import pytest

from tests.support.site import Site, eventually, module_site, running_site

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from module_site(request, tmp_path_factory, "web")


class Stream:
    """One reader of one stream, on a thread of its own: its frames arrive in a queue, None at the end."""

    def __init__(self, site: Site, run_id: str, *, token: str = "ann", after: str | None = None) -> None:
        host, port = site.address("web")
        self._url = f"http://{host}:{port}/api/v1/runs/{run_id}/events"
        self._headers = {"Authorization": f"Bearer {token}", **({"Last-Event-ID": after} if after else {})}
        self.frames: Queue[dict[str, Any] | None] = Queue()
        self.opened = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.opened.wait(PATIENCE_S), self.error

    def _read(self) -> None:
        try:
            with httpx.stream("GET", self._url, headers=self._headers, timeout=PATIENCE_S) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                frame: dict[str, Any] = {}
                for line in answer.iter_lines():
                    self.opened.set()
                    if not line and frame:
                        self.frames.put(frame)
                        frame = {}
                    elif line and not line.startswith(":"):
                        name, _, value = line.partition(": ")
                        frame[name] = value
        except httpx.HTTPError as error:
            self.error = error
        finally:
            self.frames.put(None)

    def next(self) -> dict[str, Any] | None:
        try:
            return self.frames.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"nothing within {PATIENCE_S} s; {self.error}") from None

    def until(self, kind: str) -> list[dict[str, Any]]:
        seen = []
        while (frame := self.next()) is not None:
            seen.append(frame)
            if frame["event"] == kind:
                return seen
        raise AssertionError(f"it ended before {kind}: {seen}")

    def rest(self) -> list[dict[str, Any]]:
        seen = []
        while (frame := self.next()) is not None:
            seen.append(frame)
        return seen


def listed(site: Site, run_id: str) -> list[dict[str, Any]]:
    reply = site.client().ask("GET", f"/runs/{run_id}/events", headers={"Accept": "application/json"})
    assert reply.status == 200
    return list(reply.body["events"])


def test_a_finished_run_is_replayed_in_order_and_the_stream_ends(site: Site) -> None:
    done = site.client().execute("print('a')\nemit({'n': 1})\nreturn 2")
    frames = Stream(site, done["run_id"]).rest()
    events = listed(site, done["run_id"])
    assert [json.loads(frame["data"]) for frame in frames] == events
    assert [int(frame["id"]) for frame in frames] == list(range(1, len(events) + 1))
    assert {"submit", "log", "emitted", "succeed"} <= {frame["event"] for frame in frames}


def test_a_reader_that_comes_back_gets_exactly_what_it_missed(site: Site) -> None:
    done = site.client().execute("print('a')\nreturn 2")
    whole = Stream(site, done["run_id"]).rest()
    for frame in whole[:-1]:
        again = Stream(site, done["run_id"], after=frame["id"]).rest()
        assert again == whole[whole.index(frame) + 1 :]


def test_a_waiting_run_is_followed_live_to_its_end(site: Site) -> None:
    paused = site.client().execute("answer = ask('Which size?')\nreturn answer")
    stream = Stream(site, paused["run_id"])
    stream.until("pause")
    site.client().ask(
        "POST", f"/executions/{paused['execution']['id']}/resume", json={"action": "accept", "content": {"answer": "M"}}
    )
    assert [frame["event"] for frame in stream.rest()] == ["decision", "decide", "resume", "succeed"]


def test_idle_streams_hold_no_database_connection(site: Site) -> None:
    paused = site.client().execute("return ask('How long?')")
    count = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
    mine = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
    before = site.rows(mine)[0]["n"]
    streams = [Stream(site, paused["run_id"]) for _ in range(50)]
    for stream in streams:
        stream.until("pause")
    # Fifty readers look once a second at most, one statement each, over connections that they share.
    eventually(lambda: site.rows(count)[0]["n"] <= 3, PATIENCE_S, "the streams have come to rest")
    assert site.rows(mine)[0]["n"] - before < 25
    assert site.client().healthy()
    site.client().ask("POST", f"/runs/{paused['run_id']}/cancel")
    for stream in streams:
        assert stream.until("cancel")


@pytest.mark.acceptance_id("S3")
def test_another_users_run_answers_like_an_unknown_one(site: Site) -> None:
    done = site.client("ann").execute("return 1")
    foreign = site.client("bob").ask("GET", f"/runs/{done['run_id']}/events")
    unknown = site.client("bob").ask("GET", "/runs/00000000-0000-0000-0000-000000000000/events")
    assert (foreign.status, foreign.code) == (unknown.status, unknown.code) == (404, "not_found")


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 40, "\u0661"])
def test_an_event_id_that_no_stream_sent_is_refused(site: Site, value: str) -> None:
    done = site.client().execute("return 1")
    reply = site.client().ask("GET", f"/runs/{done['run_id']}/events", headers={"Last-Event-ID": value.encode("utf-8")})
    assert (reply.status, reply.code) == (422, "invalid_request")


def test_a_server_that_drains_ends_its_streams_itself(tmp_path: Any, request: pytest.FixtureRequest) -> None:
    with running_site(tmp_path, "web") as own:
        paused = own.client().execute("return ask('Still there?')")
        stream = Stream(own, paused["run_id"])
        stream.until("pause")
        own.terminate("web")
        assert stream.rest() == []
        assert stream.error is None, "a clean end, not a cut"
