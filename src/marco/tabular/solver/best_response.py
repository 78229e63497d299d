"""Alternating best responses (JESP, Nair et al. 2003): good teams quickly, hence lower bounds.

Each agent in turn gets its best response to the others until none improves. This ends in a Nash equilibrium,
which need not be the best team: hence the restarts.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from marco.tabular.policies import FiniteStateController, Team, random_team
from marco.tabular.solver.bounds import EPSILON, Stages
from marco.tabular.solver.limits import OutOfTimeError, Stop, go_on, never

LIMIT = 20_000
"""The most beliefs that a best response may expand."""
NUMBERS = 10_000_000
"""The most numbers in an array of a best response, so that a step takes little memory and time."""


class TooManyBeliefsError(ValueError):
    """A best response needs more beliefs than the limit, or they are over too many cases."""


def jesp(
    rng: np.random.Generator,
    stages: Stages,
    restarts: int,
    *,
    team: Team | None = None,
    stop: Stop = never,
    target: float = float("inf"),
    limit: int = LIMIT,
) -> tuple[float, Team]:
    """The value and the best team of several restarts; ends early on `stop` or at the value `target`.

    The first start is `team`, if there is one. Restarts alternate between the best team so far with some
    actions changed at random and a random team.
    """
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1, got {restarts}.")
    best = -np.inf, random_team(rng, stages.num_actions, stages.num_observations, stages.horizon)
    for start in range(restarts):
        fresh = random_team(rng, stages.num_actions, stages.num_observations, stages.horizon)
        begin = perturbed(rng, stages, best[1]) if start % 2 else fresh
        try:
            found = improve(stages, team if team and not start else begin, limit, stop)
        except TooManyBeliefsError:
            if best[0] == -np.inf:
                raise
            continue
        if found[0] > best[0]:
            best = found
        if best[0] >= target - 1e-9 or stop():
            break
    return best


def perturbed(rng: np.random.Generator, stages: Stages, team: Team) -> Team:
    """The team with a random share of its actions replaced by random ones."""
    share = rng.uniform(0.0, 0.5)
    return tuple(
        controller._replace(
            actions=tuple(
                np.where(rng.random(now.size) < share, rng.integers(acts, size=now.size), now)
                for now in controller.actions
            )
        )
        for controller, acts in zip(team, stages.num_actions, strict=True)
    )


def improve(stages: Stages, team: Team, limit: int = LIMIT, stop: Stop = never) -> tuple[float, Team]:
    """Best responses of the agents in turn, until a whole round improves nothing, or `stop`.

    The value is minus infinity if the time is up before the first response.
    """
    earned, unchanged, agent = -np.inf, 0, 0
    while unchanged < len(team):
        try:
            gained, response = best_response(stages, team, agent, limit, stop)
        except OutOfTimeError:
            break
        if gained > earned + 1e-9:
            earned, unchanged = gained, 0
            team = (*team[:agent], response, *team[agent + 1 :])
        unchanged += 1
        agent = (agent + 1) % len(team)
    return earned, team


class _Hidden(NamedTuple):
    """What is hidden from an agent at a step, one row per case: the state and the nodes of the others."""

    state: Int[np.ndarray, " X"]
    nodes: Int[np.ndarray, "X N"]


class _Branches(NamedTuple):
    """Transitions: one entry for each action, observation, hidden row before and after, in that order."""

    before: Int[np.ndarray, " E"]
    target: Int[np.ndarray, " E"]
    """(action, observation, hidden row after) as one index."""
    chance: Float[np.ndarray, " E"]


class _Level(NamedTuple):
    """An agent's distinct beliefs at one step, and the next beliefs by action and observation."""

    values: Float[np.ndarray, "B A"]
    """Rewards; the backward pass adds the values of later steps."""
    leads: Int[np.ndarray, "B A O"]
    chance: Float[np.ndarray, "B A O"]


def best_response(
    stages: Stages, team: Team, agent: int, limit: int = LIMIT, stop: Stop = never
) -> tuple[float, FiniteStateController]:
    """The team's value with an agent's best response to the others' fixed policies, and the response."""
    (state,) = np.nonzero(stages.d0)
    hidden = _Hidden(state, np.zeros((len(state), len(team)), int))
    beliefs, levels, met = stages.d0[None, state], [], 0
    for t in range(stages.horizon):
        go_on(stop)
        joint = _joint_actions(stages, team, agent, t, hidden)
        rewards = stages.R[t][hidden.state[:, None], joint]
        level, hidden, beliefs = _expand(stages, team, agent, t, hidden, joint, beliefs @ rewards, beliefs)
        levels.append(level)
        met += len(level.values)
        if met + len(beliefs) > limit:
            raise TooManyBeliefsError(
                f"a best response meets more than {limit} beliefs: use a shorter horizon or a larger limit."
            )
    for now, later in zip(levels[-2::-1], levels[:0:-1], strict=True):
        best = np.append(later.values.max(1), 0.0)
        now.values[:] += (now.chance * best[now.leads]).sum(-1)
    earned = stages.constant + (float(levels[0].values[0].max()) if len(levels[0].values) else 0.0)
    return earned, _controller(levels, stages.num_observations[agent])


