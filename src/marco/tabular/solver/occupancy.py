"""Occupancy states: what a planner knows of the histories of a team, with equal-belief histories merged.

Two histories of an agent that give the same belief over the state and the others' histories ask for the same
behaviour: they are merged without loss (Oliehoek, Whiteson & Spaan 2009).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.solver.bounds import EPSILON, Stages

DIGITS = 9
"""Beliefs that agree to so many digits are equal."""


class Histories(NamedTuple):
    """Rows of joint histories that can occur: each agent's history by its number, and the belief."""

    each: Int[np.ndarray, "J N"]
    belief: Float[np.ndarray, "J S"]
    """Unnormalised: the probability of the joint history and the state together."""
    sizes: tuple[int, ...]
    """How many histories each agent has."""


class Moved(NamedTuple):
    """The histories after a step, and how an agent's history and observation give its next history."""

    histories: Histories
    successors: tuple[Int[np.ndarray, "_ _"], ...]
    """-1 where an agent cannot see that."""


def beginning(stages: Stages) -> Histories:
    """Nothing has happened yet."""
    agents = len(stages.actions)
    return Histories(np.zeros((1, agents), int), stages.d0[None], (1,) * agents)


def revealed(agents: int, belief: Float[np.ndarray, " S"]) -> Histories:
    """One joint history, known to all, with a belief."""
    return Histories(np.zeros((1, agents), int), belief[None], (1,) * agents)


def key(histories: Histories) -> bytes:
    """What equal histories have in common."""
    marks = np.rint(histories.belief @ _weights(histories.belief.shape[1]) * 10.0**DIGITS)
    return histories.each.tobytes() + (marks + 0.0).tobytes()


def move(stages: Stages, histories: Histories, outcomes: Float[np.ndarray, "J M"]) -> Moved:
    """Everybody acts and sees; `outcomes[j]` holds the probabilities of what follows joint history j."""
    spread = np.zeros((len(outcomes), len(stages.shown), histories.belief.shape[1]))
    spread[:, stages.group, stages.following] = outcomes
    row, group = np.nonzero(spread.sum(-1) > EPSILON)
    belief = spread[row, group]
    pairs = histories.each[row] * np.array(stages.observations) + stages.shown[group]
    marks = belief @ _weights(belief.shape[1])
    rows = [tuple(pair) for pair in pairs.tolist()]
    owners, each = _merge(rows, marks.tolist(), len(stages.observations))
    merged = sorted(set(each))
    if len(merged) == len(rows):
        summed = belief[sorted(range(len(rows)), key=each.__getitem__)]
    else:
        place = {joint: index for index, joint in enumerate(merged)}
        summed = np.zeros((len(merged), belief.shape[1]))
        np.add.at(summed, [place[joint] for joint in each], belief)
    successors = []
    for agent, seen in enumerate(stages.observations):
        table = np.full(histories.sizes[agent] * seen, -1)
        if owners[agent]:
            table[list(owners[agent])] = list(owners[agent].values())
        successors.append(table.reshape(histories.sizes[agent], seen))
    sizes = tuple(len(set(owner.values())) for owner in owners)
    joint = np.array(merged, int).reshape(len(merged), len(sizes))
    return Moved(Histories(joint, summed, sizes), tuple(successors))


Joint = tuple[int, ...]


def _merge(
    rows: list[Joint], marks: list[list[float]], agents: int
) -> tuple[list[dict[int, int]], list[Joint]]:
    """Merge until nothing changes: the new number of each agent's old history, and the new joint histories.

    Plain dictionaries: there are rarely more than a few dozen rows. A belief is told by its marks, a few
    random projections, which are linear and so add up when rows are merged.
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
    """For each history of an agent, one that stands for all with the same belief."""
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
    """Number an agent's histories by what is believed in them, so that equal situations look equal."""
    totals: dict[int, list[float]] = {}
    for row, marks in table.items():
        before = totals.get(row[agent])
        totals[row[agent]] = marks if before is None else [a + b for a, b in zip(before, marks, strict=True)]
    scale = 10.0 ** (DIGITS - 1)
    by_marks = sorted(totals, key=lambda history: [round(mark * scale) for mark in totals[history]])
    return {history: rank for rank, history in enumerate(by_marks)}


_DRAWN: dict[int, np.ndarray] = {}


def _weights(size: int) -> Float[np.ndarray, "S 4"]:
    """The sum, and three random projections, always the same: they tell apart what differs at all."""
    if size not in _DRAWN:
        drawn = np.random.default_rng(size).uniform(0.5, 1.5, (size, 4))
        drawn[:, 0] = 1.0
        _DRAWN[size] = drawn
    return _DRAWN[size]


def allowed_actions(stages: Stages, histories: Histories) -> tuple[Bool[np.ndarray, "_ _"], ...]:
    """Which actions to try in each history of each agent: of actions that do the same, the first."""
    possible = (histories.belief > EPSILON).astype(float)
    allowed = []
    for agent, size in enumerate(histories.sizes):
        support = (histories.each[:, agent] == np.arange(size)[:, None]) @ possible
        allowed.append(distinct_actions(stages, agent, support))
    return tuple(allowed)


def distinct_actions(
    stages: Stages, agent: int, support: Float[np.ndarray, "H S"]
) -> Bool[np.ndarray, "H A"]:
    """Of the actions that do the same in all states that have support in a history, the first."""
    differs = stages.differs[agent]
    size = differs.shape[1]
    if not stages.has_twins[agent]:
        return np.ones((len(support), size), bool)
    return (support @ differs.reshape(len(differs), -1)).reshape(-1, size, size).all(-1)


def choosers(stages: Stages, support: Float[np.ndarray, "J S"]) -> Bool[np.ndarray, "J N"]:
    """Whose action makes a difference in some state that has support."""
    agents = range(len(stages.actions))
    return np.stack([distinct_actions(stages, agent, support).sum(1) > 1 for agent in agents], -1)
