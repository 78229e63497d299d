"""Occupancy states: what a planner knows of the histories of a team, with equal-belief histories merged.

Two histories of an agent that give the same belief over the state and the others' histories ask for the same
behaviour: they are merged without loss (Oliehoek, Whiteson & Spaan 2009).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.heuristics import EPSILON, Stages

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
    successors: tuple[Int[np.ndarray, "C O"], ...]
    """-1 where an agent cannot see that."""


def beginning(stages: Stages) -> Histories:
    """Nothing has happened yet."""
    agents = len(stages.actions)
    return Histories(np.zeros((1, agents), int), stages.d0[None], (1,) * agents)


def key(histories: Histories) -> bytes:
    """What equal histories have in common."""
    marks = np.round(histories.belief @ _weights(histories.belief.shape[1]), DIGITS) + 0.0
    return histories.each.tobytes() + marks.tobytes()


def move(
    stages: Stages, histories: Histories, outcomes: Float[np.ndarray, "J M"]
) -> Moved:
    """Everybody acts and sees; `outcomes[j]` holds the probabilities of what follows joint history j."""
    totals = np.add.reduceat(outcomes, stages.groups[:-1], axis=1) if outcomes.size else outcomes
    row, group = np.nonzero(totals > EPSILON)
    belief = np.zeros((len(row), histories.belief.shape[1]))
    begin, end = stages.groups[:-1], stages.groups[1:]
    for g in np.unique(group):
        of_group = np.flatnonzero(group == g)
        columns = slice(begin[g], end[g])
        belief[np.ix_(of_group, stages.following[columns])] = outcomes[row[of_group], columns]
    labels, wide = [], []
    for agent, seen in enumerate(stages.observations):
        pair = histories.each[row, agent] * seen + stages.parts[begin[group], agent]
        distinct, label = np.unique(pair, return_inverse=True)
        labels.append(label.ravel())
        wide.append(distinct)
    merged, owners = _merge(np.stack(labels, -1), belief)
    successors = []
    for agent, seen in enumerate(stages.observations):
        table = np.full(histories.sizes[agent] * seen, -1)
        table[wide[agent]] = owners[agent]
        successors.append(table.reshape(histories.sizes[agent], seen))
    return Moved(merged, tuple(successors))


def _merge(
    each: Int[np.ndarray, "J N"], belief: Float[np.ndarray, "J S"]
) -> tuple[Histories, list[Int[np.ndarray, " C"]]]:
    """Merge until nothing changes; also where each agent's histories went."""
    agents = each.shape[1]
    owners = [np.arange(each[:, agent].max(initial=-1) + 1) for agent in range(agents)]
    pending = set(range(agents))
    while pending:
        agent = min(pending)
        pending.discard(agent)
        groups = _equal_rows(each, belief, agent)
        if groups.max(initial=-1) + 1 == len(groups):
            continue
        owners[agent] = groups[owners[agent]]
        each = each.copy()
        each[:, agent] = groups[each[:, agent]]
        each, index = np.unique(each, axis=0, return_inverse=True)
        total = np.zeros((len(each), belief.shape[1]))
        np.add.at(total, index.ravel(), belief)
        belief = total
        pending |= set(range(agents)) - {agent}
    return _ordered(each, belief, owners)


def _equal_rows(
    each: Int[np.ndarray, "J N"], belief: Float[np.ndarray, "J S"], agent: int
) -> Int[np.ndarray, " C"]:
    """For each history of an agent the group of those with the same belief, told by random projections."""
    others = np.unique(np.delete(each, agent, axis=1), axis=0, return_inverse=True)[1].ravel()
    mine = each[:, agent]
    spread = _weights(len(belief) + 1)[others]
    marks = np.stack([np.bincount(mine, column) for column in ((belief @ _weights(belief.shape[1])) * spread).T])
    marks = np.round(marks / np.bincount(mine, belief.sum(1)), DIGITS) + 0.0
    return np.unique(marks, axis=1, return_inverse=True)[1].ravel()


def _ordered(
    each: Int[np.ndarray, "J N"], belief: Float[np.ndarray, "J S"], owners: list[Int[np.ndarray, " C"]]
) -> tuple[Histories, list[Int[np.ndarray, " C"]]]:
    """Number histories by what is believed in them, so that equal situations get equal numbers."""
    marks = np.round(belief @ _weights(belief.shape[1]), DIGITS) + 0.0
    each = each.copy()
    sizes = []
    for agent in range(each.shape[1]):
        mine = each[:, agent]
        totals = np.stack([np.bincount(mine, column) for column in marks.T]) if len(mine) else np.zeros((3, 0))
        rank = np.empty(totals.shape[1], int)
        rank[np.lexsort(np.round(totals, DIGITS - 1))] = np.arange(totals.shape[1])
        each[:, agent] = rank[mine]
        owners[agent] = rank[owners[agent]]
        sizes.append(totals.shape[1])
    order = np.lexsort(each.T[::-1])
    return Histories(each[order], belief[order], tuple(sizes)), owners


_DRAWN: dict[int, np.ndarray] = {}


def _weights(size: int) -> Float[np.ndarray, "X 3"]:
    """Three random projections, always the same: they tell vectors apart that differ at all."""
    if size not in _DRAWN:
        _DRAWN[size] = np.random.default_rng(size).uniform(0.5, 1.5, (size, 3))
    return _DRAWN[size]


def allowed_actions(stages: Stages, histories: Histories) -> tuple[Bool[np.ndarray, "C A"], ...]:
    """Which actions to try in each history of each agent: of actions that do the same, the first."""
    allowed = []
    possible = histories.belief > EPSILON
    for agent, twins in enumerate(stages.twins):
        support = np.zeros((histories.sizes[agent], possible.shape[1]))
        np.add.at(support, histories.each[:, agent], possible)
        size = twins.shape[1]
        differ = (support > 0) @ (~twins).reshape(len(twins), -1)
        same = (differ == 0).reshape(-1, size, size)
        earlier = np.tri(size, k=-1, dtype=bool)  # [a, b]: b comes before a
        allowed.append(~(same & earlier).any(-1))
    return tuple(allowed)
