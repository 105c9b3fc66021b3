"""Django's settings, translated from the typed environment (`environment.py`)."""

from executor_site.environment import environment
from executor_site.logging import logging_config
from executor_site.postgres import EmbeddedPostgres, django_database
from runs.pages.theme import UNFOLD as _theme

ENV = environment()

SITE_MODE = ENV.site_mode
DEBUG = ENV.debug
SECRET_KEY = ENV.secret_key
CREDENTIAL_KEYS = ENV.credential_keys or [ENV.secret_key]
ALLOWED_HOSTS = ENV.allowed_hosts
CSRF_TRUSTED_ORIGINS = ENV.csrf_trusted_origins
HOST, PORT, BASE_URL = ENV.host, ENV.port, ENV.base_url
VAR_DIR = ENV.var_dir
UPSTREAM_ALLOW = ENV.upstream_allow
UPSTREAM_ALLOW_LOOPBACK = not ENV.is_production
WEB_PROCESSES = ENV.web_processes
SANDBOX_PROCESSES = ENV.sandbox_processes
DATABASE_POOL = ENV.database_pool
INLINE_PER_PROCESS = ENV.inline_per_process
RATE_PER_MINUTE = ENV.rate_per_minute
PAUSE_EXPIRES_S = ENV.pause_expires_s
RETENTION_DAYS = ENV.retention_days
DRAIN_SECONDS = ENV.drain_seconds
DEMO = (not ENV.is_production) if ENV.demo is None else ENV.demo
DEMO_PORT = ENV.demo_port
PYTHON_SOURCES: dict[str, str] = {}
"""Source name → dotted module whose functions become tools (kind `python`)."""

DATABASE_URL_GIVEN = bool(ENV.database_url)
EMBEDDED = None if DATABASE_URL_GIVEN else EmbeddedPostgres(VAR_DIR)
DATABASE_URL = ENV.database_url or (EMBEDDED.url if EMBEDDED else "")
DATABASES = {"default": {**django_database(DATABASE_URL), "CONN_MAX_AGE": 0}}

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "django_q",
    "runs",
    "sessions",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "executor_site.urls"
ASGI_APPLICATION = "executor_site.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"

STATIC_URL = "static/"
STATIC_ROOT = None  # served from the apps themselves, by servestatic's finders
SERVESTATIC_USE_FINDERS = True
SERVESTATIC_AUTOREFRESH = False

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENV.is_production
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.is_production else None
DATA_UPLOAD_MAX_MEMORY_SIZE = None
"""Bodies are bounded before Django sees them (`executor_site/body_limit.py`), by path."""

Q_CLUSTER = {
    "name": "executor",
    "label": "Background tasks",
    "orm": "default",
    "workers": ENV.worker_processes,
    # Redelivery and time-outs of django-q2 repeat tasks (notes/django.md): the claim in the run's row decides,
    # and these values keep repeats rare. Prefetching nothing keeps a drain short.
    "queue_limit": ENV.worker_processes,
    "retry": 90_000,
    "timeout": 86_400,
    "ack_failures": True,
    "max_attempts": 1,
    "save_limit": 100,
    "catch_up": False,
    "poll": 0.2,
}

UNFOLD = _theme

LOGGING_CONFIG = None
logging_config(ENV.log_level)
