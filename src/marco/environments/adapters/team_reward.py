"""The team's reward from those of its agents, and whether these are a team at all."""

import numpy as np
from jaxtyping import Float

from marco.environments.adapters.common import RewardRule
from marco.environments.user_code import warn

CORRELATION, DOUBT = -0.2, 4.0
"""Rewards below this correlation are those of opponents, if it is so many standard errors from 0."""
INDEPENDENT = 4
"""How many steps of an episode count as independent, at most: places and rewards change slowly."""


class TeamReward:
    """The mean or the sum of the agents' rewards, or one agent's; says once if agents seem to compete.

    PettingZoo has both teams and opponents, and nothing in an environment says which it is. Only here are the
    agents' rewards known one by one.
    """

    def __init__(self, name: str, agents: tuple[str, ...], rule: RewardRule) -> None:
        self._name, self._agents, self._rule = name, agents, rule
        self._said = rule in agents
        self._steps, self._episodes, count = 0, 0, len(agents)
        self._sums, self._products = np.zeros(count), np.zeros((count, count))
        self._opposed = np.zeros((count, count), int)

    def __call__(self, rewards: list[float]) -> float:
        """The team's reward of one step; absent agents have 0."""
        if not self._said:
            self._add(np.array(rewards))
        if self._rule in ("mean", "sum"):
            return float(sum(rewards)) / (len(rewards) if self._rule == "mean" else 1)
        return rewards[self._agents.index(self._rule)]

    def judge(self) -> None:
        """Say, at the end of an episode, if two agents were paid with opposite signs or inversely so far."""
        self._episodes += 1
        if self._said or self._steps < 2:
            return
        means = self._sums / self._steps
        covariance = self._products / self._steps - np.outer(means, means)
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = np.outer(spread, spread)
        constant = scale <= 1e-12 * (1.0 + np.outer(abs(means), abs(means)))
        correlation = np.where(constant, 0.0, covariance / np.where(constant, 1.0, scale))
        independent = min(self._steps, INDEPENDENT * self._episodes)
        unlike = correlation < min(CORRELATION, -DOUBT / np.sqrt(independent))
        suspects = unlike | ((self._opposed > 0) & (correlation <= 0.0))
        if not suspects.any():
            return
        self._said = True
        # Those who were opposed most often, and of these the least alike.
        score = np.where(suspects, self._opposed - correlation, -np.inf)
        one, other = (self._agents[index] for index in np.unravel_index(np.argmax(score), score.shape))
        at = self._agents.index(one), self._agents.index(other)
        opposed = f"in {self._opposed[at]} of {self._steps} steps one gained as the other lost"
        alike = "their rewards never changed" if constant[at] else f"correlation {correlation[at]:+.2f}"
        warn(
            f"{self._name}: agents {one!r} and {other!r} seem to compete: {opposed}, {alike}. MARCO trains "
            f"one team on the {self._rule} of all rewards, which means little for opponents: make them part "
            f"of the environment, or choose the agent whose reward counts: reward={one!r} (--reward {one})."
        )

    def _add(self, rewards: Float[np.ndarray, " N"]) -> None:
        self._steps += 1
        self._sums += rewards
        self._products += np.outer(rewards, rewards)
        against = np.outer(rewards > 0.0, rewards < 0.0)
        self._opposed += against | against.T
