-- Many new tasks: enqueue, for arrays of equal length.
-- $1 ids   $2 task_types   $3 queues   $4 priorities   $5 run_ats   $6 max_retries
-- $7 now   $8 bytes   $9 unique_keys   $10 unique_untils   $11 payloads   $12 headers   $13 group_keys
insert into taskq.task (id, queue, priority, run_at, max_retries, enqueued_at, bytes, task_type,
                        unique_key, unique_until, group_key, payload, headers)
select e.id, e.queue, e.priority, e.run_at, e.max_retries, $7, e.bytes, e.task_type, e.unique_key, e.unique_until,
       e.group_key, e.payload, e.headers
  from unnest($1::bigint[], $2::text[], $3::text[], $4::integer[], $5::timestamptz[], $6::integer[],
              $8::integer[], $9::text[], $10::text[], $11::jsonb[], $12::jsonb[], $13::text[])
       e(id, task_type, queue, priority, run_at, max_retries, bytes, unique_key, unique_until, payload, headers, group_key)
