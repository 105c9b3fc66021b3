"""One PostgreSQL address, as Django's settings want it. libpq reads it, so every form libpq knows works."""

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

SCHEMES = ("postgresql://", "postgres://")


def django_database(url: str) -> dict[str, object]:
    """The `DATABASES` entry for any `postgresql://` URL; query parameters libpq knows become OPTIONS.

    Raises ValueError for anything else. The message never holds the URL: it may hold a password.
    """
    if not url.startswith(SCHEMES):
        raise ValueError("DATABASE_URL must start with postgresql:// (PostgreSQL is the only database supported)")
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except ProgrammingError as error:
        raise ValueError("DATABASE_URL is not a valid postgresql:// address, or has an unknown parameter") from error
    user = found.pop("user", "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": found.pop("dbname", user),  # libpq's own default
        "USER": user,
        "PASSWORD": found.pop("password", ""),
        "HOST": found.pop("host", ""),
        "PORT": found.pop("port", ""),
        "OPTIONS": dict(found),
    }
