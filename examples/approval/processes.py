"""The demo's child processes: started, logged, and stopped whatever happens."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """Ask Linux for SIGTERM should the demo itself be killed with SIGKILL."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Processes:
    """Starts Python programs as processes of their own."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start `python command…`; its output is appended to the log of that name."""
        with self.log_of(name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=HERE,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C in the terminal is for the demo, which stops its children in order.
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._running[name] = process
        return process

    def log_of(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{name}.log"

    def died(self) -> list[str]:
        """Which of the started processes ended by themselves with an error."""
        return [name for name, process in self._running.items() if process.poll() not in (None, 0)]

    def wait(self, name: str, seconds: float) -> int:
        """Wait for a process to end by itself."""
        return self._running.pop(name).wait(seconds)

    def stop(self, name: str) -> int:
        """SIGTERM, and SIGKILL for one that does not react; returns how it ended."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop_all(self) -> None:
        """Stop everything, the newest first; also what is frozen by SIGSTOP."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
        for name in reversed(list(self._running)):
            self.stop(name)
