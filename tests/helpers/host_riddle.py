"""The tiny riddle in plain numpy, as an environment outside JAX, with the flaws that tests need."""

import os

import numpy as np

from marco.environments.switch import NONE, OFF, ON, TELL, Switch
from marco.types import NO_ACTION, TimeStep


class HostRiddle:
    """Drawn from the seed of `reset` alone. `before(total)` is called as a step is taken, with its number.

    `log` is a file that gets a byte for every step taken, by whatever process.
    """

    def __init__(self, horizon=3, before=lambda total: None, log=None):
        self.spec = Switch(agents=2, horizon=horizon).spec
        self.before, self.total = before, 0
        self.log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reset(self, seed):
        self.chance, self.time = np.random.default_rng(seed), 0
        self.visitor, self.light, self.ended = self.chance.integers(2), False, False
        self.visited = np.arange(2) == self.visitor
        return self._shown(0.0, np.full(2, NO_ACTION))

    def step(self, actions):
        self.total += 1
        if self.log is not None:
            os.write(self.log, b".")
        self.before(self.total)
        self.time += 1
        action = actions[self.visitor]
        reward = 0.0 if action != TELL else 1.0 if self.visited.all() else -1.0
        self.ended, self.light = action == TELL, action == ON or (self.light and action != OFF)
        self.visitor = self.chance.integers(2)
        self.visited = self.visited | (np.arange(2) == self.visitor)
        return self._shown(reward, actions)

    def _shown(self, reward, actions):
        in_room = np.arange(2) == self.visitor
        return TimeStep(
            observation=np.stack([in_room, in_room & self.light], -1).astype(np.float32),
            state=np.concatenate([in_room, [self.light], self.visited]).astype(np.float32),
            available=in_room[:, None] | (np.arange(4) == NONE),
            previous_actions=np.asarray(actions, np.int32),
            reward=np.float32(reward),
            terminated=np.bool_(self.ended),
            truncated=np.bool_(not self.ended and self.time >= self.spec.horizon),
        )


def fail_at(*steps):
    """A flaw for `before`: an error in these steps of all."""

    def before(total):
        if total in steps:
            raise ConnectionError("the robot is gone")

    return before
