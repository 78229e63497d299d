"""What partial joint decision rules can at most earn: exactly where agents do not interfere, else bounds.

A place is an agent in one of its histories: where something is decided.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.solver.occupancy import Histories

FORBIDDEN = -1e9
"""The worth of an action that must not be taken."""

Allowed = tuple[Bool[np.ndarray, "_ _"], ...]
"""For every agent, which actions are to be tried in each of its histories."""
Each = tuple[Int[np.ndarray, " _"], ...]
"""For every agent, what it does in each of its histories."""
Choice = Int[np.ndarray, " J"]
"""A joint action for every joint history."""
Chosen = tuple[int, ...]
"""A partial rule: the options taken in the first places of the order."""


@runtime_checkable
class PartialRules(Protocol):
    """Bounds of the partial rules of one choice."""

    order: list[tuple[int, int]]
    """The places where something is to be decided, (agent, history), in the order of decision."""

    def whole(self) -> float:
        """The bound of the empty rule."""

    def extended(self, chosen: Chosen) -> list[tuple[int, float]]:
        """The options in the next place, with the bounds of the partial rule that each gives."""

    def worth(self, chosen: Chosen) -> float:
        """The bound of a rule that is no longer partial."""

    def complete(self, chosen: Chosen) -> Each:
        """What such a rule does."""

    def renew(self) -> None:
        """Some worth was lowered."""


def joint_actions(histories: Histories, each: Each, sizes: tuple[int, ...]) -> Choice:
    """What a rule does in the joint histories."""
    total = each[0][histories.each[:, 0]]
    for agent in range(1, len(sizes)):
        total = total * sizes[agent] + each[agent][histories.each[:, agent]]
    return total


def _order(
    each: Int[np.ndarray, "J N"], allowed: Allowed, mass: Float[np.ndarray, " J"]
) -> list[tuple[int, int]]:
    """Places that matter most come first; where nothing is to be decided, nothing is asked."""
    weight = [np.bincount(each[:, i], mass, len(table)).tolist() for i, table in enumerate(allowed)]
    places = [(i, c) for i, table in enumerate(allowed) for c in np.flatnonzero(table.sum(1) > 1).tolist()]
    return sorted(places, key=lambda place: -weight[place[0]][place[1]])


class LoneChoices(NamedTuple):
    """In every joint history at most one agent's choice matters: whose, and what it amounts to."""

    allowed: Allowed
    order: list[tuple[int, int]]
    place: Int[np.ndarray, " J"]
    """The number of the place in the order; one more than the last where nobody's choice matters."""
    options: list[list[int]]
    """The actions in each place; nobody's place has one."""
    columns: Int[np.ndarray, "J W"]
    """The joint action that each option amounts to; beyond the last option, the first again."""

    def summed(self, worth: Float[np.ndarray, "J JA"]) -> Float[np.ndarray, "P W"]:
        """What the options in each place are worth, over all joint histories."""
        each = np.take_along_axis(worth, self.columns, 1)
        return (np.arange(len(self.options))[:, None] == self.place).astype(float) @ each

    def complete(self, chosen: Chosen) -> Each:
        """What everybody does."""
        rule = [table.argmax(-1) for table in self.allowed]
        for (i, c), options, option in zip(self.order, self.options, chosen, strict=False):
            rule[i][c] = options[option]
        return tuple(rule)


def lone_choices(
    each: Int[np.ndarray, "J N"],
    allowed: Allowed,
    matters: Bool[np.ndarray, "J N"],
    mass: Float[np.ndarray, " J"],
) -> LoneChoices | None:
    """None where the choices of two agents matter in the same joint history."""
    if (matters.sum(1) > 1).any():
        return None
    order, (row, agent) = _order(each, allowed, mass), np.nonzero(matters)
    sizes = [table.shape[1] for table in allowed]
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
    parts = np.stack([table.argmax(1)[each[:, i]] for i, table in enumerate(allowed)], -1)
    parts[row, agent] = 0
    options = [[a for a, fits in enumerate(allowed[i][c].tolist()) if fits] for i, c in order] + [[0]]
    width = max(map(len, options))
    padded = np.array([actions + actions[:1] * (width - len(actions)) for actions in options])
    number = {place: index for index, place in enumerate(order)}
    place = np.full(len(each), len(order))
    place[row] = [number[where] for where in zip(agent.tolist(), each[row, agent].tolist(), strict=True)]
    columns = np.repeat((parts @ strides)[:, None], width, 1)
    columns[row] += padded[place[row]] * strides[agent, None]
    return LoneChoices(allowed, order, place, options, columns)


