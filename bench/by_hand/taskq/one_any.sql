-- The same, but claimed from any queue.
select taskq.enqueue('bench', :payload::jsonb) as new_id \gset
select * from taskq.claim(1, null, 'bench') \gset
select taskq.complete(:id, :token);
