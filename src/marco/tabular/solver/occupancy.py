"""Occupancy states: the distribution of a team's joint history and the state, with equal histories merged.

Two histories of an agent that give the same belief over the state and the others' histories have the same
best continuation: they are merged without loss (Oliehoek, Whiteson & Spaan 2009).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.solver.bounds import EPSILON, Stages

DIGITS = 9
"""Beliefs that agree to this many digits are equal."""


class OccupancyState(NamedTuple):
    """The joint histories that can occur, one row each, with their beliefs."""

    histories: Int[np.ndarray, "J N"]
    """The index of each agent's history."""
    belief: Float[np.ndarray, "J S"]
    """Unnormalised: the probability of the joint history and the state together."""
    num_histories: tuple[int, ...]
    """The number of histories of each agent."""


class Moved(NamedTuple):
    """The occupancy state after a step, and each agent's next history by history and observation."""

    occupancy: OccupancyState
    successors: tuple[Int[np.ndarray, "_ _"], ...]
    """-1 where an observation cannot occur."""


def initial(stages: Stages) -> OccupancyState:
    """The occupancy state before the first step."""
    agents = len(stages.num_actions)
    return OccupancyState(np.zeros((1, agents), int), stages.d0[None], (1,) * agents)


def revealed(agents: int, belief: Float[np.ndarray, " S"]) -> OccupancyState:
    """One joint history, known to all agents, with a belief."""
    return OccupancyState(np.zeros((1, agents), int), belief[None], (1,) * agents)


def key(occupancy: OccupancyState) -> bytes:
    """A key that is the same for equal occupancy states."""
    marks = np.rint(occupancy.belief @ _weights(occupancy.belief.shape[1]) * 10.0**DIGITS)
    return occupancy.histories.tobytes() + (marks + 0.0).tobytes()


def move(stages: Stages, occupancy: OccupancyState, outcomes: Float[np.ndarray, "J M"]) -> Moved:
    """One step of all agents; `outcomes[j]` holds the outcome probabilities after joint history j."""
    spread = np.zeros((len(outcomes), len(stages.agent_observations), occupancy.belief.shape[1]))
    spread[:, stages.group, stages.next_state] = outcomes
    row, group = np.nonzero(spread.sum(-1) > EPSILON)
    belief = spread[row, group]
    pairs = occupancy.histories[row] * np.array(stages.num_observations) + stages.agent_observations[group]
    marks = belief @ _weights(belief.shape[1])
    rows = [tuple(pair) for pair in pairs.tolist()]
    owners, joint_histories = _merge(rows, marks.tolist(), len(stages.num_observations))
    merged = sorted(set(joint_histories))
    if len(merged) == len(rows):
        summed = belief[sorted(range(len(rows)), key=joint_histories.__getitem__)]
    else:
        place = {joint: index for index, joint in enumerate(merged)}
        summed = np.zeros((len(merged), belief.shape[1]))
        np.add.at(summed, [place[joint] for joint in joint_histories], belief)
    successors = []
    for agent, width in enumerate(stages.num_observations):
        table = np.full(occupancy.num_histories[agent] * width, -1)
        if owners[agent]:
            table[list(owners[agent])] = list(owners[agent].values())
        successors.append(table.reshape(occupancy.num_histories[agent], width))
    sizes = tuple(len(set(owner.values())) for owner in owners)
    joint = np.array(merged, int).reshape(len(merged), len(sizes))
    return Moved(OccupancyState(joint, summed, sizes), tuple(successors))


Joint = tuple[int, ...]


def _merge(
    rows: list[Joint], marks: list[list[float]], agents: int
) -> tuple[list[dict[int, int]], list[Joint]]:
    """Merge until nothing changes: the new index of each agent's old history, and the new joint histories.

    Plain dictionaries are fast enough: there are rarely more than a few dozen rows. A belief is represented
    by its marks, a few random projections, which are linear and so add up when rows are merged.
    """
    owners = [{row[agent]: row[agent] for row in rows} for agent in range(agents)]
    table = dict(zip(rows, marks, strict=True))
    pending = list(range(agents))
    while pending:
        agent = pending.pop(0)
        group = _equal_histories(table, agent)
        if len(set(group.values())) == len(group):
            continue
        owners[agent] = {old: group[new] for old, new in owners[agent].items()}
        table = _renamed(table, agent, group)
        pending = [other for other in range(agents) if other != agent]
    for agent in range(agents):
        rank = _ranks(table, agent)
        owners[agent] = {old: rank[new] for old, new in owners[agent].items()}
    return owners, [tuple(owners[i][h] for i, h in enumerate(row)) for row in rows]


