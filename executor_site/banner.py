"""The lines `up` prints once the site answers: where it is, who may enter, and what to try."""

import json
import shlex
from pathlib import Path

EXAMPLE = {"code": 'import demo\nreturn demo.get_item(id="7")'}


def banner(var_dir: Path, address: str) -> str:
    """Built from `credentials.json`, which the first start writes; without it, only the address."""
    try:
        known = json.loads((var_dir / "credentials.json").read_text())
    except FileNotFoundError:
        return f"\nExecutor Site is ready at {address}\n\n"
    base = str(known.get("base_url") or address).rstrip("/")
    curl = (
        f"curl -s {base}/api/v1/executions -H 'Authorization: Bearer {known.get('token', '')}'"
        f" -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(EXAMPLE))}"
    )
    lines = (
        f"Executor Site is ready at {base}",
        "",
        f"  Admin     {base}/admin/",
        f"  User      {known.get('username', '')}",
        f"  Password  {known.get('password', '')}",
        f"  Token     {known.get('token', '')}   (runs programs)",
        f"  Operator  {known.get('operator_token', '')}   (also approves, operates, administers)",
        "",
        f"  {curl}",
        "",
        f"These are also in {var_dir / 'credentials.json'}. Ctrl-C stops everything.",
    )
    return "\n" + "\n".join(lines) + "\n\n"
