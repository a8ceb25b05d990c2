#!/usr/bin/env bash
# pgspot over the install script as it was built, and over each upgrade script in sql/. maintain() is the only
# function without a search_path of its own (a procedure with one cannot commit); its body qualifies every name. The
# control file keeps the extension where, and for whom, the scripts expect it.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

run_dir
venv=$RUN/security-venv requirements=$ROOT/tests/security/requirements.txt
if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    say "installing pgspot into $venv (seconds)"
    "$(python)" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/requirements.txt"
fi

passed=0 failed=0
check() {   # WHAT COMMAND...
    if "${@:2}"; then ((passed += 1)); else ((failed += 1)); echo "NOT OK: $1"; fi
}
# An upgrade script may replace functions (PS002) of the version that it begins with, and nothing else: checked below.
spot() {
    local ignore=()
    [[ $1 != *--*--* ]] || ignore=(--ignore PS002)
    "$venv/bin/python" "$ROOT/tests/security/scripts.py" "${ignore[@]}" --proc-without-search-path 'taskq.maintain()' "$1"
}
replaces_only_its_own() {   # UPGRADE SCRIPT
    local from name
    from=$(sed -nE 's/^taskq--(.*)--.*\.sql$/\1/p' <<< "$(basename "$1")")
    grep -qiE '^create or replace' "$1" || return 0
    while read -r name; do
        grep -qiE "^create (function|procedure|view) ${name//./\\.}\\b" "$ROOT/sql/frozen/taskq--$from.sql" || { echo "$name is not of $from"; return 1; }
    done < <(sed -nE 's/^create or replace (function|procedure|view) ([a-z0-9_.]+).*/\2/Ip' "$1")
}

version=$(sed -nE 's/^version = "(.*)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
extension=$TREE$("$(system_pg_config)" --sharedir)/extension
shopt -s nullglob
for script in "$extension/taskq--$version.sql" "$ROOT"/sql/taskq--*--*.sql; do
    say "$(basename "$script")"
    check "$(basename "$script")" spot "$script"
done

for script in "$ROOT"/sql/taskq--*--*.sql; do
    check "$(basename "$script") replaces only what is ours" replaces_only_its_own "$script"
done

# S2, S4, S5: a fixed schema, installed by superusers only, without other extensions; and scripts that adopt nothing
control=$extension/taskq.control
for line in 'relocatable = false' 'schema = taskq' 'superuser = true' 'trusted = false'; do
    check "taskq.control: $line" grep -qx "$line" "$control"
done
not() { ! "$@"; }
check 'taskq.control: no other extension' not grep -q '^requires' "$control"
check 'nothing that is there already is taken over' not grep -niE '^\s*create (or replace|\w+ if not exists)|@ext(owner|schema)' \
    "$extension/taskq--$version.sql"

echo "$passed passed, $failed failed"
((failed == 0))
