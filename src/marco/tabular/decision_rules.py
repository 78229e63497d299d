"""Joint decision rules in the order of their bound, generated as they are asked for.

A rule gives each history of each agent an action. It is put together one (agent, history) at a time,
best first: a partial rule is bounded by what its histories can at most earn if, in turn, one agent still acts on its
own histories while the others do whatever suits each joint history.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.tabular.heuristics import EPSILON
from marco.tabular.histories import Histories

FORBIDDEN = -1e12
"""The worth of an action that must not be taken."""


Choice = Int[np.ndarray, " J"]
"""A joint action for every joint history."""


class Rule(NamedTuple):
    """What every agent does in each of its histories, and what that can at most earn."""

    bound: float
    each: tuple[Int[np.ndarray, " C"], ...]
    actions: Choice


def joint_actions(
    histories: Histories, each: tuple[Int[np.ndarray, " C"], ...], sizes: tuple[int, ...]
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
        allowed: tuple[Bool[np.ndarray, "C A"], ...],
    ) -> None:
        self.histories, self.worth = histories, worth
        agents = range(histories.each.shape[1])
        self.members = [
            (histories.each[:, i] == np.arange(histories.sizes[i])[:, None]).astype(float) for i in agents
        ]
        self.others = [tuple(2 + k for k in agents if k != i) for i in agents]
        self.choices = [np.where(table, 0.0, FORBIDDEN) for table in allowed]
        weight = [member @ histories.belief.sum(1) for member in self.members]
        # Those that matter most are decided first; where nothing is to be decided, nothing is asked.
        self.order = sorted(
            ((i, c) for i in agents for c in range(histories.sizes[i]) if allowed[i][c].sum() > 1),
            key=lambda place: -weight[place[0]][place[1]],
        )
        self.options = [np.flatnonzero(allowed[i][c]) for i, c in self.order]

    def rules(
        self, floor: Callable[[], float], refine: Callable[[Choice], bool] | None = None
    ) -> Iterator[Rule]:
        """The rules whose bound is above the floor, best first; the floor may rise meanwhile.

        A rule that comes first is handed to `refine`, which may lower the worth of what it does and says
        whether it has: then the rule goes back into the queue.
        """
        ticket = count()
        heap = [(-bound, -len(chosen), next(ticket), chosen) for bound, chosen in self._roots()]
        heapify(heap)
        while heap:
            bound, depth, _, chosen = heappop(heap)
            if -bound <= floor():
                return
            if -depth < len(self.order):
                children = [(*chosen, int(action)) for action in self.options[-depth]]
                for child, limit in zip(children, self._bounds(children).tolist(), strict=True):
                    if limit > floor():
                        # Among equals the deeper one first, or ties would be searched breadth first.
                        heappush(heap, (-min(limit, -bound), depth - 1, next(ticket), child))
                continue
            each = self._complete(chosen)
            actions = joint_actions(self.histories, each, self.worth.shape[1:])
            current = self._worth_of(actions)
            if current > -bound - EPSILON and (refine is None or not refine(actions)):
                yield Rule(-bound, each, actions)
            else:
                heappush(heap, (-min(self._worth_of(actions), -bound), depth, next(ticket), chosen))

    def _roots(self) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Where the search begins: the empty rule; with one joint history, all rules at once."""
        if len(self.histories.each) == 1:
            worth = self.worth[0]
            for chosen in product(*(options.tolist() for options in self.options)):
                each = tuple(choice[0] for choice in self._complete(chosen))
                yield float(worth[each]), chosen
        else:
            yield float(self._bounds([()])[0]), ()

    def _worth_of(self, actions: Choice) -> float:
        return float(self.worth.reshape(len(actions), -1)[np.arange(len(actions)), actions].sum())

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
            best = total.max(self.others[i]) if agents > 1 else total
            found.append((self.members[i] @ best).max(-1).sum(-1))
        return np.min(found, axis=0)

    def _complete(self, chosen: tuple[int, ...]) -> tuple[Int[np.ndarray, " C"], ...]:
        rule = [table.argmax(-1) for table in self.choices]
        for (i, c), action in zip(self.order, chosen, strict=True):
            rule[i][c] = action
        return tuple(rule)
