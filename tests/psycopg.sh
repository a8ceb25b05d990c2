# Shared by tests that are Python programs: a Python with psycopg. Source it after tools/lib.sh.
# shellcheck shell=bash

with_psycopg() { "$1" -c 'import psycopg; assert psycopg.__version__ >= "3.2"' 2> /dev/null; }

# The demo's, the user's own, or one made here.
psycopg_python() {
    local interpreter=$ROOT/.venv/bin/python
    with_psycopg "$interpreter" || interpreter=$(python)
    if ! with_psycopg "$interpreter"; then
        grep '^psycopg' "$ROOT/examples/approval/requirements.txt" > "$RUN/psycopg.txt"
        python_env "$RUN/psycopg-venv" "$RUN/psycopg.txt" >&2
        interpreter=$RUN/psycopg-venv/bin/python
    fi
    echo "$interpreter"
}
