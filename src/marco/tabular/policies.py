"""Decentralised policies: one finite-state controller per agent, and the exact value of a team of them."""

from collections.abc import Iterator
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.problem import DecPOMDP, Dynamics


class FiniteStateController(NamedTuple):
    """One agent's deterministic policy: an action for each step and node, and the next node by observation.

    An agent starts in node 0. A policy tree is such a controller with a node per history; where equal
    subtrees are shared, it has fewer nodes.
    """

    actions: tuple[Int[np.ndarray, " _"], ...]
    """For each step, the action in each node."""
    successors: tuple[Int[np.ndarray, "_ _"], ...]
    """For each step but the last, the next node by node and observation. -1 marks an observation that the
    planner found impossible; if it is made all the same, node 0 follows."""


Team = tuple[FiniteStateController, ...]
"""A decentralised team: one controller per agent."""


class TeamOccupancy(NamedTuple):
    """The distribution of a team's joint nodes and the state at one step, one row per joint node."""

    nodes: Int[np.ndarray, "J N"]
    actions: Int[np.ndarray, " J"]
    belief: Float[np.ndarray, "J S"]
    """Unnormalised: the probability of the joint node and the state together."""


def occupancies(
    dynamics: Dynamics, team: Team, known: Bool[np.ndarray, "S JA"] | None = None
) -> Iterator[TeamOccupancy]:
    """The occupancy at every step. With `known`, episodes that leave the known pairs are dropped."""
    observed = dynamics.agent_observations
    nodes, belief = np.zeros((1, len(team)), int), dynamics.d0[None]
    horizon = len(team[0].actions)
    for t in range(horizon):
        parts = tuple(agent.actions[t][nodes[:, i]] for i, agent in enumerate(team))
        actions = np.ravel_multi_index(parts, dynamics.num_actions)
        yield TeamOccupancy(nodes, actions, belief)
        if t + 1 == horizon:
            return
        stays = belief if known is None else belief * known[:, actions].T
        outcomes = np.empty((len(stays), dynamics.next_state.size))
        for action in np.unique(actions):
            here = actions == action
            outcomes[here] = stays[here] @ dynamics.G[:, action]
        row, column = np.nonzero(outcomes > 0.0)
        if not row.size:
            return
        after = np.stack(
            [agent.successors[t][nodes[row, i], observed[column, i]] for i, agent in enumerate(team)], -1
        ).clip(0)
        nodes, group = np.unique(after, axis=0, return_inverse=True)
        belief = np.zeros((len(nodes), dynamics.d0.size))
        np.add.at(belief, (group.ravel(), dynamics.next_state[column]), outcomes[row, column])


def value(dynamics: Dynamics, team: Team) -> float:
    """J: the exact expected undiscounted return of a team."""
    return sum(rewards(dynamics, team))


def rewards(dynamics: Dynamics, team: Team) -> Iterator[float]:
    """The expected reward at every step."""
    for now in occupancies(dynamics, team):
        yield float(np.sum(now.belief * dynamics.R[:, now.actions].T))


def escape_probability(dynamics: Dynamics, team: Team, known: Bool[np.ndarray, "S JA"]) -> float:
    """The exact probability that an episode meets a pair (s, a) that is not known."""
    met = occupancies(dynamics, team, known)
    return float(sum(np.sum(now.belief * ~known[:, now.actions].T) for now in met))


def idle_team(observations: tuple[int, ...], horizon: int) -> Team:
    """The team in which every agent always takes action 0."""
    return tuple(
        FiniteStateController((np.zeros(1, int),) * horizon, (np.zeros((1, width), int),) * (horizon - 1))
        for width in observations
    )


