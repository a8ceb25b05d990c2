#!/usr/bin/env bash
# Keeps install scripts and makes upgrade scripts; tools/upgrade.py tells how. Needs a build.
#   freeze   keeps this version's install script in sql/frozen/
#   script   makes sql/taskq--FROM--TO.sql, from the newest frozen version below this one
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$ROOT"
version=$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -n 1)
built=$(extension_dir "$TREE")/taskq--$version.sql

freeze() {
    local frozen=sql/frozen/taskq--$version.sql
    [[ ! -e $frozen ]] || cmp -s "$built" "$frozen" || die "$frozen is frozen and differs: raise the version in Cargo.toml"
    cp "$built" "$frozen"
    (cd sql/frozen && sha256sum -- *.sql > SHA256SUMS)
    say "kept $frozen; now raise the version in Cargo.toml"
}

script() {
    local venv=$BUILD/tools/upgrade from out
    python_env "$venv" tools/upgrade.txt
    from=$(ls sql/frozen | sed -nE 's/^taskq--(.*)\.sql$/\1/p' | grep -vxF "$version" | sort -V | tail -n 1)
    out=sql/taskq--$from--$version.sql
    "$venv/bin/python" tools/upgrade.py "sql/frozen/taskq--$from.sql" "$built" "sql/upgrades/$from--$version.sql" \
        "$from" "$version" > "$out.new" || { rm -f "$out.new"; die "no upgrade script was made"; }
    mv "$out.new" "$out"
    say "made $out ($(grep -c . "$out") lines); tools/build.sh installs it, and the server test 'update' tries it"
}

case ${1:-} in
    freeze) freeze ;;
    script) script ;;
    *) die "usage: tools/upgrade.sh freeze|script" ;;
esac
