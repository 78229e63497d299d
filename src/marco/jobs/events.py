"""What a caller hears of its tasks, whichever engine runs them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

Report = Callable[[Any], None]
"""Sends something to the caller while a task runs. Tasks on Ray send nothing on the way."""
Work = Callable[[Any, Any, Report], Any]
"""Called with what all tasks share, the task and `report`; a function of a module, not a closure."""
NextTask = Callable[[], Any | None]
"""The next task, or None where there is none (yet). Asked when there is room, and after every event."""
Variables = Mapping[str, str]

THREADS = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables of a task that keeps to one core; the first is XLA's."""
ONE_CORE = {**THREADS, "JAX_PLATFORMS": "cpu"}
"""The same for a task that needs no accelerator."""


class Event(NamedTuple):
    """From a task: a report while it runs, its result, or that it ended without one."""

    kind: Literal["report", "done", "ended"]
    task: Any
    value: Any = None
    """What was reported, the result, or the reason."""


def check_processes(processes: int) -> None:
    """Refuse fewer than one."""
    if processes < 1:
        raise ValueError(f"there must be at least 1 process, got {processes}.")
