"""What a learner knows of a Dec-POMDP: counts n(s, a, s', o), and the K-known model made of them.

Rewards are scaled into [0, 1] over the problem's own range. Where episodes can end, 0 belongs to the range
and an end pays the image of 0 at every step that is left, so that the scaled value of every policy is the
same increasing function of its true one (docs/theory.md).
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import DecPOMDP, Dynamics

Unknown = Literal["absorbing", "self-loop"]


@dataclass(frozen=True, eq=False)
class Task:
    """A problem as a learner meets it: scaled rewards, and what it is told from the start."""

    problem: DecPOMDP
    low: float
    high: float
    given: Bool[np.ndarray, " S"]
    """States whose outcomes are told: a start that was put first, and ends."""
    canonical: Int[np.ndarray, "S JA"]
    pairs: Bool[np.ndarray, "S JA"]
    """The pairs that are to be learned, one for all joint actions that amount to the same."""

    @property
    def scale(self) -> float:
        """What one unit of scaled reward is worth in the problem's own."""
        return self.high - self.low

    @property
    def scaled(self) -> Float[np.ndarray, "S JA"]:
        """R in [0, 1]."""
        return (self.problem.R - self.low) / self.scale


def make_task(problem: DecPOMDP) -> Task:
    """The range of the rewards is taken as known, as the theorem has it."""
    low, high = float(problem.R.min()), float(problem.R.max())
    if problem.terminal is not None and problem.terminal.any():
        low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        raise ValueError(f"{problem.name} pays {low} always: there is nothing to learn.")
    given = np.zeros(problem.num_states, bool) if problem.given is None else problem.given
    own = problem.canonical == np.arange(problem.num_joint_actions)
    return Task(problem, low, high, given, problem.canonical, own & ~given[:, None])


@dataclass(eq=False)
class Counts:
    """How often each outcome of each pair was seen, and what the pair paid; grows as it is told."""

    task: Task
    n: Float[np.ndarray, "S JA M"] = field(init=False)
    visits: Float[np.ndarray, "S JA"] = field(init=False)
    paid: Float[np.ndarray, "S JA"] = field(init=False)

    def __post_init__(self) -> None:
        self.n = np.zeros(self.task.problem.dynamics.G.shape)
        self.visits = np.zeros(self.n.shape[:2])
        self.paid = np.zeros(self.n.shape[:2])

    def add(self, state: int, action: int, outcome: int) -> None:
        """Record one step."""
        action = int(self.task.canonical[state, action])
        self.n[state, action, outcome] += 1
        self.visits[state, action] += 1
        self.paid[state, action] += self.task.scaled[state, action]

    def known(self, m: int) -> Bool[np.ndarray, "S JA"]:
        """K: the pairs seen at least m times, with those that are given and those that amount to them."""
        task = self.task
        seen = (self.visits >= m) | task.given[:, None]
        return np.take_along_axis(seen, task.canonical, 1)

    def number_known(self, m: int) -> int:
        """How many of the pairs that are to be learned are known."""
        return int((self.visits[self.task.pairs] >= m).sum())

    def estimate(self) -> tuple[Float[np.ndarray, "S JA M"], Float[np.ndarray, "S JA"]]:
        """The empirical outcomes and scaled rewards; 0 where nothing was seen, the truth where given."""
        task = self.task
        visits = np.maximum(self.visits, 1.0)
        G, R = self.n / visits[..., None], self.paid / visits
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
    pays: float = 1.0,
) -> Dynamics:
    """The K-known Dec-POMDP: G and R on known pairs; the others pay R_max.

    `absorbing`: an unknown pair leads to a state of its own that goes on paying, whatever is done (the
    repaired definition). `self-loop`: it leaves the state as it is (Definition 4.1 as printed). What is seen
    on the way is joint observation 0.
    """
    true = task.problem.dynamics
    states, _, outcomes = true.G.shape
    if unknown == "self-loop":
        return _self_loop(task, G, R, known, pays)
    extended = np.zeros((states + 1, true.G.shape[1], outcomes + 1))
    extended[:states, :, 1:] = G * known[..., None]
    extended[:states, :, 0] = ~known
    extended[states, :, 0] = 1.0
    reward = np.full((states + 1, true.G.shape[1]), pays)
    reward[:states] = np.where(known, R, pays)
    return Dynamics(
        G=extended,
        R=reward,
        d0=np.append(true.d0, 0.0),
        seen=np.append(0, true.seen),
        following=np.append(states, true.following),
        actions=true.actions,
        observations=true.observations,
    )


def _self_loop(
    task: Task,
    G: Float[np.ndarray, "S JA M"],
    R: Float[np.ndarray, "S JA"],
    known: Bool[np.ndarray, "S JA"],
    pays: float,
) -> Dynamics:
    true = task.problem.dynamics
    states = true.d0.size
    loops = np.eye(states)[:, None, :] * ~known[..., None]
    both = np.concatenate([loops, G * known[..., None]], -1)
    seen = np.append(np.zeros(states, int), true.seen)
    following = np.append(np.arange(states), true.following)
    # Outcomes of the same meaning are one: a loop, and a true stay that shows the same.
    place = seen * states + following
    distinct, column = np.unique(place, return_inverse=True)
    merged = both @ (column.ravel()[:, None] == np.arange(len(distinct)))
    return Dynamics(
        G=merged,
        R=np.where(known, R, pays),
        d0=true.d0,
        seen=distinct // states,
        following=distinct % states,
        actions=true.actions,
        observations=true.observations,
    )
