"""F01: PgBouncer in transaction mode before the test's server."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = "/usr/sbin/pgbouncer"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Pooler:
    """Two server connections a database; clients are let in by anybody's name, from this machine."""

    def __init__(self, folder: Path) -> None:
        if not Path(PROGRAM).exists():
            sys.exit(f"{PROGRAM} is missing: run 'make prerequisites'")
        self.folder, self.port, self.log = folder, free_port(), folder / "pgbouncer.log"
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host={os.environ['PGHOST']} port={os.environ['PGPORT']} user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir = {folder}\nauth_type = any\n"
            "admin_users = postgres\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\nlogfile = "
            f"{self.log}\n"
            # what JDBC and pg_regress send when they connect
            "ignore_startup_parameters = extra_float_digits, options\n"
        )
        # it refuses to run as root
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
        self.process = subprocess.Popen([*user, PROGRAM, "-q", settings], stdin=subprocess.DEVNULL)

    def __enter__(self) -> "Pooler":
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.1)
        sys.exit(f"the pooler does not start: {self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def environment(self, database: str) -> dict[str, str]:
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGDATABASE": database, "PGUSER": "postgres"}
