"""`make bench`: latency and throughput over HTTP, this site and (with --peer BINARY) the peer in one sitting.

Each cell is measured for both in turn, `--rounds` times; the round with the least CPU used by anybody else is kept.
Clients, servers, database and the tools' service share the machine. Prints a Markdown table and writes JSON.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.client import Connection
from tests.bench.targets import Target, connect_peer, credentials, free_port, ours, peer

CELLS = [
    ("trivial", 1), ("trivial", 8), ("trivial", 32), ("items1", 1), ("items1", 8), ("items1", 32),
    ("items10", 1), ("items10", 8), ("items10par", 1), ("note", 1), ("note", 8),
    ("pause", 1), ("resume", 1),
]  # fmt: skip
TICK = os.sysconf("SC_CLK_TCK")


def busy_s() -> float:
    """CPU seconds the machine has worked, all cores."""
    fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) / TICK


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            continue
        total += int(stat[11]) + int(stat[12])
    return total / TICK


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def cell(target: Target, case: str, at_once: int, count: int) -> dict[str, Any]:
    times: list[float] = []
    left, errors = count, 0
    connections = [Connection(target.base) for _ in range(at_once)]

    async def one(connection: Connection) -> float:
        nonlocal errors
        begun = time.perf_counter()
        code = target.code["charge" if case in ("pause", "resume") else case]
        status, body = await connection.post(f"{target.prefix}/executions", {"code": code}, target.headers)
        took = time.perf_counter() - begun
        if case not in ("pause", "resume"):
            errors += status != 200 or body.get("status") != "completed"
            return took
        path = f"{target.prefix}/executions/{target.pause_id(body)}/resume"
        begun = time.perf_counter()
        status, body = await connection.post(path, {"action": "accept"}, target.resume_headers)
        errors += status != 200 or body.get("status") != "completed"
        return took if case == "pause" else time.perf_counter() - begun

    async def worker(connection: Connection) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            times.append(await one(connection))

    await asyncio.gather(*[one(connection) for connection in connections])  # warm
    errors = 0
    machine, own, begun = busy_s(), cpu_s(target.served_by()) + time.process_time(), time.perf_counter()
    await asyncio.gather(*[worker(connection) for connection in connections])
    wall = time.perf_counter() - begun
    own = cpu_s(target.served_by()) + time.process_time() - own
    for connection in connections:
        await connection.close()
    times.sort()
    others = max(0.0, busy_s() - machine - own) / (wall * (os.cpu_count() or 1))
    return {
        "p50": statistics.median(times) * 1e3, "p95": times[int(len(times) * 0.95)] * 1e3,
        "p99": times[int(len(times) * 0.99)] * 1e3, "ops_s": len(times) / wall, "errors": errors,
        "others_cpu": others,
    }  # fmt: skip


async def measure(targets: list[Target], rounds: int, scale: float) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for case, at_once in CELLS:
        count = max(20, int((60 if case.startswith("items10") else 300) * scale))
        for _ in range(rounds):
            for target in targets:
                if case not in (*target.code, "pause", "resume"):
                    continue
                row = await cell(target, case, at_once, count)
                key = f"{case} c{at_once} {target.name}"
                if key not in found or row["others_cpu"] < found[key]["others_cpu"]:
                    found[key] = row
    return found


def table(found: dict[str, dict[str, Any]], names: list[str]) -> str:
    lines = ["| case | " + " | ".join(f"{name} p50/p95/p99 ms, ops/s" for name in names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for case, at_once in CELLS:
        cells = []
        for name in names:
            row = found.get(f"{case} c{at_once} {name}")
            cells.append(
                f"{row['p50']:.1f} / {row['p95']:.1f} / {row['p99']:.1f}, {row['ops_s']:.0f}"
                + (f" ({row['errors']} errors)" if row["errors"] else "") if row else "–"
            )  # fmt: skip
        lines.append(f"| {case}, c {at_once} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, help="the peer's binary (npm executor@1.5.9)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of requests of each cell")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        var = Path(folder) / "var"
        var.mkdir()
        mine = ours(var, free_port())
        targets = [mine]
        report: dict[str, Any] = {}
        try:
            mine.process = mine.start()
            _wait_for(var / "credentials.json")
            known = credentials(var)
            mine.headers = {"Authorization": f"Bearer {known['token']}"}
            mine.resume_headers = {"Authorization": f"Bearer {known['operator_token']}"}
            mine.kill()
            report["ours: start to first execute, s"] = mine.up()
            report["ours: the same after kill -9 of everything, s"] = (mine.kill(), mine.up())[1]
            if options.peer:
                home = Path(folder) / "peer"
                (home / "data").mkdir(parents=True)
                other = peer(options.peer, home, free_port())
                targets.append(other)
                report["peer: start to first execute, s"] = other.up()
                connect_peer(other, known["demo_url"])
            found = asyncio.run(measure(targets, options.rounds, options.scale))
            for target in targets:
                report[f"{target.name}: RSS of the web process, MB"] = max(map(rss_mb, _web(target)))
        finally:
            for target in targets:
                target.kill()
    print(table(found, [target.name for target in targets]))
    for line, value in report.items():
        print(f"{line}: {value:.2f}")
    if options.out:
        options.out.write_text(json.dumps({"cells": found, "report": report}, indent=1))


def _web(target: Target) -> list[int]:
    """The processes that answer HTTP: for us the uvicorn child, for the peer itself."""
    pids = target.served_by()
    serving = [pid for pid in pids if b"uvicorn" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return serving or pids[:1]


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
