#!/usr/bin/env bash
# Stops every server of this checkout and removes clusters and build output. What takes long to get
# again (cargo-pgrx, the Python environment) stays, unless the argument is `all`.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/lib.sh"

stop_servers "$RUN" fast
rm -rf "$RUN"
for part in "$BUILD"/*; do
    [[ $part == "$BUILD/tools" ]] || rm -rf "$part"
done
[[ ${1:-} != all ]] || rm -rf "$BUILD/tools" "$ROOT/.venv"
