"""Many tasks on the cores of this machine: processes that are killed at a deadline, or with their parent.

A pool of a library (pebble) would do for results, but not for what a task reports while it runs: a queue that
processes share can stay locked for good when one of them is killed, so each has a pipe of its own.
"""

import os
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

from marco.jobs.events import ONE_CORE, Event, NextTask, Variables, Work, check_processes

TICK = 1.0
"""Seconds after which the caller gets a turn even if nothing happened."""


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    line: Connection
    task: Any
    ends: float


def work(
    function: Work,
    shared: Any,
    next_task: NextTask,
    *,
    processes: int,
    deadline: float = float("inf"),
    limit: float = float("inf"),
    variables: Variables = ONE_CORE,
    fresh: bool = False,
) -> Iterator[Event | None]:
    """Run tasks until none is left or until the deadline (of `time.monotonic`); None if nothing happened.

    `next_task` is asked whenever a process is free, so that it can look at what came back. A task that
    takes more than `limit` seconds is ended. Tasks that run at the deadline are killed without an event.
    A task that fails, or whose process dies (for want of memory, say), is `ended` with the reason. Processes
    have `variables` in their environment; with `fresh` each has one task only.
    """
    check_processes(processes)
    busy: dict[Connection, _Worker] = {}
    idle: list[_Worker] = []
    try:
        while time.monotonic() < deadline:
            while len(busy) < processes and (task := next_task()) is not None:
                worker = idle.pop() if idle else _start(function, shared, variables)
                worker.task, worker.ends = task, time.monotonic() + limit
                worker.line.send(task)
                busy[worker.line] = worker
            if not busy:
                return
            ready = wait(list(busy), timeout=max(0.0, min(TICK, deadline - time.monotonic())))
            for worker in [busy[line] for line in ready]:  # type: ignore[index]
                event = _received(worker)
                if event.kind != "report":
                    del busy[worker.line]
                if event.kind == "done":
                    _end(worker) if fresh else idle.append(worker)
                yield event
            for worker in [worker for worker in busy.values() if time.monotonic() > worker.ends]:
                del busy[worker.line]
                _end(worker)
                yield Event("ended", worker.task, "it took too long")
            if not ready:
                yield None
    finally:
        for worker in (*busy.values(), *idle):
            _end(worker)


def _start(function: Work, shared: Any, variables: Variables) -> _Worker:
    """A fresh process: forking one that has used jax may hang."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    with _environment(variables):
        process = context.Process(target=_serve, args=(function, shared, theirs), daemon=True)
        process.start()
    theirs.close()
    return _Worker(process, ours, None, float("inf"))


@contextmanager
def _environment(variables: Variables) -> Iterator[None]:
    """Environment variables for a process that is started."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(function: Work, shared: Any, line: Connection) -> None:
    """The life of a process: tasks come and results go until the line is closed."""
    Thread(target=_die_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its processes
    try:
        while True:
            task = line.recv()
            try:
                answer = "done", function(shared, task, lambda value: line.send(("report", value)))
            except Exception:  # sent to the caller
                answer = "failed", traceback.format_exc()
            line.send(answer)
    except (EOFError, BrokenPipeError):
        return


def _die_with_parent() -> None:
    """A parent that is killed can end nobody: who is left would work on, unseen, and hold its files."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _received(worker: _Worker) -> Event:
    try:
        kind, value = worker.line.recv()
    except (EOFError, ConnectionError):
        _end(worker)
        return Event("ended", worker.task, f"its process died with exit code {worker.process.exitcode}")
    if kind == "failed":
        _end(worker)
        return Event("ended", worker.task, value)
    return Event(kind, worker.task, value)


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.line.close()
