"""50 clients behind two server connections: producers, workers, operators and one that waits, with all totals counted.
The queue has a limit and a rate; its tasks have groups and keys in all forms, and end in all ways, one by one and many at
once. Some leases end."""

import random
import threading
import time
from collections import Counter

import psycopg
from psycopg.types.json import Jsonb

CLIENTS = 50
TASKS = 20  # of each client, half of them one by one
LIMIT, RATE, BURST = 10, 100, 20  # of the queue: so many at once; so many a second, and so many more
PAUSE = 0.1  # seconds after a claim, for which tasks run: at this rate more than the limit would be running
SHORT, LONG = 0.3, 60.0  # seconds that one waits at most, where nothing comes and where something does
FORMS = ("ignore", "skip", "replace", "error")  # of on_conflict


class Load:
    """What the clients did, as they were told."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.most = 0  # tasks that were seen to run at once
        self.done: Counter[str] = Counter()
        self.answers: dict[str, list[int | None]] = {form: [] for form in FORMS}
        self.waits: dict[str, list[float]] = {"none": [], "woken": []}  # seconds, by queue
        self.errors: list[str] = []
        self.lock = threading.Lock()
        self.produced = 0

    def connect(self, simple: bool) -> psycopg.Connection:
        """A connection that sends simple queries, or unnamed extended ones: prepared ones are not for this pooler."""
        conn = psycopg.connect(self.dsn, autocommit=True, prepare_threshold=None)
        if simple:
            conn.cursor_factory = psycopg.ClientCursor
        return conn

    def count(self, **what: int) -> None:
        with self.lock:
            self.done.update(what)

    def client(self, number: int) -> None:
        try:
            with self.connect(simple=number % 2 == 0) as conn:
                self.produce(conn, random.Random(number), number)
                with self.lock:
                    self.produced += 1
                self.work(conn, random.Random(number), number)
        except psycopg.Error as error:
            self.errors.append(f"client {number}: {error!r}")

    def is_over(self) -> bool:
        """All tasks that were enqueued have ended; or nothing can be believed any more."""
        with self.lock:
            return bool(self.errors) or (self.produced == CLIENTS and self.done["enqueued"] <= self.done["dead"] - self.done["redriven"] + self.done["succeeded"])

    def produce(self, conn: psycopg.Connection, choice: random.Random, number: int) -> None:
        for n in range(TASKS // 2):
            with conn.transaction(force_rollback=n % 5 == 4):
                conn.execute("insert into business values (%s, %s)", (number, n))
                conn.execute("select taskq.enqueue('t', %s, 'work', group_key => %s)",
                             (Jsonb({"client": number, "n": n}), choice.choice([None, "a", "b"])))
            self.count(rolled_back=int(n % 5 == 4), enqueued=int(n % 5 != 4))
        batch = [{"task_type": "t", "queue": "work", "unique_key": f"{number}/{n}"} for n in range(TASKS // 2)]
        conn.execute("select * from taskq.enqueue_many(%s)", (Jsonb(batch),))
        conn.execute("select * from taskq.enqueue_many(%s)", (Jsonb([{**batch[0], "on_conflict": "skip"}]),))
        self.count(enqueued=len(batch))
        for form in FORMS:
            self.compete(conn, form, number)

    def compete(self, conn: psycopg.Connection, form: str, number: int) -> None:
        """All clients enqueue under one key, which a task holds that nobody claims: but one of them is told of it."""
        try:
            answer = conn.execute("select taskq.enqueue('k', %s, 'kept', unique_key => %s, on_conflict => %s)",
                                  (Jsonb({"client": number}), form, form)).fetchone()[0]
        except psycopg.Error as error:
            self.count(**{f"{form} {error.sqlstate}": 1})
        else:
            with self.lock:
                self.answers[form].append(answer)

    def operate(self, conn: psycopg.Connection, choice: random.Random, number: int) -> None:
        """Some dead letters go back to work; cancelled tasks are forgotten; settings change. One client pauses the queue."""
        redriven = conn.execute("select redriven from taskq.redrive(queue => 'work', max_tasks => 2)").fetchone()[0]
        task = conn.execute("select taskq.enqueue('c', queue => 'cancelled')").fetchone()[0]
        cancelled = conn.execute("select taskq.cancel(%s)", (task,)).fetchone()[0]
        purged = conn.execute("select taskq.purge('cancelled', 'cancelled')").fetchone()[0]
        self.count(redriven=redriven, cancelled=int(cancelled == "cancelled"), purged=purged)
        value = choice.randrange(10)
        queue = conn.execute("select taskq.configure_queue('work', %s)", (Jsonb({"dead_letters_limit": value}),)).fetchone()[0]
        kind = conn.execute("select taskq.configure_type('t', %s)", (Jsonb({"priority": value}),)).fetchone()[0]
        right = queue["dead_letters_limit"] == value and queue["max_running"] == LIMIT and kind["priority"] == value
        self.count(configured=1, misconfigured=int(not right))
        if number == 0:
            conn.execute("select taskq.pause('work')")
            claimed = conn.execute("select id from taskq.claim(3, array['work'])").fetchall()
            conn.execute("select taskq.resume('work')")
            self.count(pauses=1, claimed_in_pause=len(claimed))

    def work(self, conn: psycopg.Connection, choice: random.Random, number: int) -> None:
        while not self.is_over():
            if choice.randrange(10) == 0:
                self.operate(conn, choice, number)
            tasks = conn.execute("select id, token, attempt <= max_retries from taskq.claim(%s, %s, %s, '5 min')",
                                 (3, ["work"], "w")).fetchall()
            time.sleep(PAUSE)
            if tasks and choice.randrange(4) == 0:
                self.end_many(conn, choice.randrange(3), [task for task, _, _ in tasks], [token for _, token, _ in tasks])
                continue
            for task, token, again in tasks:
                self.end(conn, choice.randrange(20), task, token, again)

    def end(self, conn: psycopg.Connection, how: int, task: int, token: int, again: bool) -> None:
        """Ends a run in one of the ways there are. `again`: if it fails, the task has another one."""
        if how < 2:
            conn.execute("select taskq.release(%s, %s)", (task, token))
        elif how < 4:
            conn.execute("select * from taskq.fail(%s, %s, 'no', retry => false)", (task, token))
            self.count(dead=1)
        elif how < 6:
            self.failed(conn.execute("select state from taskq.fail(%s, %s, 'no', '0.1 s')", (task, token)).fetchall())
        elif how < 7 and again:
            self.be_late(conn, task, token)
        else:
            with conn.transaction():
                conn.execute("select * from taskq.extend(%s, %s, '5 min', %s)", (task, token, Jsonb({"half": True})))
                repeated = self.effect(conn, task)
                conn.execute("select taskq.complete(%s, %s)", (task, token))
            self.count(succeeded=1, one_by_one=1, repeated=repeated)
            try:
                conn.execute("select taskq.complete(%s, %s)", (task, token))
            except psycopg.Error as error:
                self.count(**{error.sqlstate: 1})
            state = conn.execute("select state from taskq.status(%s)", (task,)).fetchone()[0]
            self.count(**{f"status {state}": 1})

    def end_many(self, conn: psycopg.Connection, how: int, tasks: list[int], tokens: list[int]) -> None:
        if how == 0:
            ended = conn.execute("select state from taskq.fail_many(%s, %s)", (tasks, tokens)).fetchall()
            self.failed(ended)
            self.count(failed_together=len(ended))
        else:
            with conn.transaction():
                ended = conn.execute("select * from taskq.complete_many(%s, %s)", (tasks, tokens)).fetchall()
                repeated = sum(self.effect(conn, task) for task, in ended)
            self.count(succeeded=len(ended), together=len(ended), repeated=repeated)
            again = conn.execute("select * from taskq.complete_many(%s, %s)", (tasks, tokens)).fetchall()
            self.count(completed_again=len(again))
        if len(ended) != len(tasks):
            self.errors.append(f"of {tasks} only {ended} ended")

    def failed(self, states: list[tuple[str]]) -> None:
        dead = sum(state == "dead" for state, in states)
        self.count(dead=dead, retried=len(states) - dead)

    def effect(self, conn: psycopg.Connection, task: int) -> int:
        """What a task is for, in the transaction that completes it. Says how often it was there before."""
        new = conn.execute("select taskq.once('effect', %s)", (str(task),)).fetchone()[0]
        conn.execute("insert into effect values (%s)", (task,))
        return int(not new)

    def be_late(self, conn: psycopg.Connection, task: int, token: int) -> None:
        """The lease ends before the task is completed. That still counts, if nobody has taken it back. (It is completed
        first here: who has it now may be locking it, and then wait for the same effect.)"""
        conn.execute("select * from taskq.extend(%s, %s, '0.2 s')", (task, token))
        time.sleep(0.4)
        try:
            with conn.transaction():
                conn.execute("select taskq.complete(%s, %s)", (task, token))
                repeated = self.effect(conn, task)
        except psycopg.Error as error:
            if error.sqlstate != "TQ001":
                raise
            self.count(expired=1)
        else:
            self.count(succeeded=1, late=1, repeated=repeated)

    def waiter(self, stop: threading.Event, observer: psycopg.Connection) -> None:
        """At most one may wait: it has a server connection to itself meanwhile. By turns nothing comes, and something."""
        try:
            with self.connect(simple=True) as conn:
                while not stop.is_set():
                    self.wait(conn, "none", SHORT)
                    waker = threading.Thread(target=self.wake, args=(observer,))
                    waker.start()
                    self.wait(conn, "woken", LONG)
                    waker.join()
                    for task, token in conn.execute("select id, token from taskq.claim(9, array['woken'])").fetchall():
                        conn.execute("select taskq.complete(%s, %s)", (task, token))
                        self.count(woken=1)
        except psycopg.Error as error:
            self.errors.append(f"waiter: {error!r}")

    def wait(self, conn: psycopg.Connection, queue: str, timeout: float) -> None:
        begin = time.monotonic()
        conn.execute(f"call taskq.wait(array['{queue}'], '{timeout} s')")
        self.waits[queue].append(time.monotonic() - begin)

    def wake(self, observer: psycopg.Connection) -> None:
        """Enqueues what the waiter waits for, as soon as it sleeps."""
        asleep = "select count(*) from pg_stat_activity where wait_event = 'Extension' and query like 'call taskq.wait(array[''woken'']%'"
        try:
            with self.connect(simple=False) as conn:
                begin = time.monotonic()
                while not observer.execute(asleep).fetchone()[0]:
                    if time.monotonic() - begin > LONG:
                        self.errors.append("waker: nobody sleeps")
                        break
                    time.sleep(0.02)
                conn.execute("select taskq.enqueue('w', queue => 'woken')")
        except psycopg.Error as error:
            self.errors.append(f"waker: {error!r}")

    def run(self, observer: psycopg.Connection) -> None:
        """Lets all clients work to the end. The observer, whom no pooler holds up, looks meanwhile at how many tasks run."""
        stop = threading.Event()
        waiter = threading.Thread(target=self.waiter, args=(stop, observer))
        clients = [threading.Thread(target=self.client, args=(number,)) for number in range(CLIENTS)]
        waiter.start()
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            running = observer.execute("select count(*) from taskq.task where queue = 'work' and state = 'running'").fetchone()[0]
            self.most = max(self.most, running)
            time.sleep(0.02)
        stop.set()
        waiter.join()
