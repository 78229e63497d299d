"""The decision rules to choose from in an occupancy state, and what they lead to."""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from jaxtyping import Float

from marco.tabular.solver.bounds import EPSILON, Stages, best_later
from marco.tabular.solver.occupancy import Histories, Moved, allowed_actions, choosers, move
from marco.tabular.solver.partial_rules import Allowed, Choice, LoneChoices, joint_actions, lone_choices
from marco.tabular.solver.rules import Game, Rule
from marco.tabular.solver.two_steps import TwoSteps, two_steps

Revealed = Callable[[Float[np.ndarray, " M"], int], float]
"""What can be earned from a step on if all share what they saw until then, given what follows a step."""


class Options:
    """The rules to choose from in an occupancy state before the last step, and what they lead to."""

    def __init__(
        self, stages: Stages, histories: Histories, t: int, revealed: Revealed, stop: Callable[[], bool]
    ) -> None:
        self.stages, self.histories, self.t, self.revealed, self.stop = stages, histories, t, revealed, stop
        self.rewards = histories.belief @ stages.R[t]
        self.outcomes = _outcomes(stages, histories)
        self.allowed = allowed_actions(stages, histories)
        self.left = -np.inf
        """What no rule that was not tried is worth more than."""
        self.lone = lone_choices_of(stages, histories, self.allowed)
        self.refined = np.zeros(self.rewards.shape, bool)
        self.rows = np.arange(len(self.rewards))
        self.tried = 0
        # Before the last step but one, the informed bound is what sharing would give.
        self.refines = t + 2 < stages.horizon

    @cached_property
    def worth(self) -> Float[np.ndarray, "J JA"]:
        """A bound on what joint actions in joint histories earn; lowered when it is refined."""
        stages = self.stages
        return self.rewards + best_later(self.outcomes, stages.later[self.t + 1], stages.groups)

    def rules(self, floor: Callable[[], float]) -> Iterator[Rule]:
        """The rules that may be worth more than a floor, which may rise meanwhile."""
        stages, stop = self.stages, self.stop
        refine = self.refine if self.refines else None
        together = self._together()
        if together is None:
            game = Game(self.histories, self.worth.reshape(-1, *stages.actions), self.allowed, self.lone)
            yield from game.rules(floor, refine, stop)
            self.left = game.left
            return
        for bound, chosen in together.rules(floor, stop):
            each = together.lone.complete(chosen)
            actions = joint_actions(self.histories, each, stages.actions)
            if refine is not None:
                refine(actions)
                bound = min(bound, float(self.worth[self.rows, actions].sum()))
            if bound > floor():
                yield Rule(bound, each, actions)
        self.left = together.left

    def _together(self) -> TwoSteps | None:
        """This step and the next, near the end of the horizon."""
        stages = self.stages
        if self.lone is None or self.t + 3 < stages.horizon or len(self.rows) == 1:
            return None
        return two_steps(stages, self.t, self.histories, self.rewards, self.outcomes, self.lone)

    def follow(self, rule: Rule) -> tuple[float, Moved]:
        """What a rule earns now, and the histories after it."""
        reward = float(self.rewards[self.rows, rule.actions].sum())
        return reward, move(self.stages, self.histories, self.outcomes[self.rows, rule.actions])

    def refine(self, actions: Choice) -> bool:
        """Bound what actions lead to as if all histories were shared right afterwards, and only then."""
        if not self.tried and self.stages.horizon <= 5:
            return False  # over few steps, trying the first rule costs less than a tighter bound
        changed = False
        for j in np.flatnonzero(~self.refined[self.rows, actions]):
            action = actions[j]
            self.refined[j, action] = True
            total = self.rewards[j, action] + self.revealed(self.outcomes[j, action], self.t + 1)
            if total < self.worth[j, action] - EPSILON:
                self.worth[j, action] = total
                changed = True
        return changed


def lone_choices_of(stages: Stages, histories: Histories, allowed: Allowed) -> LoneChoices | None:
    """The choices of single agents, if in no joint history the choices of two matter."""
    if len(histories.each) == 1 or not all(stages.has_twins):
        return None
    matters = choosers(stages, (histories.belief > EPSILON).astype(float))
    return lone_choices(histories.each, allowed, matters, histories.belief.sum(1))


def _outcomes(stages: Stages, histories: Histories) -> Float[np.ndarray, "J JA M"]:
    """What follows every joint action in every joint history; impossible states are left out of the sum."""
    possible = np.flatnonzero(histories.belief.any(0))
    if 2 * possible.size > stages.d0.size:
        return np.tensordot(histories.belief, stages.G, 1)
    return np.tensordot(histories.belief[:, possible], stages.G[possible], 1)
