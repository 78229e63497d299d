"""A simulator that does nothing but take its time: two agents that count, and a sleep at every step."""

import time

import numpy as np
from jaxtyping import Int

from marco.types import NO_ACTION, ActionComponent, Agent, Categorical, Spec, TimeStep

MOVES = (ActionComponent("move", 3),)
PLACE = Categorical("place", 5)


class Sleeper:
    """Each agent moves on a ring of five places; an episode ends early with the probability `ends` a step."""

    def __init__(self, seconds: float = 0.02, horizon: int = 20, ends: float = 0.0) -> None:
        agents = tuple(Agent(name, MOVES, (PLACE,)) for name in ("left", "right"))
        state = (Categorical("left", 5), Categorical("right", 5))
        self.spec = Spec("sleeper", agents, state, horizon)
        self._seconds, self._ends = seconds, ends

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode."""
        self._chance, self._time = np.random.default_rng(seed), 0
        self._places = self._chance.integers(5, size=2)
        return self._shown(np.full(2, NO_ACTION), 0.0, False)

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Sleep, and move."""
        time.sleep(self._seconds)
        self._time += 1
        self._places = (self._places + np.asarray(actions) - 1) % 5
        met = float(self._places[0] == self._places[1])
        return self._shown(actions, met, bool(self._chance.random() < self._ends))

    def _shown(self, actions: Int[np.ndarray, " N"], reward: float, over: bool) -> TimeStep:
        columns = np.eye(5, dtype=np.float32)[self._places]
        arrays = {
            "observation": columns,
            "state": columns.ravel(),
            "available": np.ones((2, 3), bool),
            "previous_actions": np.asarray(actions, np.int32),
            "reward": np.float32(reward),
            "terminated": np.bool_(over),
            "truncated": np.bool_(not over and self._time >= self.spec.horizon),
        }
        return TimeStep(**arrays)  # type: ignore[arg-type]
