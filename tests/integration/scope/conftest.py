import pytest

from tests.support.engine import ann, owner, site
from tests.support.pg import conn, database_url, observer, rows, transactional_db

__all__ = ["ann", "conn", "database_url", "observer", "owner", "rows", "site", "transactional_db"]


@pytest.fixture(autouse=True)
def _on_the_test_database(database_url: str) -> None:
    """Every test here makes resources of its own, for the test database."""
