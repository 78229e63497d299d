"""Two steps planned together, where in every joint history the action of at most one agent matters.

The value is then a sum of terms, each of one place now and one place at the next step; what comes after the
two steps is bounded, or nothing. The sum of the terms' maxima is a loose bound, as a place has one action for
all its terms. So value is shifted between terms, which changes no sum, until they agree on the best actions
(max-sum diffusion, Werner 2007). Often the bound is then attained; a search over the places does the rest.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from marco.tabular.solver.bounds import EPSILON, Stages, best_later
from marco.tabular.solver.limits import NUMBERS, Stop
from marco.tabular.solver.occupancy import OccupancyState, choosers, distinct_actions
from marco.tabular.solver.partial_rules import LoneChoices, PartialRule, lone_choices

ROUNDS = 30
"""The most rounds of shifts."""
LITTLE = 1e-7
"""A round that lowers the bound by less is the last."""


class Terms(NamedTuple):
    """The terms of the sum: one for each place now and place at the next step that occur together."""

    first: Int[np.ndarray, " E"]
    second: Int[np.ndarray, " E"]
    values: Float[np.ndarray, "E W V"]
    """By the options of the first place and of the second."""

    def numbers(self, places: int) -> int:
        """The size of the largest table of `TwoSteps`, with so many places now."""
        later = int(self.second.max(initial=0)) + 1
        return max(places * later * self.values[0].size, (places + later) * len(self.first))


def two_steps(
    stages: Stages,
    t: int,
    occupancy: OccupancyState,
    rewards: Float[np.ndarray, "J JA"],
    outcomes: Float[np.ndarray, "J JA M"],
    lone: LoneChoices,
) -> "TwoSteps | None":
    """None if two agents have a choice at the next step, if no outcome follows, or if there are too many."""
    rows = np.arange(len(outcomes))[:, None]
    terms = _terms(stages, t, occupancy, outcomes[rows, lone.columns], lone)
    if terms is None or terms.numbers(len(lone.options)) > NUMBERS:
        return None
    return TwoSteps(lone, lone.summed(rewards), terms)


class TwoSteps:
    """A search over the rules of a step, by the value of it and the next one."""

    def __init__(self, lone: LoneChoices, rewards: Float[np.ndarray, "P W"], terms: Terms) -> None:
        self.lone, self.rewards, self.terms = lone, rewards, terms
        self.of_first = (np.arange(len(rewards))[:, None] == terms.first).astype(float)
        self.of_second = (np.arange(terms.second.max(initial=0) + 1)[:, None] == terms.second).astype(float)
        self.left = -np.inf
        """An upper bound on the rules that were not tried, if the search was stopped."""

    def rules(self, floor: Callable[[], float], stop: Stop) -> Iterator[tuple[float, PartialRule]]:
        """Rules with their bounds, as long as these are above the floor, which may rise meanwhile."""
        values, table = self._shifted(floor(), stop)
        tops = table.max(1)
        if tops.sum() <= floor():
            return
        self.floor, self.stop = floor, stop
        self.rest = np.append(np.cumsum(tops[::-1])[::-1], 0.0).tolist()
        # What the options of a place add to the places of the next step, and what they add by themselves.
        self.adds = np.zeros((*table.shape, len(self.of_second), values.shape[2]))
        self.adds[self.terms.first, :, self.terms.second] = values
        self.own = table - self.adds.max(3).sum(2)
        yield from self._descend((), 0.0, np.zeros(self.adds.shape[2:]))

    def _descend(
        self, chosen: PartialRule, own: float, then: Float[np.ndarray, "Q V"]
    ) -> Iterator[tuple[float, PartialRule]]:
        """Try the options of the next place, the most promising first."""
        place = len(chosen)
        if place == len(self.lone.options):
            yield own + float(then.max(1).sum()), chosen
            return
        after = then + self.adds[place, : len(self.lone.options[place])]
        bounds = self.own[place, : len(after)] + after.max(2).sum(1) + (own + self.rest[place + 1])
        for option in np.argsort(-bounds).tolist():
            if bounds[option] <= self.floor():
                return
            if self.stop():
                self.left = max(self.left, float(bounds[option]))
                return
            yield from self._descend((*chosen, option), own + float(self.own[place, option]), after[option])

    def _shifted(
        self, floor: float, stop: Stop
    ) -> tuple[Float[np.ndarray, "E W V"], Float[np.ndarray, "P W"]]:
        """The terms after the shifts, and bounds for the options of the first places."""
        values, first, second = self.terms.values.copy(), self.terms.first, self.terms.second
        number = self.of_first.sum(1), self.of_second.sum(1)
        alone = np.where(number[0][:, None] == 0.0, self.rewards, 0.0)
        values += (self.rewards / np.maximum(number[0], 1.0)[:, None])[first][:, :, None]
        before = np.inf
        for _ in range(ROUNDS):
            best = values.max(2)
            table = self.of_first @ best + alone
            bound = table.max(1).sum()
            if bound <= floor or bound > before - LITTLE or stop():
                break
            before = bound
            values += ((table / np.maximum(number[0], 1.0)[:, None])[first] - best)[:, :, None]
            best = values.max(1)
            values += ((self.of_second @ best / np.maximum(number[1], 1.0)[:, None])[second] - best)[
                :, None, :
            ]
        return values, table


def _terms(
    stages: Stages, t: int, occupancy: OccupancyState, outcomes: Float[np.ndarray, "J W M"], lone: LoneChoices
) -> Terms | None:
    """Values from the next step on, by the places now and the places then."""
    row, outcome = np.nonzero((outcomes > EPSILON).any(1))
    if not row.size:
        return None
    group, next_state = stages.group[outcome], stages.next_state[outcome]
    histories = (
        occupancy.histories[row] * np.array(stages.num_observations) + stages.agent_observations[group]
    )
    allowed = []
    for agent, (size, width) in enumerate(zip(occupancy.num_histories, stages.num_observations, strict=True)):
        support = np.zeros((size * width, stages.d0.size))
        support[histories[:, agent], next_state] = 1.0
        allowed.append(distinct_actions(stages, agent, support))
        allowed[-1][support.sum(1) == 0.0, 1:] = False
    # Outcomes with the same joint observation after the same joint history make one belief.
    pairs, first, pair = np.unique(
        row * len(stages.agent_observations) + group, return_index=True, return_inverse=True
    )
    belief = np.zeros((len(pairs), outcomes.shape[1], stages.d0.size))
    belief[pair.ravel(), :, next_state] = outcomes[row, :, outcome]
    matters = choosers(stages, (belief > EPSILON).any(1).astype(float))
    then = lone_choices(histories[first], tuple(allowed), matters, belief.sum((1, 2)))
    if then is None:
        return None
    values = belief @ stages.R[t + 1].T[then.columns].transpose(0, 2, 1)
    if t + 2 < stages.horizon:
        values = values + _beyond(stages, t, belief, then.columns)
    meeting = lone.place[row[first]] * len(then.options) + then.place
    distinct, term = np.unique(meeting, return_inverse=True)
    summed = np.zeros((len(distinct), *values.shape[1:]))
    np.add.at(summed, term.ravel(), values)
    return Terms(distinct // len(then.options), distinct % len(then.options), summed)


def _beyond(
    stages: Stages, t: int, belief: Float[np.ndarray, "X W S"], columns: Int[np.ndarray, "X V"]
) -> Float[np.ndarray, "X W V"]:
    """An upper bound on the value after the two steps."""
    spread = stages.G.transpose(1, 0, 2)[columns].transpose(0, 2, 1, 3)
    outcomes = belief @ spread.reshape(len(belief), belief.shape[2], -1)
    shaped = outcomes.reshape(*belief.shape[:2], columns.shape[1], -1)
    return best_later(shaped, stages.future_bounds[t + 2], stages.offsets)
