"""The side bar: the work first, with the number of open questions; then tools, evidence and people."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from runs.admin.access import owner_scope
from runs.selectors.dashboard import pauses_open_count

BADGE_MOST = 99
PANEL = "run_panel"
"""The one page that is no model's, and not in the admin's namespace."""

_GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Work",
        (
            ("Home", "home", "index"),
            ("Approvals", "approval", "runs_pausedexecution_changelist"),
            ("Runs", "play_circle", "runs_run_changelist"),
            ("Run panel", "terminal", PANEL),
        ),
    ),
    (
        "Tools",
        (
            ("Sources", "hub", "runs_source_changelist"),
            ("Tools", "build", "runs_tool_changelist"),
            ("Policies", "policy", "runs_policy_changelist"),
            ("Connections", "key", "runs_connection_changelist"),
        ),
    ),
    (
        "Evidence",
        (
            ("Calls", "swap_horiz", "runs_effect_changelist"),
            ("Events", "history", "runs_event_changelist"),
            ("Settled outcomes", "task_alt", "runs_settledoutcome_changelist"),
            ("Processes", "memory", "runs_process_changelist"),
        ),
    ),
    (
        "People",
        (
            ("Users", "person", "auth_user_changelist"),
            ("Groups", "group", "auth_group_changelist"),
            ("Tokens", "vpn_key", "runs_token_changelist"),
        ),
    ),
)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """One query, for the badge."""
    listed = _listed(request)
    pending = pauses_open_count(owner_scope(request), at_most=BADGE_MOST + 1)
    groups = []
    for number, (title, entries) in enumerate(_GROUPS):
        items: list[dict[str, Any]] = [
            {"title": text, "icon": icon, "link": reverse(name if name == PANEL else f"admin:{name}")}
            for text, icon, name in entries
            if name in listed
        ]
        for item in items:
            if item["title"] == "Approvals" and pending:
                item["badge"] = str(pending) if pending <= BADGE_MOST else f"{BADGE_MOST}+"
                item["badge_variant"] = "warning"
        groups.append({"title": title, "separator": number > 0, "items": items})
    return [group for group in groups if group["items"]]


def _listed(request: HttpRequest) -> set[str]:
    """The pages this person may open."""
    names = {"index", PANEL}
    for model, model_admin in admin.site._registry.items():
        if model_admin.has_view_permission(request):
            names.add(f"{model._meta.app_label}_{model._meta.model_name}_changelist")
    return names
