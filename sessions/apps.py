"""The MCP plane's app: sessions, streams, events. Its label avoids django.contrib.sessions (notes/django.md)."""

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    name = "sessions"
    label = "mcp_sessions"
    verbose_name = "MCP sessions"
