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
from executor_site.scope import ASGIScope, Receive, ScopeMiddleware, Send
from runs.api.events_stream import RunEvents

lifespan = Lifespan()

_api, _stream = ApiHandler(), RunEvents.as_asgi()


async def _events(scope: ASGIScope, receive: Receive, send: Send) -> None:
    """A run's events: live over SSE by Channels, or as a list by Ninja where the client asks for JSON."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    await (_api if b"application/json" in accepted else _stream)(scope, receive, send)


_http = URLRouter(
    [
        re_path(r"^api/v1/runs/(?P<run_id>[^/]+)/events$", _events),  # type: ignore[arg-type]
        re_path(r"^(?:api/|healthz$|readyz$|metrics$)", _api),  # type: ignore[arg-type]
        re_path(r"", django_application),  # type: ignore[arg-type]
    ]
)
application = lifespan.around(Correlation(BodyLimit(ScopeMiddleware(_http, lambda: lifespan.resources))))
