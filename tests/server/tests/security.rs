//! The keeper is a superuser's session in databases that others own.

use postgres::{Client, NoTls};
use taskq_server_tests::{Server, Session, eventually, signal, signals};

const KEEPER: &str = "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = $1";

fn keeper(client: &mut Client, database: &str) -> i32 {
    eventually("there is a keeper", 30, || client.column::<i32>(KEEPER, &[&database]).len() == 1);
    client.value(KEEPER, &[&database])
}

/// Waits until another keeper has come for one that was ended.
fn another_keeper(client: &mut Client, database: &str) -> i32 {
    let first = keeper(client, database);
    signal(first as u32, signals::SIGTERM);
    eventually("another keeper comes", 30, || {
        let now = client.column::<i32>(KEEPER, &[&database]);
        now.len() == 1 && now != [first]
    });
    keeper(client, database)
}

fn assert_recovers(client: &mut Client) {
    client.run("select taskq.enqueue('t')");
    let id: i64 = client.value("select id from taskq.claim(1, lease => '0.1 s')", &[]);
    eventually("the lease is taken back", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
    client.run("select taskq.purge('ready')");
}

/// Row security on our tables is nobody's business: the owner of the extension is a superuser, whom not even FORCE binds.
#[test]
fn h08_a_keeper_works_under_policies_that_hide_everything() {
    let server = Server::start("policies", &["taskq.keeper_interval = '100 ms'"]);
    let database = server.database("app");
    let (mut client, mut postgres) = (database.connect(), server.connect("postgres"));
    keeper(&mut postgres, "app");
    for table in ["task", "duty", "done", "dead_letter", "queue", "unique_key", "schedule"] {
        client.run(&format!(
            "alter table taskq.{table} enable row level security, force row level security;
             create policy nothing on taskq.{table} using (false)"
        ));
    }
    assert_recovers(&mut client);
    another_keeper(&mut postgres, "app");
    assert_recovers(&mut client);
    client.run("select taskq.schedule('each second', '* * * * * *', 's')");
    eventually("a schedule goes on", 30, || client.value("select count(*) > 1 from taskq.tasks", &[]));
}

/// Operators and functions that make a superuser of mallory when a superuser uses them.
const TRAP: &str = "
    create schema trap;
    create function trap.spring() returns void language plpgsql as $$
    begin
      set local search_path = pg_catalog;
      if (select rolsuper from pg_roles where rolname = current_user) then
        alter role mallory superuser;
      end if;
    end $$;
    do $do$
    declare v record;
    begin
      for v in select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result, row_number() over () as n,
                      (select p.oid::regproc from pg_proc p where p.oid = o.oprcode) as code
                 from pg_operator o
                where o.oprname in ('=', '<>', '<', '<=', '>', '>=', '+', '-', '||', '~~')
                  and o.oprleft = any (array['name', 'text', 'oid', 'xid', 'bigint', 'integer', 'interval', 'timestamptz', 'boolean', 'char']::regtype[])
                  and o.oprright = any (array['name', 'text', 'oid', 'xid', 'bigint', 'integer', 'interval', 'timestamptz', 'boolean', 'char']::regtype[]) loop
        execute format('create function trap.operator_%s(%s, %s) returns %s language plpgsql as %L', v.n, v.l, v.r, v.result,
          format('begin perform trap.spring(); return pg_catalog.%s($1, $2); end', v.code));
        execute format('create operator trap.%s (leftarg = %s, rightarg = %s, function = trap.operator_%s)', v.oprname, v.l, v.r, v.n);
      end loop;
    end $do$;
    create function trap.split_part(text, text, integer) returns text language plpgsql as $$
    begin perform trap.spring(); return pg_catalog.split_part($1, $2, $3); end $$;
    create domain trap.text as pg_catalog.text check (trap.spring() is not null);";

#[test]
fn s08_the_owner_of_a_database_gains_nothing_by_its_settings_and_cannot_stop_the_keeper() {
    let server = Server::start("owner", &[]);
    let mut superuser = server.connect("postgres");
    superuser.run("create role mallory login");
    server.empty_database("app");
    superuser.run("alter database app owner to mallory");
    let mut mallory = server.config("app").user("mallory").connect(NoTls).expect("mallory");
    mallory.run(TRAP);
    mallory.run(
        "alter database app set search_path = trap, pg_catalog;
         alter database app set statement_timeout = '1 ms';
         alter database app set lock_timeout = '1 ms';
         alter database app set default_transaction_read_only = on;
         alter database app set default_transaction_isolation = 'serializable';
         alter database app set row_security = off;
         alter database app set standard_conforming_strings = off",
    );
    // (From 17 on.)
    let _before_17 = mallory.simple_query("alter database app set transaction_timeout = '1 ms'");
    let is_superuser =
        "select rolsuper from pg_catalog.pg_roles where rolname operator(pg_catalog.=) 'mallory'";
    // The trap works: a superuser who looks around in that database springs it.
    let mut careless =
        server.config("app").options("-c statement_timeout=0 -c lock_timeout=0").connect(NoTls).expect("app");
    careless.run(
        "begin read write isolation level read committed; select 'a'::pg_catalog.name = 'b'::pg_catalog.name",
    );
    assert!(careless.value::<bool>(is_superuser, &[]), "the trap does not work");
    careless.run("rollback");
    drop(careless);

    // By then somebody has looked whether there is taskq, and then there is.
    let normal = "-c search_path=pg_catalog -c statement_timeout=0 -c lock_timeout=0 -c row_security=on \
                  -c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed";
    let mut owner = server.config("app").options(normal).connect(NoTls).expect("app");
    owner.run("create extension taskq");
    another_keeper(&mut superuser, "app");
    assert_recovers(&mut owner);
    owner.run("call taskq.maintain()");
    eventually("all duties are done", 60, || {
        owner.value(
            "select pg_catalog.bool_and(finished_at is not null and error is null) from taskq.duties",
            &[],
        )
    });
    superuser.run("alter database app set taskq.keeper = off");
    eventually("the keeper leaves", 30, || superuser.column::<i32>(KEEPER, &[&"app"]).is_empty());
    superuser.run("alter database app reset taskq.keeper");
    keeper(&mut superuser, "app");
    assert_recovers(&mut owner);
    // The same goes for who calls the duties in their stead, with the search_path of the database.
    owner.run("set search_path = trap, pg_catalog");
    owner.run("call taskq.maintain()");
    owner.run("call taskq.wait(timeout => '0.1 s')");
    assert!(!superuser.value::<bool>(is_superuser, &[]));
    drop(owner);
    // Nor does a role that all sessions are to have, be it meant well.
    mallory.run("set search_path = pg_catalog; alter database app reset search_path; alter database app set role = mallory");
    another_keeper(&mut superuser, "app");
    let mut owner =
        server.config("app").options(&format!("{normal} -c role=none")).connect(NoTls).expect("app");
    assert_recovers(&mut owner);
}

#[test]
fn s07_s08_the_keeper_works_as_the_owner_of_the_extension_and_with_nothing_of_others() {
    let server = Server::start("who", &[]);
    let mut postgres = server.connect("postgres");
    postgres.run("create role installer superuser login");
    server.empty_database("app");
    let mut client = server.config("app").user("installer").connect(NoTls).expect("installer");
    client.run("create extension taskq");
    // Only the owner can make a trigger on the tables.
    client.run(
        "create table public.seen (who name, path text, who_calls name);
         create function public.look() returns trigger language plpgsql as $$
         begin
           insert into public.seen values (current_user, current_setting('search_path'), session_user);
           return null;
         end $$;
         create trigger look after update or delete on taskq.task for each row execute function public.look()",
    );
    assert_recovers(&mut client);
    let who: Vec<String> = client.column(
        "select distinct who || ' with ' || path from public.seen where who_calls <> 'installer'",
        &[],
    );
    assert_eq!(who, ["installer with pg_catalog, pg_temp"]);
    client.run("create role plain login; grant usage on schema taskq to plain; select taskq.grant_operator('plain'), taskq.grant_worker('plain'), taskq.grant_producer('plain')");
    let mut plain = server.config("app").user("plain").connect(NoTls).expect("plain");
    for sql in [
        "create trigger look after update on taskq.task for each row execute function public.look()",
        "create policy look on taskq.task using (false)",
        "alter table taskq.task enable row level security",
        "create rule look as on update to taskq.task do instead nothing",
        "create index on taskq.task ((public.look()))",
        "create or replace function taskq._duty_alert() returns bigint language sql as 'select 1::bigint'",
        "alter function taskq.claim owner to plain",
        "create function taskq.mine() returns int language sql as 'select 1'",
    ] {
        assert_eq!(taskq_server_tests::sqlstate(plain.simple_query(sql)), "42501", "{sql}");
    }
}

/// The owner of the extension may be a superuser no more; the keeper's session is one's.
#[test]
fn s08_a_trigger_of_the_owner_does_not_get_hold_of_the_keepers_session() {
    let server = Server::start("trigger", &["taskq.keeper_interval = '100 ms'"]);
    let mut postgres = server.connect("postgres");
    postgres.run("create role installer superuser login");
    server.empty_database("app");
    let mut client = server.config("app").user("installer").connect(NoTls).expect("installer");
    client.run(
        "create extension taskq;
         create table public.tried (what text, code text, who_calls name);
         create function public.try_out() returns trigger language plpgsql as $$
         declare
           v_what text;
           v_code text;
         begin
           foreach v_what in array array['create temp table mine ()', 'set role postgres', 'set session authorization postgres'] loop
             v_code := 'done';
             begin
               execute v_what;
             exception when others then
               v_code := sqlstate;
             end;
             insert into public.tried values (v_what, v_code, session_user);
           end loop;
           return null;
         end $$;
         create trigger try_out after update on taskq.task for each row execute function public.try_out();
         create function public.become_superuser() returns trigger language plpgsql as $$
         begin
           if (select rolsuper from pg_roles where rolname = current_user) then
             alter role installer superuser;
           end if;
           return null;
         end $$;
         grant create on schema public to installer;
         alter role installer nosuperuser",
    );
    drop(client);
    let mut client = server.config("app").user("installer").connect(NoTls).expect("installer");
    keeper(&mut postgres, "app");
    assert_recovers(&mut client);
    let others =
        "select distinct what || ': ' || code from public.tried where who_calls <> 'installer' order by 1";
    assert_eq!(
        client.column::<String>(others, &[]),
        [
            "create temp table mine (): 42501",
            "set role postgres: 42501",
            "set session authorization postgres: 42501"
        ]
    );

    // What is deferred to the commit would run as whoever commits.
    client.run(
        "drop trigger try_out on taskq.task;
         create constraint trigger later after update on taskq.task deferrable initially deferred
           for each row execute function public.become_superuser()",
    );
    client.run("select taskq.enqueue('t')");
    let id: i64 = client.value("select id from taskq.claim(1, lease => '0.1 s')", &[]);
    let refused = "select error like '%deferred trigger%' from taskq.duties where duty = 'recover'";
    eventually("the round is refused", 30, || client.value::<Option<bool>>(refused, &[]) == Some(true));
    assert!(!postgres.value::<bool>("select rolsuper from pg_roles where rolname = 'installer'", &[]));
    client.run("drop trigger later on taskq.task");
    eventually("the lease is taken back", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });

    // Nor do functions and views that the owner puts in the place of taskq's.
    client.run(
        "create function public.looks() returns interval language plpgsql as $$
         begin
           insert into public.tried values ('view', '', current_user);
           return interval '1 s';
         end $$;
         create or replace function taskq._run_duty(duty text) returns bigint language plpgsql as $$
         begin
           insert into public.tried values ('function', '', current_user);
           return 0;
         end $$;
         alter table taskq.duty rename to hidden;
         create view taskq.duty as select name, public.looks() as every from taskq.hidden",
    );
    let who = "select distinct what || ': ' || who_calls from public.tried where code = '' order by 1";
    eventually("both were called", 30, || client.column::<String>(who, &[]).len() > 1);
    assert_eq!(client.column::<String>(who, &[]), ["function: installer", "view: installer"]);
}
