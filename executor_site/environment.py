"""The process environment as typed settings, with safe defaults; refuses what must not run in production.

Owns the names of the environment variables; `settings.py` only translates the values into Django's own names.
"""

from pathlib import Path
from typing import Annotated, Literal

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from runs.domain import limits

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_SECRET = "insecure-local-secret-not-for-production"


class Environment(BaseSettings):
    """Every variable the product reads. Lists are comma-separated. Unset means the default shown here."""

    model_config = SettingsConfigDict(extra="ignore", env_ignore_empty=True)

    site_mode: Literal["local", "production"] = "local"
    debug: bool = False
    secret_key: str = DEFAULT_SECRET
    credential_keys: Annotated[list[str], NoDecode] = []
    """Keys that encrypt stored credentials and sign checkpoints, newest first; empty: derived from SECRET_KEY."""
    allowed_hosts: Annotated[list[str], NoDecode] = ["localhost", "127.0.0.1", "[::1]"]
    csrf_trusted_origins: Annotated[list[str], NoDecode] = []
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    public_url: str = ""
    """What links in answers and mails start with; empty: http://HOST:PORT."""
    database_url: str = ""
    """Empty: the embedded PostgreSQL under VAR_DIR."""
    var_dir: Path = ROOT / "var"
    upstream_allow: Annotated[list[str], NoDecode] = []
    """Hosts and networks that tools may reach although they are private."""
    web_processes: int = Field(default=1, ge=1, le=64)
    worker_processes: int = Field(default=2, ge=1, le=64)
    sandbox_processes: int = Field(default=8, ge=1, le=256)
    """Monty workers of one process at most; each needs about 14 MB, plus what the program uses."""
    database_pool: int = Field(default=100, ge=2, le=1000)
    inline_per_process: int = Field(default=limits.INLINE_PER_PROCESS, ge=1)
    rate_per_minute: int = Field(default=limits.RATE_PER_MINUTE, ge=1)
    pause_expires_s: int = Field(default=limits.PAUSE_EXPIRES_S, ge=1)
    retention_days: int = Field(default=limits.RETENTION_DAYS, ge=1)
    drain_seconds: float = Field(default=limits.DRAIN_S, gt=0)
    demo: bool | None = None
    """Whether `up` serves the demo source; unset: only in local mode."""
    demo_port: Annotated[int | None, Field(ge=0, le=65535)] = None
    """Where the demo service listens on loopback; unset: PORT + 1 if it is free; 0: any free one."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("allowed_hosts", "csrf_trusted_origins", "upstream_allow", "credential_keys", mode="before")
    @classmethod
    def split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("var_dir")
    @classmethod
    def absolute(cls, value: Path) -> Path:
        return value.expanduser().resolve()

    @model_validator(mode="after")
    def safe_in_production(self) -> "Environment":
        if self.site_mode == "production":
            if self.secret_key == DEFAULT_SECRET or len(self.secret_key) < 32:
                raise ValueError("SITE_MODE=production needs a SECRET_KEY of its own, of 32 characters or more")
            if self.debug:
                raise ValueError("SITE_MODE=production refuses DEBUG")
            if "*" in self.allowed_hosts:
                raise ValueError("SITE_MODE=production refuses ALLOWED_HOSTS=*")
        return self

    @property
    def is_production(self) -> bool:
        return self.site_mode == "production"

    @property
    def base_url(self) -> str:
        return self.public_url.rstrip("/") or f"http://{self.host}:{self.port}"


def environment() -> Environment:
    """The settings of this process. Raises ImproperlyConfigured with one line a mistake, and no value in it."""
    try:
        return Environment()
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, item['loc'])).upper() or 'settings'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        ]
    raise ImproperlyConfigured("; ".join(lines))
