#!/usr/bin/env bash
# What wake-ups cost a producer: enqueues in a database whose keeper tells of them, beside the same where nobody
# does, and beside enqueues that send a NOTIFY of their own (which taskq never does).
#
#   BENCH_SECONDS=3   of one run      BENCH_RUNS=5   rounds      BENCH_CLIENTS="1 16 64"
#
# A round is one run of each, one right after the other, each time beginning with another one. In all three
# databases a session listens. synchronous_commit is on: what a NOTIFY holds up is the commit.
set -euo pipefail

seconds=${BENCH_SECONDS:-3} runs=${BENCH_RUNS:-5} all_clients=${BENCH_CLIENTS:-1 16 64}
[[ -z ${BENCH_QUICK:-} ]] || seconds=1 runs=1 all_clients='1 4'
sides=(off on own)
sql() { psql -qXAt -v ON_ERROR_STOP=1 "$@"; }

folder=$(mktemp -d)
listeners=()
trap '((${#listeners[@]} == 0)) || kill "${listeners[@]}" 2> /dev/null || true; rm -rf "$folder"' EXIT
enqueue="select taskq.enqueue('bench', '{\"customer\": 17}', queue => 'bench');"
echo "$enqueue" | tee "$folder/off" > "$folder/on"
printf '%s\n' begin\; "$enqueue" "notify taskq_ready, 'bench';" commit\; > "$folder/own"

sql -c 'set client_min_messages = warning' -c 'drop table if exists notify_run' \
    -c 'create table notify_run (clients int, round int, side text, tps float8, messages int)'
for side in "${sides[@]}"; do
    sql -c 'set client_min_messages = warning' -c "drop database if exists notify_$side with (force)"
    sql -c "create database notify_$side"
    [[ $side == on ]] || sql -c "alter database notify_$side set taskq.keeper = off"
    sql -d "notify_$side" -c 'create extension taskq'
    # An idle session: it hears of everything, and holds no snapshot.
    mkfifo "$folder/idle_$side"
    psql -qX -d "notify_$side" < "$folder/idle_$side" > "$folder/heard_$side" 2>&1 &
    listeners+=($!)
    exec {idle}> "$folder/idle_$side"
    echo 'listen taskq_ready;' >&"$idle"
    declare "idle_$side=$idle"
done
until [[ $(sql -d notify_on -c 'select count(*) from taskq._figures_state()') == 1 ]]; do sleep 0.2; done

run() {   # CLIENTS ROUND SIDE
    local log tps before messages idle=idle_$3
    sql -d "notify_$3" -c 'truncate taskq.task, taskq.done' -c checkpoint
    echo 'select 1;' >&"${!idle}"   # psql shows what has arrived with the next answer
    sleep 0.5
    before=$(grep -c 'taskq_ready' "$folder/heard_$3") || true
    log=$(pgbench -n -M prepared -c "$1" -j 2 -T "$seconds" -f "$folder/$3" "notify_$3" 2>&1) || { echo "$log" >&2; exit 1; }
    tps=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' <<< "$log")   # (missing where not one came to its end)
    echo 'select 1;' >&"${!idle}"
    sleep 0.5
    messages=$(($(grep -c 'taskq_ready' "$folder/heard_$3" || true) - before))
    sql -c "insert into notify_run values ($1, $2, '$3', ${tps:-0}, $messages)"
}
for clients in $all_clients; do
    for ((round = 0; round < runs; round++)); do
        for ((turn = 0; turn < 3; turn++)); do
            run "$clients" "$round" "${sides[(round + turn) % 3]}"
        done
    done
    echo "== $clients clients" >&2
done

echo "$runs rounds of $seconds s each, synchronous_commit on."
echo
sql <<'SQL'
select '| clients | nobody told, enqueues/s | the keeper tells, enqueues/s | ratio (least to most) | messages/s | NOTIFY in each, enqueues/s | ratio (least to most) |'
union all select '|--:|--:|--:|--:|--:|--:|--:|';
SQL
sql -v seconds="$seconds" <<'SQL'
select format('| %s | %s | %s | **%s** (%s to %s) | %s | %s | **%s** (%s to %s) |', off.clients,
              to_char(percentile_cont(0.5) within group (order by off.tps), 'FM999,999'),
              to_char(percentile_cont(0.5) within group (order by k.tps), 'FM999,999'),
              to_char(percentile_cont(0.5) within group (order by k.tps / nullif(off.tps, 0)), 'FM990.00'),
              to_char(min(k.tps / nullif(off.tps, 0)), 'FM990.00'), to_char(max(k.tps / nullif(off.tps, 0)), 'FM990.00'),
              to_char(percentile_cont(0.5) within group (order by k.messages) / :seconds, 'FM990.0'),
              to_char(percentile_cont(0.5) within group (order by own.tps), 'FM999,999'),
              to_char(percentile_cont(0.5) within group (order by own.tps / nullif(off.tps, 0)), 'FM990.00'),
              to_char(min(own.tps / nullif(off.tps, 0)), 'FM990.00'), to_char(max(own.tps / nullif(off.tps, 0)), 'FM990.00'))
  from notify_run off join notify_run k using (clients, round) join notify_run own using (clients, round)
 where off.side = 'off' and k.side = 'on' and own.side = 'own' group by off.clients order by off.clients;
SQL
kill "${listeners[@]}"
listeners=()
for side in "${sides[@]}"; do sql -c "drop database notify_$side with (force)"; done
