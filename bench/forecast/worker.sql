-- One task of a worker: claim, work for 40 to 160 ms, complete.
\set work random(40, 160)
select coalesce(max(id), 0) as id, coalesce(max(token), 0) as token from taskq.claim(1, '{forecast}') \gset
\if :id > 0
\sleep :work ms
select taskq.complete(:id, :token);
\endif
