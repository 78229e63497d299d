"""Other ways to explore, with the same planner and the same exact judge as Adapted R-MAX."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from marco.tabular.problem import Dynamics
from marco.tabular.rmax.known_model import Counts, Task, known_model
from marco.tabular.rmax.loop import Actor, Plan, Snapshot, TeamActor, best_team
from marco.tabular.solver.search import Solution

GROWTH = 0.3
"""Where no pair becomes known, a new plan is made whenever the episodes have grown by this share."""


def certain_plan(counts: Counts, horizon: int, before: Plan | None, seconds: float) -> Solution:
    """The best team if the world is what was seen; what was never seen ends the episode with nothing."""
    model = known_model(counts.task, *counts.estimate(), counts.known(1), pays=0.0)
    return best_team(model, horizon, before, seconds)


def _is_time(since: Snapshot) -> bool:
    return since.played >= max(1.0, GROWTH * since.episodes)


def _team_actor(found: Solution, counts: Counts, epsilon: float = 0.0) -> TeamActor:
    return TeamActor(found.team, counts.task.problem.num_actions, epsilon)


def _unending(actor: Actor, found: Solution, counts: Counts) -> Plan:
    """A plan of a learner that never stops exploring; it has no unknown pairs to escape to."""
    return Plan(
        actor=actor,
        team=found.team,
        escape=float("nan"),
        final=False,
        certified=found.optimal,
        value=found.lower,
        known=counts.number_known(1),
    )


@dataclass(frozen=True)
class RandomExploration:
    """Everybody acts at random; the team is the best in the empirical model."""

    seconds: float = float("inf")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Play at random; hand over the certainty-equivalent team."""
        found = certain_plan(counts, horizon, before, self.seconds)
        return _unending(random_actor(counts.task), found, counts)

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Everything is counted."""
        return True

    def stale(self, counts: Counts, since: Snapshot) -> bool:
        """New plans become rarer."""
        return _is_time(since)


@dataclass(frozen=True)
class EpsilonGreedy:
    """The best team in the empirical model, each agent acting at random with probability epsilon."""

    epsilon: float = 0.3
    seconds: float = float("inf")

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon <= 1.0:
            raise ValueError(f"epsilon must be in (0, 1] for anything new to be seen, got {self.epsilon}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Play the certainty-equivalent team with random slips."""
        found = certain_plan(counts, horizon, before, self.seconds)
        return _unending(_team_actor(found, counts, self.epsilon), found, counts)

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Everything is counted."""
        return True

    def stale(self, counts: Counts, since: Snapshot) -> bool:
        """New plans become rarer."""
        return _is_time(since)


@dataclass(frozen=True)
class PosteriorSampling:
    """PSRL (Osband et al. 2013): play the best team of a world drawn from the posterior.

    Outcomes have a Dirichlet prior of total weight `prior`, spread over the outcomes that occur anywhere;
    a reward never seen is uniform. The team handed over is the one that is played.
    """

    prior: float = 1.0
    seconds: float = float("inf")

    def __post_init__(self) -> None:
        if not self.prior > 0.0:
            raise ValueError(f"prior must be more than 0, got {self.prior}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Draw a world and plan in it."""
        model = self.draw(rng, counts)
        found = best_team(model, horizon, before, self.seconds)
        return _unending(_team_actor(found, counts), found, counts)

    def draw(self, rng: np.random.Generator, counts: Counts) -> Dynamics:
        """A world from the posterior; what is given stays as it is."""
        task, true = counts.task, counts.task.problem.dynamics
        weights = rng.gamma(counts.n + self.prior / true.G.shape[2])
        weights += 1e-300  # a gamma draw with a tiny shape may be 0 everywhere
        G = weights / weights.sum(-1, keepdims=True)
        mean = counts.paid / np.maximum(counts.visits, 1.0)
        R = np.where(counts.visits > 0, mean, rng.random(counts.visits.shape))
        G[task.given], R[task.given] = true.G[task.given], task.scaled[task.given]
        rows = np.arange(len(G))[:, None], task.canonical
        return true._replace(G=G[rows], R=R[rows])

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Everything is counted."""
        return True

    def stale(self, counts: Counts, since: Snapshot) -> bool:
        """New plans become rarer."""
        return _is_time(since)


@dataclass(frozen=True)
class ExplorationBonus:
    """MBIE-EB (Strehl & Littman 2008): rewards gain beta / sqrt(n), up to R_max; the unseen absorbs at R_max.

    The team handed over is the one that is played.
    """

    beta: float = 0.3
    seconds: float = float("inf")

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
        return _unending(_team_actor(found, counts), found, counts)

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Everything is counted."""
        return True

    def stale(self, counts: Counts, since: Snapshot) -> bool:
        """New plans become rarer."""
        return _is_time(since)


