from tests.support.pg import conn, database_url, observer, rows, transactional_db

__all__ = ["conn", "database_url", "observer", "rows", "transactional_db"]
