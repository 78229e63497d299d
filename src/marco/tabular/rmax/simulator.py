"""Real episodes of a finite Dec-POMDP, drawn from its tables, and who acts in them."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from marco.tabular.policies import Team
from marco.tabular.rmax.known_model import Task


class Step(NamedTuple):
    """One step of an episode; `outcome` is a column of `Dynamics.G`."""

    state: int
    action: int
    outcome: int


@runtime_checkable
class Actor(Protocol):
    """Chooses the joint actions of an episode. It keeps its own memory."""

    def begin(self) -> None:
        """Start an episode: clear the memory."""

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        """The joint action at step t; only a centralised actor may use the state."""

    def observe(self, t: int, observations: list[int]) -> None:
        """Receive each agent's observation after step t."""


@dataclass(eq=False)
class Simulator:
    """Draws episodes from the true tables. Cumulative probabilities as plain lists make single draws fast."""

    task: Task
    horizon: int

    def __post_init__(self) -> None:
        true, terminal = self.task.problem.dynamics, self.task.problem.terminal
        self.start_probabilities = np.cumsum(true.d0).tolist()
        self.outcome_probabilities = np.cumsum(true.G, -1).tolist()
        self.next_state = true.next_state.tolist()
        self.observations = true.agent_observations.tolist()
        self.terminal = [False] * true.d0.size if terminal is None else terminal.tolist()

    def reset(self, rng: np.random.Generator) -> int:
        """Draw a start state."""
        return _draw(rng, self.start_probabilities)

    def step(self, rng: np.random.Generator, state: int, action: int) -> int:
        """Draw an outcome of a joint action."""
        return _draw(rng, self.outcome_probabilities[state][action])

    def episode(self, rng: np.random.Generator, actor: Actor) -> list[Step]:
        """Play until the horizon or a terminal state."""
        state, steps = self.reset(rng), []
        actor.begin()
        for t in range(self.horizon):
            action = actor.act(rng, t, state)
            outcome = self.step(rng, state, action)
            steps.append(Step(state, action, outcome))
            state = self.next_state[outcome]
            if self.terminal[state]:
                break
            if t + 1 < self.horizon:
                actor.observe(t, self.observations[outcome])
        return steps


def _draw(rng: np.random.Generator, cumulative: list[float]) -> int:
    return bisect_right(cumulative, rng.random() * cumulative[-1])


@dataclass(eq=False)
class TeamActor:
    """A decentralised team. Each agent takes a uniformly random action with probability epsilon."""

    team: Team
    num_actions: tuple[int, ...]
    epsilon: float = 0.0
    nodes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.actions = [[now.tolist() for now in agent.actions] for agent in self.team]
        self.successors = [[now.clip(0).tolist() for now in agent.successors] for agent in self.team]

    def begin(self) -> None:
        self.nodes = [0] * len(self.team)

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        joint = 0
        for i, node in enumerate(self.nodes):
            explores = self.epsilon > 0.0 and rng.random() < self.epsilon
            action = int(rng.integers(self.num_actions[i])) if explores else self.actions[i][t][node]
            joint = joint * self.num_actions[i] + action
        return joint

    def observe(self, t: int, observations: list[int]) -> None:
        self.nodes = [self.successors[i][t][node][observations[i]] for i, node in enumerate(self.nodes)]


@dataclass(eq=False)
class StateActor:
    """A centralised policy: a joint action for every step and state."""

    actions: list[list[int]]

    def begin(self) -> None:
        pass

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        return self.actions[t][state]

    def observe(self, t: int, observations: list[int]) -> None:
        pass


@dataclass(eq=False)
class RandomActor:
    """A uniformly random available joint action in every state."""

    choices: list[list[int]]
    """The joint actions that differ from each other, for every state."""

    def begin(self) -> None:
        pass

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        return self.choices[state][int(rng.integers(len(self.choices[state])))]

    def observe(self, t: int, observations: list[int]) -> None:
        pass


def random_actor(task: Task) -> RandomActor:
    """Uniformly random play in a task."""
    own = task.canonical == np.arange(task.canonical.shape[1])
    return RandomActor([np.flatnonzero(row).tolist() for row in own])
