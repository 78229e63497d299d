"""Joint decision rules in the order of their bound, generated as they are asked for.

A rule gives each history of each agent an action. It is put together one (agent, history) at a time,
best first: a partial rule is bounded by what its histories can at most earn if, in turn, one agent still acts on its
own histories while the others do whatever suits each joint history.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.histories import Histories

FORBIDDEN = -1e12
"""The worth of an action that must not be taken."""


class Rule(NamedTuple):
    """What every agent does in each of its histories, and what that can at most earn."""

    bound: float
    each: tuple[Int[np.ndarray, " C"], ...]


class Game:
    """The choice of a joint decision rule: `worth[j, a0, a1, ...]` of joint actions in joint histories."""

    def __init__(
        self,
        histories: Histories,
        worth: Float[np.ndarray, "J *A"],
        allowed: tuple[Bool[np.ndarray, "C A"], ...],
    ) -> None:
        self.histories, self.worth = histories, worth
        agents = range(histories.each.shape[1])
        self.members = [
            (histories.each[:, i] == np.arange(histories.sizes[i])[:, None]).astype(float) for i in agents
        ]
        self.others = [tuple(1 + k for k in agents if k != i) for i in agents]
        self.choices = [np.where(table, 0.0, FORBIDDEN) for table in allowed]
        weight = [member @ histories.belief.sum(1) for member in self.members]
        # Those that matter most are decided first; where nothing is to be decided, nothing is asked.
        self.order = sorted(
            ((i, c) for i in agents for c in range(histories.sizes[i]) if allowed[i][c].sum() > 1),
            key=lambda place: -weight[place[0]][place[1]],
        )
        self.options = [np.flatnonzero(allowed[i][c]) for i, c in self.order]

    def rules(self, floor: Callable[[], float]) -> Iterator[Rule]:
        """The rules whose bound is above the floor, best first; the floor may rise meanwhile."""
        ticket = count()
        start = float(self._bounds([()])[0])
        heap: list[tuple[float, int, int, tuple[int, ...]]] = [(-start, 0, next(ticket), ())]
        while heap:
            bound, depth, _, chosen = heappop(heap)
            if -bound <= floor():
                return
            if -depth == len(self.order):
                yield Rule(-bound, self._complete(chosen))
                continue
            children = [(*chosen, int(action)) for action in self.options[-depth]]
            for child, limit in zip(children, self._bounds(children), strict=True):
                if limit > floor():
                    # Among equals the deeper one first, or ties would be searched breadth first.
                    heappush(heap, (-float(min(limit, -bound)), depth - 1, next(ticket), child))

    def _bounds(self, partial: list[tuple[int, ...]]) -> Float[np.ndarray, " K"]:
        """Bounds of partial rules that are equally far."""
        agents = len(self.members)
        tables = [np.repeat(table[None], len(partial), 0) for table in self.choices]
        for k, chosen in enumerate(partial):
            for (i, c), action in zip(self.order, chosen, strict=False):
                tables[i][k, c] = FORBIDDEN
                tables[i][k, c, action] = 0.0
        total = self.worth[None]
        for i in range(agents):
            rows = tables[i][:, self.histories.each[:, i]]
            shape = [*rows.shape[:2], *([1] * agents)]
            shape[2 + i] = rows.shape[2]
            total = total + rows.reshape(shape)
        found = []
        for i in range(agents):
            best = total.max(tuple(1 + axis for axis in self.others[i])) if agents > 1 else total
            found.append((self.members[i] @ best).max(-1).sum(-1))
        return np.min(found, axis=0)

    def _complete(self, chosen: tuple[int, ...]) -> tuple[Int[np.ndarray, " C"], ...]:
        rule = [table.argmax(-1) for table in self.choices]
        for (i, c), action in zip(self.order, chosen, strict=True):
            rule[i][c] = action
        return tuple(rule)
