"""The pages for everybody, at the site's root."""

from django.urls import URLPattern, path

from runs.pages.approval import approve
from runs.pages.landing import landing, login, logout

urlpatterns: list[URLPattern] = [
    path("", landing, name="landing"),
    path("login/", login, name="login"),
    path("logout/", logout, name="logout"),
    path("approve/<str:execution_id>", approve, name="approve"),
]
