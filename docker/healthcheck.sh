#!/bin/sh
# Healthy: the server answers, and taskq's keeper is at work in POSTGRES_DB (or the server is a standby,
# which has none). What taskq.health() says of queues is for people, and no reason to restart a server.
user=${POSTGRES_USER:-postgres}
answer=$(psql -XAtq -U "$user" -d "${POSTGRES_DB:-$user}" -c \
  "select pg_is_in_recovery() or (select h.ok from taskq.health() h where h.\"check\" = 'keeper running')") || exit 1
[ "$answer" = t ]
