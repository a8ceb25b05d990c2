-- The life of a batch of tasks in three transactions.
select * from taskq.enqueue_many(:tasks::jsonb);
select array_agg(id) as ids, array_agg(token) as tokens from taskq.claim(:n, '{default}', 'bench') \gset
select * from taskq.complete_many(:ids::bigint[], :tokens::bigint[]);
