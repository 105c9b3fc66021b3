"""`manage.py token create | list | revoke`: bearer tokens from the command line."""

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runs.domain.codes import Refusal
from runs.services.tokens import token_end, token_issue, token_list, token_state


class Command(BaseCommand):
    help = "Issue a bearer token (printed alone, once), list tokens, revoke one."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="Print a new token, and nothing else, on stdout.")
        create.add_argument("--user", required=True, metavar="NAME")
        create.add_argument("--create-user", action="store_true", help="Make the user if there is none.")
        create.add_argument("--scope", action="append", dest="scopes", metavar="SCOPE", help="run (the default), …")
        create.add_argument("--name", default="", help="What it is for.")
        create.add_argument("--expires-days", type=int, metavar="DAYS")
        actions.add_parser("list", help="The newest first.")
        actions.add_parser("revoke", help="End a token now.").add_argument("id")

    def handle(self, *args: object, action: str, **options: object) -> None:
        try:
            {"create": self._create, "list": self._list, "revoke": self._revoke}[action](options)
        except Refusal as refusal:
            raise CommandError(refusal.message) from None

    def _create(self, options: dict[str, object]) -> None:
        _, token = token_issue(
            username=str(options["user"]),
            scopes=options["scopes"] or ["run"],  # type: ignore[arg-type]
            name=str(options["name"]),
            expires_days=options["expires_days"],  # type: ignore[arg-type]
            create_user=bool(options["create_user"]),
        )
        self.stdout.write(token)

    def _list(self, options: dict[str, object]) -> None:
        for token in token_list():
            expires = token.expires_at.isoformat(timespec="seconds") if token.expires_at else "never"
            fields = (str(token.pk), token.user.get_username(), ",".join(token.scopes), token_state(token), expires)
            self.stdout.write("\t".join((*fields, token.name)))

    def _revoke(self, options: dict[str, object]) -> None:
        token = token_end(str(options["id"]))
        self.stdout.write(f"{token.pk}\trevoked")
