-- The tables of a small trading company. Nothing here knows about taskq, except
-- approval_task, where the company writes down which tasks it enqueued.

create table partner (
    id           int generated always as identity primary key,
    name         text not null,
    address      text not null,           -- where the confirmation goes; an operator can correct it
    credit_limit numeric(12, 2) not null
);

-- The cache: what the start page shows for each partner.
create table partner_summary (
    partner_id int primary key references partner,
    approvals  bigint not null default 0,
    total      numeric not null default 0
);

create table approval (
    id           bigint generated always as identity primary key,
    -- The reference also locks the partner's row of the cache until the submission commits, and
    -- the refresh waits for that: see refresh_cache in effects.py.
    partner_id   int not null references partner_summary,
    title        text not null,
    how          text not null check (how in ('queued', 'inline')),
    submitted_at timestamptz not null default clock_timestamp()
);

create table approval_item (
    approval_id bigint not null references approval,
    line        int not null,
    goods       text not null,
    amount      numeric(12, 2) not null check (amount > 0),
    primary key (approval_id, line)
);

-- The credit limit is checked when the submission commits, that is, after its
-- tasks are enqueued. A refused submission must leave no task behind.
create function check_credit_limit() returns trigger language plpgsql as $$
begin
    if (select sum(item.amount) from approval_item item where item.approval_id = new.id)
       > (select partner.credit_limit from partner where partner.id = new.partner_id) then
        raise check_violation using message = format('approval %s is over the credit limit', new.id);
    end if;
    return null;
end $$;

create constraint trigger approval_within_credit_limit
    after insert on approval deferrable initially deferred
    for each row execute function check_credit_limit();

-- The company's own account of what it enqueued, written in the transaction of
-- the submission. The final check compares it with what taskq says. Approvals may
-- share a task: one refresh of the cache is enough for all that came before it.
create table approval_task (
    approval_id bigint not null references approval,
    task_type   text not null,
    task_id     bigint not null,
    primary key (approval_id, task_type)
);

-- What the tasks produce. There is deliberately no unique constraint on
-- approval_id or task_id: that an effect happens once is the work of taskq.once()
-- and of the token, and the final check would see it if they failed.
create table report (
    id          bigint generated always as identity primary key,
    approval_id bigint not null references approval,
    file_name   text not null,
    sha256      text not null,
    created_at  timestamptz not null default clock_timestamp()
);

create table sent_mail (
    id          bigint generated always as identity primary key,
    approval_id bigint not null references approval,
    address     text not null,
    message_id  text not null,
    sent_at     timestamptz not null default clock_timestamp()
);

create table cache_refresh (
    id           bigint generated always as identity primary key,
    task_id      bigint not null,
    partner_id   int not null references partner,
    refreshed_at timestamptz not null default clock_timestamp()
);

-- The nightly summary, for each night one.
create table summary (
    id        bigint generated always as identity primary key,
    task_id   bigint not null,
    night     timestamptz not null,
    approvals bigint not null,
    total     numeric not null
);

insert into partner (name, address, credit_limit) values
    ('Coffee roasters',  'coffee@example.org',     60000),
    ('Tea importers',    'tea@example.org',        60000),
    ('Spice merchants',  'spices@example.org',     60000),
    ('Paper makers',     'paper@example.org',      60000),
    ('Timber yard',      'timber@example.org',     60000),
    ('Glass works',      'glass@example.org',      60000),
    ('Flour mill',       'purchasng@example.org',  60000),  -- a typing error: no such mailbox
    ('Rope walk',        'archive@example.org',    60000);  -- its mailbox is full for good

insert into partner_summary (partner_id) select partner.id from partner;

create index on approval (partner_id);
create index on approval_task (task_id);
