"""The exploration methods that Adapted R-MAX is compared with: same solver, same exact evaluation."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from marco.tabular.problem import Dynamics
from marco.tabular.rmax.known_model import Counts, known_model
from marco.tabular.rmax.methods import GROWTH, CountsEverything, CountsToM, Plan, best_team
from marco.tabular.rmax.simulator import StateActor, TeamActor, random_actor
from marco.tabular.solver.search import Solution


def certainty_equivalent_team(counts: Counts, horizon: int, before: Plan | None, seconds: float) -> Solution:
    """The best team in the empirical model, in which a pair never visited ends the episode without reward."""
    model = known_model(counts.task, *counts.estimate(), counts.known(1), unknown_reward=0.0)
    return best_team(model, horizon, before, seconds)


@dataclass(frozen=True)
class RandomExploration(CountsEverything):
    """All agents act at random; the team is the best in the empirical model."""

    seconds: float = float("inf")
    """Processor time for one plan."""

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Act at random; return the certainty-equivalent team."""
        found = certainty_equivalent_team(counts, horizon, before, self.seconds)
        return self._plan(random_actor(counts.task), found, counts)


@dataclass(frozen=True)
class EpsilonGreedyExploration(CountsEverything):
    """The best team in the empirical model, each agent acting at random with probability epsilon."""

    epsilon: float = 0.3
    seconds: float = float("inf")
    """Processor time for one plan."""

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= 1.0:
            raise ValueError(f"epsilon must be in (0, 1] for anything new to be seen, got {self.epsilon}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Play the certainty-equivalent team epsilon-greedily."""
        found = certainty_equivalent_team(counts, horizon, before, self.seconds)
        actor = TeamActor(found.team, counts.task.problem.num_actions, self.epsilon)
        return self._plan(actor, found, counts)


@dataclass(frozen=True)
class PosteriorSampling(CountsEverything):
    """PSRL (Osband et al. 2013): play the best team of a Dec-POMDP drawn from the posterior.

    Outcomes have a Dirichlet prior of total weight `prior`, spread over the outcomes that occur anywhere;
    the reward of a pair never visited is uniform in [0, 1]. The team that is played is also returned.
    """

    prior: float = 1.0
    seconds: float = float("inf")
    """Processor time for one plan."""

    def __post_init__(self) -> None:
        if not self.prior > 0.0:
            raise ValueError(f"prior must be more than 0, got {self.prior}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Draw a Dec-POMDP and plan in it."""
        found = best_team(self.draw(rng, counts), horizon, before, self.seconds)
        return self._plan(TeamActor(found.team, counts.task.problem.num_actions), found, counts)

    def draw(self, rng: np.random.Generator, counts: Counts) -> Dynamics:
        """A Dec-POMDP from the posterior; the true outcomes in states that are given."""
        task, true = counts.task, counts.task.problem.dynamics
        weights = rng.gamma(counts.n + self.prior / true.G.shape[2])
        weights += 1e-300  # a gamma draw with a tiny shape may be 0 everywhere
        G = weights / weights.sum(-1, keepdims=True)
        mean = counts.reward_sum / np.maximum(counts.visits, 1.0)
        R = np.where(counts.visits > 0, mean, rng.random(counts.visits.shape))
        G[task.given], R[task.given] = true.G[task.given], task.scaled[task.given]
        rows = np.arange(len(G))[:, None], task.canonical
        return true._replace(G=G[rows], R=R[rows])


@dataclass(frozen=True)
class ExplorationBonus(CountsEverything):
    """MBIE-EB (Strehl & Littman 2008): rewards gain beta / sqrt(n), up to R_max.

    A pair never visited absorbs and pays R_max. The team that is played is also returned.
    """

    beta: float = 0.3
    seconds: float = float("inf")
    """Processor time for one plan."""

    def __post_init__(self) -> None:
        if self.beta < 0.0:
            raise ValueError(f"beta must not be negative, got {self.beta}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """The best team in the empirical model with bonuses."""
        task = counts.task
        G, R = counts.estimate()
        visits = np.take_along_axis(counts.visits, task.canonical, 1)
        bonus = np.where(task.given[:, None], 0.0, self.beta / np.sqrt(np.maximum(visits, 1.0)))
        model = known_model(task, G, np.minimum(R + bonus, 1.0), counts.known(1))
        found = best_team(model, horizon, before, self.seconds)
        return self._plan(TeamActor(found.team, task.problem.num_actions), found, counts)


@dataclass(frozen=True)
class Centralised(CountsToM):
    """MARCO in a table: R-MAX by a team that observes the state, then a decentralised plan in its model."""

    seconds: float = float("inf")
    """Processor time for one plan."""

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Explore on states until no unknown pair can be met; then plan for the decentralised team.

        A team is also planned on the way, whenever the samples have grown enough, only to be evaluated.
        """
        task, known = counts.task, counts.known(self.m)
        model = known_model(task, *counts.estimate(), known)
        actions = state_policy(model, horizon)[:, : task.problem.num_states]
        actor = StateActor(actions.tolist())
        escape = state_escape(task.problem.dynamics, actions, known)
        if before is not None and escape > 0.0 and counts.visits.sum() < (1.0 + GROWTH) * before.samples:
            return before._replace(actor=actor, escape=escape, known=counts.number_known(self.m))
        known_only = known_model(task, *counts.estimate(), known, unknown_reward=0.0)
        found = best_team(known_only, horizon, before, self.seconds)
        return self._plan(actor, found, escape, counts)


def state_policy(model: Dynamics, horizon: int) -> Int[np.ndarray, "T S"]:
    """The best joint actions of a team that observes the state."""
    actions, values = np.zeros((horizon, model.d0.size), int), np.zeros(model.d0.size)
    for t in reversed(range(horizon)):
        q = model.R + model.G @ values[model.next_state]
        actions[t], values = q.argmax(1), q.max(1)
    return actions


def state_escape(true: Dynamics, actions: Int[np.ndarray, "T S"], known: Bool[np.ndarray, "S JA"]) -> float:
    """The exact probability that an episode of a policy on states meets an unknown pair."""
    belief, escaped, states = true.d0, 0.0, np.arange(true.d0.size)
    for now in actions:
        stays = known[states, now]
        escaped += float(belief[~stays].sum())
        outcomes = (belief * stays) @ true.G[states, now]
        belief = np.bincount(true.next_state, outcomes, true.d0.size)
    return escaped
