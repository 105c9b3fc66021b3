"""Installs the database's own guards, as generated from the transition table at this point."""

from django.db import migrations

from runs.store import guards


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]
    operations = [migrations.RunSQL(statement, reverse_sql=migrations.RunSQL.noop) for statement in guards.statements()]
