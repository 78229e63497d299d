"""A simulator as an actor of a Ray cluster."""

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Int

from marco.optional import require
from marco.simulators.worker import (
    PATIENCE,
    START,
    Recipe,
    Simulator,
    SimulatorLostError,
    check_same,
    unpacked,
)
from marco.types import Spec, TimeStep


def connect(address: str) -> Any:
    """Ray, connected to a cluster; auto: to the one that is found, or to one that is started here.

    For the main thread: Ray sees to signals.
    """
    ray = require("ray", "ray")
    if not ray.is_initialized():
        found = None if address == "auto" else address
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")  # and exec, at once
            ray.init(address=found, logging_level="error")
    return ray


class RayWorker:
    """A `Worker` that is an actor. Ray finds a place for it, and restarts nothing: that is the driver's."""

    def __init__(self, spec: Spec, recipe: Recipe, step_timeout: float | None, ray: Any) -> None:
        self.spec, self._timeout, self._ray = spec, step_timeout, ray
        # Of processors an actor needs none by Ray's count: a simulator may sleep, or be elsewhere itself.
        actor = self._ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")(Simulator)
        self._actor = actor.remote()
        try:
            check_same(spec, self._get(self._actor.ask.remote("make", recipe), START), recipe.name)
        except BaseException:
            self.close(0.0)
            raise

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode."""
        return self._get(self._actor.ask.remote("reset", seed), self._timeout)

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Take one real step."""
        return self._get(self._actor.ask.remote("step", actions), self._timeout)

    def close(self, patience: float = PATIENCE) -> None:
        """End the actor."""
        if patience and self._ray.is_initialized():
            with suppress(Exception):  # it is ended all the same
                self._ray.get(self._actor.ask.remote("close"), timeout=patience)
        if self._ray.is_initialized():
            self._ray.kill(self._actor)

    def _get(self, reference: Any, timeout: float | None) -> Any:
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(reference, timeout=timeout)
        except errors.GetTimeoutError:
            raise SimulatorLostError(
                f"the simulator of {self.spec.name} did not answer within {timeout:g} seconds. Where a step "
                "may take longer, give a larger step_timeout."
            ) from None
        except errors.RayError as error:
            reason = str(error).strip().splitlines()
            raise SimulatorLostError(
                f"the actor of {self.spec.name} was lost: {reason[0] if reason else error}"
            ) from error
        return unpacked(answer)
