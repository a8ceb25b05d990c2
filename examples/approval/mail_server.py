"""The outside world's SMTP server, for the demo: keeps mails in a Maildir.

    python mail_server.py --port 2525 --maildir /tmp/mail --refuse "nobody@example.org=550 5.1.1 no such mailbox"

Every accepted mail is a file in MAILDIR/new, and a line on the standard output.
"""

import argparse
import asyncio
import signal
from mailbox import Maildir
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session


class Keeper:
    """Accepts mails into a Maildir and refuses some recipients."""

    def __init__(self, maildir: Path, refused: dict[str, str]) -> None:
        self.maildir = Maildir(maildir, create=True)
        self.refused = refused

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Take the recipient or give the reply we were told to give."""
        if address in self.refused:
            print(f"refused {address}", flush=True)
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Store the mail, then say so: after 250 it is our responsibility."""
        assert isinstance(envelope.content, bytes)
        key = self.maildir.add(envelope.content)
        print(f"delivered {self.maildir[key]['Message-ID']} to {', '.join(envelope.rcpt_tos)}", flush=True)
        return "250 OK"


class Connection(SMTP):
    """An SMTP session that the server can wait for."""

    open: set["Connection"] = set()

    def connection_made(self, transport: Any) -> None:
        """Register the session."""
        self.open.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the session."""
        self.open.discard(self)
        super().connection_lost(error)


async def serve(port: int, keeper: Keeper) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Connection(keeper, hostname="mail.example.org"), "127.0.0.1", port)
    print(f"listening on port {port}", flush=True)
    await stop.wait()

    # No new sessions, but let the open ones end: cutting one between storing a mail
    # and its 250 would make the client send the mail again.
    server.close()
    deadline = loop.time() + 10
    while Connection.open and loop.time() < deadline:
        await asyncio.sleep(0.01)
    print("stopped", flush=True)


def main() -> None:
    """Read the options and serve."""
    options = argparse.ArgumentParser(description="An SMTP server that keeps mails in a Maildir.")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--maildir", type=Path, required=True)
    options.add_argument("--refuse", action="append", default=[], metavar="ADDRESS=REPLY")
    arguments = options.parse_args()
    refused = dict(pair.split("=", 1) for pair in arguments.refuse)
    asyncio.run(serve(arguments.port, Keeper(arguments.maildir, refused)))


if __name__ == "__main__":
    main()
