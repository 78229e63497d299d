"""Alternating best responses (JESP, Nair et al. 2003): good teams quickly, hence lower bounds.

Each agent in turn is given its best policy against the others' until nobody gains. That ends in a team
that no single agent can better, not always in the best: hence the restarts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from marco.tabular.policies import AgentPolicy, Team, random_team
from marco.tabular.solver.bounds import EPSILON, Stages

LIMIT = 20_000
"""Beliefs that a best response may meet."""


class TooManyBeliefsError(ValueError):
    """A best response would take too long."""


def jesp(
    rng: np.random.Generator,
    stages: Stages,
    restarts: int,
    *,
    late: Callable[[], bool] = lambda: False,
    enough: float = float("inf"),
    limit: int = LIMIT,
) -> tuple[float, Team]:
    """The best team of so many starts; stops early when it is `late` or `enough` is earned.

    Every other start is a random team, every other the best one so far with some actions changed at random.
    """
    if restarts < 1:
        raise ValueError(f"restarts must be at least 1, got {restarts}.")
    best = -np.inf, random_team(rng, stages.actions, stages.observations, stages.horizon)
    for start in range(restarts):
        fresh = random_team(rng, stages.actions, stages.observations, stages.horizon)
        begin = disturbed(rng, stages, best[1]) if start % 2 else fresh
        earned, team = improve(stages, begin, limit, late)
        if earned > best[0]:
            best = earned, team
        if best[0] >= enough - 1e-9 or late():
            break
    return best


def disturbed(rng: np.random.Generator, stages: Stages, team: Team) -> Team:
    """The team with a share of its actions, itself drawn, replaced by random ones."""
    share = rng.uniform(0.0, 0.5)
    return tuple(
        policy._replace(
            actions=tuple(
                np.where(rng.random(now.size) < share, rng.integers(acts, size=now.size), now)
                for now in policy.actions
            )
        )
        for policy, acts in zip(team, stages.actions, strict=True)
    )


def improve(
    stages: Stages, team: Team, limit: int = LIMIT, late: Callable[[], bool] = lambda: False
) -> tuple[float, Team]:
    """Let agents respond in turn until a whole round has brought nothing, or it is late."""
    earned, unchanged, agent = -np.inf, 0, 0
    while unchanged < len(team) and not (earned > -np.inf and late()):
        gained, response = best_response(stages, team, agent, limit)
        if gained > earned + 1e-9:
            earned, unchanged = gained, 0
            team = (*team[:agent], response, *team[agent + 1 :])
        unchanged += 1
        agent = (agent + 1) % len(team)
    return earned, team


class _Hidden(NamedTuple):
    """What an agent does not know at a step, one row each: the state and the nodes of the others."""

    state: Int[np.ndarray, " X"]
    nodes: Int[np.ndarray, "X N"]


class _Branches(NamedTuple):
    """What follows, one entry for each action, observation, hidden row before and after; sorted so."""

    before: Int[np.ndarray, " E"]
    target: Int[np.ndarray, " E"]
    """(action, observation, hidden row after) as one number."""
    chance: Float[np.ndarray, " E"]


class _Level(NamedTuple):
    """An agent's distinct beliefs at one step, and where actions and observations take them."""

    values: Float[np.ndarray, "B A"]
    """Rewards; those to come are added on the way back."""
    leads: Int[np.ndarray, "B A O"]
    chance: Float[np.ndarray, "B A O"]


def best_response(stages: Stages, team: Team, agent: int, limit: int = LIMIT) -> tuple[float, AgentPolicy]:
    """The best policy of an agent against the fixed policies of the others, and what the team then earns."""
    (state,) = np.nonzero(stages.d0)
    hidden = _Hidden(state, np.zeros((len(state), len(team)), int))
    beliefs, levels, met = stages.d0[None, state], [], 0
    for t in range(stages.horizon):
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
    return earned, _policy(levels, stages.observations[agent])


def _joint_actions(stages: Stages, team: Team, agent: int, t: int, hidden: _Hidden) -> Int[np.ndarray, "X A"]:
    parts = [policy.actions[t][hidden.nodes[:, i], None] for i, policy in enumerate(team)]
    parts[agent] = np.arange(stages.actions[agent])[None]
    return np.ravel_multi_index(tuple(np.broadcast_arrays(*parts)), stages.actions)


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
    """One step: the distinct beliefs that follow, over what is then hidden."""
    acts, sees = stages.actions[agent], stages.observations[agent]
    leads = np.full((len(beliefs), acts, sees), -1)
    chance = np.zeros((len(beliefs), acts, sees))
    if t + 1 == stages.horizon or not len(beliefs):
        return _Level(values, leads, chance), hidden, np.zeros((0, len(hidden.state)))
    branches, after = _branches(stages, team, agent, t, hidden, joint)
    begins = np.flatnonzero(np.diff(branches.target, prepend=-1))
    target, rows = branches.target[begins], len(after.state)
    flat = np.zeros((len(beliefs), acts * sees * rows))
    if target.size:
        flat[:, target] = np.add.reduceat(beliefs[:, branches.before] * branches.chance, begins, axis=1)
    spread = flat.reshape(len(beliefs), acts, sees, rows)
    chance[:] = spread.sum(-1)
    where = np.nonzero(chance > EPSILON)
    following = spread[where] / chance[where][:, None]
    marks = np.round(following @ np.random.default_rng(rows).uniform(0.5, 1.5, (rows, 4)), 9)
    _, first, number = np.unique(marks, axis=0, return_index=True, return_inverse=True)
    leads[where] = number.ravel()
    return _Level(values, leads, chance), after, following[first]


def _branches(
    stages: Stages, team: Team, agent: int, t: int, hidden: _Hidden, joint: Int[np.ndarray, "X A"]
) -> tuple[_Branches, _Hidden]:
    """All that can follow, with what is hidden then; outcomes of the same meaning stay separate entries."""
    outcomes = stages.G[hidden.state[:, None], joint]
    before, action, outcome = np.nonzero(outcomes)
    seen = stages.shown[stages.group[outcome]]
    after = [
        np.zeros(len(before), int)
        if i == agent
        else policy.successors[t][hidden.nodes[before, i], seen[:, i]].clip(0)
        for i, policy in enumerate(team)
    ]
    sizes = [1 if i == agent else len(policy.actions[t + 1]) for i, policy in enumerate(team)]
    place = np.ravel_multi_index((*after, stages.following[outcome]), (*sizes, stages.d0.size))
    distinct, row = np.unique(place, return_inverse=True)
    *nodes, state = np.unravel_index(distinct, (*sizes, stages.d0.size))
    target = (action * stages.observations[agent] + seen[:, agent]) * len(distinct) + row.ravel()
    order = np.argsort(target, kind="stable")
    branches = _Branches(before[order], target[order], outcomes[before, action, outcome][order])
    return branches, _Hidden(state, np.stack(nodes, -1))


def _policy(levels: list[_Level], sees: int) -> AgentPolicy:
    """The best actions, of those beliefs only that they lead to."""
    actions, successors = [], []
    reached = np.zeros(1, int)
    for level in levels:
        there = reached.size and len(level.values)
        choice = level.values[reached].argmax(1) if there else np.zeros(1, int)
        leads = level.leads[reached, choice] if there else np.full((1, sees), -1)
        later = np.unique(leads[leads >= 0])
        actions.append(choice)
        successors.append(np.where(leads >= 0, np.searchsorted(later, leads), -1))
        reached = later
    return AgentPolicy(tuple(actions), tuple(successors[:-1]))
