"""The site's addresses. /api/v1/runs/{id}/events is served by Channels, before Django (asgi.py)."""

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path, re_path

from executor_site.health import healthz, readyz
from executor_site.metrics import metrics
from runs.admin.urls import urlpatterns as admin_urls
from runs.api.errors import error_response
from runs.api.site import api
from runs.pages.urls import urlpatterns as page_urls


async def unknown_api(request: HttpRequest) -> HttpResponse:
    return error_response(request, "not_found", "There is no such address in this API.")


urlpatterns: list[URLPattern | URLResolver] = [
    *page_urls,
    *admin_urls,
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    re_path(r"^api/v1/$", unknown_api),  # before Ninja's own root, whose 404 is HTML
    path("api/v1/", api.urls),
    re_path(r"^api(?:/.*)?$", unknown_api),
]
