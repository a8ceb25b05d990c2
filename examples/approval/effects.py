"""The pieces of work behind an approval: a chart, an e-mail, a cache; and one long report on all of them.

Nothing here knows about tasks: the workers call these functions, and so does the
inline submission that the demo compares with.
"""

import hashlib
import os
import smtplib
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

SENDER = "approvals@example.com"


class PermanentFailure(Exception):
    """Trying again cannot help; a person has to look at it."""


class TemporaryFailure(Exception):
    """It may work later."""


@dataclass(frozen=True)
class Surroundings:
    """Where the effects outside the database go."""

    charts: Path
    smtp_host: str
    smtp_port: int

    @classmethod
    def from_environment(cls) -> "Surroundings":
        """Read CHARTS, SMTP_HOST and SMTP_PORT."""
        return cls(Path(os.environ["CHARTS"]), os.environ["SMTP_HOST"], int(os.environ["SMTP_PORT"]))


def write_report(conn: psycopg.Connection, to: Surroundings, approval_id: int) -> str:
    """Draw the approval's chart from the tables and note the file in `report`."""
    figure = draw_approval(conn, approval_id)

    # Written beside its place and renamed: whoever looks sees a whole file or none,
    # and a second run after a crash replaces the first.
    file_name = f"approval-{approval_id}.png"
    unfinished = to.charts / f".{file_name}.{os.getpid()}"
    FigureCanvasAgg(figure)
    figure.savefig(unfinished, format="png")
    sha256 = hashlib.sha256(unfinished.read_bytes()).hexdigest()
    unfinished.rename(to.charts / file_name)

    conn.execute(
        "insert into report (approval_id, file_name, sha256) values (%s, %s, %s)",
        (approval_id, file_name, sha256),
    )
    return file_name


def draw_approval(conn: psycopg.Connection, approval_id: int) -> Figure:
    """The chart of one approval."""
    items = conn.execute(
        "select goods, amount::float8 from approval_item where approval_id = %s order by line",
        (approval_id,),
    ).fetchall()
    row = conn.execute(
        """select partner.name, approval.title, partner.credit_limit::float8
             from approval join partner on partner.id = approval.partner_id
            where approval.id = %s""",
        (approval_id,),
    ).fetchone()
    assert row is not None, f"approval {approval_id} does not exist"
    partner, title, credit_limit = row

    figure = Figure(figsize=(4.2, 2.6), dpi=80)
    axes = figure.add_subplot(position=(0.22, 0.05, 0.73, 0.75))
    bars = axes.barh([goods for goods, _ in items], [amount for _, amount in items], color="#4878a8")
    axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=3)
    axes.margins(x=0.2)
    axes.set_xticks([])
    axes.tick_params(labelsize=8)
    total = sum(amount for _, amount in items)
    axes.set_title(
        f"Approval {approval_id}: {title}, {partner}\n{total:,.0f} of at most {credit_limit:,.0f}", fontsize=9
    )
    return figure


class Yearbook:
    """All approvals in one document, a page each. Without publish() nothing of it stays."""

    FILE_NAME = "yearbook.pdf"

    def __init__(self, conn: psycopg.Connection, to: Surroundings) -> None:
        self._conn = conn
        self._place = to.charts / self.FILE_NAME
        self._unfinished = to.charts / f".{self.FILE_NAME}.{os.getpid()}"
        self._approvals = [row[0] for row in conn.execute("select id from approval order by id")]
        self.length = len(self._approvals)

    def __enter__(self) -> "Yearbook":
        self._book: Any = PdfPages(self._unfinished)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._book.close()
        self._unfinished.unlink(missing_ok=True)

    def pages(self) -> range:
        """The numbers of the pages."""
        return range(1, self.length + 1)

    def draw(self, page: int) -> None:
        """Draw one page."""
        self._book.savefig(draw_approval(self._conn, self._approvals[page - 1]))

    def publish(self) -> str:
        """Put the finished document in its place."""
        self._book.close()
        self._unfinished.rename(self._place)
        return self.FILE_NAME


def send_mail(conn: psycopg.Connection, to: Surroundings, approval_id: int, message_id: str) -> str:
    """Send the confirmation and note it in `sent_mail`.

    The address is read now, not when the approval was submitted, so a corrected
    address serves a later try. The mail leaves as late as possible: after it,
    only the commit can still fail.
    """
    row = conn.execute(
        """select partner.address, partner.name, approval.title
             from approval join partner on partner.id = approval.partner_id
            where approval.id = %s""",
        (approval_id,),
    ).fetchone()
    assert row is not None, f"approval {approval_id} does not exist"
    address: str = row[0]
    partner, title = row[1:]
    conn.execute(
        "insert into sent_mail (approval_id, address, message_id) values (%s, %s, %s)",
        (approval_id, address, message_id),
    )

    message = EmailMessage()
    message["From"] = SENDER
    message["To"] = address
    message["Subject"] = f"Approval {approval_id}: {title}"
    message["Message-ID"] = message_id
    message["X-Approval"] = str(approval_id)
    message.set_content(f"To {partner}:\n\nyour order ({title}) is approved. Its number is {approval_id}.\n")
    deliver(to, address, message)
    return address


def deliver(to: Surroundings, address: str, message: EmailMessage) -> None:
    """Hand one message to the SMTP server; raise Permanent- or TemporaryFailure."""
    try:
        smtp = smtplib.SMTP(to.smtp_host, to.smtp_port, timeout=15)
    except OSError as error:
        raise TemporaryFailure(f"mail server: {error}") from error
    try:
        smtp.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        code, reply = error.recipients[address]
        text = f"{address}: {code} {reply.decode(errors='replace')}"
        # RFC 5321: 5yz is for good, 4yz may work later.
        raise (PermanentFailure if code >= 500 else TemporaryFailure)(text) from error
    except OSError as error:  # every error of smtplib is an OSError
        raise TemporaryFailure(f"mail server: {error}") from error
    finally:
        # Once the server has said 250 the mail is delivered, whatever happens to
        # the goodbye; an error here must not cause a second delivery.
        with suppress(OSError):
            smtp.quit()
        smtp.close()


def refresh_cache(conn: psycopg.Connection, partner_id: int, task_id: int | None = None) -> None:
    """Bring a partner's figures on the start page up to date."""
    # Lock first and count in a second statement: its snapshot then sees what the
    # previous holder of the lock committed. The lock also waits for submissions that
    # are not committed yet (a reference from approval locks this row), because one of
    # them may have been told that this task, which waited then, will do for it.
    conn.execute("select from partner_summary where partner_id = %s for update", (partner_id,))
    conn.execute(
        """update partner_summary summary
              set (approvals, total) =
                  (select count(distinct approval.id), coalesce(sum(item.amount), 0)
                     from approval join approval_item item on item.approval_id = approval.id
                    where approval.partner_id = summary.partner_id)
            where summary.partner_id = %s""",
        (partner_id,),
    )
    if task_id is not None:
        conn.execute("insert into cache_refresh (task_id, partner_id) values (%s, %s)", (task_id, partner_id))


def write_summary(conn: psycopg.Connection, night: str, task_id: int) -> None:
    """Note what was approved so far."""
    conn.execute(
        """insert into summary (task_id, night, approvals, total)
           select %s, %s, count(distinct approval_id), coalesce(sum(amount), 0) from approval_item""",
        (task_id, night),
    )
