"""Reading with the ORM from async code: in a thread of its own context, its connection closed at the end."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")


async def orm_read(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `read` on a thread whose ORM connection nobody shares and nobody keeps (notes/django.md, "ASGI planes")."""

    def on_its_own_connection() -> T:
        try:
            return read(*args, **kwargs)
        finally:
            connections.close_all()

    async with ThreadSensitiveContext():
        return await sync_to_async(on_its_own_connection)()