def _equal_histories(table: dict[Joint, list[float]], agent: int) -> dict[int, int]:
    """For each history of an agent, the first one with the same belief."""
    beliefs: dict[int, list[tuple[Joint, list[float]]]] = {}
    for row, marks in table.items():
        beliefs.setdefault(row[agent], []).append((row[:agent] + row[agent + 1 :], marks))
    first: dict[tuple[tuple[Joint, tuple[int, ...]], ...], int] = {}
    group = {}
    for history, entries in beliefs.items():
        scale = 10.0**DIGITS / sum(marks[0] for _, marks in entries)
        sign = sorted((others, tuple([round(mark * scale) for mark in marks])) for others, marks in entries)
        group[history] = first.setdefault(tuple(sign), history)
    return group


def _renamed(table: dict[Joint, list[float]], agent: int, group: dict[int, int]) -> dict[Joint, list[float]]:
    merged: dict[Joint, list[float]] = {}
    for row, marks in table.items():
        renamed = (*row[:agent], group[row[agent]], *row[agent + 1 :])
        before = merged.get(renamed)
        merged[renamed] = marks if before is None else [a + b for a, b in zip(before, marks, strict=True)]
    return merged


def _ranks(table: dict[Joint, list[float]], agent: int) -> dict[int, int]:
    """Number an agent's histories in the order of their beliefs, so that equal states get equal keys."""
    totals: dict[int, list[float]] = {}
    for row, marks in table.items():
        before = totals.get(row[agent])
        totals[row[agent]] = marks if before is None else [a + b for a, b in zip(before, marks, strict=True)]
    scale = 10.0 ** (DIGITS - 1)
    by_marks = sorted(totals, key=lambda history: [round(mark * scale) for mark in totals[history]])
    return {history: rank for rank, history in enumerate(by_marks)}


_DRAWN: dict[int, np.ndarray] = {}


def _weights(size: int) -> Float[np.ndarray, "S 4"]:
    """The sum and three random projections, always the same ones: different beliefs get different marks."""
    if size not in _DRAWN:
        drawn = np.random.default_rng(size).uniform(0.5, 1.5, (size, 4))
        drawn[:, 0] = 1.0
        _DRAWN[size] = drawn
    return _DRAWN[size]


def allowed_actions(stages: Stages, occupancy: OccupancyState) -> tuple[Bool[np.ndarray, "_ _"], ...]:
    """Which actions to try in each history of each agent: of actions with the same effect, the first."""
    possible = (occupancy.belief > EPSILON).astype(float)
    allowed = []
    for agent, size in enumerate(occupancy.num_histories):
        support = (occupancy.histories[:, agent] == np.arange(size)[:, None]) @ possible
        allowed.append(distinct_actions(stages, agent, support))
    return tuple(allowed)


def distinct_actions(
    stages: Stages, agent: int, support: Float[np.ndarray, "H S"]
) -> Bool[np.ndarray, "H A"]:
    """Of the actions with the same effect in all states in the support of a history, the first."""
    differs = stages.differs[agent]
    size = differs.shape[1]
    if not stages.has_twins[agent]:
        return np.ones((len(support), size), bool)
    return (support @ differs.reshape(len(differs), -1)).reshape(-1, size, size).all(-1)


def choosers(stages: Stages, support: Float[np.ndarray, "J S"]) -> Bool[np.ndarray, "J N"]:
    """Which agents' actions make a difference in some state in the support."""
    agents = range(len(stages.num_actions))
    return np.stack([distinct_actions(stages, agent, support).sum(1) > 1 for agent in agents], -1)
