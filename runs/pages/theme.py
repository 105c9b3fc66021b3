"""The look of the admin (django-unfold): names, colours, and where its own parts are. Settings import it.

It is not in runs.admin because importing that package registers the models, which settings must not do.
"""

from typing import Any

from django.templatetags.static import static

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Executor Site",
    "SITE_HEADER": "Executor Site",
    "SITE_SUBHEADER": "Runs that people answer for",
    "SITE_SYMBOL": "rule",
    "SITE_URL": "/",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": False,
    "BORDER_RADIUS": "6px",
    "STYLES": [lambda request: static("runs/parts.css"), lambda request: static("runs/admin.css")],
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("runs/icon.svg")}],
    "DASHBOARD_CALLBACK": "runs.admin.home.home_context",
    "COLORS": {
        "primary": {
            "50": "#f0f7fa",
            "100": "#dcecf3",
            "200": "#bddbe8",
            "300": "#8fc1d7",
            "400": "#599fbe",
            "500": "#3d83a4",
            "600": "#2c6a89",
            "700": "#28566f",
            "800": "#26495d",
            "900": "#243e4f",
            "950": "#172834",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": "runs.admin.navigation.navigation",
    },
}