class Separate:
    """Places add up, and bounds are exact: the best of all places less what is lost by what was chosen.

    Losses are added up, not worths, so that rules that are equally good have equal bounds to the last digit.
    """

    def __init__(self, worths: Float[np.ndarray, "J JA"], lone: LoneChoices) -> None:
        self.worths, self.lone, self.order = worths, lone, lone.order
        self.renew()

    def renew(self) -> None:
        """Add up anew."""
        table = self.lone.summed(self.worths)
        self.best = float(table.max(1).sum())
        self.losses = (table.max(1, keepdims=True) - table).tolist()

    def whole(self) -> float:
        """The best of all places."""
        return self.best

    def extended(self, chosen: Chosen) -> list[tuple[int, float]]:
        """An option, and the best of the rest."""
        sure, place = self.worth(chosen), len(chosen)
        return [
            (option, sure - self.losses[place][option]) for option in range(len(self.lone.options[place]))
        ]

    def worth(self, chosen: Chosen) -> float:
        """What is chosen, and the best of the rest."""
        return self.best - sum([losses[option] for losses, option in zip(self.losses, chosen, strict=False)])

    def complete(self, chosen: Chosen) -> Each:
        """Where there is one action, that one."""
        return self.lone.complete(chosen)


class Entangled:
    """Bounds if, in turn, one agent still acts on its histories, the others as suits each joint history."""

    def __init__(self, histories: Histories, worths: Float[np.ndarray, "J *A"], allowed: Allowed) -> None:
        self.histories, self.worths, self.allowed = histories, worths, allowed
        each, sizes = histories.each, histories.sizes
        agents = range(each.shape[1])
        self.members = [(each[:, i] == np.arange(sizes[i])[:, None]).astype(float) for i in agents]
        self.others = [tuple(1 + k for k in agents if k != i) for i in agents]
        self.choices = [np.where(table, 0.0, FORBIDDEN) for table in allowed]
        self.order = _order(each, allowed, histories.belief.sum(1))

    def renew(self) -> None:
        """The worths are looked at anew each time."""

    def _masked(self, chosen: Chosen) -> Float[np.ndarray, "J *A"]:
        """The worths, with what a partial rule rules out forbidden."""
        tables = [table.copy() for table in self.choices]
        for (i, c), action in zip(self.order, chosen, strict=False):
            tables[i][c] = FORBIDDEN
            tables[i][c, action] = 0.0
        total = self.worths
        for i, table in enumerate(tables):
            shape = [len(total)] + [1] * len(tables)
            shape[1 + i] = table.shape[1]
            total = total + table[self.histories.each[:, i]].reshape(shape)
        return total

    def whole(self) -> float:
        """The bound of the empty rule."""
        total = self._masked(())
        sums = [self.members[i] @ total.max(self.others[i]) for i in range(len(self.members))]
        return float(min(table.max(1).sum() for table in sums))

    def extended(self, chosen: Chosen) -> list[tuple[int, float]]:
        """The bounds of a partial rule with one more action: in turn, one agent's histories are respected."""
        i, c = self.order[len(chosen)]
        total = self._masked(chosen)
        rows = np.flatnonzero(self.histories.each[:, i] == c)
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

    def worth(self, chosen: Chosen) -> float:
        """What the joint actions are worth."""
        actions = joint_actions(self.histories, self.complete(chosen), self.worths.shape[1:])
        return float(self.worths.reshape(len(actions), -1)[np.arange(len(actions)), actions].sum())

    def complete(self, chosen: Chosen) -> Each:
        """Where there is one action, that one."""
        rule = [table.argmax(-1) for table in self.allowed]
        for (i, c), action in zip(self.order, chosen, strict=True):
            rule[i][c] = action
        return tuple(rule)
