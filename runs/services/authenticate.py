"""Who a bearer token is, as of now: a token or a right that was lost a moment ago is gone."""

from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.services.scope import ServiceScope
from runs.store.access import token_find

_TOKEN_CHARS = 200


async def principal_of_header(scope: ServiceScope, authorization: str) -> Principal:
    """The principal of an Authorization header. One query, which also reads the catalog's version. Raises Refusal."""
    kind, _, token = authorization.partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token or len(token) > _TOKEN_CHARS or not token.isascii():
        raise Refusal("unauthorized", "Send Authorization: Bearer <token>.")
    row = await token_find(await scope.connection(), token)
    if row is None:
        raise Refusal("unauthorized", "The token is unknown, expired or revoked.")
    scope.known_catalog_version = row["catalog_version"]
    return Principal.of_token(row)
