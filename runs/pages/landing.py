"""/: what this site is, and the way to its parts. Also /login/ and /logout/ for people who are not staff."""

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from runs.domain.principal import Principal
from runs.selectors.dashboard import pauses_open

_LISTED = 10


def landing(request: HttpRequest) -> HttpResponse:
    """A person who is logged in also sees the questions that wait for them."""
    open_pauses = []
    if request.user.is_authenticated:
        principal = Principal.of_session(request.user)
        open_pauses = list(pauses_open(None if principal.sees_all else principal.user_id)[:_LISTED])
    return render(request, "runs/pages/landing.html", {"open_pauses": open_pauses})


login = LoginView.as_view(template_name="runs/pages/login.html", next_page="landing", redirect_authenticated_user=False)
logout = LogoutView.as_view(next_page="landing")
