#!/usr/bin/env bash
# taskq as drivers and poolers see it: the programs of the README's section Drivers, directly and through
# PgBouncer in transaction mode; the contract's regression tests through PgBouncer; and a load of 50 clients on its
# two server connections, with the totals counted. Needs PG* of a fresh cluster with taskq preloaded.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"
# shellcheck source=tests/psycopg.sh
. "$ROOT/tests/psycopg.sh"

run_dir
python=$(psycopg_python)
work=$RUN/clients-work
rm -rf "$work"
server_dir "$work" 755

say "the Rust program"
cargo build --quiet -p taskq-client-tests
say "node-postgres"
cp "$ROOT"/tests/clients/package*.json "$work"
npm ci --prefix "$work" --silent --no-audit --no-fund --ignore-scripts

# The tests that need no session of their own between two transactions: psql keeps one client's transactions on
# one server connection, which is never reset, so what a test SETs is set back by the next one's first lines.
TESTS='enqueue enqueue_many claim complete fail extend release cancel once unique redrive purge json d07_long_names configure views'
pg_config=$(system_pg_config)
contract() {   # runs pg_regress through the pooler
    "$(dirname "$("$pg_config" --pgxs)")/../test/regress/pg_regress" --inputdir="$ROOT/tests/regress" --outputdir="$work" \
        --bindir="$("$pg_config" --bindir)" --dbname=pooled --use-existing $TESTS
}
export -f contract
export ROOT work pg_config TESTS BUILD
exec "$python" "$ROOT/tests/clients/check.py" "$ROOT/README.md" "$work"
