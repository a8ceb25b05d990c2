#!/usr/bin/env bash
# Runs pg_regress over tests/regress, or with the argument `isolation` pg_isolation_regress over
# tests/isolation, against the server that PG* names, in a database of its own with the extension.
# TESTS="a b" runs only these; ACCEPT=1 takes the results over as the expected ones.
set -euo pipefail
# shellcheck source=tools/lib.sh
. "$(dirname "$0")/../../tools/lib.sh"

kind=${1:-regress} files=sql program=pg_regress
[[ $kind == regress ]] || files=specs program=pg_isolation_regress
dir=$ROOT/tests/$kind out=$RUN/$kind-out pg_config=${PG_CONFIG:-$(system_pg_config)}
run_dir
rm -rf "$out"
mkdir "$out"

if [[ -n ${TESTS:-} ]]; then
    read -ra tests <<< "$TESTS"
elif [[ -e $dir/schedule ]]; then
    tests=("--schedule=$dir/schedule")
else
    LC_ALL=C   # the order of the names
    tests=("$dir/$files"/*)
    tests=("${tests[@]##*/}")
    tests=("${tests[@]%.*}")
fi
if [[ -n ${ACCEPT:-} ]]; then   # pg_regress ends at the first test without an expected result
    mkdir -p "$dir/expected"
    for file in "$dir/$files"/*; do
        file=${file##*/}
        : >> "$dir/expected/${file%.*}.out"
    done
fi

status=0
"$(dirname "$("$pg_config" --pgxs)")/../test/$kind/$program" --inputdir="$dir" --outputdir="$out" \
    --bindir="$("$pg_config" --bindir)" --dbname="taskq_$kind" --load-extension=taskq "${tests[@]}" || status=$?

# No race ends in a deadlock, not even in one that somebody else was told of. (A session counts its own when it ends.)
if [[ $kind == isolation ]]; then
    deadlocks=$(psql -qAtX -d postgres <<'END'
do $$ begin
  while exists (select from pg_stat_activity where datname = 'taskq_isolation' and backend_type = 'client backend') loop
    perform pg_sleep(0.02), pg_stat_clear_snapshot();
  end loop;
end $$;
select deadlocks from pg_stat_database where datname = 'taskq_isolation';
END
    )
    if [[ $deadlocks != 0 ]]; then
        echo "NOT OK: ${deadlocks:-no count of} deadlocks"
        status=1
    fi
fi

if [[ -n ${ACCEPT:-} ]]; then
    cp "$out"/results/*.out "$dir/expected/"
elif ((status)); then
    cat "$out/regression.diffs" 2> /dev/null || true
fi
exit "$status"
