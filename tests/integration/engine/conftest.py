from tests.support.engine import ann, owner, site
from tests.support.pg import conn, database_url, observer, rows, transactional_db

__all__ = ["ann", "conn", "database_url", "observer", "owner", "rows", "site", "transactional_db"]
