#!/usr/bin/env bash
# pgspot over the install script as it was built, over each upgrade script in sql/, and over the install scripts of released
# versions, which updates begin with. maintain() is the only function without a search_path of its own (a procedure with
# one cannot commit); its body qualifies every name. The control file keeps the extension where, and for whom, the
# scripts expect it.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

run_dir
venv=$RUN/security-venv
python_env "$venv" "$ROOT/tests/security/requirements.txt"

passed=0 failed=0
check() {   # WHAT COMMAND...
    if "${@:2}"; then ((passed += 1)); else ((failed += 1)); echo "NOT OK: $1"; fi
}
# An upgrade script may replace functions (PS002) and views (PS015) of the version that it begins with, and nothing else: checked below.
spot() {
    local ignore=()
    [[ $1 != *--*--* ]] || ignore=(--ignore PS002 --ignore PS015)
    "$venv/bin/python" "$ROOT/tests/security/scripts.py" "${ignore[@]}" --proc-without-search-path 'taskq.maintain()' "$1"
}
replaces_only_its_own() {   # UPGRADE SCRIPT
    local from kind name
    from=$(sed -nE 's/^taskq--(.*)--.*\.sql$/\1/p' <<< "$(basename "$1")")
    while read -r _ _ _ kind name; do
        [[ ${kind,,} =~ ^(function|procedure|view)$ ]] || { echo "it replaces a $kind, $name"; return 1; }
        grep -qiE "^create $kind ${name//./\\.}([^a-z0-9_]|$)" "$ROOT/sql/frozen/taskq--$from.sql" || { echo "$kind $name is not of $from"; return 1; }
    done < <(tr -s '[:space:]' ' ' < "$1" | grep -oiE 'create or replace [^ ]+ [^ (;]+')
}

version=$(sed -nE 's/^version = "(.*)"/\1/p' "$ROOT/Cargo.toml" | head -n 1)
extension=$TREE$("$(system_pg_config)" --sharedir)/extension
shopt -s nullglob
for script in "$extension/taskq--$version.sql" "$ROOT"/sql/taskq--*--*.sql; do
    say "${script#"$ROOT/"}"
    check "${script#"$ROOT/"}" spot "$script"
done

# S20: released scripts stay as they are.
unchanged() { (cd "$ROOT/sql/frozen" && diff <(ls -- *.sql) <(cut -c 67- SHA256SUMS) && sha256sum --check --quiet SHA256SUMS); }
check 'the scripts in sql/frozen are those that were released' unchanged
# What pgspot says of one is in a file of its name here, and may be nothing else.
#   0.1.0  Expressions of CHECKs and of bodies in the standard's form are resolved while the script runs, in pg_catalog
#          first and then in taskq, which it refuses where another role owns it. In maintain(), which runs by the path
#          of its caller, one operator is not qualified: 0.2.0 replaces it.
known() { diff <(spot "$1" 2>&1 | sed '/^ *$/d') "$ROOT/tests/security/$(basename "$1" .sql).txt"; }
for script in "$ROOT"/sql/frozen/taskq--*.sql; do
    say "${script#"$ROOT/"}"
    check "${script#"$ROOT/"}" known "$script"
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
for script in "$extension/taskq--$version.sql" "$ROOT"/sql/frozen/taskq--*.sql; do
    check "${script#"$ROOT/"}: nothing that is there already is taken over" \
        not grep -niE '^\s*create (or replace|\w+ if not exists)|@ext(owner|schema)' "$script"
done
for script in "$ROOT"/sql/taskq--*--*.sql; do
    check "${script#"$ROOT/"}: no owner and no schema is put into its text" not grep -niE '@ext(owner|schema)' "$script"
done

echo "$passed passed, $failed failed"
((failed == 0))