@dataclass(frozen=True)
class Centralised:
    """MARCO in a table: R-MAX by a team that sees the state, then a decentralised plan in what it learned."""

    m: int
    seconds: float = float("inf")

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m must be at least 1, got {self.m}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Explore on states until nothing unknown can be met; then plan for the team.

        A team is also planned on the way, whenever the samples have grown enough, only to be judged.
        """
        task, known = counts.task, counts.known(self.m)
        model = known_model(task, *counts.estimate(), known)
        actions = state_policy(model, horizon)[:, : task.problem.num_states]
        escape = state_escape(task.problem.dynamics, actions, known)
        seen = int(counts.visits.sum())
        if escape > 0.0 and before is not None and seen < (1.0 + GROWTH) * before.seen:
            return before._replace(
                actor=StateActor(actions.tolist()), escape=escape, known=counts.number_known(self.m)
            )
        known_only = known_model(task, *counts.estimate(), known, pays=0.0)
        found = best_team(known_only, horizon, before, self.seconds)
        return Plan(
            actor=StateActor(actions.tolist()),
            team=found.team,
            escape=escape,
            final=escape == 0.0,
            certified=found.optimal,
            value=found.lower,
            known=counts.number_known(self.m),
            seen=seen,
        )

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Known pairs are not counted further."""
        return bool(counts.visits[state, counts.task.canonical[state, action]] < self.m)

    def stale(self, counts: Counts, since: Snapshot) -> bool:
        """Whether a count went from m - 1 to m."""
        return bool(((counts.visits >= self.m) & (since.visits < self.m)).any())


def state_policy(model: Dynamics, horizon: int) -> Int[np.ndarray, "T S"]:
    """The best joint actions of a team that sees the state."""
    actions, values = np.zeros((horizon, model.d0.size), int), np.zeros(model.d0.size)
    for t in reversed(range(horizon)):
        q = model.R + model.G @ values[model.following]
        actions[t], values = q.argmax(1), q.max(1)
    return actions


def state_escape(true: Dynamics, actions: Int[np.ndarray, "T S"], known: Bool[np.ndarray, "S JA"]) -> float:
    """The exact probability that an episode of a policy on states meets an unknown pair."""
    belief, escaped, states = true.d0, 0.0, np.arange(true.d0.size)
    for now in actions:
        stays = known[states, now]
        escaped += float(belief[~stays].sum())
        outcomes = (belief * stays) @ true.G[states, now]
        belief = np.bincount(true.following, outcomes, true.d0.size)
    return escaped


@dataclass(eq=False)
class StateActor:
    """A policy on states acts."""

    table: list[list[int]]

    def begin(self) -> None:
        """Nothing is remembered."""

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        """What the table says."""
        return self.table[t][state]

    def see(self, t: int, seen: list[int]) -> None:
        """The state says more."""


@dataclass(eq=False)
class RandomActor:
    """Everybody does something available at random."""

    choices: list[list[int]]

    def begin(self) -> None:
        """Nothing is remembered."""

    def act(self, rng: np.random.Generator, t: int, state: int) -> int:
        """One of the joint actions that differ here."""
        return self.choices[state][int(rng.integers(len(self.choices[state])))]

    def see(self, t: int, seen: list[int]) -> None:
        """Nobody cares."""


def random_actor(task: Task) -> RandomActor:
    """Random play over what is available."""
    own = task.canonical == np.arange(task.canonical.shape[1])
    return RandomActor([np.flatnonzero(row).tolist() for row in own])