def repeated(team: Team, observations: tuple[int, ...], horizon: int) -> Team:
    """The team over a longer horizon: whenever its own is over, it starts anew and has forgotten all."""
    longer = []
    for (actions, successors), width in zip(team, observations, strict=True):
        # What could not be observed from the start (-1) may be after a new one: any node will do then.
        cycle = (*(leads.clip(0) for leads in successors), np.zeros((len(actions[-1]), width), int))
        does = tuple(actions[t % len(cycle)] for t in range(horizon))
        longer.append(FiniteStateController(does, tuple(cycle[t % len(cycle)] for t in range(horizon - 1))))
    return tuple(longer)


def random_team(
    rng: np.random.Generator, actions: tuple[int, ...], observations: tuple[int, ...], horizon: int
) -> Team:
    """A random deterministic team: an agent's action depends on the step and its latest observation."""
    return tuple(
        FiniteStateController(
            tuple(rng.integers(acts, size=seen if t else 1) for t in range(horizon)),
            tuple(np.tile(np.arange(seen), (seen if t else 1, 1)) for t in range(horizon - 1)),
        )
        for acts, seen in zip(actions, observations, strict=True)
    )


def tree(actions: tuple[Int[np.ndarray, " _"], ...], observations: int) -> FiniteStateController:
    """A full policy tree: node h at step t stands for the h-th observation history."""
    grown = tuple(np.arange(len(now) * observations).reshape(len(now), observations) for now in actions[:-1])
    return FiniteStateController(actions, grown)


def all_policies(actions: int, observations: int, horizon: int) -> Iterator[FiniteStateController]:
    """Every deterministic policy of an agent, as a full policy tree."""
    sizes = [observations**t for t in range(horizon)]
    cuts = np.cumsum(sizes)[:-1]
    for chosen in product(range(actions), repeat=sum(sizes)):
        yield tree(tuple(np.split(np.array(chosen), cuts)), observations)


def number_of_policies(actions: int, observations: int, horizon: int) -> int:
    """The number of deterministic policies of an agent: one action for every observation history."""
    return actions ** sum(observations**t for t in range(horizon))


def brute_force(dynamics: Dynamics, horizon: int, limit: int = 200_000) -> tuple[float, Team]:
    """The best deterministic team, by evaluating every one: slow, and a check of the solver."""
    pools = []
    for acts, seen in zip(dynamics.num_actions, dynamics.num_observations, strict=True):
        count = number_of_policies(acts, seen, horizon)
        if count > limit:
            raise ValueError(f"an agent has {count} policies, over the limit of {limit}: use the solver.")
        pools.append(list(all_policies(acts, seen, horizon)))
    total = int(np.prod([len(pool) for pool in pools]))
    if total > limit:
        raise ValueError(f"there are {total} teams, over the limit of {limit}: use the solver.")
    best = max(product(*pools), key=lambda team: value(dynamics, team))
    return value(dynamics, best), best


def show(
    problem: DecPOMDP, controller: FiniteStateController, agent: int, most: int | None = None
) -> list[str]:
    """A controller as the lines of an indented tree, without observations that are impossible under it.

    There may be a line for every history: only the first `most` are made.
    """
    return list(islice(_tree_lines(problem, controller, agent), most))


def number_of_lines(controller: FiniteStateController) -> int:
    """The number of lines of the whole tree, which is not made for it."""
    below = [1] * len(controller.actions[-1])
    for leads in reversed(controller.successors):
        below = [1 + sum(below[child] for child in row if child >= 0) for row in leads.tolist()]
    return below[0]


def _tree_lines(problem: DecPOMDP, controller: FiniteStateController, agent: int) -> Iterator[str]:
    """The lines from the root on, depth first."""
    names = problem.observations[agent]
    open_ = [(0, 0, "")]
    while open_:
        t, node, label = open_.pop()
        yield "  " * t + label + problem.actions[agent][controller.actions[t][node]]
        if t < len(controller.successors):
            leads = zip(names, controller.successors[t][node].tolist(), strict=True)
            later = [(t + 1, child, f"{name}: ") for name, child in leads if child >= 0]
            open_.extend(reversed(later))
