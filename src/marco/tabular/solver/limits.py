"""What ends a search early: its time, its memory, or a value that is good enough."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NUMBERS = 50_000_000
"""The most numbers in an array of a search: one takes 8 bytes, and a step takes a few arrays."""

Stop = Callable[[], bool]
"""Whether the time is up."""


@dataclass(frozen=True)
class Limits:
    """What ends a search before its team is proved optimal."""

    seconds: float = float("inf")
    """The time on `clock`."""
    ceiling: float = float("inf")
    """An upper bound on the value that is known already: a team that reaches it is the best."""
    interruptible: bool = False
    """Whether Ctrl-C ends the search as the time limit does, instead of the program."""
    clock: Callable[[], float] = time.perf_counter
    """Wall time by default; `time.thread_time` is processor time."""
    memory: float = 4e9
    """The bytes that the process may grow by, where the system tells its size (not on Windows)."""

    def __post_init__(self) -> None:
        if not self.seconds > 0.0:
            raise ValueError(f"the time must be more than 0 seconds, got {self.seconds}.")
        if not self.memory > 0.0:
            raise ValueError(f"the memory must be more than 0 bytes, got {self.memory}.")


class OutOfTimeError(Exception):
    """The time is up in a computation that has no result until it is complete."""


def never() -> bool:
    """There is time without end."""
    return False


def go_on(stop: Stop) -> None:
    """Raise an error if the time is up."""
    if stop():
        raise OutOfTimeError


def process_bytes() -> int:
    """The memory that this process has now or, where only that is told, has had at most; 0 if neither is."""
    if (pages := Path("/proc/self/statm")).exists():
        return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


@contextmanager
def recursion_limit(depth: int) -> Iterator[None]:
    """Allow a recursion of this depth: the search recurses once per step of the horizon."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
