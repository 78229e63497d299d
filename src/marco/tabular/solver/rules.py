"""Joint decision rules in the order of their bounds, generated on demand.

A rule gives each history of each agent an action. It is built one (agent, history) at a time, best first, by
the bounds of partial rules.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from marco.tabular.solver.bounds import EPSILON
from marco.tabular.solver.occupancy import OccupancyState
from marco.tabular.solver.partial_rules import (
    FORBIDDEN,
    Allowed,
    CoupledBounds,
    Decisions,
    JointActions,
    LoneChoices,
    PartialRule,
    PartialRuleBounds,
    SeparableBounds,
    joint_actions,
)

Refine = Callable[[JointActions], bool]
"""Lowers the values of joint actions if it can, and returns whether it has."""
Queue = list[tuple[float, int, int, PartialRule]]
"""A heap of (-bound, -length, ticket, partial rule).

Among equal bounds the longest rule comes first, or ties would be searched breadth first.
"""


class Rule(NamedTuple):
    """A joint decision rule, with an upper bound on its value."""

    bound: float
    decisions: Decisions
    actions: JointActions


class BayesianGame:
    """A collaborative Bayesian game: the choice of a joint decision rule in an occupancy state.

    `values[j, a0, a1, ...]` are the values, or upper bounds on them, of joint actions in joint histories.
    """

    def __init__(
        self,
        occupancy: OccupancyState,
        values: Float[np.ndarray, "J *A"],
        allowed: Allowed,
        lone: LoneChoices | None,
    ) -> None:
        self.occupancy, self.values, self.allowed, self.lone = occupancy, values, allowed, lone
        self.sizes = values.shape[1:]
        self.left = -np.inf
        """An upper bound on the rules that were not tried, if the search was stopped."""

    def rules(
        self,
        floor: Callable[[], float],
        refine: Refine | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Rule]:
        """The rules whose bound is above the floor, best first; the floor may rise meanwhile.

        The first rule in the queue is passed to `refine`. If that lowers its values, the rule goes back into
        the queue. After `stop` there are no more rules, and `left` bounds those that were left out.
        """
        if len(self.occupancy.histories) == 1:
            yield from self._single(floor, refine, stop)
            return
        partial, ticket = self._bounds(), count()
        queue: Queue = [(-partial.whole(), 0, next(ticket), ())]
        while queue:
            negative, depth, _, chosen = heappop(queue)
            bound = -negative
            if bound <= floor():
                return
            if stop():
                self.left = bound
                return
            if -depth < len(partial.order):
                useful = [(option, limit) for option, limit in partial.extended(chosen) if limit > floor()]
                for option, limit in useful:
                    heappush(queue, (-min(limit, bound), depth - 1, next(ticket), (*chosen, option)))
                continue
            limit = partial.bound(chosen)
            if limit > bound - EPSILON:
                rule = self._rule(bound, partial.complete(chosen))
                if refine is None or not refine(rule.actions):
                    yield rule
                    continue
                partial.update()
                limit = partial.bound(chosen)
            heappush(queue, (-min(limit, bound), depth, next(ticket), chosen))

    def _rule(self, bound: float, decisions: Decisions) -> Rule:
        return Rule(bound, decisions, joint_actions(self.occupancy, decisions, self.sizes))

    def _bounds(self) -> PartialRuleBounds:
        if self.lone is None:
            return CoupledBounds(self.occupancy, self.values, self.allowed)
        return SeparableBounds(self.values.reshape(len(self.values), -1), self.lone)

    def _single(
        self, floor: Callable[[], float], refine: Refine | None, stop: Callable[[], bool]
    ) -> Iterator[Rule]:
        """With one joint history, a rule is one joint action."""
        values = self.values.reshape(-1)
        open_ = np.ones(self.sizes, bool)
        for i, table in enumerate(self.allowed):
            open_ &= table[0].reshape([-1 if k == i else 1 for k in range(len(self.sizes))])
        left = open_.reshape(-1)
        while left.any():
            best = int(np.where(left, values, FORBIDDEN).argmax())
            bound = float(values[best])
            if bound <= floor():
                return
            if stop():
                self.left = bound
                return
            if refine is not None and refine(np.array([best])):
                continue
            left[best] = False
            decisions = tuple(np.array([part]) for part in np.unravel_index(best, self.sizes))
            yield Rule(bound, decisions, np.array([best]))
