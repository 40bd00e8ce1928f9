#!/bin/sh
# Makes the cluster at the first start, as PostgreSQL's image does: a superuser with a password, and a database.
set -eu
data=/var/lib/postgresql/18/docker
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$data"
    chown -R postgres /var/lib/postgresql
    exec setpriv --reuid=postgres --regid=postgres --clear-groups "$0" "$@"
fi
if [ ! -s "$data/PG_VERSION" ]; then
    passwords=$(mktemp)
    echo "$POSTGRES_PASSWORD" >"$passwords"
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$passwords" --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8
    rm "$passwords"
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    # Without network, so that nobody sees the server before it is complete.
    pg_ctl --pgdata="$data" --options='-c listen_addresses=' --wait start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --pgdata="$data" --wait stop
fi
program=$1
shift
exec "$program" -D "$data" -c 'listen_addresses=*' "$@"
