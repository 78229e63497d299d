"""Upper bounds on partial joint decision rules. They are exact where agents do not interfere.

A place is a pair of an agent and one of its histories: where one decision is made. A partial rule fixes the
decisions of some places and leaves the others open.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.solver.occupancy import OccupancyState

FORBIDDEN = -1e9
"""The value of an action that must not be taken."""

Allowed = tuple[Bool[np.ndarray, "_ _"], ...]
"""For every agent, which actions to try in each of its histories."""
Decisions = tuple[Int[np.ndarray, " _"], ...]
"""For every agent, its action in each of its histories: a joint decision rule."""
JointActions = Int[np.ndarray, " J"]
"""A joint action for every joint history."""
PartialRule = tuple[int, ...]
"""The options chosen in the first places of an order of places."""


@runtime_checkable
class PartialRuleBounds(Protocol):
    """Upper bounds on the partial rules of one Bayesian game."""

    order: list[tuple[int, int]]
    """The places with more than one option, (agent, history), in the order of decision."""

    def whole(self) -> float:
        """The bound of the empty rule."""

    def extended(self, chosen: PartialRule) -> list[tuple[int, float]]:
        """The options in the next place, each with the bound of the partial rule extended by it."""

    def bound(self, chosen: PartialRule) -> float:
        """The bound of a rule that is complete."""

    def complete(self, chosen: PartialRule) -> Decisions:
        """The joint decision rule of such options."""

    def update(self) -> None:
        """Take account of values that were lowered."""


def joint_actions(occupancy: OccupancyState, decisions: Decisions, sizes: tuple[int, ...]) -> JointActions:
    """The joint actions of a rule in the joint histories."""
    total = decisions[0][occupancy.histories[:, 0]]
    for agent in range(1, len(sizes)):
        total = total * sizes[agent] + decisions[agent][occupancy.histories[:, agent]]
    return total


def _order(
    histories: Int[np.ndarray, "J N"], allowed: Allowed, mass: Float[np.ndarray, " J"]
) -> list[tuple[int, int]]:
    """Places with the largest probability come first; places with one option are left out."""
    weight = [np.bincount(histories[:, i], mass, len(table)).tolist() for i, table in enumerate(allowed)]
    places = [(i, c) for i, table in enumerate(allowed) for c in np.flatnonzero(table.sum(1) > 1).tolist()]
    return sorted(places, key=lambda place: -weight[place[0]][place[1]])


class LoneChoices(NamedTuple):
    """The choices where in every joint history at most one agent's action makes a difference."""

    allowed: Allowed
    order: list[tuple[int, int]]
    place: Int[np.ndarray, " J"]
    """The index in the order of the place that decides; one after the last where no action matters."""
    options: list[list[int]]
    """The actions in each place; one where no action matters."""
    columns: Int[np.ndarray, "J W"]
    """The joint action of each option; after the last option, the first again."""

    def summed(self, values: Float[np.ndarray, "J JA"]) -> Float[np.ndarray, "P W"]:
        """The values of the options in each place, summed over the joint histories."""
        by_option = np.take_along_axis(values, self.columns, 1)
        return (np.arange(len(self.options))[:, None] == self.place).astype(float) @ by_option

    def complete(self, chosen: PartialRule) -> Decisions:
        """The joint decision rule of the options chosen."""
        rule = [table.argmax(-1) for table in self.allowed]
        for (i, c), options, option in zip(self.order, self.options, chosen, strict=False):
            rule[i][c] = options[option]
        return tuple(rule)


def lone_choices(
    histories: Int[np.ndarray, "J N"],
    allowed: Allowed,
    matters: Bool[np.ndarray, "J N"],
    mass: Float[np.ndarray, " J"],
) -> LoneChoices | None:
    """None if the actions of two agents make a difference in the same joint history."""
    if (matters.sum(1) > 1).any():
        return None
    order, (row, agent) = _order(histories, allowed, mass), np.nonzero(matters)
    sizes = [table.shape[1] for table in allowed]
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
    parts = np.stack([table.argmax(1)[histories[:, i]] for i, table in enumerate(allowed)], -1)
    parts[row, agent] = 0
    options = [[a for a, fits in enumerate(allowed[i][c].tolist()) if fits] for i, c in order] + [[0]]
    width = max(map(len, options))
    padded = np.array([actions + actions[:1] * (width - len(actions)) for actions in options])
    number = {place: index for index, place in enumerate(order)}
    place = np.full(len(histories), len(order))
    place[row] = [number[where] for where in zip(agent.tolist(), histories[row, agent].tolist(), strict=True)]
    columns = np.repeat((parts @ strides)[:, None], width, 1)
    columns[row] += padded[place[row]] * strides[agent, None]
    return LoneChoices(allowed, order, place, options, columns)


