-- A database of taskq 0.1.0 with every_state.sql in it, as pg_dump wrote it. The roles are there before.
--
-- PostgreSQL database dump
--

-- Dumped from database version 15.20 (Debian 15.20-0+deb12u1)
-- Dumped by pg_dump version 15.20 (Debian 15.20-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: taskq; Type: SCHEMA; Schema: -; Owner: postgres
--

CREATE SCHEMA taskq;

ALTER SCHEMA taskq OWNER TO postgres;

--
-- Name: SCHEMA taskq; Type: COMMENT; Schema: -; Owner: postgres
--

COMMENT ON SCHEMA taskq IS 'Task queue. Producers call enqueue; workers claim, complete, fail; operators read the views and call configure_queue, redrive, purge.';

--
-- Name: taskq; Type: EXTENSION; Schema: -; Owner: -
--

CREATE EXTENSION IF NOT EXISTS taskq WITH SCHEMA taskq;

--
-- Name: EXTENSION taskq; Type: COMMENT; Schema: -; Owner: 
--

COMMENT ON EXTENSION taskq IS 'task queue: enqueue in your own transaction, claim with leases, retry, bury, alert';

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: done_20261130; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261130 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261130_days CHECK (((finished_at >= '2026-11-30 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261130 OWNER TO postgres;

--
-- Name: TABLE done_20261130; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261130 IS 'Finished tasks of these days, which had no partition of their own.';

--
-- Name: done_20261201; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261201 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261201_days CHECK (((finished_at >= '2026-12-01 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-02 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261201 OWNER TO postgres;

--
-- Name: TABLE done_20261201; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261201 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261202; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261202 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261202_days CHECK (((finished_at >= '2026-12-02 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-03 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261202 OWNER TO postgres;

--
-- Name: TABLE done_20261202; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261202 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261203; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261203 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261203_days CHECK (((finished_at >= '2026-12-03 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-04 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261203 OWNER TO postgres;

--
-- Name: TABLE done_20261203; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261203 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261204; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261204 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261204_days CHECK (((finished_at >= '2026-12-04 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-05 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261204 OWNER TO postgres;

--
-- Name: TABLE done_20261204; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261204 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261205; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261205 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261205_days CHECK (((finished_at >= '2026-12-05 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-06 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261205 OWNER TO postgres;

--
-- Name: TABLE done_20261205; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261205 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261206; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261206 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261206_days CHECK (((finished_at >= '2026-12-06 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-07 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261206 OWNER TO postgres;

--
-- Name: TABLE done_20261206; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261206 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261207; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261207 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261207_days CHECK (((finished_at >= '2026-12-07 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-08 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261207 OWNER TO postgres;

--
-- Name: TABLE done_20261207; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261207 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261208; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261208 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261208_days CHECK (((finished_at >= '2026-12-08 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-09 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261208 OWNER TO postgres;

--
-- Name: TABLE done_20261208; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261208 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261209; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261209 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261209_days CHECK (((finished_at >= '2026-12-09 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-10 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261209 OWNER TO postgres;

--
-- Name: TABLE done_20261209; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261209 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261210; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261210 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261210_days CHECK (((finished_at >= '2026-12-10 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-11 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261210 OWNER TO postgres;

--
-- Name: TABLE done_20261210; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261210 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261211; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261211 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261211_days CHECK (((finished_at >= '2026-12-11 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-12 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261211 OWNER TO postgres;

--
-- Name: TABLE done_20261211; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261211 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261212; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261212 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261212_days CHECK (((finished_at >= '2026-12-12 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-13 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261212 OWNER TO postgres;

--
-- Name: TABLE done_20261212; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261212 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261213; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261213 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261213_days CHECK (((finished_at >= '2026-12-13 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-14 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261213 OWNER TO postgres;

--
-- Name: TABLE done_20261213; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261213 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261214; Type: TABLE; Schema: taskq; Owner: postgres
--

CREATE TABLE taskq.done_20261214 (
    id bigint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    task_type text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    attempt integer NOT NULL,
    max_retries integer NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    run_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    unique_key text COLLATE pg_catalog."C",
    group_key text COLLATE pg_catalog."C",
    cancel_reason text,
    payload jsonb NOT NULL,
    headers jsonb,
    progress jsonb,
    result jsonb,
    errors jsonb,
    early boolean DEFAULT false NOT NULL,
    CONSTRAINT done_20261214_days CHECK (((finished_at >= '2026-12-14 00:00:00+00'::timestamp with time zone) AND (finished_at < '2026-12-15 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT done_early CHECK ((NOT early)),
    CONSTRAINT done_state CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);

ALTER TABLE taskq.done_20261214 OWNER TO postgres;

--
-- Name: TABLE done_20261214; Type: COMMENT; Schema: taskq; Owner: postgres
--

COMMENT ON TABLE taskq.done_20261214 IS 'Finished tasks of this day (UTC).';

--
-- Name: done_20261130; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261130 FOR VALUES FROM ('2026-11-30 00:00:00+00') TO ('2026-12-01 00:00:00+00');

--
-- Name: done_20261201; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261201 FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2026-12-02 00:00:00+00');

--
-- Name: done_20261202; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261202 FOR VALUES FROM ('2026-12-02 00:00:00+00') TO ('2026-12-03 00:00:00+00');

--
-- Name: done_20261203; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261203 FOR VALUES FROM ('2026-12-03 00:00:00+00') TO ('2026-12-04 00:00:00+00');

--
-- Name: done_20261204; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261204 FOR VALUES FROM ('2026-12-04 00:00:00+00') TO ('2026-12-05 00:00:00+00');

--
-- Name: done_20261205; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261205 FOR VALUES FROM ('2026-12-05 00:00:00+00') TO ('2026-12-06 00:00:00+00');

--
-- Name: done_20261206; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261206 FOR VALUES FROM ('2026-12-06 00:00:00+00') TO ('2026-12-07 00:00:00+00');

--
-- Name: done_20261207; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261207 FOR VALUES FROM ('2026-12-07 00:00:00+00') TO ('2026-12-08 00:00:00+00');

--
-- Name: done_20261208; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261208 FOR VALUES FROM ('2026-12-08 00:00:00+00') TO ('2026-12-09 00:00:00+00');

--
-- Name: done_20261209; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261209 FOR VALUES FROM ('2026-12-09 00:00:00+00') TO ('2026-12-10 00:00:00+00');

--
-- Name: done_20261210; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261210 FOR VALUES FROM ('2026-12-10 00:00:00+00') TO ('2026-12-11 00:00:00+00');

--
-- Name: done_20261211; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261211 FOR VALUES FROM ('2026-12-11 00:00:00+00') TO ('2026-12-12 00:00:00+00');

--
-- Name: done_20261212; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261212 FOR VALUES FROM ('2026-12-12 00:00:00+00') TO ('2026-12-13 00:00:00+00');

--
-- Name: done_20261213; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261213 FOR VALUES FROM ('2026-12-13 00:00:00+00') TO ('2026-12-14 00:00:00+00');

--
-- Name: done_20261214; Type: TABLE ATTACH; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done ATTACH PARTITION taskq.done_20261214 FOR VALUES FROM ('2026-12-14 00:00:00+00') TO ('2026-12-15 00:00:00+00');

--
-- Data for Name: alert; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.alert (id, kind, queue, value, alert_limit, detail, raised_at, repeated_at, cleared_at, acknowledged_at, acknowledged_by) FROM stdin;
1	dead_letters	mail	3	1	\N	2026-11-30 02:35:28.887309+00	\N	\N	\N	\N
\.

--
-- Data for Name: archive_default; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.archive_default (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: archive_early; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.archive_early (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
34	short	brief	succeeded	0	1	3	2026-11-30 02:35:25.118062+00	2026-11-30 02:35:25.118062+00	2026-11-30 02:35:25.132879+00	2026-11-30 02:35:25.133331+00	psql	\N	\N	\N	{}	\N	\N	\N	\N	t
35	short	brief	succeeded	0	1	3	2026-11-30 02:35:25.118338+00	2026-11-30 02:35:25.118338+00	2026-11-30 02:35:25.132879+00	2026-11-30 02:35:25.13348+00	psql	\N	\N	\N	{}	\N	\N	\N	\N	t
36	short	brief	succeeded	0	1	3	2026-11-30 02:35:25.118473+00	2026-11-30 02:35:25.118473+00	2026-11-30 02:35:25.132879+00	2026-11-30 02:35:25.133575+00	psql	\N	\N	\N	{}	\N	\N	\N	\N	t
\.

--
-- Data for Name: dead_letter; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.dead_letter (id, queue, task_type, priority, token, attempt, max_retries, enqueued_at, run_at, claimed_at, died_at, redriven_at, acknowledged_at, bytes, worker, unique_key, unique_until, group_key, payload, headers, progress, errors) FROM stdin;
28	mail	mail.welcome	8	463066	1	2	2026-11-30 02:35:24.946306+00	2026-11-30 02:35:24.946306+00	2026-11-30 02:35:24.988624+00	2026-11-30 02:35:24.989279+00	\N	\N	24	psql	k8	finished	\N	{"n": 8}	\N	\N	[{"at": "2026-11-30T02:35:24.989279+00:00", "error": "550 no such mailbox", "worker": "psql", "attempt": 1}]
27	mail	mail.welcome	7	565659	1	2	2026-11-30 02:35:24.946185+00	2026-11-30 02:35:24.946185+00	2026-11-30 02:35:24.988624+00	2026-11-30 02:35:24.990444+00	\N	\N	24	psql	k7	finished	\N	{"n": 7}	\N	\N	[{"at": "2026-11-30T02:35:24.990444+00:00", "error": "550 no such mailbox", "worker": "psql", "attempt": 1}]
26	mail	mail.welcome	6	214267	1	2	2026-11-30 02:35:24.946058+00	2026-11-30 02:35:24.946058+00	2026-11-30 02:35:24.988624+00	2026-11-30 02:35:24.990559+00	\N	\N	24	psql	k6	finished	\N	{"n": 6}	\N	\N	[{"at": "2026-11-30T02:35:24.990559+00:00", "error": "550 no such mailbox", "worker": "psql", "attempt": 1}]
\.

--
-- Data for Name: done_20261130; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261130 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
24	mail	mail.welcome	succeeded	4	1	2	2026-11-30 02:35:24.945802+00	2026-11-30 02:35:24.945802+00	2026-11-30 02:35:25.06399+00	2026-11-30 02:35:25.064642+00	psql	k4	\N	\N	{"n": 4}	\N	\N	{"sent": true}	\N	f
23	mail	mail.welcome	succeeded	3	1	2	2026-11-30 02:35:24.941024+00	2026-11-30 02:35:24.941024+00	2026-11-30 02:35:25.06399+00	2026-11-30 02:35:25.06618+00	psql	k3	\N	\N	{"n": 3}	\N	\N	{"sent": true}	\N	f
31	later	later	cancelled	0	0	3	2026-11-30 02:35:25.108318+00	2026-11-30 02:35:25.108318+00	\N	2026-11-30 02:35:25.108484+00	\N	\N	\N	no need	{}	\N	\N	\N	\N	f
\.

--
-- Data for Name: done_20261201; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261201 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261202; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261202 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261203; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261203 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261204; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261204 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261205; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261205 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261206; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261206 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261207; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261207 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261208; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261208 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261209; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261209 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261210; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261210 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261211; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261211 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261212; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261212 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261213; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261213 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_20261214; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_20261214 (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: done_default; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.done_default (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at, finished_at, worker, unique_key, group_key, cancel_reason, payload, headers, progress, result, errors, early) FROM stdin;
\.

--
-- Data for Name: drill_run; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.drill_run (id, queue, timeout, asked_by, started_at, step, step_started_at, failed, task_id, token, alert_id, finished_at) FROM stdin;
\.

--
-- Data for Name: drill_step; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.drill_step (drill_id, number, step, ok, started_at, took, detail) FROM stdin;
\.

--
-- Data for Name: granted_part; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.granted_part (part, role) FROM stdin;
producer	taskq_web
worker	taskq_worker
reader	taskq_dba
operator	taskq_dba
reader	taskq_eye
\.

--
-- Data for Name: group_turn; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.group_turn (queue, group_key, task_id) FROM stdin;
groups	customer 1	18
\.

--
-- Data for Name: once_key; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.once_key (scope, key, seen_at, expires_at) FROM stdin;
welcome	seen	2026-11-30 02:35:24.64201+00	2026-12-30 02:35:24.64201+00
\.

--
-- Data for Name: parked; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.parked (id, queue, group_key, priority, run_at) FROM stdin;
19	groups	customer 1	0	2026-11-30 02:35:24.878707+00
20	groups	customer 1	0	2026-11-30 02:35:24.878808+00
\.

--
-- Data for Name: queue; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.queue (name, lease, retention, dead_letters_limit, oldest_ready_limit, expired_leases_limit, unclaimed_limit, max_running, rate, burst, paused_at, paused_by, updated_at) FROM stdin;
limited	\N	\N	\N	\N	\N	\N	2	100/minute	\N	\N	\N	2026-11-30 02:35:23.225662+00
mail	00:02:00	\N	1	\N	\N	\N	\N	\N	\N	\N	\N	2026-11-30 02:35:23.469701+00
brief	\N	00:00:00	\N	\N	\N	\N	\N	\N	\N	\N	\N	2026-11-30 02:35:23.553721+00
short	\N	00:00:01	\N	\N	\N	\N	\N	\N	\N	\N	\N	2026-11-30 02:35:23.652755+00
held	\N	\N	\N	\N	\N	\N	\N	\N	\N	2026-11-30 02:35:23.714168+00	postgres	2026-11-30 02:35:23.714168+00
\.

--
-- Data for Name: sample; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.sample (at, queue, task_type, seconds, enqueued, started, succeeded, failed, retried, dead, expired, cancelled, ready, scheduled, running, blocked, oldest_ready_age, waiting_p50, waiting_p95, run_p50, run_p95, total_p50, total_p95, claimers) FROM stdin;
2026-11-30 02:35:25.227255+00	mail	mail.welcome	23.553094	8	5	2	4	1	3	0	0	2	1	0	0	00:00:00.286632	0.042566	0.1220104	0.001421	0.0021131	0.121998	0.12484019999999998	1
2026-11-30 02:35:25.227255+00	leases	kept	23.553094	10	10	0	0	0	0	0	0	0	0	10	0	\N	0.0327765	0.033345	\N	\N	\N	\N	1
2026-11-30 02:35:25.227255+00	later	later	23.553094	2	0	0	0	0	0	0	1	0	1	0	0	\N	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:25.227255+00	leases	lost	23.553094	1	1	0	0	0	0	0	0	0	0	1	0	\N	0.089051	0.089051	\N	\N	\N	\N	1
2026-11-30 02:35:25.227255+00	short	brief	23.553094	3	3	3	0	0	0	0	0	0	0	0	0	\N	0.014541	0.014789400000000001	0.000601	0.0006865	0.015142	0.015256299999999999	1
2026-11-30 02:35:25.227255+00	held	held	23.553094	2	0	0	0	0	0	0	0	2	0	0	0	00:00:00.114574	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:25.227255+00	limited	limited	23.553094	5	2	0	0	0	0	0	0	3	0	2	0	00:00:00.401658	0.009884500000000001	0.009970449999999999	\N	\N	\N	\N	1
2026-11-30 02:35:25.227255+00	groups	grouped	23.553094	3	1	0	0	0	0	0	0	0	0	1	2	\N	0.013698	0.013698	\N	\N	\N	\N	1
2026-11-30 02:35:25.227255+00	leases	asked	23.553094	1	1	0	0	0	0	0	0	0	0	1	0	\N	0.054031	0.054031	\N	\N	\N	\N	1
2026-11-30 02:35:30.711706+00	leases	lost	5.484451	0	0	0	0	0	0	0	0	0	0	1	0	\N	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	leases	kept	5.484451	0	0	0	0	0	0	0	0	0	0	10	0	\N	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	groups	grouped	5.484451	0	0	0	0	0	0	0	0	0	0	1	2	\N	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	later	later	5.484451	0	0	0	0	0	0	0	0	0	1	0	0	\N	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	held	held	5.484451	0	0	0	0	0	0	0	0	2	0	0	0	00:00:05.599025	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	mail	mail.welcome	5.484451	0	0	0	0	0	0	0	0	2	1	0	0	00:00:05.771083	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	limited	limited	5.484451	0	0	0	0	0	0	0	0	3	0	2	0	00:00:05.886109	\N	\N	\N	\N	\N	\N	0
2026-11-30 02:35:30.711706+00	leases	asked	5.484451	0	0	0	0	0	0	0	0	0	0	1	0	\N	\N	\N	\N	\N	\N	\N	0
\.

--
-- Data for Name: schedule; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.schedule (name, cron, time_zone, task_type, payload, settings, next_run_at, last_run_at, last_task_id, missed, error, error_at, updated_at) FROM stdin;
nightly	0 3 * * *	Europe/Berlin	report.daily	{"of": "yesterday"}	{}	2026-12-01 02:00:00+00	\N	\N	0	\N	\N	2026-11-30 02:35:24.560588+00
\.

--
-- Data for Name: task; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.task (id, queue, priority, run_at, state, token, attempt, max_retries, lease_expires_at, claimed_at, worker, cancel_requested_at, enqueued_at, redriven_at, bytes, task_type, unique_key, unique_until, group_key, cancel_reason, payload, headers, progress, errors) FROM stdin;
1	leases	0	2026-11-30 02:35:24.673118+00	running	603241	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.673118+00	\N	4	lost	\N	\N	\N	\N	{}	\N	\N	\N
4	leases	0	2026-11-30 02:35:24.729187+00	running	329884	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729187+00	\N	48	kept	lease 2	finished	\N	\N	{"n": 2}	{"h": 1}	\N	\N
5	leases	0	2026-11-30 02:35:24.729261+00	running	427919	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729261+00	\N	48	kept	lease 3	finished	\N	\N	{"n": 3}	{"h": 1}	\N	\N
6	leases	0	2026-11-30 02:35:24.729317+00	running	887709	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729317+00	\N	48	kept	lease 4	finished	\N	\N	{"n": 4}	{"h": 1}	\N	\N
7	leases	0	2026-11-30 02:35:24.729368+00	running	263923	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729368+00	\N	48	kept	lease 5	finished	\N	\N	{"n": 5}	{"h": 1}	\N	\N
8	leases	0	2026-11-30 02:35:24.729417+00	running	582715	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729417+00	\N	48	kept	lease 6	finished	\N	\N	{"n": 6}	{"h": 1}	\N	\N
9	leases	0	2026-11-30 02:35:24.729465+00	running	60274	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729465+00	\N	48	kept	lease 7	finished	\N	\N	{"n": 7}	{"h": 1}	\N	\N
10	leases	0	2026-11-30 02:35:24.729513+00	running	563825	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729513+00	\N	48	kept	lease 8	finished	\N	\N	{"n": 8}	{"h": 1}	\N	\N
11	leases	0	2026-11-30 02:35:24.72956+00	running	929500	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.72956+00	\N	48	kept	lease 9	finished	\N	\N	{"n": 9}	{"h": 1}	\N	\N
12	leases	0	2026-11-30 02:35:24.729616+00	running	500058	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.729616+00	\N	48	kept	lease 10	finished	\N	\N	{"n": 10}	{"h": 1}	\N	\N
2	leases	0	2026-11-30 02:35:24.708138+00	running	634722	1	3	2026-12-01 02:35:24.762169+00	2026-11-30 02:35:24.762169+00	w1	2026-11-30 02:35:24.804+00	2026-11-30 02:35:24.708138+00	\N	4	asked	\N	\N	\N	asked to stop	{}	\N	\N	\N
3	leases	0	2026-11-30 02:35:24.728527+00	running	63370	1	3	2026-12-02 02:35:24.815918+00	2026-11-30 02:35:24.762169+00	w1	\N	2026-11-30 02:35:24.728527+00	\N	48	kept	lease 1	finished	\N	\N	{"n": 1}	{"h": 1}	{"half": true}	\N
15	limited	0	2026-11-30 02:35:24.825597+00	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:24.825597+00	\N	24	limited	\N	\N	\N	\N	{"n": 3}	\N	\N	\N
13	limited	0	2026-11-30 02:35:24.825348+00	running	994681	1	3	2026-12-01 02:35:24.835328+00	2026-11-30 02:35:24.835328+00	w2	\N	2026-11-30 02:35:24.825348+00	\N	24	limited	\N	\N	\N	\N	{"n": 1}	\N	\N	\N
14	limited	0	2026-11-30 02:35:24.825539+00	running	502270	1	3	2026-12-01 02:35:24.835328+00	2026-11-30 02:35:24.835328+00	w2	\N	2026-11-30 02:35:24.825539+00	\N	24	limited	\N	\N	\N	\N	{"n": 2}	\N	\N	\N
16	limited	0	2026-11-30 02:35:24.825634+00	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:24.825634+00	\N	24	limited	\N	\N	\N	\N	{"n": 4}	\N	\N	\N
17	limited	0	2026-11-30 02:35:24.825864+00	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:24.825864+00	\N	24	limited	\N	\N	\N	\N	{"n": 5}	\N	\N	\N
18	groups	0	2026-11-30 02:35:24.878509+00	running	282456	1	3	2026-12-01 02:35:24.892207+00	2026-11-30 02:35:24.892207+00	w3	\N	2026-11-30 02:35:24.878509+00	\N	24	grouped	\N	\N	customer 1	\N	{"n": 1}	\N	\N	\N
19	groups	0	infinity	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:24.878707+00	\N	24	grouped	\N	\N	customer 1	\N	{"n": 2}	\N	\N	\N
20	groups	0	infinity	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:24.878808+00	\N	24	grouped	\N	\N	customer 1	\N	{"n": 3}	\N	\N	\N
21	mail	1	2026-11-30 02:35:24.940623+00	waiting	0	0	2	\N	\N	\N	\N	2026-11-30 02:35:24.940623+00	\N	24	mail.welcome	k1	finished	\N	\N	{"n": 1}	\N	\N	\N
22	mail	2	2026-11-30 02:35:24.940889+00	waiting	0	0	2	\N	\N	\N	\N	2026-11-30 02:35:24.940889+00	\N	24	mail.welcome	k2	finished	\N	\N	{"n": 2}	\N	\N	\N
29	later	0	2026-12-01 02:35:25.083949+00	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:25.083949+00	\N	4	later	l	started	\N	\N	{}	\N	\N	\N
25	mail	5	2026-12-01 02:35:25.024142+00	waiting	493737	1	2	\N	\N	\N	\N	2026-11-30 02:35:24.945924+00	\N	24	mail.welcome	k5	finished	\N	\N	{"n": 5}	\N	\N	[{"at": "2026-11-30T02:35:25.024142+00:00", "error": "timeout", "worker": "psql", "attempt": 1}]
32	held	0	2026-11-30 02:35:25.112681+00	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:25.112681+00	\N	4	held	\N	\N	\N	\N	{}	\N	\N	\N
33	held	0	2026-11-30 02:35:25.112825+00	waiting	0	0	3	\N	\N	\N	\N	2026-11-30 02:35:25.112825+00	\N	4	held	\N	\N	\N	\N	{}	\N	\N	\N
\.

--
-- Data for Name: task_type; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.task_type (name, queue, priority, max_retries, lease, backoff_base, backoff_factor, backoff_cap, jitter, updated_at) FROM stdin;
mail.welcome	mail	\N	2	\N	00:00:01	\N	\N	\N	2026-11-30 02:35:23.784332+00
\.

--
-- Data for Name: unique_key; Type: TABLE DATA; Schema: taskq; Owner: postgres
--

COPY taskq.unique_key (task_type, key, task_id, until_started, kept_until, let_go) FROM stdin;
kept	lease 1	3	f	\N	f
kept	lease 2	4	f	\N	f
kept	lease 3	5	f	\N	f
kept	lease 4	6	f	\N	f
kept	lease 5	7	f	\N	f
kept	lease 6	8	f	\N	f
kept	lease 7	9	f	\N	f
kept	lease 8	10	f	\N	f
kept	lease 9	11	f	\N	f
kept	lease 10	12	f	\N	f
mail.welcome	k1	21	f	\N	f
mail.welcome	k2	22	f	\N	f
mail.welcome	k5	25	f	\N	f
later	l	29	t	\N	f
\.

--
-- Name: alert_id_seq; Type: SEQUENCE SET; Schema: taskq; Owner: postgres
--

SELECT pg_catalog.setval('taskq.alert_id_seq', 1, true);

--
-- Name: drill_id_seq; Type: SEQUENCE SET; Schema: taskq; Owner: postgres
--

SELECT pg_catalog.setval('taskq.drill_id_seq', 1, false);

--
-- Name: task_id_seq; Type: SEQUENCE SET; Schema: taskq; Owner: postgres
--

SELECT pg_catalog.setval('taskq.task_id_seq', 36, true);

--
-- Name: done_20261130 done_20261130_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261130
    ADD CONSTRAINT done_20261130_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261201 done_20261201_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261201
    ADD CONSTRAINT done_20261201_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261202 done_20261202_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261202
    ADD CONSTRAINT done_20261202_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261203 done_20261203_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261203
    ADD CONSTRAINT done_20261203_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261204 done_20261204_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261204
    ADD CONSTRAINT done_20261204_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261205 done_20261205_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261205
    ADD CONSTRAINT done_20261205_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261206 done_20261206_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261206
    ADD CONSTRAINT done_20261206_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261207 done_20261207_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261207
    ADD CONSTRAINT done_20261207_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261208 done_20261208_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261208
    ADD CONSTRAINT done_20261208_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261209 done_20261209_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261209
    ADD CONSTRAINT done_20261209_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261210 done_20261210_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261210
    ADD CONSTRAINT done_20261210_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261211 done_20261211_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261211
    ADD CONSTRAINT done_20261211_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261212 done_20261212_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261212
    ADD CONSTRAINT done_20261212_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261213 done_20261213_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261213
    ADD CONSTRAINT done_20261213_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261214 done_20261214_pkey; Type: CONSTRAINT; Schema: taskq; Owner: postgres
--

ALTER TABLE ONLY taskq.done_20261214
    ADD CONSTRAINT done_20261214_pkey PRIMARY KEY (id, finished_at);

--
-- Name: done_20261130_queue_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261130_queue_idx ON taskq.done_20261130 USING btree (queue, finished_at);

--
-- Name: done_20261201_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261201_queue_finished_at_idx ON taskq.done_20261201 USING btree (queue, finished_at);

--
-- Name: done_20261202_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261202_queue_finished_at_idx ON taskq.done_20261202 USING btree (queue, finished_at);

--
-- Name: done_20261203_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261203_queue_finished_at_idx ON taskq.done_20261203 USING btree (queue, finished_at);

--
-- Name: done_20261204_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261204_queue_finished_at_idx ON taskq.done_20261204 USING btree (queue, finished_at);

--
-- Name: done_20261205_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261205_queue_finished_at_idx ON taskq.done_20261205 USING btree (queue, finished_at);

--
-- Name: done_20261206_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261206_queue_finished_at_idx ON taskq.done_20261206 USING btree (queue, finished_at);

--
-- Name: done_20261207_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261207_queue_finished_at_idx ON taskq.done_20261207 USING btree (queue, finished_at);

--
-- Name: done_20261208_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261208_queue_finished_at_idx ON taskq.done_20261208 USING btree (queue, finished_at);

--
-- Name: done_20261209_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261209_queue_finished_at_idx ON taskq.done_20261209 USING btree (queue, finished_at);

--
-- Name: done_20261210_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261210_queue_finished_at_idx ON taskq.done_20261210 USING btree (queue, finished_at);

--
-- Name: done_20261211_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261211_queue_finished_at_idx ON taskq.done_20261211 USING btree (queue, finished_at);

--
-- Name: done_20261212_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261212_queue_finished_at_idx ON taskq.done_20261212 USING btree (queue, finished_at);

--
-- Name: done_20261213_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261213_queue_finished_at_idx ON taskq.done_20261213 USING btree (queue, finished_at);

--
-- Name: done_20261214_queue_finished_at_idx; Type: INDEX; Schema: taskq; Owner: postgres
--

CREATE INDEX done_20261214_queue_finished_at_idx ON taskq.done_20261214 USING btree (queue, finished_at);

--
-- Name: SCHEMA taskq; Type: ACL; Schema: -; Owner: postgres
--

GRANT USAGE ON SCHEMA taskq TO taskq_web;
GRANT USAGE ON SCHEMA taskq TO taskq_worker;
GRANT USAGE ON SCHEMA taskq TO taskq_dba;
GRANT USAGE ON SCHEMA taskq TO taskq_eye;

--
-- Name: FUNCTION _claimable(queues text[]); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._claimable(queues text[]) TO taskq_worker;

--
-- Name: FUNCTION _count_tasks(queue text, now timestamp with time zone); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._count_tasks(queue text, now timestamp with time zone) TO taskq_dba;
GRANT ALL ON FUNCTION taskq._count_tasks(queue text, now timestamp with time zone) TO taskq_eye;

--
-- Name: FUNCTION _default_dead_letters_limit(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._default_dead_letters_limit() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._default_dead_letters_limit() TO taskq_eye;

--
-- Name: FUNCTION _default_expired_leases_limit(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._default_expired_leases_limit() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._default_expired_leases_limit() TO taskq_eye;

--
-- Name: FUNCTION _default_lease(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._default_lease() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._default_lease() TO taskq_eye;

--
-- Name: FUNCTION _default_oldest_ready_limit(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._default_oldest_ready_limit() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._default_oldest_ready_limit() TO taskq_eye;

--
-- Name: FUNCTION _default_retention(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._default_retention() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._default_retention() TO taskq_eye;

--
-- Name: FUNCTION _default_unclaimed_limit(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._default_unclaimed_limit() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._default_unclaimed_limit() TO taskq_eye;

--
-- Name: FUNCTION _displayed_state(state text, run_at timestamp with time zone, at timestamp with time zone); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._displayed_state(state text, run_at timestamp with time zone, at timestamp with time zone) TO taskq_dba;
GRANT ALL ON FUNCTION taskq._displayed_state(state text, run_at timestamp with time zone, at timestamp with time zone) TO taskq_eye;

--
-- Name: FUNCTION _figures(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._figures() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._figures() TO taskq_eye;

--
-- Name: FUNCTION _figures_kept(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._figures_kept() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._figures_kept() TO taskq_eye;

--
-- Name: FUNCTION _last_error(errors jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._last_error(errors jsonb) TO taskq_dba;
GRANT ALL ON FUNCTION taskq._last_error(errors jsonb) TO taskq_eye;

--
-- Name: FUNCTION _local_time(at timestamp with time zone, time_zone text); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._local_time(at timestamp with time zone, time_zone text) TO taskq_dba;
GRANT ALL ON FUNCTION taskq._local_time(at timestamp with time zone, time_zone text) TO taskq_eye;

--
-- Name: FUNCTION _run_duty(duty text); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._run_duty(duty text) TO taskq_dba;

--
-- Name: FUNCTION _view_time(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._view_time() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._view_time() TO taskq_eye;

--
-- Name: FUNCTION _workers_seen(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq._workers_seen() TO taskq_dba;
GRANT ALL ON FUNCTION taskq._workers_seen() TO taskq_eye;

--
-- Name: FUNCTION acknowledge(alert_id bigint); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.acknowledge(alert_id bigint) TO taskq_dba;

--
-- Name: FUNCTION cancel(id bigint, reason text, force boolean); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.cancel(id bigint, reason text, force boolean) TO taskq_web;
GRANT ALL ON FUNCTION taskq.cancel(id bigint, reason text, force boolean) TO taskq_dba;

--
-- Name: FUNCTION claim(n integer, queues text[], worker text, lease interval); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.claim(n integer, queues text[], worker text, lease interval) TO taskq_worker;

--
-- Name: FUNCTION complete(id bigint, token bigint, result jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.complete(id bigint, token bigint, result jsonb) TO taskq_worker;

--
-- Name: FUNCTION complete_many(ids bigint[], tokens bigint[], results jsonb[]); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.complete_many(ids bigint[], tokens bigint[], results jsonb[]) TO taskq_worker;

--
-- Name: FUNCTION configure_queue(queue text, settings jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.configure_queue(queue text, settings jsonb) TO taskq_dba;

--
-- Name: FUNCTION configure_type(task_type text, settings jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.configure_type(task_type text, settings jsonb) TO taskq_dba;

--
-- Name: FUNCTION drill(queue text, timeout interval); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.drill(queue text, timeout interval) TO taskq_dba;

--
-- Name: FUNCTION enqueue(task_type text, payload jsonb, queue text, priority integer, run_at timestamp with time zone, delay interval, max_retries integer, unique_key text, unique_until text, unique_for interval, on_conflict text, group_key text, headers jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.enqueue(task_type text, payload jsonb, queue text, priority integer, run_at timestamp with time zone, delay interval, max_retries integer, unique_key text, unique_until text, unique_for interval, on_conflict text, group_key text, headers jsonb) TO taskq_web;

--
-- Name: FUNCTION enqueue_many(tasks jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.enqueue_many(tasks jsonb) TO taskq_web;

--
-- Name: FUNCTION estimate(task_type text, INOUT queue text, OUT tasks_ahead bigint, OUT expected_start_at timestamp with time zone, OUT expected_finish_at timestamp with time zone); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.estimate(task_type text, INOUT queue text, OUT tasks_ahead bigint, OUT expected_start_at timestamp with time zone, OUT expected_finish_at timestamp with time zone) TO taskq_web;
GRANT ALL ON FUNCTION taskq.estimate(task_type text, INOUT queue text, OUT tasks_ahead bigint, OUT expected_start_at timestamp with time zone, OUT expected_finish_at timestamp with time zone) TO taskq_worker;
GRANT ALL ON FUNCTION taskq.estimate(task_type text, INOUT queue text, OUT tasks_ahead bigint, OUT expected_start_at timestamp with time zone, OUT expected_finish_at timestamp with time zone) TO taskq_dba;
GRANT ALL ON FUNCTION taskq.estimate(task_type text, INOUT queue text, OUT tasks_ahead bigint, OUT expected_start_at timestamp with time zone, OUT expected_finish_at timestamp with time zone) TO taskq_eye;

--
-- Name: FUNCTION extend(id bigint, token bigint, lease interval, progress jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.extend(id bigint, token bigint, lease interval, progress jsonb) TO taskq_worker;

--
-- Name: FUNCTION fail(id bigint, token bigint, error text, retry_in interval, retry boolean); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.fail(id bigint, token bigint, error text, retry_in interval, retry boolean) TO taskq_worker;

--
-- Name: FUNCTION fail_many(ids bigint[], tokens bigint[], errors text[]); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.fail_many(ids bigint[], tokens bigint[], errors text[]) TO taskq_worker;

--
-- Name: FUNCTION health(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.health() TO taskq_dba;
GRANT ALL ON FUNCTION taskq.health() TO taskq_eye;

--
-- Name: PROCEDURE maintain(); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON PROCEDURE taskq.maintain() TO taskq_dba;

--
-- Name: FUNCTION once(scope text, key text, keep_for interval); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.once(scope text, key text, keep_for interval) TO taskq_worker;

--
-- Name: FUNCTION pause(queue text); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.pause(queue text) TO taskq_dba;

--
-- Name: FUNCTION purge(state text, queue text, task_type text, older_than interval); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.purge(state text, queue text, task_type text, older_than interval) TO taskq_dba;

--
-- Name: FUNCTION redrive(queue text, task_type text, ids bigint[], max_tasks integer, per_second numeric); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.redrive(queue text, task_type text, ids bigint[], max_tasks integer, per_second numeric) TO taskq_dba;

--
-- Name: FUNCTION release(id bigint, token bigint, delay interval); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.release(id bigint, token bigint, delay interval) TO taskq_worker;

--
-- Name: FUNCTION resume(queue text); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.resume(queue text) TO taskq_dba;

--
-- Name: FUNCTION schedule(name text, cron text, task_type text, payload jsonb, time_zone text, settings jsonb); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.schedule(name text, cron text, task_type text, payload jsonb, time_zone text, settings jsonb) TO taskq_dba;

--
-- Name: FUNCTION status(id bigint); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.status(id bigint) TO taskq_web;
GRANT ALL ON FUNCTION taskq.status(id bigint) TO taskq_worker;
GRANT ALL ON FUNCTION taskq.status(id bigint) TO taskq_dba;
GRANT ALL ON FUNCTION taskq.status(id bigint) TO taskq_eye;

--
-- Name: FUNCTION unschedule(name text); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON FUNCTION taskq.unschedule(name text) TO taskq_dba;

--
-- Name: PROCEDURE wait(IN queues text[], IN timeout interval); Type: ACL; Schema: taskq; Owner: postgres
--

GRANT ALL ON PROCEDURE taskq.wait(IN queues text[], IN timeout interval) TO taskq_worker;

--
-- Name: TABLE alerts; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.alerts TO taskq_dba;
GRANT SELECT ON TABLE taskq.alerts TO taskq_eye;

--
-- Name: TABLE dead_letters; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.dead_letters TO taskq_dba;
GRANT SELECT ON TABLE taskq.dead_letters TO taskq_eye;

--
-- Name: TABLE duties; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.duties TO taskq_dba;
GRANT SELECT ON TABLE taskq.duties TO taskq_eye;

--
-- Name: TABLE finished; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.finished TO taskq_dba;
GRANT SELECT ON TABLE taskq.finished TO taskq_eye;

--
-- Name: TABLE history; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.history TO taskq_dba;
GRANT SELECT ON TABLE taskq.history TO taskq_eye;

--
-- Name: TABLE queues; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.queues TO taskq_dba;
GRANT SELECT ON TABLE taskq.queues TO taskq_eye;

--
-- Name: TABLE running; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.running TO taskq_dba;
GRANT SELECT ON TABLE taskq.running TO taskq_eye;

--
-- Name: TABLE schedules; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.schedules TO taskq_dba;
GRANT SELECT ON TABLE taskq.schedules TO taskq_eye;

--
-- Name: TABLE task_types; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.task_types TO taskq_dba;
GRANT SELECT ON TABLE taskq.task_types TO taskq_eye;

--
-- Name: TABLE tasks; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.tasks TO taskq_dba;
GRANT SELECT ON TABLE taskq.tasks TO taskq_eye;

--
-- Name: TABLE workers; Type: ACL; Schema: taskq; Owner: postgres
--

GRANT SELECT ON TABLE taskq.workers TO taskq_dba;
GRANT SELECT ON TABLE taskq.workers TO taskq_eye;

--
-- PostgreSQL database dump complete
--

