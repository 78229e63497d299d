"""Joint decision rules in the order of their bound, generated as they are asked for.

A rule gives each history of each agent an action. It is put together one (agent, history) at a time, best
first: a partial rule is bounded by what can be earned if, in turn, one agent still acts on its own histories
while the others do whatever suits each joint history.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.heuristics import EPSILON
from marco.tabular.histories import Histories

FORBIDDEN = -1e9
"""The worth of an action that must not be taken."""


Choice = Int[np.ndarray, " J"]
"""A joint action for every joint history."""
Refine = Callable[[Choice], bool]
"""Lowers the worth of what a rule does, if it can, and says whether it has."""


class Rule(NamedTuple):
    """What every agent does in each of its histories, and what that can at most earn."""

    bound: float
    each: tuple[Int[np.ndarray, " _"], ...]
    actions: Choice


def joint_actions(
    histories: Histories, each: tuple[Int[np.ndarray, " _"], ...], sizes: tuple[int, ...]
) -> Choice:
    """What a rule does in the joint histories."""
    total = each[0][histories.each[:, 0]]
    for agent in range(1, len(sizes)):
        total = total * sizes[agent] + each[agent][histories.each[:, agent]]
    return total


class Game:
    """The choice of a joint decision rule: `worth[j, a0, a1, ...]` of joint actions in joint histories."""

    def __init__(
        self,
        histories: Histories,
        worth: Float[np.ndarray, "J *A"],
        allowed: tuple[Bool[np.ndarray, "_ _"], ...],
    ) -> None:
        self.histories, self.worth, self.allowed = histories, worth, allowed
        self.sizes = worth.shape[1:]

    def rules(self, floor: Callable[[], float], refine: Refine | None = None) -> Iterator[Rule]:
        """The rules whose bound is above the floor, best first; the floor may rise meanwhile.

        A rule that comes first is handed to `refine`, which may lower the worth of what it does and says
        whether it has: then the rule goes back into the queue.
        """
        if len(self.histories.each) == 1:
            yield from self._single(floor, refine)
            return
        self._prepare()
        ticket = count()
        heap: list[tuple[float, int, int, tuple[int, ...]]] = [(-self._whole(), 0, next(ticket), ())]
        while heap:
            bound, depth, _, chosen = heappop(heap)
            if -bound <= floor():
                return
            if -depth < len(self.order):
                for action, limit in self._extended(chosen):
                    if limit > floor():
                        # Among equals the deeper one first, or ties would be searched breadth first.
                        child = (*chosen, action)
                        heappush(heap, (-min(limit, -bound), depth - 1, next(ticket), child))
                continue
            each = self._complete(chosen)
            actions = joint_actions(self.histories, each, self.sizes)
            if self._worth_of(actions) > -bound - EPSILON and (refine is None or not refine(actions)):
                yield Rule(-bound, each, actions)
            else:
                heappush(heap, (-min(self._worth_of(actions), -bound), depth, next(ticket), chosen))

    def _single(self, floor: Callable[[], float], refine: Refine | None) -> Iterator[Rule]:
        """With one joint history a rule is a joint action."""
        worth = self.worth.reshape(-1)
        open_ = np.ones(self.sizes, bool)
        for i, table in enumerate(self.allowed):
            open_ &= table[0].reshape([-1 if k == i else 1 for k in range(len(self.sizes))])
        left = open_.reshape(-1)
        while left.any():
            best = int(np.where(left, worth, FORBIDDEN).argmax())
            bound = float(worth[best])
            if bound <= floor():
                return
            if refine is not None and refine(np.array([best])):
                continue
            left[best] = False
            each = tuple(np.array([part]) for part in np.unravel_index(best, self.sizes))
            yield Rule(bound, each, np.array([best]))

    def _prepare(self) -> None:
        """What bounds of partial rules need again and again."""
        each, sizes = self.histories.each, self.histories.sizes
        agents = range(each.shape[1])
        self.members = [(each[:, i] == np.arange(sizes[i])[:, None]).astype(float) for i in agents]
        self.others = [tuple(1 + k for k in agents if k != i) for i in agents]
        self.choices = [np.where(table, 0.0, FORBIDDEN) for table in self.allowed]
        mass = self.histories.belief.sum(1)
        weight = [member @ mass for member in self.members]
        # Those that matter most are decided first; where nothing is to be decided, nothing is asked.
        self.order = sorted(
            ((i, c) for i in agents for c in range(sizes[i]) if np.count_nonzero(self.allowed[i][c]) > 1),
            key=lambda place: -weight[place[0]][place[1]],
        )

    def _masked(self, chosen: tuple[int, ...]) -> Float[np.ndarray, "J *A"]:
        """The worths, with what a partial rule rules out forbidden."""
        tables = [table.copy() for table in self.choices]
        for (i, c), action in zip(self.order, chosen, strict=False):
            tables[i][c] = FORBIDDEN
            tables[i][c, action] = 0.0
        total = self.worth
        for i, table in enumerate(tables):
            shape = [len(total)] + [1] * len(tables)
            shape[1 + i] = table.shape[1]
            total = total + table[self.histories.each[:, i]].reshape(shape)
        return total

    def _whole(self) -> float:
        """The bound of the empty rule."""
        total = self._masked(())
        sums = [self.members[i] @ total.max(self.others[i]) for i in range(len(self.members))]
        return float(min(table.max(1).sum() for table in sums))

    def _extended(self, chosen: tuple[int, ...]) -> list[tuple[int, float]]:
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

    def _worth_of(self, actions: Choice) -> float:
        return float(self.worth.reshape(len(actions), -1)[np.arange(len(actions)), actions].sum())

    def _complete(self, chosen: tuple[int, ...]) -> tuple[Int[np.ndarray, " _"], ...]:
        rule = [table.argmax(-1) for table in self.choices]
        for (i, c), action in zip(self.order, chosen, strict=True):
            rule[i][c] = action
        return tuple(rule)
