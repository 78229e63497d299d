"""Many tasks on many cores: processes with one BLAS thread each, killed at a deadline whatever they do.

A pool of a library (pebble) would do for results, but not for what a task reports while it runs: a queue that
processes share can stay locked for good when one of them is killed, so each has a pipe of its own.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, NamedTuple

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SETTINGS = {**THREADS, "JAX_PLATFORMS": "cpu"}
"""Environment variables of a process: it has one core and needs no accelerator."""
TICK = 1.0
"""Seconds after which the caller gets a turn even if nothing happened."""

Report = Callable[[Any], None]
"""Sends something to the caller while a task runs."""
Work = Callable[[Any, Any, Report], Any]
"""Called with what all tasks share, the task and `report`; a function of a module, not a closure."""


class Event(NamedTuple):
    """From a task: a report while it runs, its result, or that it ended without one."""

    kind: Literal["report", "done", "ended"]
    task: Any
    value: Any = None


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    line: Connection
    task: Any
    ends: float


def work(
    function: Work,
    shared: Any,
    next_task: Callable[[], Any | None],
    *,
    processes: int,
    deadline: float = float("inf"),
    limit: float = float("inf"),
) -> Iterator[Event | None]:
    """Run tasks until none is left or until the deadline (of `time.monotonic`); None if nothing happened.

    `next_task` is asked whenever a process is free, so that it can look at what came back. A task that
    takes more than `limit` seconds is ended. Tasks that run at the deadline are killed without an event.
    A task that fails, or whose process dies (for want of memory, say), is `ended` with the reason.
    """
    if processes < 1:
        raise ValueError(f"--processes must be at least 1, got {processes}.")
    busy: dict[Connection, _Worker] = {}
    idle: list[_Worker] = []
    try:
        while time.monotonic() < deadline:
            while len(busy) < processes and (task := next_task()) is not None:
                worker = idle.pop() if idle else _start(function, shared)
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
                    idle.append(worker)
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


def _start(function: Work, shared: Any) -> _Worker:
    """A fresh process: forking one that has used jax may hang."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    before = dict(os.environ)
    os.environ.update(SETTINGS)
    process = context.Process(target=_serve, args=(function, shared, theirs), daemon=True)
    process.start()
    os.environ.clear()
    os.environ.update(before)
    theirs.close()
    return _Worker(process, ours, None, float("inf"))


def _serve(function: Work, shared: Any, line: Connection) -> None:
    """The life of a process: tasks come and results go until the line is closed."""
    try:
        while True:
            task = line.recv()
            try:
                answer = "done", function(shared, task, lambda value: line.send(("report", value)))
            except Exception:  # sent to the caller
                answer = "failed", traceback.format_exc()
            line.send(answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


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
