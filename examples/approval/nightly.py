"""The nightly summary: a task that comes by a schedule."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from observe import scalar, unfinished
from stage import Stage

NAME = "nightly summary"
QUEUE = "summary"  # by settings.sql
# In real life '0 2 * * *': at two o'clock, by the clocks of the time zone.
CRON, EVERY = "*/5 * * * * *", timedelta(seconds=5)
ZONE = "Europe/Berlin"


@dataclass(frozen=True)
class Nights:
    """For which moments the summary must have come."""

    first: datetime
    last: datetime
    ended_at: datetime

    def all(self) -> list[datetime]:
        """Each of them."""
        return [self.first + n * EVERY for n in range((self.last - self.first) // EVERY + 1)]


def begin(stage: Stage, operator: psycopg.Connection) -> datetime:
    """The operator makes the schedule; returns its first occurrence."""
    with operator.transaction():  # so that nothing comes before we have looked
        operator.execute("select taskq.schedule(%s, %s, 'approval.summary', time_zone => %s)", (NAME, CRON, ZONE))
        first: datetime = scalar(operator, "select next_run_at from taskq.schedules where name = %s", NAME)
    stage.story.say(f"the operator schedules the {NAME}: '{CRON}', as a night lasts 5 seconds here")
    return first


def end(stage: Stage, operator: psycopg.Connection, first: datetime) -> Nights:
    """The operator stops the schedule, sees how far it came, and ends it."""
    operator.execute(
        """select taskq.schedule(%s, %s, 'approval.summary', time_zone => %s, settings => '{"paused": true}')""",
        (NAME, CRON, ZONE),
    )
    row = operator.execute(
        "select last_run_at, clock_timestamp() from taskq.schedules where name = %s", (NAME,)
    ).fetchone()
    assert row is not None
    operator.execute("select taskq.unschedule(%s)", (NAME,))
    stage.story.wait_until("the last summary is written", lambda: unfinished(operator) == 0)
    nights = Nights(first, row[0] or first, row[1])
    stage.story.say(f"the operator ends the schedule of the {NAME} after {len(nights.all())} nights")
    return nights
