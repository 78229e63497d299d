"""The exact solver in processes of its own, several problems side by side.

It is Python: in a thread it would keep the caller's other threads waiting, and ten seeds would be planned one
after the other. A process that is idle for a while ends.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from math import inf
from multiprocessing.connection import Connection
from threading import Event, Lock

from marco.jobs.events import THREADS
from marco.jobs.fresh import FreshProcess, end_with_driver
from marco.tabular.problem import Dynamics
from marco.tabular.solver import Limits, Solution, solve

IDLE = 60.0
"""Seconds after which a process that is asked nothing ends."""
LOOK = 0.1
"""Seconds between two looks at whether anybody still waits."""

NEVER = Event()
"""Somebody always waits."""


def solve_by_effort(
    dynamics: Dynamics, horizon: int, effort: int, stopped: Callable[[], bool] = NEVER.is_set
) -> Solution:
    """By a clock that counts how often it is looked at: the same team on every machine."""
    ticks = count()
    clock = lambda: inf if stopped() else float(next(ticks))  # noqa: E731
    return solve(dynamics, horizon, Limits(float(effort), clock=clock))


def solve_apart(dynamics: Dynamics, horizon: int, effort: int, left: Event = NEVER) -> Solution | None:
    """`solve_by_effort` in another process; None if nobody waits for it any more (`left`).

    Where a process cannot be had, or dies, it is done here.
    """
    if os.name == "posix":
        with suppress(OSError, EOFError), _planner() as planner:
            planner.line.send((dynamics, horizon, effort))
            while not planner.line.poll(LOOK):
                if left.is_set():
                    planner.kill()
                    return None
            return planner.line.recv()
    return None if left.is_set() else solve_by_effort(dynamics, horizon, effort, left.is_set)


_idle: list[FreshProcess] = []
_lock = Lock()


@contextmanager
def _planner() -> Iterator[FreshProcess]:
    """A process that is waiting for work, or a new one; it waits again afterwards, if it still can."""
    with _lock:
        while _idle and (_idle[-1].process.poll() is not None or _idle[-1].line.poll()):
            _idle.pop().kill()
        planner = _idle.pop() if _idle else None
    planner = planner or FreshProcess("marco.tabular.apart", **THREADS)
    try:
        yield planner
    except BaseException:
        planner.kill()
        raise
    if not planner.line.closed:
        with _lock:
            _idle.append(planner)


def serve(line: int) -> None:
    """The life of such a process."""
    end_with_driver()
    driver = Connection(line)
    with suppress(EOFError, ConnectionError):
        while driver.poll(IDLE):
            driver.send(solve_by_effort(*driver.recv()))
