#!/usr/bin/env bash
# Builds docker/Dockerfile where there is no container engine and no registry: with buildah, on a
# base image made by debootstrap, with this system's Rust. Then starts the image's server and uses it.
# Needs root. What the build leaves is in BUILD/docker; its base image stays for the next time.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

[[ $(id -u) == 0 ]] || die "buildah needs root here to build without a container engine"
store=$BUILD/docker suite=bookworm base=localhost/taskq-base rust=localhost/taskq-rust image=localhost/taskq
passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok: $1"; }
not_ok() { failed=$((failed + 1)); echo "NOT OK: $1"; }
check() { local what=$1; shift; if "$@"; then ok "$what"; else not_ok "$what"; fi; }

mkdir -p "$store"
python_env "$store/venv" "$ROOT/tests/docker/requirements.txt"
check "compose.yaml is as Compose's specification has it" \
    "$store/venv/bin/check-jsonschema" --builtin-schema vendor.compose-spec "$ROOT/docker/compose.yaml"
work=$(mktemp -d "$store/work.XXXXXX")
bah() { buildah --root "$store/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
server=
tidy() {
    [[ -z $server ]] || { kill -INT "$(postmaster)" 2> /dev/null; wait "$server"; } || true
    bah rm --all > /dev/null 2>&1 || true
    bah rmi "$image" > /dev/null 2>&1 || true
    rm -rf "$work"
}
trap tidy EXIT

# 1. The base images: what the official ones have, as far as the Dockerfile uses it.
make_base() {
    local container root
    say "making a base image with debootstrap (two minutes)"
    container=$(bah from scratch)
    root=$(bah mount "$container")
    debootstrap --variant=minbase --include="postgresql-$PG,gosu,ca-certificates" "$suite" "$root" \
        > "$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log" >&2; die "debootstrap failed"; }
    cp tests/docker/official/docker-entrypoint.sh "$root/usr/local/bin/"
    bah config --env "PG_MAJOR=$PG" --env PGDATA=/var/lib/postgresql/data --env LANG=C.UTF-8 --stop-signal SIGINT \
        --env "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/$PG/bin" \
        --entrypoint '["docker-entrypoint.sh"]' --cmd postgres "$container"
    bah run --isolation chroot "$container" -- sh -s < tests/docker/base.sh
    bah commit --quiet --rm "$container" "$base" > /dev/null
}
cd "$ROOT"
bah inspect --type image "$base" &> /dev/null || make_base
# The toolchain is mounted there (below), as it is large.
container=$(bah from scratch)
root=$(bah mount "$container")
mkdir -p "$root/usr/local/rustup/mounted" "$root/usr/local/cargo/mounted"
bah commit --quiet --rm "$container" "$rust" > /dev/null

# 2. The Dockerfile.
say "building docker/Dockerfile (three minutes)"
crates=${CARGO_HOME:-$HOME/.cargo}/registry
bah bud --quiet --isolation chroot --format docker --layers=false -f docker/Dockerfile -t "$image" \
    --build-arg "BASE=$base" --build-arg "RUST=$rust" --build-arg CARGO_NET_OFFLINE=true \
    --volume "$(rustc --print sysroot):/usr/local/cargo:ro" --volume "$(cargo_pgrx):/usr/local/bin/cargo-pgrx:ro" \
    --volume "$crates:/root/.cargo/registry" . > "$work/build.log" 2>&1 || { tail -n 40 "$work/build.log" >&2; die "the build failed"; }
ok "the image is built"

# 3. The server in it, as `docker run` would start it.
container=$(bah from "$image")
root=$(bah mount "$container")
port=$(free_port)
run() { bah run --isolation chroot --env PGPORT="$port" --env POSTGRES_PASSWORD=secret --env POSTGRES_DB=app "$container" -- "$@"; }
postmaster() { head -n 1 "$root/var/lib/postgresql/data/postmaster.pid" 2> /dev/null; }
run docker-entrypoint.sh postgres > "$work/server.log" 2>&1 &
server=$!
client() { PGPASSWORD=secret "$(tree_bin "$TREE")/psql" -XAtq -h 127.0.0.1 -p "$port" -U postgres -d app -v ON_ERROR_STOP=1 "$@"; }
for ((i = 0; i < 600; i++)); do   # over TCP: the entrypoint's first server has only a socket
    ! client -c 'select 1' &> /dev/null || break
    kill -0 "$server" 2> /dev/null || break
    sleep 0.2
done
client -c 'select 1' > /dev/null 2>&1 || { tail -n 30 "$work/server.log" >&2; die "the server in the image did not start"; }
ok "the server starts"

answers() { [[ $(client -c "$2" 2>&1) == "$1" ]] || { echo "$2: $(client -c "$2" 2>&1), not $1"; false; }; }
version=$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -n 1)
check "it preloads taskq" answers taskq 'show shared_preload_libraries'
check "the first database has taskq" answers "$version" "select extversion from pg_extension where extname = 'taskq'"
check "it is the version asked for" answers "$PG" "select current_setting('server_version_num')::int / 10000"
healthy() { for ((i = 0; i < 150; i++)); do run taskq-healthcheck 2> /dev/null && return; sleep 0.2; done; return 1; }
check "it becomes healthy: a keeper is there" healthy
check "a task is enqueued" answers 1 "select taskq.enqueue('t', '{\"a\": 1}')"
check "a worker claims and completes it" answers '1|{"a": 1}' \
    "with c as materialized (select c.* from taskq.claim(1, worker => 'w') c) select c.id, c.payload from c, lateral taskq.complete(c.id, c.token)"
check "it has succeeded" answers succeeded 'select state from taskq.status(1)'
client -c "select taskq.enqueue('t2')" -c "select * from taskq.claim(1, lease => '1 s')" > /dev/null
recovered() { for ((i = 0; i < 300; i++)); do answers ready 'select state from taskq.status(2)' > /dev/null && return; sleep 0.2; done; return 1; }
check "the keeper takes an expired lease back" recovered
client -c 'alter database app set taskq.keeper = off'
unhealthy() { for ((i = 0; i < 150; i++)); do run taskq-healthcheck 2> /dev/null || return 0; sleep 0.2; done; return 1; }
check "without a keeper it is not healthy" unhealthy
kill -INT "$(postmaster)"
stopped() { wait "$server" && server=; }
check "it stops by itself on the image's stop signal" stopped

echo "$passed passed, $failed failed"
((failed == 0))
