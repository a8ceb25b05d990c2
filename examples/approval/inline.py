"""The same submission without a queue, for comparison: the user waits for all the work."""

import psycopg

import effects
from submit import Request, insert_approval


def submit_inline(conn: psycopg.Connection, to: effects.Surroundings, request: Request) -> int:
    """Write the business rows, draw the chart, refresh the cache and send the mail."""
    with conn.transaction():
        approval_id = insert_approval(conn, request, "inline")
        effects.write_report(conn, to, approval_id)
        effects.refresh_cache(conn, request.partner_id)
        effects.send_mail(conn, to, approval_id, f"<inline-{approval_id}@approval.example.com>")
    return approval_id
