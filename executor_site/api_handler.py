"""Django's request handling for the API, without the site's middleware: no thread is touched until a view wants one.

The middleware the admin needs costs the API a thread hop each (measured: 9.6 ms of CPU a request with it, see
docs/performance.md), and the API does for itself what it would do: sessions and CSRF in `runs/api/auth.py`, ORM
connections in `executor_site/orm.py`.
"""

import asyncio
from typing import Any, cast

from django.core.exceptions import DisallowedHost, RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.exception import convert_exception_to_response
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from executor_site.scope import ASGIScope
from runs.api.errors import error_response


class ApiHandler(ASGIHandler):
    _get_response_async: Any  # of BaseHandler; the stubs leave it out

    def load_middleware(self, is_async: bool = False) -> None:
        """The view and its errors, nothing around them."""
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = convert_exception_to_response(self._get_response_async)

    async def __call__(self, scope: ASGIScope, receive: Any, send: Any) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        with body:
            set_script_prefix(get_script_prefix(scope))
            request, refusal = self.create_request(scope, body)
            if request is None:
                await self.send_response(cast(HttpResponseBase, refusal), send)
                return
            await self._until_disconnect(self._respond(request, send), receive)

    async def _respond(self, request: Any, send: Any) -> None:
        response: Any
        if _host_is_foreign(request):
            response = error_response(request, "invalid_request", "This Host is not served here.", status=400)
        else:
            response = await self.run_get_response(request)
        if response.status_code == 405:
            allowed = response.get("Allow", "")
            response = error_response(request, "method_not_allowed", f"This address takes {allowed or 'others'}.")
            response["Allow"] = allowed
        response["X-Content-Type-Options"] = "nosniff"
        await self.send_response(response, send)

    async def _until_disconnect(self, work: Any, receive: Any) -> None:
        """Run the view; cancel it when its client goes. What it began goes on: the scope hands it on."""
        answering = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not answering.done():
                answering.cancel()
            await asyncio.wait({answering})
        if not answering.cancelled():
            answering.result()


def _host_is_foreign(request: Any) -> bool:
    """Whether ALLOWED_HOSTS lacks the request's host. Probes come under the machine's own address, so they may."""
    if not request.path.startswith("/api/"):
        return False
    try:
        request.get_host()
    except DisallowedHost:
        return True
    return False
