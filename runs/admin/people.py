"""Users and groups in the admin's own look; tokens read-only; the task queue's tables out of sight.

A task is only a nudge whose payload is a run's id: its state says nothing that a run's page does not say better.
"""

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from runs.admin.base import ReadOnlyAdmin
from runs.models import Token
from runs.pages.words import badge, moment_html

_foreign: list[type[Model]] = [User, Group, *apps.get_app_config("django_q").get_models()]
for model in _foreign:
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_staff", "is_superuser", "is_active", "last_login")
    list_filter = ("is_staff", "is_superuser", "is_active")

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """A person's name stands in the history for good; taking away `active` is what locks them out."""
        return False


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]
    pass


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    """Only its digest is stored, and that is not shown either."""

    list_display = ("name", "user", "scope_names", "shown_state", "created", "last_used", "expires")
    list_select_related = ("user",)
    search_fields = ("name", "user__username")
    ordering = ("-created_at",)
    fields = ("name", "user", "scope_names", "shown_state", "created_at", "expires_at", "revoked_at", "last_used_at")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Token]:
        rows: QuerySet[Token] = super().get_queryset(request)
        return rows.defer("digest")

    @admin.display(description="Scopes")
    def scope_names(self, token: Token) -> str:
        return ", ".join(token.scopes)

    @admin.display(description="State")
    def shown_state(self, token: Token) -> SafeString:
        if token.revoked_at is not None:
            return badge("Revoked", "bad")
        if token.expires_at is not None and token.expires_at <= timezone.now():
            return badge("Expired", "idle")
        return badge("Valid", "good")

    @admin.display(description="Created (UTC)")
    def created(self, token: Token) -> SafeString:
        return moment_html(token.created_at)

    @admin.display(description="Last used (UTC)")
    def last_used(self, token: Token) -> SafeString:
        return moment_html(token.last_used_at)

    @admin.display(description="Expires (UTC)")
    def expires(self, token: Token) -> SafeString:
        return moment_html(token.expires_at)
