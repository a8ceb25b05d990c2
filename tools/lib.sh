# Shared by all scripts: where things live, who runs servers, and a few helpers.
# To be sourced after `set -euo pipefail`. PG names the server version.
# shellcheck shell=bash
# shellcheck disable=SC2034   # variables are for the scripts that source this

umask 022   # the servers' user must be able to read what we build
unset RUST_BACKTRACE RUST_LIB_BACKTRACE   # a server that has them puts backtraces into the details of errors
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PG=${PG:-15}
BUILD=${CARGO_TARGET_DIR:-$ROOT/target}
SERVERS=$BUILD/tools/postgresql   # versions that Debian 12 has no package of (prerequisites.sh)
export PGRX_HOME=$BUILD/pgrx/$PG   # pgrx's settings (build.sh writes them), not the user's own
[[ ! -d $HOME/.cargo/bin ]] || PATH=$PATH:$HOME/.cargo/bin   # a shell opened before Rust came

say() { printf '== %s\n' "$*"; }
die() { printf 'taskq: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" > /dev/null; }

# The pg_config of an installed PostgreSQL $PG; fails when there is none. PG_CONFIG comes last: it is
# where to install to, and the private server should not change with it.
is_pg_config() { [[ $("$1" --version 2> /dev/null) == "PostgreSQL $PG"[.a-z]* ]]; }
system_pg_config() {
    local candidate
    for candidate in "/usr/lib/postgresql/$PG/bin/pg_config" "/usr/pgsql-$PG/bin/pg_config" \
                     "$SERVERS/$PG/bin/pg_config" "$(command -v pg_config)" "${PG_CONFIG:-}"; do
        [[ $candidate != "$RUN"/* ]] && is_pg_config "$candidate" || continue   # not the private copy, in the PATH of tests
        echo "$candidate"
        return
    done
    return 1
}

# Has the programs in a folder bin/ of an unpacked Debian use the libraries unpacked with them, the C
# library included, instead of this system's. Does nothing for those of this system.
own_libraries() {   # BIN
    local libraries program
    libraries=$(realpath "$1/../../../x86_64-linux-gnu" 2> /dev/null) || return 0
    [[ -e $libraries/ld-linux-x86-64.so.2 && $libraries != /usr/lib/* ]] || return 0
    for program in "$1"/* "$1"/../lib/pgxs/src/test/*/*; do
        [[ -f $program && $(head -c 4 "$program") == $'\x7fELF' ]] || continue
        patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libraries" "$program"
    done
}

# The cargo-pgrx of the version that Cargo.toml pins; fails when it is not here.
pgrx_version() { sed -nE 's/^pgrx *= *(\{ *version *= *)?"=?([0-9.]+)".*/\2/p' "$ROOT/Cargo.toml"; }
cargo_pgrx() {
    local candidate
    for candidate in "$BUILD/tools/bin/cargo-pgrx" "$(command -v cargo-pgrx)"; do
        [[ $("$candidate" pgrx --version 2> /dev/null) == "cargo-pgrx $(pgrx_version)" ]] || continue
        echo "$candidate"
        return
    done
    return 1
}

# A Python that can make virtual environments; fails when there is none.
python() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        "$candidate" -c 'import venv, ensurepip' 2> /dev/null || continue
        echo "$candidate"
        return
    done
    return 1
}

# A Python environment with the packages of a list, made once, and anew when the list has changed.
python_env() {   # FOLDER LIST
    # The copy of the list is written last, so an interrupted installation is done again.
    if { "$1/bin/python" -c '' && cmp "$2" "$1/requirements.txt"; } &> /dev/null; then return; fi
    say "installing Python packages into $1 (up to half a minute)"
    rm -rf "$1"
    "$(python)" -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2"
    cp "$2" "$1/requirements.txt"
}

# PostgreSQL refuses to run as root: then its servers belong to the user of Debian's package.
SERVER_USER=$(id -un)
[[ $(id -u) != 0 ]] || SERVER_USER=postgres
as_server() {
    [[ $SERVER_USER != "$(id -un)" ]] || { (cd / && "$@"); return; }
    (cd / && exec setpriv --reuid="$SERVER_USER" --regid="$(id -g "$SERVER_USER")" --init-groups "$@")
}
server_dir() { mkdir -p "$1" && chown "$SERVER_USER" "$1" && chmod "$2" "$1"; }

# Everything that runs lives in RUN: in the checkout, or, where the servers' user cannot go there or
# a socket's path would pass the 107 bytes that Unix allows, in a short folder of the temp directory.
RUN=$ROOT/.run
if ((${#RUN} > 60)) || ! as_server test -x "$ROOT" 2> /dev/null; then
    RUN=/tmp/taskq-$(id -un)-$(printf %s "$ROOT" | cksum | cut -d' ' -f1)
fi
run_dir() {
    mkdir -p "$RUN"
    [[ -O $RUN && ! -L $RUN ]] || die "$RUN belongs to someone else: remove it"
    chmod 755 "$RUN"
}

# The private server: its folder, and what is in it.
TREE=$RUN/pg$PG
TEST_TREE=$RUN/pg$PG-pgrx
tree_bin() { echo "$1$("$(system_pg_config)" --bindir)"; }
extension_dir() { echo "$1$("$(system_pg_config)" --sharedir)/extension"; }

# Below the range that Linux gives to outgoing connections.
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)); do
        (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null || break
    done
    echo "$port"
}

# Fails when another process holds this lock. Servers must be started with 9>&- or they keep it.
lock() {
    run_dir
    exec 9> "$RUN/$1.lock"
    flock -n 9 || die "another run uses '$1' in $RUN: wait for it to end"
}

# Stops the server of a data folder, and only that one: after a crash of the machine the process id
# in postmaster.pid may be anyone's.
stop_server() {   # DATA MODE
    local data=$1 mode=$2 pid
    pid=$(head -n 1 "$data/postmaster.pid" 2> /dev/null) || return 0
    [[ $(readlink "/proc/$pid/cwd") == "$(realpath "$data")" ]] || return 0
    as_server "$(tree_bin "$TREE")/pg_ctl" -D "$data" -m "$mode" -w -t 30 -s stop ||
        as_server "$(tree_bin "$TREE")/pg_ctl" -D "$data" -m immediate -w -s stop || [[ ! -e /proc/$pid ]]
}
stop_servers() {   # FOLDER MODE: all that have their data somewhere in it
    local pidfiles pidfile
    mapfile -t pidfiles < <(find "$1" -name postmaster.pid 2> /dev/null)
    for pidfile in "${pidfiles[@]}"; do stop_server "$(dirname "$pidfile")" "$2"; done
}

# Runs a command in a process group of its own, so that on a signal all of it can be ended before
# the caller's EXIT trap tidies up. Callers further out wait longer (GRACE, in seconds).
in_group() {
    trap end_group INT TERM HUP
    set -m
    "$@" < /dev/null 9>&- &
    GROUP=$!
    set +m
    wait "$GROUP"
}
end_group() {
    trap '' INT TERM HUP
    kill -TERM -- "-$GROUP" 2> /dev/null || true
    for ((i = 0; i < ${GRACE:-5} * 10; i++)); do
        kill -0 -- "-$GROUP" 2> /dev/null || exit 130
        sleep 0.1
    done
    kill -KILL -- "-$GROUP" 2> /dev/null || true
    exit 130
}
