"""Two steps at once, where in every joint history the choice of at most one agent matters.

What is earned is then a sum of terms, each of one place now and one place at the next step; what comes after
the two steps is bounded, or nothing. To take every term at its best is a loose bound, as a place has one
action for all its terms. So worth is shifted between terms, which changes no sum, until they agree on what is
best (max-sum diffusion, Werner 2007). Often the bound is then reached; a search over the places does the
rest.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from marco.tabular.solver.bounds import EPSILON, Stages, best_later
from marco.tabular.solver.occupancy import Histories, choosers, distinct_actions
from marco.tabular.solver.partial_rules import Chosen, LoneChoices, lone_choices

ROUNDS = 30
"""Shifts after which the bound is taken as it is."""
LITTLE = 1e-7
"""Shifts that lower the bound by less are the last."""


class Terms(NamedTuple):
    """One for each two places that meet: an option of the first, one of the second."""

    first: Int[np.ndarray, " E"]
    second: Int[np.ndarray, " E"]
    worth: Float[np.ndarray, "E W V"]


def two_steps(
    stages: Stages,
    t: int,
    histories: Histories,
    rewards: Float[np.ndarray, "J JA"],
    outcomes: Float[np.ndarray, "J JA M"],
    lone: LoneChoices,
) -> "TwoSteps | None":
    """None where two agents have a choice at the next step, and where nothing follows any more."""
    rows = np.arange(len(outcomes))[:, None]
    terms = _terms(stages, t, histories, outcomes[rows, lone.columns], lone)
    return None if terms is None else TwoSteps(lone, lone.summed(rewards), terms)


class TwoSteps:
    """A search over the rules of a step, by what it and the next one earn."""

    def __init__(self, lone: LoneChoices, rewards: Float[np.ndarray, "P W"], terms: Terms) -> None:
        self.lone, self.rewards, self.terms = lone, rewards, terms
        self.of_first = (np.arange(len(rewards))[:, None] == terms.first).astype(float)
        self.of_second = (np.arange(terms.second.max(initial=0) + 1)[:, None] == terms.second).astype(float)
        self.left = -np.inf
        """What no rule earns more than, if the search was stopped."""

    def rules(self, floor: Callable[[], float], stop: Callable[[], bool]) -> Iterator[tuple[float, Chosen]]:
        """Rules with their bounds, as long as these are above the floor, which may rise meanwhile."""
        worth, table = self._shifted(floor())
        tops = table.max(1)
        if tops.sum() <= floor():
            return
        self.floor, self.stop = floor, stop
        self.rest = np.append(np.cumsum(tops[::-1])[::-1], 0.0).tolist()
        # What a place adds to the places of the next step, and what to nobody but itself.
        self.adds = np.zeros((*table.shape, len(self.of_second), worth.shape[2]))
        self.adds[self.terms.first, :, self.terms.second] = worth
        self.own = table - self.adds.max(3).sum(2)
        yield from self._descend((), 0.0, np.zeros(self.adds.shape[2:]))

    def _descend(
        self, chosen: Chosen, own: float, then: Float[np.ndarray, "Q V"]
    ) -> Iterator[tuple[float, Chosen]]:
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

    def _shifted(self, floor: float) -> tuple[Float[np.ndarray, "E W V"], Float[np.ndarray, "P W"]]:
        """The terms once they agree, and a bound on what the options of the first places earn."""
        worth, first, second = self.terms.worth.copy(), self.terms.first, self.terms.second
        number = self.of_first.sum(1), self.of_second.sum(1)
        alone = np.where(number[0][:, None] == 0.0, self.rewards, 0.0)
        worth += (self.rewards / np.maximum(number[0], 1.0)[:, None])[first][:, :, None]
        before = np.inf
        for _ in range(ROUNDS):
            best = worth.max(2)
            table = self.of_first @ best + alone
            bound = table.max(1).sum()
            if bound <= floor or bound > before - LITTLE:
                break
            before = bound
            worth += ((table / np.maximum(number[0], 1.0)[:, None])[first] - best)[:, :, None]
            best = worth.max(1)
            worth += ((self.of_second @ best / np.maximum(number[1], 1.0)[:, None])[second] - best)[
                :, None, :
            ]
        return worth, table


def _terms(
    stages: Stages, t: int, histories: Histories, outcomes: Float[np.ndarray, "J W M"], lone: LoneChoices
) -> Terms | None:
    """What can be earned from the next step on, by the places now and the places then."""
    row, outcome = np.nonzero((outcomes > EPSILON).any(1))
    if not row.size:
        return None
    group, following = stages.group[outcome], stages.following[outcome]
    each = histories.each[row] * np.array(stages.observations) + stages.shown[group]
    allowed = []
    for agent, (size, shows) in enumerate(zip(histories.sizes, stages.observations, strict=True)):
        support = np.zeros((size * shows, stages.d0.size))
        support[each[:, agent], following] = 1.0
        allowed.append(distinct_actions(stages, agent, support))
        allowed[-1][support.sum(1) == 0.0, 1:] = False
    # Outcomes that show the same after the same joint history make one belief.
    pairs, first, pair = np.unique(row * len(stages.shown) + group, return_index=True, return_inverse=True)
    belief = np.zeros((len(pairs), outcomes.shape[1], stages.d0.size))
    belief[pair.ravel(), :, following] = outcomes[row, :, outcome]
    matters = choosers(stages, (belief > EPSILON).any(1).astype(float))
    then = lone_choices(each[first], tuple(allowed), matters, belief.sum((1, 2)))
    if then is None:
        return None
    worth = belief @ stages.R[t + 1].T[then.columns].transpose(0, 2, 1)
    if t + 2 < stages.horizon:
        worth = worth + _beyond(stages, t, belief, then.columns)
    meeting = lone.place[row[first]] * len(then.options) + then.place
    distinct, term = np.unique(meeting, return_inverse=True)
    summed = np.zeros((len(distinct), *worth.shape[1:]))
    np.add.at(summed, term.ravel(), worth)
    return Terms(distinct // len(then.options), distinct % len(then.options), summed)


def _beyond(
    stages: Stages, t: int, belief: Float[np.ndarray, "X W S"], columns: Int[np.ndarray, "X V"]
) -> Float[np.ndarray, "X W V"]:
    """A bound on what is earned after the two steps."""
    spread = stages.G.transpose(1, 0, 2)[columns].transpose(0, 2, 1, 3)
    outcomes = belief @ spread.reshape(len(belief), belief.shape[2], -1)
    shaped = outcomes.reshape(*belief.shape[:2], columns.shape[1], -1)
    return best_later(shaped, stages.later[t + 2], stages.groups)
