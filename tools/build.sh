#!/usr/bin/env bash
# Builds the extension and installs it: into a private copy of the PostgreSQL server under RUN, or,
# with `build.sh install`, into the server of PG_CONFIG. The copy is there because the system's
# server may be in production, and because two checkouts must not overwrite each other.
# PROFILE is release (the default), debug, or a profile of Cargo.toml.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

pg_config=$(system_pg_config) || die "no PostgreSQL $PG found: run 'make prerequisites', or set PG_CONFIG"
profile=${PROFILE:-release}
profile=${profile/#debug/dev}   # cargo's name for it
features=(--no-default-features --features "pg$PG")

# PostgreSQL finds its folders relative to its own binary (a real file, not a link), so a copy that
# keeps the layout is a server of its own. Only headers may stay where they are.
programs=(initdb postgres psql pgbench createdb dropdb vacuumdb)   # and all whose names begin with pg_
copy_server() {
    local tree=$1 bin lib share include stamp libraries
    bin=$("$pg_config" --bindir) lib=$("$pg_config" --pkglibdir)
    share=$("$pg_config" --sharedir) include=$("$pg_config" --includedir-server)
    stamp="$(stat -Lc '%n %s %Y' "$bin/postgres") ${programs[*]}"
    [[ $(cat "$tree/stamp" 2> /dev/null) != "$stamp" ]] || return 0
    say "copying PostgreSQL $PG to $tree (seconds)"
    rm -rf "$tree"
    mkdir -p "$tree$bin" "$tree$lib" "$tree$share" "$tree$(dirname "$include")"
    cp -a "${programs[@]/#/$bin/}" "$bin"/pg_* "$tree$bin/"
    cp -a "$lib/." "$tree$lib/"
    cp -a "$share/." "$tree$share/"
    ln -s "$include" "$tree$include"
    # Programs of a wheel, or of another Debian, have libraries beside them.
    if [[ $(realpath "$bin") == "$(realpath -m "$SERVERS")"/* ]]; then
        for libraries in "$bin"/../../../{*.libs,x86_64-linux-gnu}; do
            [[ ! -d $libraries ]] || cp -a "$libraries" "$tree$bin/../../../"
        done
        own_libraries "$tree$bin"
    fi
    rm -f "$tree$lib"/taskq* "$tree$share"/extension/taskq*
    echo "$stamp" > "$tree/stamp"
}

# pgrx asks PGRX_HOME/config.toml which server to build for. Its file is only touched when it
# changes, as that rebuilds pgrx. `cargo pgrx test` installs a test build, hence a second copy.
prepare() {
    local config
    run_dir
    copy_server "$TREE"
    copy_server "$TEST_TREE"
    mkdir -p "$PGRX_HOME"
    config=$(printf '[configs]\npg%s = "%s/pg_config"' "$PG" "$(tree_bin "$TEST_TREE")")
    [[ $(cat "$PGRX_HOME/config.toml" 2> /dev/null) == "$config" ]] || echo "$config" > "$PGRX_HOME/config.toml"
}

case ${1:-private} in
    private)
        prepare
        say "building taskq ($profile; about four minutes the first time, seconds after a change)"
        cd "$ROOT"
        "$(cargo_pgrx)" pgrx install --profile "$profile" "${features[@]}" --pg-config "$(tree_bin "$TREE")/pg_config"
        # For the tests of upgrades. An installation has only the present version.
        cp sql/frozen/*.sql "$(extension_dir "$TREE")/"
        chmod -R a+rX "$TREE"
        ;;
    prepare) prepare ;;
    install)
        prepare
        pg_config=${PG_CONFIG:-$pg_config}
        is_pg_config "$pg_config" || die "$pg_config is not one of PostgreSQL $PG"
        sudo=()
        if [[ ! -w $("$pg_config" --pkglibdir) || ! -w $("$pg_config" --sharedir)/extension ]]; then
            have sudo || die "installing into the server of $pg_config needs root"
            sudo=(sudo)
        fi
        say "building taskq for $pg_config"
        rm -rf "$BUILD/package"
        cd "$ROOT"
        "$(cargo_pgrx)" pgrx package --profile "$profile" "${features[@]}" --pg-config "$pg_config" --out-dir "$BUILD/package"
        # A library is replaced, never overwritten: running servers have the old one mapped.
        "${sudo[@]}" cp -rv --remove-destination "$BUILD/package/." /
        ;;
    *) die "usage: tools/build.sh [private|prepare|install]" ;;
esac
