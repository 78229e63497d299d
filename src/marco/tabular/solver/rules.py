"""Joint decision rules in the order of their bound, generated as they are asked for.

A rule gives each history of each agent an action. It is put together one (agent, history) at a time, best
first, by the bounds of partial rules.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from marco.tabular.solver.bounds import EPSILON
from marco.tabular.solver.occupancy import Histories
from marco.tabular.solver.partial_rules import (
    FORBIDDEN,
    Allowed,
    Choice,
    Each,
    Entangled,
    LoneChoices,
    PartialRules,
    Separate,
    joint_actions,
)

Refine = Callable[[Choice], bool]
"""Lowers the worth of what a rule does, if it can, and says whether it has."""


class Rule(NamedTuple):
    """What every agent does in each of its histories, and what that can at most earn."""

    bound: float
    each: Each
    actions: Choice


class Game:
    """The choice of a joint decision rule: `worth[j, a0, a1, ...]` of joint actions in joint histories."""

    def __init__(
        self,
        histories: Histories,
        worth: Float[np.ndarray, "J *A"],
        allowed: Allowed,
        lone: LoneChoices | None,
    ) -> None:
        self.histories, self.worth, self.allowed, self.lone = histories, worth, allowed, lone
        self.sizes = worth.shape[1:]
        self.left = -np.inf

    def rules(
        self,
        floor: Callable[[], float],
        refine: Refine | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Rule]:
        """The rules whose bound is above the floor, best first; the floor may rise meanwhile.

        A rule that comes first is handed to `refine`, which may lower the worth of what it does and says
        whether it has: then the rule goes back into the queue. When `stop` says so there are no more rules,
        and none that was left out is worth more than `left`.
        """
        if len(self.histories.each) == 1:
            yield from self._single(floor, refine, stop)
            return
        partial = self._partial_rules()
        ticket = count()
        heap: list[tuple[float, int, int, tuple[int, ...]]] = [(-partial.whole(), 0, next(ticket), ())]
        while heap:
            bound, depth, _, chosen = heappop(heap)
            if -bound <= floor():
                return
            if stop():
                self.left = -bound
                return
            if -depth < len(partial.order):
                for action, limit in partial.extended(chosen):
                    if limit > floor():
                        # Among equals the deeper one first, or ties would be searched breadth first.
                        child = (*chosen, action)
                        heappush(heap, (-min(limit, -bound), depth - 1, next(ticket), child))
                continue
            worth = partial.worth(chosen)
            if worth > -bound - EPSILON:
                each = partial.complete(chosen)
                actions = joint_actions(self.histories, each, self.sizes)
                if refine is None or not refine(actions):
                    yield Rule(-bound, each, actions)
                    continue
                partial.renew()
                worth = partial.worth(chosen)
            heappush(heap, (-min(worth, -bound), depth, next(ticket), chosen))

    def _partial_rules(self) -> PartialRules:
        if self.lone is None:
            return Entangled(self.histories, self.worth, self.allowed)
        return Separate(self.worth.reshape(len(self.worth), -1), self.lone)

    def _single(
        self, floor: Callable[[], float], refine: Refine | None, stop: Callable[[], bool]
    ) -> Iterator[Rule]:
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
            if stop():
                self.left = bound
                return
            if refine is not None and refine(np.array([best])):
                continue
            left[best] = False
            each = tuple(np.array([part]) for part in np.unravel_index(best, self.sizes))
            yield Rule(bound, each, np.array([best]))
