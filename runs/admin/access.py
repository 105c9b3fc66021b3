"""Who may see and do what in the admin. The principal decides, as on every other surface.

Staff with the right to operate see everything; other staff see their own runs and their questions.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.views.decorators.cache import never_cache

from runs.domain.principal import Principal

_KEY = "_executor_principal"


def principal_of(request: HttpRequest) -> Principal:
    """Made once a request. Only behind a check that the person is logged in; touches the database."""
    found = getattr(request, _KEY, None)
    if found is None:
        found = Principal.of_session(request.user)
        setattr(request, _KEY, found)
    return cast(Principal, found)


def owner_scope(request: HttpRequest) -> int | None:
    """None: the person sees everything. Otherwise the only owner whose runs they see."""
    principal = principal_of(request)
    return None if principal.sees_all else principal.user_id


def is_staff(user: AbstractBaseUser | AnonymousUser) -> bool:
    return bool(user.is_active and getattr(user, "is_staff", False))


AsyncView = Callable[..., Awaitable[HttpResponseBase]]


def staff_only(view: AsyncView) -> Callable[..., Any]:
    """`AdminSite.admin_view` for async views: staff or the login page; never cached.

    The user is loaded before the view begins, so that it and its templates touch no lazy object in the event loop.
    CSRF is checked by the middleware, as for every view here.
    """

    @never_cache
    @wraps(view)
    async def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = await request.auser()
        if not is_staff(user):
            if user.is_authenticated:
                raise PermissionDenied
            return redirect_to_login(request.get_full_path(), reverse("admin:login"))
        request.user = user
        await sync_to_async(principal_of)(request)
        return await view(request, *args, **kwargs)

    return inner
