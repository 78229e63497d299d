"""The joint decision rules in an occupancy state, and the occupancy states that they lead to."""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from jaxtyping import Float

from marco.tabular.solver.bounds import EPSILON, Stages, best_later
from marco.tabular.solver.occupancy import Moved, OccupancyState, allowed_actions, choosers, move
from marco.tabular.solver.partial_rules import Allowed, JointActions, LoneChoices, joint_actions, lone_choices
from marco.tabular.solver.rules import BayesianGame, Rule
from marco.tabular.solver.two_steps import TwoSteps, two_steps

Revealed = Callable[[Float[np.ndarray, " M"], int], float]
"""The best value from a step on, given outcome probabilities, if all agents share their histories once."""


class Options:
    """The joint decision rules in an occupancy state before the last step, with bounds and successors."""

    def __init__(
        self, stages: Stages, occupancy: OccupancyState, t: int, revealed: Revealed, stop: Callable[[], bool]
    ) -> None:
        self.stages, self.occupancy, self.t, self.revealed, self.stop = stages, occupancy, t, revealed, stop
        self.rewards = occupancy.belief @ stages.R[t]
        self.outcomes = _outcomes(stages, occupancy)
        self.allowed = allowed_actions(stages, occupancy)
        self.left = -np.inf
        """An upper bound on the rules that were not tried."""
        self.lone = lone_choices_of(stages, occupancy, self.allowed)
        self.refined = np.zeros(self.rewards.shape, bool)
        self.rows = np.arange(len(self.rewards))
        self.tried = 0
        # At the last step but one, the fast informed bound already equals the refined one.
        self.refines = t + 2 < stages.horizon

    @cached_property
    def values(self) -> Float[np.ndarray, "J JA"]:
        """Upper bounds on the values of joint actions in joint histories; `refine` lowers them."""
        stages = self.stages
        return self.rewards + best_later(self.outcomes, stages.future_bounds[self.t + 1], stages.offsets)

    def rules(self, floor: Callable[[], float]) -> Iterator[Rule]:
        """The rules whose bound is above the floor, which may rise meanwhile."""
        stages, stop = self.stages, self.stop
        refine = self.refine if self.refines else None
        together = self._together()
        if together is None:
            game = BayesianGame(
                self.occupancy, self.values.reshape(-1, *stages.num_actions), self.allowed, self.lone
            )
            yield from game.rules(floor, refine, stop)
            self.left = game.left
            return
        for bound, chosen in together.rules(floor, stop):
            decisions = together.lone.complete(chosen)
            actions = joint_actions(self.occupancy, decisions, stages.num_actions)
            if refine is not None:
                refine(actions)
                bound = min(bound, float(self.values[self.rows, actions].sum()))
            if bound > floor():
                yield Rule(bound, decisions, actions)
        self.left = together.left

    def _together(self) -> TwoSteps | None:
        """This step and the next planned together, near the end of the horizon."""
        stages = self.stages
        if self.lone is None or self.t + 3 < stages.horizon or len(self.rows) == 1:
            return None
        return two_steps(stages, self.t, self.occupancy, self.rewards, self.outcomes, self.lone)

    def follow(self, rule: Rule) -> tuple[float, Moved]:
        """The expected reward of a rule now, and the occupancy state after it."""
        reward = float(self.rewards[self.rows, rule.actions].sum())
        return reward, move(self.stages, self.occupancy, self.outcomes[self.rows, rule.actions])

    def refine(self, actions: JointActions) -> bool:
        """Tighten the bounds of actions: as if agents shared their histories once, after this step."""
        if not self.tried and self.stages.horizon <= 5:
            return False  # over few steps, trying the first rule is cheaper than a tighter bound
        changed = False
        for j in np.flatnonzero(~self.refined[self.rows, actions]):
            if self.stop():
                break
            action = actions[j]
            self.refined[j, action] = True
            total = self.rewards[j, action] + self.revealed(self.outcomes[j, action], self.t + 1)
            if total < self.values[j, action] - EPSILON:
                self.values[j, action] = total
                changed = True
        return changed


def lone_choices_of(stages: Stages, occupancy: OccupancyState, allowed: Allowed) -> LoneChoices | None:
    """The choices of single agents, if in no joint history the actions of two make a difference."""
    if len(occupancy.histories) == 1 or not all(stages.has_twins):
        return None
    matters = choosers(stages, (occupancy.belief > EPSILON).astype(float))
    return lone_choices(occupancy.histories, allowed, matters, occupancy.belief.sum(1))


def _outcomes(stages: Stages, occupancy: OccupancyState) -> Float[np.ndarray, "J JA M"]:
    """Outcome probabilities of joint actions in joint histories; sums skip states that are impossible."""
    possible = np.flatnonzero(occupancy.belief.any(0))
    if 2 * possible.size > stages.d0.size:
        return np.tensordot(occupancy.belief, stages.G, 1)
    return np.tensordot(occupancy.belief[:, possible], stages.G[possible], 1)
