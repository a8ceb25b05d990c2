"""50 clients behind two server connections: producers, workers, operators and one that waits, with all totals counted.
The queue has a limit and a rate; its tasks have groups and keys in all forms."""

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
FORMS = ("ignore", "skip", "replace", "error")  # of on_conflict


class Load:
    """What the clients did, as they were told."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.most = 0  # tasks that were seen to run at once
        self.done: Counter[str] = Counter()
        self.answers: dict[str, list[int | None]] = {form: [] for form in FORMS}
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
                self.work(conn, random.Random(number))
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

    def operate(self, conn: psycopg.Connection) -> None:
        """Some dead letters go back to work; cancelled tasks are forgotten."""
        redriven = conn.execute("select redriven from taskq.redrive(queue => 'work', max_tasks => 2)").fetchone()[0]
        task = conn.execute("select taskq.enqueue('c', queue => 'cancelled')").fetchone()[0]
        cancelled = conn.execute("select taskq.cancel(%s)", (task,)).fetchone()[0]
        purged = conn.execute("select taskq.purge('cancelled', 'cancelled')").fetchone()[0]
        self.count(redriven=redriven, cancelled=int(cancelled == "cancelled"), purged=purged)

    def work(self, conn: psycopg.Connection, choice: random.Random) -> None:
        while not self.is_over():
            if choice.randrange(10) == 0:
                self.operate(conn)
            tasks = conn.execute("select id, token from taskq.claim(%s, %s, %s, '5 min')", (3, ["work"], "w")).fetchall()
            time.sleep(PAUSE)
            for task, token in tasks:
                self.end(conn, choice.randrange(10), task, token)

    def end(self, conn: psycopg.Connection, how: int, task: int, token: int) -> None:
        if how == 0:
            conn.execute("select taskq.release(%s, %s)", (task, token))
            return
        if how == 1:
            conn.execute("select * from taskq.fail(%s, %s, 'no', retry => false)", (task, token))
            self.count(dead=1)
            return
        with conn.transaction():
            conn.execute("select * from taskq.extend(%s, %s, '5 min', %s)", (task, token, Jsonb({"half": True})))
            new = conn.execute("select taskq.once('effect', %s)", (str(task),)).fetchone()[0]
            conn.execute("insert into effect values (%s)", (task,))
            conn.execute("select taskq.complete(%s, %s)", (task, token))
        self.count(succeeded=1, repeated=int(not new))
        try:
            conn.execute("select taskq.complete(%s, %s)", (task, token))
        except psycopg.Error as error:
            self.count(**{error.sqlstate: 1})

    def waiter(self, stop: threading.Event) -> None:
        """At most one may wait: it has a server connection to itself meanwhile."""
        try:
            with self.connect(simple=True) as conn:
                while not stop.is_set():
                    conn.execute("call taskq.wait(array['none'], '0.2 s')")
                    self.count(waited=1)
        except psycopg.Error as error:
            self.errors.append(f"waiter: {error!r}")

    def run(self, observer: psycopg.Connection) -> None:
        """Lets all clients work to the end. The observer, whom no pooler holds up, looks meanwhile at how many tasks run."""
        stop = threading.Event()
        waiter = threading.Thread(target=self.waiter, args=(stop,))
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
