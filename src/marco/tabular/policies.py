"""Decentralised policies as small machines, one per agent, and what a team of them is worth, exactly."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import DecPOMDP, Dynamics


class AgentPolicy(NamedTuple):
    """What an agent does at each step in each of its nodes, and where an observation takes it.

    An agent starts in node 0. A tree of histories is such a machine, and so is one whose equal subtrees
    are shared.
    """

    actions: tuple[Int[np.ndarray, " _"], ...]
    successors: tuple[Int[np.ndarray, "_ _"], ...]
    """One fewer than actions. -1 stands for what was thought impossible, and leads to node 0."""


Team = tuple[AgentPolicy, ...]


class Occupancy(NamedTuple):
    """Where a team and its world are at one step: rows of joint nodes, with unnormalised beliefs."""

    nodes: Int[np.ndarray, "J N"]
    actions: Int[np.ndarray, " J"]
    belief: Float[np.ndarray, "J S"]


def occupancies(
    dynamics: Dynamics, team: Team, known: Bool[np.ndarray, "S JA"] | None = None
) -> Iterator[Occupancy]:
    """Follow a team step by step. With `known`, what leaves the known pairs is dropped from then on."""
    joint_seen = np.stack(np.unravel_index(dynamics.seen, dynamics.observations), -1)
    nodes, belief = np.zeros((1, len(team)), int), dynamics.d0[None]
    horizon = len(team[0].actions)
    for t in range(horizon):
        parts = tuple(policy.actions[t][nodes[:, i]] for i, policy in enumerate(team))
        actions = np.ravel_multi_index(parts, dynamics.actions)
        yield Occupancy(nodes, actions, belief)
        if t + 1 == horizon:
            return
        stays = belief if known is None else belief * known[:, actions].T
        outcomes = np.einsum("js,sjm->jm", stays, dynamics.G[:, actions])
        row, column = np.nonzero(outcomes > 0.0)
        if not row.size:
            return
        after = np.stack(
            [policy.successors[t][nodes[row, i], joint_seen[column, i]] for i, policy in enumerate(team)], -1
        ).clip(0)
        nodes, group = np.unique(after, axis=0, return_inverse=True)
        belief = np.zeros((len(nodes), dynamics.d0.size))
        np.add.at(belief, (group.ravel(), dynamics.following[column]), outcomes[row, column])


def value(dynamics: Dynamics, team: Team) -> float:
    """J: the expected undiscounted return of a team."""
    return float(
        sum(np.sum(now.belief * dynamics.R[:, now.actions].T) for now in occupancies(dynamics, team))
    )


def escape_probability(dynamics: Dynamics, team: Team, known: Bool[np.ndarray, "S JA"]) -> float:
    """The probability that an episode meets a pair (s, a) that is not known."""
    met = occupancies(dynamics, team, known)
    return float(sum(np.sum(now.belief * ~known[:, now.actions].T) for now in met))


def idle_team(observations: tuple[int, ...], horizon: int) -> Team:
    """Everybody always does action 0."""
    return tuple(
        AgentPolicy((np.zeros(1, int),) * horizon, (np.zeros((1, seen), int),) * (horizon - 1))
        for seen in observations
    )


def random_team(
    rng: np.random.Generator, actions: tuple[int, ...], observations: tuple[int, ...], horizon: int
) -> Team:
    """A deterministic team in which an agent's action depends on the step and on what it just saw."""
    return tuple(
        AgentPolicy(
            tuple(rng.integers(acts, size=seen if t else 1) for t in range(horizon)),
            tuple(np.tile(np.arange(seen), (seen if t else 1, 1)) for t in range(horizon - 1)),
        )
        for acts, seen in zip(actions, observations, strict=True)
    )


def tree(actions: tuple[Int[np.ndarray, " _"], ...], observations: int) -> AgentPolicy:
    """The machine of a full tree: node h at step t stands for the h-th history of observations."""
    grown = tuple(np.arange(len(now) * observations).reshape(len(now), observations) for now in actions[:-1])
    return AgentPolicy(actions, grown)


def all_policies(actions: int, observations: int, horizon: int) -> Iterator[AgentPolicy]:
    """Every deterministic policy of an agent, as a full tree."""
    sizes = [observations**t for t in range(horizon)]
    cuts = np.cumsum(sizes)[:-1]
    for chosen in product(range(actions), repeat=sum(sizes)):
        yield tree(tuple(np.split(np.array(chosen), cuts)), observations)


def number_of_policies(actions: int, observations: int, horizon: int) -> int:
    """How many deterministic policies an agent has: one action for every history of observations."""
    return actions ** sum(observations**t for t in range(horizon))


def brute_force(dynamics: Dynamics, horizon: int, limit: int = 200_000) -> tuple[float, Team]:
    """The best of all deterministic teams, one by one: slow, and beyond doubt."""
    pools = []
    for acts, seen in zip(dynamics.actions, dynamics.observations, strict=True):
        count = number_of_policies(acts, seen, horizon)
        if count > limit:
            raise ValueError(f"an agent has {count} policies, over the limit of {limit}: use the solver.")
        pools.append(list(all_policies(acts, seen, horizon)))
    total = int(np.prod([len(pool) for pool in pools]))
    if total > limit:
        raise ValueError(f"there are {total} teams, over the limit of {limit}: use the solver.")
    best = max(product(*pools), key=lambda team: value(dynamics, team))
    return value(dynamics, best), best


def show(problem: DecPOMDP, policy: AgentPolicy, agent: int) -> list[str]:
    """A policy as an indented tree; only what the agent can live through under it is there to be shown."""
    lines: list[str] = []
    acts, sees = problem.actions[agent], problem.observations[agent]

    def grow(t: int, node: int, indent: str, label: str) -> None:
        lines.append(f"{indent}{label}{acts[policy.actions[t][node]]}")
        if t < len(policy.successors):
            for o, name in enumerate(sees):
                if policy.successors[t][node, o] >= 0:
                    grow(t + 1, int(policy.successors[t][node, o]), indent + "  ", f"{name}: ")

    grow(0, 0, "", "")
    return lines
