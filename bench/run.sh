#!/usr/bin/env bash
# The benchmark, in parts; started by `make bench`, which gives it a fresh cluster.
#
#   BENCH="by_hand features keeper notify forecast board"   the parts, each in a folder of its own; these are all
#   BENCH_SECONDS=3  BENCH_RUNS=5              of one run, and runs (see the parts)
#   BENCH_QUICK=1                              only shows that everything works
#
# All together take about half an hour, and want a machine that does nothing else. The results are
# Markdown, on the standard output.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

memory=$(awk '/^MemTotal/ {printf "%.0f GB", $2 / 1048576}' /proc/meminfo)
echo "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $memory of memory;" \
    "PostgreSQL $(psql -XAtc 'show server_version'), shared_buffers $(psql -XAtc 'show shared_buffers');" \
    "$(date -u +%F); load of the machine before it: $(cut -d' ' -f1 /proc/loadavg)."
for part in ${BENCH:-by_hand features keeper notify forecast board}; do
    echo
    echo "## $part"
    echo
    "$here/$part/run.sh"
done
