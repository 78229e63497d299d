"""The same on Ray: each task is a Ray task, on this machine or on a cluster.

Ray places tasks, starts processes, and ends them when this one dies. Folders that tasks write to must be the
same everywhere, as on a shared disk.
"""

import traceback
from collections.abc import Iterator
from typing import Any

from marco.jobs.events import ONE_CORE, Event, NextTask, Variables, Work, check_processes
from marco.jobs.processes import TICK
from marco.optional import require

LOCAL = "local"
"""In place of an address: a cluster of this machine alone, which ends with this process."""
RETRIES = 1
"""How often a task is begun again whose process or machine died. An error of its own is not tried again."""


def connect(address: str, cores: int | None = None) -> dict[str, float]:
    """Join a cluster, or start one here with so many cores; what it has to give."""
    ray = require("ray", "ray")
    if not ray.is_initialized():
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
        if address == LOCAL:
            ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
        else:
            try:
                ray.init(address=address, **quiet)
            except ConnectionError as error:
                raise ValueError(
                    f"there is no Ray cluster at {address!r} ({error}): start one (ray start --head), or say "
                    "--ray alone for this machine."
                ) from error
    return dict(ray.cluster_resources())


def work(
    function: Work,
    shared: Any,
    next_task: NextTask,
    *,
    processes: int,
    variables: Variables = ONE_CORE,
    gpus: float = 0.0,
) -> Iterator[Event | None]:
    """Run tasks until none is left, at most so many at a time; None if nothing happened for a while.

    Every task has a process of its own, one core, and a share of a GPU if it is given.
    """
    check_processes(processes)
    ray = require("ray", "ray")
    remote = ray.remote(
        num_cpus=1,
        num_gpus=gpus,
        max_calls=1,
        max_retries=RETRIES,
        runtime_env={"env_vars": dict(variables)},
    )(_answer)
    shared = ray.put(shared)
    busy: dict[Any, Any] = {}
    try:
        while True:
            while len(busy) < processes and (task := next_task()) is not None:
                busy[remote.remote(function, shared, task)] = task
            if not busy:
                return
            ready, _ = ray.wait(list(busy), num_returns=1, timeout=TICK)
            for reference in ready:
                yield _received(ray, reference, busy.pop(reference))
            if not ready:
                yield None
    finally:
        for reference in busy:
            ray.cancel(reference, force=True)


def _answer(function: Work, shared: Any, task: Any) -> tuple[str, Any]:
    """In the task's process: its result, or how it failed."""
    try:
        return "done", function(shared, task, lambda value: None)
    except Exception:  # sent to the caller
        return "ended", traceback.format_exc()


def _received(ray: Any, reference: Any, task: Any) -> Event:
    try:
        kind, value = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Event("ended", task, f"its process died: {error}")
    return Event(kind, task, value)
