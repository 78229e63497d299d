"""How many simulators, and where."""

import math
from dataclasses import dataclass, replace
from typing import Any

from marco.checks import check_fields

MOST = 10_000
"""The most simulators."""


@dataclass(frozen=True)
class Workers:
    """Processes that each hold a simulator. None of this changes what is collected, or what is learned."""

    count: int
    """How many simulators, each in a process of its own."""
    ray: str | None = None
    """The address of a Ray cluster whose actors they are; auto: the cluster that is found, or one that is
    started here. None for plain processes of this machine."""
    step_timeout: float | None = None
    """Seconds after which a simulator that does not answer is given up; None to wait for ever."""
    attempts: int = 3
    """How many simulators may fail in an episode, one after the other, before the run stops."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.count <= MOST:
            raise ValueError(f"workers must be from 1 to {MOST:,}, got {self.count}.")
        if self.step_timeout is not None and not 0 < self.step_timeout < math.inf:
            raise ValueError(f"step_timeout must be a positive number of seconds, got {self.step_timeout}.")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}.")
        if self.ray is not None and not (self.ray and self.ray.isprintable()):
            raise ValueError(f"ray must be the address of a cluster, or auto, got {self.ray!r}.")


def as_workers(workers: int | Workers | None, ray: str | None, step_timeout: float | None) -> Workers | None:
    """The workers that a call of `learn` asks for; None if it asks for none."""
    asked = {"ray": ray, "step_timeout": step_timeout}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if workers is None and given:
        raise ValueError(f"{next(iter(given))} is for workers: say how many, as in workers=8.")
    if isinstance(workers, Workers):
        return replace(workers, **given)
    return None if workers is None else Workers(workers, **given)
