# Shared by tests that are Python programs: a Python with psycopg. Source it after tools/lib.sh.
# shellcheck shell=bash

with_psycopg() { "$1" -c 'import psycopg; assert psycopg.__version__ >= "3.2"' 2> /dev/null; }

# The demo's, the user's own, or one made here.
psycopg_python() {
    local interpreter=$ROOT/.venv/bin/python
    with_psycopg "$interpreter" || interpreter=$(python)
    if ! with_psycopg "$interpreter"; then
        interpreter=$RUN/readme-venv/bin/python
        if ! with_psycopg "$interpreter"; then
            say "installing psycopg into $RUN/readme-venv (seconds)" >&2
            "$(python)" -m venv "$RUN/readme-venv"
            grep '^psycopg' "$ROOT/examples/approval/requirements.txt" > "$RUN/readme-venv/requirements.txt"
            "$interpreter" -m pip install --quiet --disable-pip-version-check -r "$RUN/readme-venv/requirements.txt"
        fi
    fi
    echo "$interpreter"
}
