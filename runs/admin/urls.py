"""The admin's addresses: its own site, and the one page beside the models."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path

from runs.admin.access import staff_only
from runs.admin.panel import run_panel

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/run-panel/", staff_only(run_panel), name="run_panel"),
    path("admin/", admin.site.urls),
]
