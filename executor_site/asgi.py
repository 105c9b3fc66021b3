"""The ASGI application: one scope per request around Django and Channels alike, one set of resources per process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "executor_site.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

# Django's apps must be loaded before anything below is imported.
from channels.routing import URLRouter
from django.urls import re_path

from executor_site.api_handler import ApiHandler
from executor_site.body_limit import BodyLimit
from executor_site.correlation import Correlation
from executor_site.lifespan import Lifespan
from executor_site.scope import ScopeMiddleware
from runs.api.events_stream import RunEvents

lifespan = Lifespan()

_http = URLRouter(
    [
        re_path(r"^api/v1/runs/(?P<run_id>[^/]+)/events$", RunEvents.as_asgi()),
        re_path(r"^(?:api/|healthz$|readyz$|metrics$)", ApiHandler()),  # type: ignore[arg-type]
        re_path(r"", django_application),  # type: ignore[arg-type]
    ]
)
application = lifespan.around(Correlation(BodyLimit(ScopeMiddleware(_http, lambda: lifespan.resources))))
