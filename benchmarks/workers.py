"""Many tasks on many cores: processes with one BLAS thread each, ended at a deadline whatever they do."""

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
"""The surroundings of a process: its core is its own, and an accelerator is nothing to it."""
TICK = 1.0
"""Seconds after which the caller gets a turn even if nothing happened."""

Tell = Callable[[Any], None]
"""Sends something to the caller while a task goes on."""
Work = Callable[[Any, Any, Tell], Any]
"""Called with what is shared by all tasks, the task and `tell`; a function of a module, not a closure."""


class Event(NamedTuple):
    """What a task says: something on the way, its result, or that it ended without one."""

    kind: Literal["told", "done", "ended"]
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
    """Do tasks until there are no more or the deadline (of `time.monotonic`); None when nothing happened.

    `next_task` is asked whenever a process is free, so that it can look at what came back. A task that
    takes more than `limit` seconds is ended. What is under way at the deadline is ended without a word.
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
                if event.kind != "told":
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
                answer = "done", function(shared, task, lambda value: line.send(("told", value)))
            except Exception:  # told to the caller
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
