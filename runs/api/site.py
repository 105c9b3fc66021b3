"""The API as mounted under /api/v1/."""

from ninja import NinjaAPI

from runs.api import connections, errors, executions, policies, runs, sources, tools
from runs.api.auth import authenticate
from runs.api.parser import StrictJSON

api = NinjaAPI(
    title="Executor Site",
    version="1.0.0",
    description="Runs agent-written programs: an effect at most once, never silently, nothing acknowledged lost.",
    auth=authenticate,
    parser=StrictJSON(),
    docs_url="/docs",
    openapi_url="/openapi.json",
    urls_namespace="api",
)
errors.install(api)
api.add_router("", executions.router)
api.add_router("", runs.router)
api.add_router("", tools.router)
api.add_router("", sources.router)
api.add_router("", connections.router)
api.add_router("", policies.router)
