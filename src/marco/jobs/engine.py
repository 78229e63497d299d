"""Which engine runs tasks: processes of this machine, or Ray."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from marco.checks import cores
from marco.jobs import on_ray, processes
from marco.jobs.events import ONE_CORE, Event, NextTask, Variables, Work

SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""A process that takes all memory of a GPU leaves none to those beside it."""


@dataclass(frozen=True)
class Engine:
    """How many tasks run side by side, and where."""

    workers: int
    ray: str | None = None
    """The address of a Ray cluster, `local` for one of this machine alone; None for plain processes."""
    gpu: bool = False
    """Whether tasks have a GPU. Without one each keeps to a core."""

    def work(self, function: Work, shared: Any, next_task: NextTask) -> Iterator[Event | None]:
        """Run tasks until none is left, each in its own process; None if nothing happened for a while."""
        variables: Variables = SHARED_GPU if self.gpu else ONE_CORE
        if self.ray is None:
            yield from processes.work(
                function, shared, next_task, processes=self.workers, variables=variables, fresh=True
            )
        else:
            gpus = 1.0 if self.gpu else 0.0
            yield from on_ray.work(
                function, shared, next_task, processes=self.workers, variables=variables, gpus=gpus
            )


def start_engine(workers: int | None, ray: str | None) -> Engine:
    """An engine with so many workers; if not given, one for each GPU or, without any, for each core."""
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be at least 1, got {workers}.")
    if ray is None:
        gpu = _has_gpu()
        return Engine(workers or (1 if gpu else cores()), None, gpu)
    found = on_ray.connect(ray, workers or cores())
    gpus = 0 if os.environ.get("JAX_PLATFORMS") == "cpu" else int(found.get("GPU", 0))
    return Engine(workers or gpus or max(1, int(found.get("CPU", 1))), ray, gpus > 0)


def _has_gpu() -> bool:
    """Whether JAX finds a GPU. Another process looks: one that has seen a GPU keeps its memory."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return False
    code = "import jax; print(jax.default_backend())"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() not in ("", "cpu")
