"""What the demo prints: headings, sentences with the time, bars, expectations."""

import statistics
import time
from collections.abc import Callable, Iterable

WIDTH = 96


class StoryEnds(Exception):
    """Something did not happen in time; the rest of the story makes no sense."""


class Story:
    """Prints, and remembers what did not hold."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.broken: list[str] = []
        self.watch: Callable[[], None] = lambda: None  # raises when waiting has become pointless
        self.regularly: Callable[[], None] | None = None  # called every `interval` while waiting
        self.interval = 1.0
        self._next_time = 0.0

    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self.start

    def heading(self, text: str) -> None:
        """Begin a chapter."""
        print(f"\n=== {text} {'=' * (WIDTH - 5 - len(text))}", flush=True)

    def say(self, text: str) -> None:
        """A line with the time."""
        print(f"{self.seconds():6.1f} s  {text}", flush=True)

    def more(self, text: str) -> None:
        """A line that belongs to the one before."""
        print(f"{'':10}{text}", flush=True)

    def expect(self, holds: bool, text: str) -> None:
        """Print whether something holds; the demo fails at the end when it does not."""
        print(f"{'':10}[{'ok' if holds else 'NOT OK'}] {text}", flush=True)
        if not holds:
            self.broken.append(text)

    def wait_until(self, what: str, condition: Callable[[], bool], at_most: float = 60.0) -> float:
        """Wait for a condition; return the seconds it took."""
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > at_most:
                raise StoryEnds(f"waited {at_most:.0f} s for this in vain: {what}")
            self.watch()
            if self.regularly is not None and time.monotonic() >= self._next_time:
                self._next_time = time.monotonic() + self.interval
                self.regularly()
            time.sleep(0.04)
        return time.monotonic() - begin


def median_and_p95(seconds: Iterable[float]) -> tuple[float, float]:
    """Both in milliseconds."""
    values = sorted(seconds)
    return statistics.median(values) * 1000, values[min(len(values) - 1, int(len(values) * 0.95))] * 1000


def bar(ready: int, later: int, running: int, scale: int) -> str:
    """Tasks of one queue as text, one character for every `scale` tasks, rounded up."""
    return ">" * -(-running // scale) + "#" * -(-ready // scale) + "~" * -(-later // scale)
