"""Submitting an approval: what the web application does while the user waits.

As a program it plays the users: it submits a number of approvals at a given
rate and prints each response time as a line of JSON.
"""

import argparse
import json
import random
import time
from dataclasses import dataclass

import psycopg
from psycopg.types.json import Jsonb

GOODS = ("arabica", "green tea", "cardamom", "paper", "oak", "window glass", "sisal", "wheat")
HEALTHY_PARTNERS = 6

# Which approvals of the load go to the two partners that mail cannot reach.
TROUBLED_PARTNERS = {12: 7, 16: 8, 24: 7, 32: 8, 36: 7, 48: 8, 60: 7, 72: 7}


@dataclass(frozen=True)
class Request:
    """What the user typed into the form."""

    partner_id: int
    title: str
    items: list[tuple[str, int]]


@dataclass(frozen=True)
class Submitted:
    """What a submission has written."""

    approval_id: int
    task_ids: list[int]


def make_request(number: int) -> Request:
    """The same plausible order for the same number, on every run."""
    chance = random.Random(number)
    items = [(goods, chance.randint(100, 9000)) for goods in chance.sample(GOODS, chance.randint(2, 5))]
    return Request(TROUBLED_PARTNERS.get(number, 1 + number % HEALTHY_PARTNERS), f"order {number}", items)


def insert_approval(conn: psycopg.Connection, request: Request, how: str) -> int:
    """Write the business rows."""
    row = conn.execute(
        "insert into approval (partner_id, title, how) values (%s, %s, %s) returning id",
        (request.partner_id, request.title, how),
    ).fetchone()
    assert row is not None
    approval_id: int = row[0]
    conn.execute(
        """insert into approval_item (approval_id, line, goods, amount)
           select %s, line, goods, amount
             from unnest(%s::text[], %s::numeric[]) with ordinality as item (goods, amount, line)""",
        (approval_id, [goods for goods, _ in request.items], [amount for _, amount in request.items]),
    )
    return approval_id


def insert_and_enqueue(conn: psycopg.Connection, request: Request) -> Submitted:
    """Write the business rows and enqueue the work, in the caller's transaction."""
    approval_id = insert_approval(conn, request, "queued")
    rows = conn.execute(
        # A refresh of this partner that waits already does for this approval, too: enqueue then
        # stores nothing and returns its id. One that has started may have counted without it.
        """insert into approval_task (approval_id, task_type, task_id)
           values (%(id)s, 'approval.mail', taskq.enqueue('approval.mail', %(about)s)),
                  (%(id)s, 'approval.report', taskq.enqueue('approval.report', %(about)s)),
                  (%(id)s, 'approval.cache', taskq.enqueue('approval.cache', %(whose)s,
                                                           unique_key => %(key)s, unique_until => 'started'))
           returning task_id""",
        {
            "id": approval_id, "about": Jsonb({"approval_id": approval_id}),
            "whose": Jsonb({"partner_id": request.partner_id}), "key": str(request.partner_id),
        },
    ).fetchall()  # fmt: skip
    return Submitted(approval_id, [task_id for (task_id,) in rows])


def submit(conn: psycopg.Connection, request: Request) -> Submitted:
    """Submit an approval. When this returns, the approval and its three tasks are safe."""
    with conn.transaction():
        return insert_and_enqueue(conn, request)


def main() -> None:
    """Submit `--count` approvals, `--per-second` of them a second."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, required=True)
    options.add_argument("--per-second", type=float, required=True)
    arguments = options.parse_args()

    with psycopg.connect(autocommit=True, application_name="web") as conn:
        start = time.monotonic()
        for number in range(1, arguments.count + 1):
            # Users do not wait for each other: a slow answer does not delay the next request's turn.
            time.sleep(max(0.0, start + number / arguments.per_second - time.monotonic()))
            begin = time.monotonic()
            submitted = submit(conn, make_request(number))
            seconds = time.monotonic() - begin
            print(json.dumps({"approval": submitted.approval_id, "seconds": round(seconds, 5)}), flush=True)


if __name__ == "__main__":
    main()
