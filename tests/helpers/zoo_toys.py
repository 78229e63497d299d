"""Small hand-written ParallelEnvs whose every number is known in advance."""

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from marco.environments.adapters.pettingzoo import PettingZooWorld


class Toy(ParallelEnv):
    """Agents a and b see (step / 10, seed % 10 / 10), earn 1 and 2 a step, and leave when told to."""

    metadata = {"name": "toy_v0"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012
    max_cycles = 5
    seen = spaces.Box(-1, 1, (2,), np.float32)
    done = spaces.Discrete(3)

    def __init__(self, terminate=None, truncate=None, join=None, tamper=None):
        self.terminate, self.truncate = terminate or {}, truncate or {}
        self.join, self.tamper = join or {}, tamper or (lambda *returned: returned)
        self.sent = []

    def observation_space(self, agent):
        return self.seen

    def action_space(self, agent):
        return self.done

    def reset(self, seed=None, options=None):
        self.steps, self.seed, self.sent = 0, seed, []
        self.agents = [agent for agent in self.possible_agents if agent not in self.join]
        return self.observations(), {agent: {} for agent in self.agents}

    def observations(self):
        return {agent: np.array([self.steps / 10, self.seed % 10 / 10], np.float32) for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        self.sent.append(actions)
        rewards = {agent: 1.0 if agent == "a" else 2.0 for agent in self.agents}
        terminations = {agent: self.terminate.get(agent) == self.steps for agent in self.agents}
        out_of_time = self.steps >= self.max_cycles
        truncations = {agent: self.truncate.get(agent) == self.steps or out_of_time for agent in self.agents}
        self.agents = self.agents + [agent for agent, step in self.join.items() if step == self.steps]
        observations, infos = self.observations(), {agent: {} for agent in self.agents}
        self.agents = [
            agent for agent in self.agents if not (terminations.get(agent) or truncations.get(agent))
        ]
        return self.tamper(observations, rewards, terminations, truncations, infos)


class Central(Toy):
    """A toy with a central state of three numbers, of which it says nothing in advance."""

    def state(self):
        return np.array([self.steps, self.seed, -1.0])


def toy(kind=Toy, *, state="joint", horizon=None, reward="mean", **settings):
    return PettingZooWorld(kind(**settings), state=state, horizon=horizon, reward=reward)


def act(*actions):
    return np.array(actions, np.int32)
