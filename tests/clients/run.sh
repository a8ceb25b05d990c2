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

# All tests of the contract but those that go to a database of their own, which they could not drop while the pooler
# keeps a connection to it, and h02_shadowing, which comes back as a new session. psql keeps one client's
# transactions on one server connection, which is never reset. So the launcher ends it before each test, for the sake of temporary
# tables and prepared statements; what a test SETs is set back by the next one's first lines.
TESTS=$(cd "$ROOT/tests/regress/sql" && grep -LE '^\\c [^-]' ./*.sql | sed 's,^\./,,; s,\.sql$,,' | grep -vx h02_shadowing | tr '\n' ' ')
pg_config=$(system_pg_config)
cat > "$work/launch" << END
#!/bin/sh
PGHOST=$PGHOST PGPORT=$PGPORT psql -qAtX -U postgres -d postgres -o /dev/null \
    -c "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = 'pooled' and backend_type = 'client backend'" &&
    psql -qX -U postgres -d pgbouncer -c 'reconnect pooled' && exec "\$@"
END
chmod +x "$work/launch"
contract() {   # runs pg_regress through the pooler
    "$(dirname "$("$pg_config" --pgxs)")/../test/regress/pg_regress" --inputdir="$ROOT/tests/regress" --outputdir="$work" \
        --bindir="$("$pg_config" --bindir)" --dbname=pooled --use-existing --launcher="$work/launch" $TESTS
}
export -f contract
export ROOT work pg_config TESTS BUILD
exec "$python" "$ROOT/tests/clients/check.py" "$ROOT/README.md" "$work"
