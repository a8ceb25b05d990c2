#!/usr/bin/env bash
# Installs what building and testing need, on a Debian 12 that has only Rust; elsewhere it says what
# is missing. It looks first and is done at once when everything is there. With the argument `tests` also
# what only the tests need, with `clients` what the drivers' programs of the README need.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

missing=()   # Debian packages
need() { local package=$1; shift; "$@" &> /dev/null || missing+=("$package"); }
server() { test -x "$("$(system_pg_config)" --bindir)/initdb"; }
server_dev() {
    local pg_config
    pg_config=$(system_pg_config)
    test -e "$("$pg_config" --includedir-server)/postgres.h" -a -e "$("$pg_config" --pgxs)"
}
libclang() { compgen -G "${LIBCLANG_PATH:-/usr/lib*/llvm*/lib*}/libclang[.-][0-9s]*" || compgen -G '/usr/lib*/libclang[.-][0-9s]*'; }
c_compiler() { echo '#include <stdio.h>' | cc -E -; }
any_font() { [[ -n $(fc-list) ]]; }
may_sudo() { have sudo || return; sudo -n true 2> /dev/null || { [[ -t 0 ]] && sudo true; }; }

rust=$(sed -nE 's/^rust-version = "(.*)"/\1/p' "$ROOT/Cargo.toml")
have cargo || die "cargo is missing: install Rust $rust (with rustup), then try again"
printf '%s\n' "$rust" "$(rustc --version | cut -d ' ' -f 2)" | sort -VC ||
    die "Rust $rust or newer is needed, and this is $(rustc --version)"

if [[ $PG == 15 || -e /usr/lib/postgresql/$PG/bin/pg_config ]]; then
    need "postgresql-$PG" server
    need "postgresql-server-dev-$PG" server_dev
fi
need clang clang --version
need libclang-dev libclang
need gcc cc --version
need libc6-dev c_compiler
need python3-venv python
need pgbouncer test -x /usr/sbin/pgbouncer
[[ $PG != 17 ]] || server &> /dev/null || need patchelf have patchelf
if [[ ${1:-} == tests && $PG == 15 ]]; then   # large ones that nothing else needs
    need chromium have chromium
    need chromium-driver have chromedriver
    need fonts-dejavu-core any_font
    need prometheus have promtool
    need prometheus-postgres-exporter have prometheus-postgres-exporter
    if [[ $(id -u) == 0 ]]; then   # to build the container image without an engine
        need buildah have buildah
        need debootstrap have debootstrap
    fi
fi
need util-linux have flock
need util-linux have setpriv
if [[ ${1:-} == clients ]]; then
    need nodejs have node
    need npm have npm
    need openjdk-17-jdk-headless have javac
    need libpostgresql-jdbc-java test -e /usr/share/java/postgresql.jar
fi
[[ $(id -u) != 0 ]] || need sudo have sudo   # cargo pgrx test changes to the servers' user with it
if ! cargo_pgrx > /dev/null; then
    need pkg-config pkg-config --version
    need libssl-dev pkg-config --exists openssl
fi

if ((${#missing[@]})); then
    have apt-get || die "missing: ${missing[*]} (Debian's names). This system has no apt: install them by its own means"
    sudo=()
    if [[ $(id -u) != 0 ]]; then
        may_sudo || die "missing Debian packages, and neither root nor sudo to install them: ${missing[*]}"
        sudo=(sudo)
    fi
    # Otherwise the package makes and starts a cluster of its own.
    createcluster=/etc/postgresql-common/createcluster.conf
    if [[ ! -e $createcluster ]]; then
        say "telling Debian not to make a PostgreSQL cluster ($createcluster)"
        "${sudo[@]}" mkdir -p "$(dirname "$createcluster")"
        echo 'create_main_cluster = false' | "${sudo[@]}" tee "$createcluster" > /dev/null
    fi
    say "installing Debian packages (one to three minutes): ${missing[*]}"
    "${sudo[@]}" apt-get -qq update || die "apt-get update failed"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        -o DPkg::Lock::Timeout=120 "${missing[@]}" > /dev/null || die "apt could not install: ${missing[*]}"
    # The packages start services of their own; the tests start theirs.
    for service in pgbouncer prometheus prometheus-postgres-exporter; do
        if [[ " ${missing[*]} " == *" $service "* && -d /run/systemd/system ]]; then
            "${sudo[@]}" systemctl disable --quiet --now "$service" || true
        fi
    done
fi

if [[ $(id -u) == 0 ]] && ! id "$SERVER_USER" &> /dev/null; then
    die "root may not run PostgreSQL and there is no user '$SERVER_USER': add it, or run as another user"
fi

for component in rustfmt clippy; do
    cargo "${component/rust/}" --version &> /dev/null && continue
    have rustup || die "cargo ${component/rust/} is missing: install the Rust component $component"
    say "adding the Rust component $component (seconds)"
    rustup component add "$component"
done

if ! cargo_pgrx > /dev/null; then
    say "building cargo-pgrx $(pgrx_version) into $BUILD/tools (once; about six minutes on two cores)"
    cargo install --quiet cargo-pgrx --version "$(pgrx_version)" --locked --root "$BUILD/tools"
fi

# Last, as it needs Python.
[[ $PG == 15 ]] || server_dev &> /dev/null || "$(dirname "$0")/servers.sh" "$PG"
