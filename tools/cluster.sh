#!/usr/bin/env bash
# Makes, runs and removes the throw-away clusters of the demo, the tests and the benchmark.
#   start NAME [LINE...]    a fresh cluster, the LINEs appended to its postgresql.conf
#   stop NAME, kill NAME    as `pg_ctl stop` with mode fast or immediate
#   env NAME                shell lines with its PGHOST, PGPORT ... and PATH
#   psql NAME [ARG...]      psql in it
#   destroy NAME            stops it and removes its data
#   run NAME COMMAND...     start, COMMAND with its environment, stop; with KEEP=1 it goes on
# Lines for `run` come from CONF, one a line. Everything is under RUN (see lib.sh).
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

command=${1:-} name=${2:-}
[[ $name =~ ^[a-z][a-z0-9_]{0,15}$ ]] || die "usage: tools/cluster.sh start|stop|kill|env|psql|destroy|run NAME ..."
shift 2
dir=$RUN/$name data=$RUN/$name/data log=$RUN/$name/server.log env=$RUN/$name.env

destroy() {
    stop_server "$data" immediate
    rm -rf "$dir" "$env"
}

start() {
    local bin password port try
    bin=$(tree_bin "$TREE")
    [[ -x $bin/postgres ]] || die "no server in $TREE: run 'make build'"
    run_dir
    destroy
    server_dir "$dir" 700
    # Who reaches the socket's folder is trusted; over TCP anybody on this machine could come.
    password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    echo "$password" > "$dir/password"
    chown "$SERVER_USER" "$dir/password"
    as_server "$bin/initdb" -D "$data" -U postgres --pwfile="$dir/password" --auth-local=trust \
        --auth-host=scram-sha-256 --locale=C.UTF-8 --encoding=UTF8 --no-sync > "$dir/initdb.log" 2>&1 ||
        { cat "$dir/initdb.log" >&2; die "initdb failed"; }
    echo "include 'taskq.conf'" >> "$data/postgresql.conf"
    for try in 1 2 3 4 5; do
        port=$(free_port)
        printf '%s\n' "port = $port" "listen_addresses = '127.0.0.1'" "unix_socket_directories = '$dir'" \
            "cluster_name = 'taskq_$name'" "shared_preload_libraries = 'taskq'" "$@" > "$data/taskq.conf"
        as_server "$bin/pg_ctl" -D "$data" -l "$log" -w -t 60 -s start 9>&- && break
        if ((try == 5)) || ! grep -q 'Address already in use' "$log"; then
            tail -n 20 "$log" >&2
            die "the server did not start, see $log"
        fi
    done
    (umask 077; printf 'export %s\n' "PGHOST=$dir" "PGPORT=$port" PGUSER=postgres PGDATABASE=postgres \
        "PGPASSWORD=$password" "PATH=$bin:\$PATH" > "$env")
}

load_env() {
    [[ -e $env ]] || die "no cluster '$name': start it first"
    # shellcheck disable=SC1090
    . "$env"
}

run() {
    (($#)) || die "run what?"
    lock "$name"
    local lines=()
    [[ -z ${CONF:-} ]] || mapfile -t lines <<< "$CONF"
    trap 'stop_server "$data" fast' EXIT
    start "${lines[@]}"
    load_env
    local status=0
    in_group "$@" || status=$?
    if [[ -n ${KEEP:-} ]]; then
        trap - EXIT
        say "the server still runs: make psql, and to end it: tools/cluster.sh stop $name"
    fi
    exit "$status"
}

case $command in
    start) start "$@" ;;
    stop) stop_server "$data" fast ;;
    kill) stop_server "$data" immediate ;;
    env) load_env; cat "$env" ;;
    psql) load_env; exec psql "$@" ;;
    destroy) destroy ;;
    run) run "$@" ;;
    *) die "no such command: $command" ;;
esac
