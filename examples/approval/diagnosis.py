"""What taskq.diagnose says while something is wrong."""

import time
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from stage import Stage

PATIENCE = 10  # seconds


@dataclass(frozen=True)
class Finding:
    """A row of taskq.diagnose()."""

    finding: str
    cause: str
    evidence: str
    advice: str | None


@dataclass(frozen=True)
class Diagnosis:
    """What was wrong, and the first finding then."""

    fault: str
    expected: str  # the finding that names its cause
    names: str  # and what must be in it
    first: Finding


def diagnose(operator: psycopg.Connection, queue: str) -> list[Finding]:
    """The findings about a queue, the cause of the others first."""
    with operator.cursor(row_factory=class_row(Finding)) as cursor:
        return cursor.execute("select finding, cause, evidence, advice from taskq.diagnose(%s)", (queue,)).fetchall()


def ask(stage: Stage, operator: psycopg.Connection, fault: str, expected: str, names: str) -> Diagnosis:
    """Ask about the e-mails until the cause is found, and show the answer. The figures are those of the samples, one a
    second, so it may take some of them."""
    story = stage.story
    given_up = time.monotonic() + PATIENCE
    found: list[Finding] = []

    def is_known() -> bool:
        found[:] = diagnose(operator, "email")
        return found[0].finding == expected or time.monotonic() > given_up

    story.wait_until(f"diagnose knows the cause: {fault}", is_known)
    first = found[0]
    story.say(f"{fault}: what does taskq.diagnose('email') say?")
    story.more(f"{first.finding}: {first.cause}")
    story.more(first.evidence)
    story.more(f"-> {first.advice}")
    return Diagnosis(fault, expected, names, first)
