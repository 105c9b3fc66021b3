"""Writing the demo source, whole: its tools and the two policies that show both ways, in one commit."""

from django.db import transaction

from runs.domain.effects import Approver, PolicyAction
from runs.models import Policy, Source
from runs.store.catalog import Imported, source_create

_POLICIES = {"create_note": PolicyAction.ALLOW, "create_charge": PolicyAction.REQUIRE_APPROVAL}


def demo_create(*, name: str, imported: Imported, by: int) -> Source | None:
    """None: there is a source of that name. A policy that somebody made for the tool before is left alone."""
    with transaction.atomic():
        source = source_create(name=name, kind="openapi", imported=imported, by=by, honours_key=False)
        if source is None:
            return None
        for tool, action in _POLICIES.items():
            pattern = f"{name}.{tool}"
            if not Policy.objects.filter(pattern=pattern).exists():
                Policy.objects.create(pattern=pattern, action=action, approver=Approver.OWNER, created_by_id=by)
        return source


def demo_move(*, name: str, base_url: str) -> bool:
    """Point the demo source, if there still is one, to where its service listens now. True if that changed it."""
    with transaction.atomic():
        found = Source.objects.filter(name=name, kind="openapi").exclude(base_url=base_url)
        return found.update(base_url=base_url) > 0
