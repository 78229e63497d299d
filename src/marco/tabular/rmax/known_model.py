"""What a learner knows of a Dec-POMDP: counts n(s, a, s', o), and the K-known model estimated from them.

Rewards are scaled into [0, 1] over the problem's own range. Where episodes can end, the range includes 0,
and a terminal state pays the scaled 0 at every remaining step. So the scaled value of every policy is the
same increasing function of its true value (docs/theory.md).
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import DecPOMDP, Dynamics

Unknown = Literal["absorbing", "self-loop"]
"""Where an unknown pair leads: to an absorbing state (repaired), or back to its own state (as printed)."""


@dataclass(frozen=True, eq=False)
class Task:
    """A problem as a learner meets it: scaled rewards, and what is known from the start."""

    problem: DecPOMDP
    low: float
    """The lowest reward."""
    high: float
    """The highest reward."""
    given: Bool[np.ndarray, " S"]
    """States whose outcomes are known from the start: an added start state, and terminal states."""
    canonical: Int[np.ndarray, "S JA"]
    """The joint action that stands for all joint actions with the same effect in a state."""
    pairs: Bool[np.ndarray, "S JA"]
    """The pairs (s, a) to be learned: only canonical joint actions."""

    @property
    def scale(self) -> float:
        """The size of one unit of scaled reward in the problem's own units."""
        return self.high - self.low

    @property
    def scaled(self) -> Float[np.ndarray, "S JA"]:
        """The rewards, scaled into [0, 1]."""
        return (self.problem.R - self.low) / self.scale


def make_task(problem: DecPOMDP) -> Task:
    """A problem as a learning task. The range of the rewards is taken as known, as in the theorem."""
    low, high = float(problem.R.min()), float(problem.R.max())
    if problem.terminal is not None and problem.terminal.any():
        low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        raise ValueError(
            f"{problem.name} always pays {low}: there is nothing to learn; give a problem with two rewards."
        )
    given = np.zeros(problem.num_states, bool) if problem.given is None else problem.given
    own = problem.canonical == np.arange(problem.num_joint_actions)
    return Task(problem, low, high, given, problem.canonical, own & ~given[:, None])


@dataclass(eq=False)
class Counts:
    """How often each outcome of each pair was observed, and the sum of its rewards. Updated in place."""

    task: Task
    n: Float[np.ndarray, "S JA M"] = field(init=False)
    visits: Float[np.ndarray, "S JA"] = field(init=False)
    reward_sum: Float[np.ndarray, "S JA"] = field(init=False)

    def __post_init__(self) -> None:
        self.n = np.zeros(self.task.problem.dynamics.G.shape)
        self.visits = np.zeros(self.n.shape[:2])
        self.reward_sum = np.zeros(self.n.shape[:2])

    def add(self, state: int, action: int, outcome: int) -> None:
        """Count one step."""
        action = int(self.task.canonical[state, action])
        self.n[state, action, outcome] += 1
        self.visits[state, action] += 1
        self.reward_sum[state, action] += self.task.scaled[state, action]

    def known(self, m: int) -> Bool[np.ndarray, "S JA"]:
        """K: the pairs visited at least m times, the given ones, and those with the same effect as either."""
        task = self.task
        visited = (self.visits >= m) | task.given[:, None]
        return np.take_along_axis(visited, task.canonical, 1)

    def number_known(self, m: int) -> int:
        """How many of the pairs to be learned were visited at least m times."""
        return int((self.visits[self.task.pairs] >= m).sum())

    def estimate(self) -> tuple[Float[np.ndarray, "S JA M"], Float[np.ndarray, "S JA"]]:
        """The empirical outcomes and scaled rewards: 0 for pairs never visited, true for given states."""
        task = self.task
        visits = np.maximum(self.visits, 1.0)
        G, R = self.n / visits[..., None], self.reward_sum / visits
        G[task.given] = task.problem.dynamics.G[task.given]
        R[task.given] = task.scaled[task.given]
        if task.problem.available is not None:
            G = np.take_along_axis(G, task.canonical[..., None], 1)
            R = np.take_along_axis(R, task.canonical, 1)
        return G, R


def known_model(
    task: Task,
    G: Float[np.ndarray, "S JA M"],
    R: Float[np.ndarray, "S JA"],
    known: Bool[np.ndarray, "S JA"],
    unknown: Unknown = "absorbing",
    unknown_reward: float = 1.0,
) -> Dynamics:
    """The K-known Dec-POMDP: G and R on known pairs; the others pay `unknown_reward`, by default R_max.

    `absorbing`: an unknown pair leads to an extra state that pays the same at every later step (the repaired
    definition). `self-loop`: it leaves the state unchanged (Definition 4.1 as printed). Both show joint
    observation 0.
    """
    true = task.problem.dynamics
    states, _, outcomes = true.G.shape
    if unknown == "self-loop":
        return _self_loop(task, G, R, known, unknown_reward)
    extended = np.zeros((states + 1, true.G.shape[1], outcomes + 1))
    extended[:states, :, 1:] = G * known[..., None]
    extended[:states, :, 0] = ~known
    extended[states, :, 0] = 1.0
    reward = np.full((states + 1, true.G.shape[1]), unknown_reward)
    reward[:states] = np.where(known, R, unknown_reward)
    return Dynamics(
        G=extended,
        R=reward,
        d0=np.append(true.d0, 0.0),
        joint_observation=np.append(0, true.joint_observation),
        next_state=np.append(states, true.next_state),
        num_actions=true.num_actions,
        num_observations=true.num_observations,
    )


def _self_loop(
    task: Task,
    G: Float[np.ndarray, "S JA M"],
    R: Float[np.ndarray, "S JA"],
    known: Bool[np.ndarray, "S JA"],
    unknown_reward: float,
) -> Dynamics:
    true = task.problem.dynamics
    states = true.d0.size
    loops = np.eye(states)[:, None, :] * ~known[..., None]
    both = np.concatenate([loops, G * known[..., None]], -1)
    joint_observation = np.append(np.zeros(states, int), true.joint_observation)
    next_state = np.append(np.arange(states), true.next_state)
    # A loop, and a true stay with the same observation, are one outcome.
    place = joint_observation * states + next_state
    distinct, column = np.unique(place, return_inverse=True)
    merged = both @ (column.ravel()[:, None] == np.arange(len(distinct)))
    return Dynamics(
        G=merged,
        R=np.where(known, R, unknown_reward),
        d0=true.d0,
        joint_observation=distinct // states,
        next_state=distinct % states,
        num_actions=true.num_actions,
        num_observations=true.num_observations,
    )
