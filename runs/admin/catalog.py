"""The catalog, read-only: sources, their tools, policies, and connections without what they hold."""

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AllValuesCheckboxFilter, BooleanRadioFilter, ChoicesCheckboxFilter

from runs.admin.base import ReadOnlyAdmin
from runs.models import Connection, Policy, Source, Tool
from runs.pages.words import badge, moment_html, pretty


def _json(value: object) -> SafeString:
    return format_html('<pre class="x-pre">{}</pre>', pretty(value))


@admin.register(Source)
class SourceAdmin(ReadOnlyAdmin):
    list_display = ("name", "kind", "tool_count", "base_url", "honours_key", "refreshed")
    list_filter = (("kind", ChoicesCheckboxFilter),)
    search_fields = ("name", "title", "base_url")
    ordering = ("name",)
    fields = (
        *("name", "title", "kind", "base_url", "spec_url", "module", "honours_key"),
        *("security_json", "skipped_json", "created_by", "refreshed_at"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Source]:
        rows: QuerySet[Source] = super().get_queryset(request)
        return rows.select_related("created_by").annotate(tool_number=Count("tools"))

    @admin.display(description="Tools")
    def tool_count(self, source: Source) -> int:
        return int(getattr(source, "tool_number", 0))

    @admin.display(description="Refreshed (UTC)", ordering="refreshed_at")
    def refreshed(self, source: Source) -> SafeString:
        return moment_html(source.refreshed_at)

    @admin.display(description="Security schemes")
    def security_json(self, source: Source) -> SafeString:
        return _json(source.security)

    @admin.display(description="Operations left out")
    def skipped_json(self, source: Source) -> SafeString:
        return _json(source.skipped)


@admin.register(Tool)
class ToolAdmin(ReadOnlyAdmin):
    list_display = ("address", "effect_class", "is_granted", "summary")
    list_select_related = ("source",)
    list_filter = (
        ("effect", ChoicesCheckboxFilter),
        ("granted", BooleanRadioFilter),
        ("source__name", AllValuesCheckboxFilter),
    )
    search_fields = ("name", "description", "source__name")
    ordering = ("source__name", "name")
    fields = ("source", "name", "description", "effect", "granted", "input_json", "output_json", "sensitive_json")
    readonly_fields = fields

    @admin.display(description="Tool", ordering="name")
    def address(self, tool: Tool) -> str:
        return f"{tool.source.name}.{tool.name}"

    @admin.display(description="Effect class")
    def effect_class(self, tool: Tool) -> SafeString:
        return badge(tool.effect, {"read": "idle", "idempotent": "busy"}.get(tool.effect, "wait"))

    @admin.display(description="Granted")
    def is_granted(self, tool: Tool) -> SafeString:
        return badge("Granted", "good") if tool.granted else badge("Waits for review", "wait")

    @admin.display(description="Description")
    def summary(self, tool: Tool) -> str:
        return tool.description[:100]

    @admin.display(description="Arguments' schema")
    def input_json(self, tool: Tool) -> SafeString:
        return _json(tool.input_schema)

    @admin.display(description="Answer's schema")
    def output_json(self, tool: Tool) -> SafeString:
        return _json(tool.output_schema)

    @admin.display(description="Sensitive arguments")
    def sensitive_json(self, tool: Tool) -> SafeString:
        return _json(tool.sensitive)


@admin.register(Policy)
class PolicyAdmin(ReadOnlyAdmin):
    list_display = ("pattern", "shown_action", "approver", "position", "created_by", "created")
    list_select_related = ("created_by",)
    list_filter = (("action", ChoicesCheckboxFilter),)
    search_fields = ("pattern",)
    ordering = ("position", "pattern")

    @admin.display(description="Action")
    def shown_action(self, policy: Policy) -> SafeString:
        words = {
            "allow": ("Allow", "good"),
            "require_approval": ("Require approval", "wait"),
            "block": ("Block", "bad"),
        }
        return badge(*words.get(policy.action, (policy.action, "idle")))

    @admin.display(description="Created (UTC)")
    def created(self, policy: Policy) -> SafeString:
        return moment_html(policy.created_at)


@admin.register(Connection)
class ConnectionAdmin(ReadOnlyAdmin):
    """What it holds is never read back: not here, not anywhere."""

    list_display = ("name", "source", "for_whom", "scheme_names", "created_by", "created")
    list_select_related = ("source", "owner", "created_by")
    search_fields = ("name", "source__name", "owner__username")
    ordering = ("source__name", "name")
    fields = ("name", "source", "for_whom", "scheme_names", "created_by", "created_at")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Connection]:
        rows: QuerySet[Connection] = super().get_queryset(request)
        return rows.defer("ciphertext")

    @admin.display(description="For")
    def for_whom(self, connection: Connection) -> str:
        return connection.owner.get_username() if connection.owner else "everybody"

    @admin.display(description="Has values for")
    def scheme_names(self, connection: Connection) -> str:
        return ", ".join(map(str, connection.schemes)) or "–"

    @admin.display(description="Created (UTC)")
    def created(self, connection: Connection) -> SafeString:
        return moment_html(connection.created_at)
