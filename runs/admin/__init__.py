"""The operators' place. Importing it registers the models (Django's autodiscovery does, once the apps are ready).

Pages read through the ORM and the selectors; whatever changes something goes through a service.
"""

from django.contrib import admin

from runs.admin import catalog, evidence, pauses, people, runs

__all__ = ["catalog", "evidence", "pauses", "people", "runs"]

admin.site.index_template = "runs/admin/home.html"
admin.site.site_url = "/"
