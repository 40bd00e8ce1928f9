"""Take functions from weavegen_reader that do more than read: other sessions, settings, snapshots, slots."""

from collections.abc import Sequence

from alembic import op

revision: str = "0017"
down_revision: str | Sequence[str] | None = "0016"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

FUNCTIONS = """
    select oid::regprocedure as one from pg_proc where pronamespace = 'pg_catalog'::regnamespace and (
      proname in ('set_config', 'pg_export_snapshot', 'pg_cancel_backend', 'pg_terminate_backend')
      or proname like 'binary\\_upgrade\\_%' or proname like 'pg\\_%\\_replication\\_slot%'
      or proname like 'pg\\_replication\\_slot\\_%' or proname like 'pg\\_logical\\_slot\\_%'
    )
"""
CONFINE = f"""
do $$
declare
  one regprocedure;
  other name;
begin
  if not (select rolsuper from pg_roles where rolname = current_user) then return; end if;
  for one in {FUNCTIONS} loop
    execute format('revoke execute on routine %s from public', one);
    -- A right of everybody can't be taken from one role alone, so the others get it as their own.
    for other in select rolname from pg_roles where rolcanlogin and rolname <> 'weavegen_reader' loop
      execute format('grant execute on routine %s to %I', one, other);
    end loop;
  end loop;
end
$$
"""
GIVE_BACK = f"""
do $$
declare
  one regprocedure;
begin
  if not (select rolsuper from pg_roles where rolname = current_user) then return; end if;
  for one in {FUNCTIONS} loop
    execute format('grant execute on routine %s to public', one);
  end loop;
end
$$
"""


def upgrade() -> None:
    op.execute(CONFINE)


def downgrade() -> None:
    op.execute(GIVE_BACK)