class SeparableBounds:
    """Exact bounds where places add up: the sum of the best options, less the losses of those chosen.

    Losses are summed, not values, so that equally good rules have equal bounds to the last digit.
    """

    def __init__(self, values: Float[np.ndarray, "J JA"], lone: LoneChoices) -> None:
        self.values, self.lone, self.order = values, lone, lone.order
        self.update()

    def update(self) -> None:
        table = self.lone.summed(self.values)
        self.best = float(table.max(1).sum())
        self.losses = (table.max(1, keepdims=True) - table).tolist()

    def whole(self) -> float:
        return self.best

    def extended(self, chosen: PartialRule) -> list[tuple[int, float]]:
        sure, place = self.bound(chosen), len(chosen)
        return [
            (option, sure - self.losses[place][option]) for option in range(len(self.lone.options[place]))
        ]

    def bound(self, chosen: PartialRule) -> float:
        """The best value with the options chosen, also of a partial rule."""
        return self.best - sum([losses[option] for losses, option in zip(self.losses, chosen, strict=False)])

    def complete(self, chosen: PartialRule) -> Decisions:
        return self.lone.complete(chosen)


class CoupledBounds:
    """The least of N relaxations: in each, one agent acts on its histories, the others on joint histories."""

    def __init__(
        self, occupancy: OccupancyState, values: Float[np.ndarray, "J *A"], allowed: Allowed
    ) -> None:
        self.occupancy, self.values, self.allowed = occupancy, values, allowed
        histories, sizes = occupancy.histories, occupancy.num_histories
        agents = range(histories.shape[1])
        self.members = [(histories[:, i] == np.arange(sizes[i])[:, None]).astype(float) for i in agents]
        self.others = [tuple(1 + k for k in agents if k != i) for i in agents]
        self.choices = [np.where(table, 0.0, FORBIDDEN) for table in allowed]
        self.order = _order(histories, allowed, occupancy.belief.sum(1))

    def update(self) -> None:
        """Nothing to do: the values are read again for every bound."""

    def _masked(self, chosen: PartialRule) -> Float[np.ndarray, "J *A"]:
        """The values, with FORBIDDEN where a partial rule excludes an action."""
        tables = [table.copy() for table in self.choices]
        for (i, c), action in zip(self.order, chosen, strict=False):
            tables[i][c] = FORBIDDEN
            tables[i][c, action] = 0.0
        total = self.values
        for i, table in enumerate(tables):
            shape = [len(total)] + [1] * len(tables)
            shape[1 + i] = table.shape[1]
            total = total + table[self.occupancy.histories[:, i]].reshape(shape)
        return total

    def whole(self) -> float:
        total = self._masked(())
        sums = [self.members[i] @ total.max(self.others[i]) for i in range(len(self.members))]
        return float(min(table.max(1).sum() for table in sums))

    def extended(self, chosen: PartialRule) -> list[tuple[int, float]]:
        i, c = self.order[len(chosen)]
        total = self._masked(chosen)
        rows = np.flatnonzero(self.occupancy.histories[:, i] == c)
        inside = total[rows]
        limits = []
        for k, member in enumerate(self.members):
            best = total.max(self.others[k])
            table = member @ best
            if k == i:
                top = table.max(1)
                limits.append(top.sum() - top[c] + table[c])
                continue
            rest = tuple(axis for axis in self.others[k] if axis != 1 + i)
            pairs = inside.max(rest) if rest else inside
            pairs = pairs if i < k else pairs.transpose(0, 2, 1)
            change = np.tensordot(member[:, rows], pairs - best[rows, None], 1)
            limits.append((table[:, None] + change).max(-1).sum(0))
        bounds = np.min(limits, axis=0)
        return [(int(action), float(bounds[action])) for action in np.flatnonzero(self.allowed[i][c])]

    def bound(self, chosen: PartialRule) -> float:
        actions = joint_actions(self.occupancy, self.complete(chosen), self.values.shape[1:])
        return float(self.values.reshape(len(actions), -1)[np.arange(len(actions)), actions].sum())

    def complete(self, chosen: PartialRule) -> Decisions:
        rule = [table.argmax(-1) for table in self.allowed]
        for (i, c), action in zip(self.order, chosen, strict=True):
            rule[i][c] = action
        return tuple(rule)
