"""The base of every list here: rows are read; what changes them are services."""

from typing import Any

from django.contrib.admin import ShowFacets
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from runs.admin.access import is_staff, owner_scope, principal_of


class ReadOnlyAdmin(ModelAdmin):
    """Nothing can be added, changed or deleted. For those who see everything, or have Django's own view permission."""

    actions = None
    list_per_page = 50
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_filter_submit = True
    compressed_fields = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        if not is_staff(request.user):
            return False
        return principal_of(request).sees_all or bool(super().has_view_permission(request, obj))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """A page to look at: sending anything to it is refused, whatever the permissions say."""
        self.refuse_writing(request)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def refuse_writing(self, request: HttpRequest) -> None:
        """Raises PermissionDenied."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)


class OwnedAdmin(ReadOnlyAdmin):
    """Rows that belong to a run: staff who do not operate see those of their own runs, and no others exist for them."""

    owner_path = "run__owner"

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return is_staff(request.user)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        owner = owner_scope(request)
        return rows if owner is None else rows.filter(**{self.owner_path: owner})
