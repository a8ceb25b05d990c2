-- One task's life in three transactions.
select taskq.enqueue('bench', :payload::jsonb) as new_id \gset
select * from taskq.claim(1, '{default}', 'bench') \gset
select taskq.complete(:id, :token);
