-- One task's life in three transactions. MORE is what the feature gives to enqueue.
select taskq.enqueue('bench', '{"order": 815, "customer": "c-4711"}', queue => :queue MORE) as new_id \gset
select * from taskq.claim(1, array[:queue]::text[], 'bench') \gset
select taskq.complete(:id, :token);
