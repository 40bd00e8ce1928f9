#!/bin/sh
# Runs an execute worker in a container. After SIGTERM its traces can continue on other hosts: their live processes
# end with the container, and `weavegen down` records that in the database.
#   execute-worker [THREADS]
set -u
host=${WEAVEGEN_HOST:=$(hostname)}
export WEAVEGEN_HOST
celery -A tasks worker -Q "control,execute,execute.$host" -P threads -c "${1:-32}" -n "execute@$host" \
    -l WARNING -E --without-mingle --without-gossip &
worker=$!
trap 'kill -TERM "$worker"' TERM INT
wait "$worker"
code=$?
# A signal ends the first wait, not the worker.
while kill -0 "$worker" 2>/dev/null; do
    wait "$worker"
    code=$?
done
weavegen down --wait 0
exit "$code"
