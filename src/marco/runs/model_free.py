"""Model-free training in the true world: the baseline, sample by sample."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from marco.environments.base import Environment, FiniteEnvironment, HostWorld
from marco.evaluation import (
    Estimate,
    TooManyHistoriesError,
    exact_value,
    sampled_value,
    sampled_value_in_host,
)
from marco.learners.seeds import (
    begin_seeds,
    check_memory,
    check_one_at_a_time,
    policy_of_seed,
    seed_keys,
    train_seeds,
)
from marco.learners.base import Learner
from marco.policies.base import RecurrentPolicy
from marco.policies.base import Policy
from marco.learners.training import TrainingState, train_in_host

EXACT_LIMIT = 50_000
"""The most histories that an evaluation on the way enumerates; beyond it samples."""


class Evaluation(NamedTuple):
    """Where training stands; lists hold one number per seed."""

    samples: list[int]
    """Real steps learned from."""
    updates: int
    returns: list[float]
    """Greedy return, undiscounted."""
    exact: bool
    """Whether returns are exact, by enumeration, or means over test episodes."""
    test_samples: int
    """Real steps that this evaluation took, counted apart; none if it is exact."""
    training_return: list[float]
    loss: list[float]
    seconds: float
    """Since the start, compilation included."""


@dataclass(frozen=True)
class ModelFree:
    """Train every seed on at most `samples` real steps, and say where it stands every so often.

    Updates are whole: training stops before one that could go over the budget.
    """

    world: Environment | HostWorld
    learner: Learner
    seeds: tuple[int, ...]
    samples: int
    evaluate_every: int
    test_episodes: int = 1_000

    def __post_init__(self) -> None:
        if self.samples < self.most_per_update:
            raise ValueError(
                f"samples={self.samples} is less than one update may take "
                f"({self.learner.episodes_per_update} episodes of {self.world.spec.horizon} steps): "
                f"give at least {self.most_per_update}, or take another preset."
            )
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every must be at least 1, got {self.evaluate_every}.")
        if self.test_episodes < 2:
            raise ValueError(f"test_episodes must be at least 2, got {self.test_episodes}.")
        check_one_at_a_time(self.world, self.seeds)
        check_memory(self.learner, self.world.spec, len(self.seeds))

    @property
    def most_per_update(self) -> int:
        """The most samples that one update can take."""
        return self.learner.episodes_per_update * self.world.spec.horizon

    def run(self) -> Iterator[tuple[Evaluation, list[RecurrentPolicy]]]:
        """Train; at every evaluation say where it stands, with the greedy team of each seed."""
        start = time.perf_counter()
        keys = jax.vmap(lambda key: jax.random.split(key, 3))(seed_keys(self.seeds))
        state = begin_seeds(keys[:, 0], self.learner, self.world.spec)
        for target in [*range(self.evaluate_every, self.samples, self.evaluate_every), self.samples]:
            state, metrics = self._train_to(target, keys[:, 1], state)
            if not metrics:
                continue
            policies = [policy_of_seed(self.learner, state, index) for index in range(len(self.seeds))]
            estimates = self._judge(keys[:, 2], policies)
            evaluation = Evaluation(
                samples=[int(count) for count in np.asarray(state.samples)],
                updates=int(np.max(state.updates)),
                returns=[estimate.mean for estimate in estimates],
                exact=not any(estimate.episodes for estimate in estimates),
                test_samples=sum(estimate.steps for estimate in estimates),
                training_return=metrics["return"],
                loss=metrics["loss"],
                seconds=time.perf_counter() - start,
            )
            yield evaluation, policies

    def _train_to(
        self, target: int, keys: jax.Array, state: TrainingState
    ) -> tuple[TrainingState, dict[str, list[float]]]:
        """Train as near to `target` samples as whole updates allow; the means of what was seen on the way.

        How many samples an update takes is known only afterwards: so in shorter and shorter pieces.
        """
        weights, pieces = [], []
        while (updates := (target - int(np.max(state.samples))) // self.most_per_update) > 0:
            state, metrics = self._train(keys, state, updates)
            weights.append(updates)
            pieces.append({name: np.asarray(value) for name, value in metrics.items()})
        if not pieces:
            return state, {}
        means = {name: np.average([piece[name] for piece in pieces], 0, weights) for name in pieces[0]}
        return state, {name: mean.tolist() for name, mean in means.items()}

    def _train(
        self, keys: jax.Array, state: TrainingState, updates: int
    ) -> tuple[TrainingState, dict[str, jax.Array]]:
        if isinstance(self.world, Environment):
            return train_seeds(keys, self.world, self.learner, state, updates)
        only = jax.tree.map(lambda leaf: leaf[0], state)
        only, metrics = train_in_host(keys[0], self.world, self.learner, only, updates)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (only, metrics))

    def _judge(self, keys: jax.Array, policies: list[RecurrentPolicy]) -> list[Estimate]:
        return [
            judge(key, self.world, policy, self.test_episodes)
            for key, policy in zip(keys, policies, strict=True)
        ]


def judge(key: jax.Array, world: Environment | HostWorld, policy: Policy, episodes: int) -> Estimate:
    """What a team is worth: exactly where that can be had within reason, else over test episodes."""
    if isinstance(world, FiniteEnvironment):
        try:
            return Estimate(exact_value(world, policy, EXACT_LIMIT), 0.0, 0, 0)
        except TooManyHistoriesError:
            pass
    if isinstance(world, Environment):
        return sampled_value(key, world, policy, episodes)
    return sampled_value_in_host(key, world, policy, episodes)
