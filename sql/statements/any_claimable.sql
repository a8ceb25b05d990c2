-- Whether a claim would find something now. A function of the owner, as workers may not read the table.
-- $1 queues, or NULL for all
select taskq._claimable($1)