def _joint_actions(stages: Stages, team: Team, agent: int, t: int, hidden: _Hidden) -> Int[np.ndarray, "X A"]:
    parts = [controller.actions[t][hidden.nodes[:, i], None] for i, controller in enumerate(team)]
    parts[agent] = np.arange(stages.num_actions[agent])[None]
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*parts)), stages.num_actions)


def _expand(
    stages: Stages,
    team: Team,
    agent: int,
    t: int,
    hidden: _Hidden,
    joint: Int[np.ndarray, "X A"],
    values: Float[np.ndarray, "B A"],
    beliefs: Float[np.ndarray, "B X"],
) -> tuple[_Level, _Hidden, Float[np.ndarray, "C Y"]]:
    """One step: the distinct next beliefs, over what is then hidden."""
    num_actions, num_observations = stages.num_actions[agent], stages.num_observations[agent]
    leads = np.full((len(beliefs), num_actions, num_observations), -1)
    chance = np.zeros((len(beliefs), num_actions, num_observations))
    if t + 1 == stages.horizon or not len(beliefs):
        return _Level(values, leads, chance), hidden, np.zeros((0, len(hidden.state)))
    _check(joint.size * stages.G.shape[2])
    branches, after = _branches(stages, team, agent, t, hidden, joint)
    _check(len(beliefs) * max(len(branches.before), leads[0].size * len(after.state)))
    begins = np.flatnonzero(np.diff(branches.target, prepend=-1))
    target, rows = branches.target[begins], len(after.state)
    flat = np.zeros((len(beliefs), num_actions * num_observations * rows))
    if target.size:
        flat[:, target] = np.add.reduceat(beliefs[:, branches.before] * branches.chance, begins, axis=1)
    spread = flat.reshape(len(beliefs), num_actions, num_observations, rows)
    chance[:] = spread.sum(-1)
    where = np.nonzero(chance > EPSILON)
    next_beliefs = spread[where] / chance[where][:, None]
    marks = np.round(next_beliefs @ np.random.default_rng(rows).uniform(0.5, 1.5, (rows, 4)), 9)
    _, first, number = np.unique(marks, axis=0, return_index=True, return_inverse=True)
    leads[where] = number.ravel()
    return _Level(values, leads, chance), after, next_beliefs[first]


def _check(numbers: int) -> None:
    if numbers > NUMBERS:
        raise TooManyBeliefsError(
            f"a step of a best response takes {numbers:,} numbers, over the limit of {NUMBERS:,}: use a "
            "shorter horizon."
        )


def _branches(
    stages: Stages, team: Team, agent: int, t: int, hidden: _Hidden, joint: Int[np.ndarray, "X A"]
) -> tuple[_Branches, _Hidden]:
    """All transitions, and what is hidden after them; equal transitions stay separate entries."""
    outcomes = stages.G[hidden.state[:, None], joint]
    before, action, outcome = np.nonzero(outcomes)
    observed = stages.agent_observations[stages.group[outcome]]
    after = [
        np.zeros(len(before), int)
        if i == agent
        else controller.successors[t][hidden.nodes[before, i], observed[:, i]].clip(0)
        for i, controller in enumerate(team)
    ]
    sizes = [1 if i == agent else len(controller.actions[t + 1]) for i, controller in enumerate(team)]
    place = np.ravel_multi_index((*after, stages.next_state[outcome]), (*sizes, stages.d0.size))
    distinct, row = np.unique(place, return_inverse=True)
    *nodes, state = np.unravel_index(distinct, (*sizes, stages.d0.size))
    target = (action * stages.num_observations[agent] + observed[:, agent]) * len(distinct) + row.ravel()
    order = np.argsort(target, kind="stable")
    branches = _Branches(before[order], target[order], outcomes[before, action, outcome][order])
    return branches, _Hidden(state, np.stack(nodes, -1))


def _controller(levels: list[_Level], num_observations: int) -> FiniteStateController:
    """The best actions, in the beliefs that they can reach."""
    actions, successors = [], []
    reached = np.zeros(1, int)
    for level in levels:
        there = reached.size and len(level.values)
        choice = level.values[reached].argmax(1) if there else np.zeros(1, int)
        leads = level.leads[reached, choice] if there else np.full((1, num_observations), -1)
        later = np.unique(leads[leads >= 0])
        actions.append(choice)
        successors.append(np.where(leads >= 0, np.searchsorted(later, leads), -1))
        reached = later
    return FiniteStateController(tuple(actions), tuple(successors[:-1]))
