"""Small host environments whose state is the joint observation, of which something is hidden."""

import numpy as np

from marco.environments.base import Guessed, ObservationFromState
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.types import NO_ACTION, ActionComponent, Agent, Categorical, Spec, TimeStep, binary

LENGTH = 6

CHAIN = PredictorConfig("chain", (16,), 2)
MODEL = ModelConfig(
    CHAIN,
    CHAIN,
    CHAIN,
    CHAIN,
    PredictorConfig("factored", (8,), 1),
    FitConfig(learning_rate=1e-2, max_epochs=25, patience=4),
    relations=True,
    changes=True,
)
"""Small networks that learn these worlds."""


class _Observed:
    """Two agents, each with an observation of its own; the state is both observations."""

    joint_state = True
    guessed = Guessed()

    def __init__(self, name, observation, horizon):
        agents = tuple(Agent(who, (ActionComponent("action", 2),), observation) for who in "ab")
        state = tuple(
            type(feature)(**{**vars(feature), "name": f"{agent.name}: {feature.name}"})
            for agent in agents
            for feature in observation
        )
        self.spec = Spec(name, agents, state, horizon)
        self.known = {"observation": ObservationFromState(self.spec, tuple(range(self.spec.state_width)))}

    def reset(self, seed):
        self.chance, self.time = np.random.default_rng(seed), 0
        self.begin()
        return self._shown(0.0, np.full(2, NO_ACTION))

    def step(self, actions):
        self.time += 1
        reward = self.move(np.asarray(actions))
        return self._shown(reward, actions)

    def _shown(self, reward, actions):
        observation = np.asarray(self.seen(), np.float32)
        return TimeStep(
            observation=observation,
            state=observation.ravel(),
            available=np.ones((2, 2), bool),
            previous_actions=np.asarray(actions, np.int32),
            reward=np.float32(reward),
            terminated=np.bool_(False),
            truncated=np.bool_(self.time >= self.spec.horizon),
        )


class Ring(_Observed):
    """Each agent sees its place on a ring of six. The reward is 1 where both are in the same place.

    What is `hidden` is which way an agent runs, and action 1 turns it round. Else an action is the way
    itself, and the places are all there is to know.
    """

    def __init__(self, hidden, horizon=8):
        super().__init__("ring", (Categorical("place", LENGTH),), horizon)
        self.hidden = hidden

    def begin(self):
        self.place, self.way = self.chance.integers(LENGTH, size=2), self.chance.choice([-1, 1], size=2)

    def move(self, actions):
        before = self.way if self.hidden else np.ones(2, int)
        self.way = np.where(actions == 1, -before, before)
        self.place = (self.place + self.way) % LENGTH
        return float(self.place[0] == self.place[1])

    def seen(self):
        return np.eye(LENGTH)[self.place]


class Echo(_Observed):
    """A light that both see is drawn at every step. Who answers the light of the step before earns 1."""

    def __init__(self, horizon=8):
        super().__init__("echo", (binary("light"),), horizon)

    def begin(self):
        self.light, self.before = self.chance.integers(2), 0

    def move(self, actions):
        reward = float((actions == self.before).all())
        self.light, self.before = self.chance.integers(2), self.light
        return reward

    def seen(self):
        return np.full((2, 1), self.light)
