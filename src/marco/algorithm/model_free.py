"""The baseline: model-free training in the true environment, sample by sample."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marco.algorithm.events import Event
from marco.checks import check_episodes, check_fields
from marco.environments.base import Environment, HostWorld
from marco.evaluation import Estimate, evaluate
from marco.learners.base import Learner
from marco.learners.parallel import (
    check_memory,
    check_seeds_of,
    greedy_all,
    init_all,
    spread,
    stack_seeds,
    train_all,
)
from marco.learners.q_learning import QLearner
from marco.learners.training import TrainingState, train_in_host
from marco.policies.base import Policy
from marco.trees import row_of, stacked


@dataclass(frozen=True)
class ModelFreeConfig:
    """What to train with, and for how long."""

    learner: Learner
    samples: int
    """The budget: real steps per seed. Training stops before an update that could exceed it."""
    evaluate_every: int
    """Samples between two evaluations."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every must be at least 1, got {self.evaluate_every}.")


@dataclass(frozen=True)
class ModelFree:
    """Train every seed on the same number of real steps, and evaluate it on the way."""

    env: Environment | HostWorld
    config: ModelFreeConfig
    seeds: tuple[int, ...]
    test_episodes: int = 1_000

    def check(self) -> None:
        """Refuse what cannot be run, before anything is compiled or played."""
        if self.config.samples < self.most_per_update:
            raise ValueError(
                f"samples={self.config.samples} is less than one update may take "
                f"({self.config.learner.episodes_per_update} episodes of {self.env.spec.horizon} steps): "
                f"give at least {self.most_per_update}, or another preset."
            )
        check_episodes("test_episodes", self.test_episodes)
        check_seeds_of(self.env, self.seeds)
        check_memory((self.config.learner,), self.env.spec, len(self.seeds))

    @property
    def most_per_update(self) -> int:
        """The most samples that one update can take."""
        return self.config.learner.episodes_per_update * self.env.spec.horizon

    def run(self) -> Iterator[tuple[Event, list[Policy]]]:
        """Train; yield an evaluation and the greedy team of every seed, now and then."""
        self.check()
        keys = spread(stacked([jax.random.key(seed) for seed in self.seeds]))
        keys_init, keys_train, keys_test = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
        config = self.config
        state = init_all(keys_init[:, None], config.learner, self.env.spec)
        for target in [*range(config.evaluate_every, config.samples, config.evaluate_every), config.samples]:
            state, metrics = self._train_to(target, keys_train, state)
            if metrics:
                policies = self._policies(state)
                found = [
                    evaluate(self.env, policy, self.test_episodes, key)
                    for key, policy in zip(keys_test, policies, strict=True)
                ]
                yield self._event(state, metrics, found), policies

    def _event(self, state: TrainingState, metrics: dict[str, Any], found: list[Estimate]) -> Event:
        samples = np.asarray(state.samples)[:, 0]
        values = {
            "return": [estimate.mean for estimate in found],
            "standard_error": [estimate.standard_error for estimate in found],
            "training_return": metrics["return"],
            "loss": metrics["loss"],
            "samples": samples.tolist(),
            "updates": np.asarray(state.updates)[:, 0].tolist(),
            "test_steps": [estimate.steps for estimate in found],
        }
        if isinstance(self.config.learner, QLearner):
            epsilon = self.config.learner.epsilon
            values["epsilon"] = [float(epsilon(jnp.int32(count))) for count in samples]
        # Whole updates only: a run can end a little below its budget.
        spent = int(samples.max()) + self.most_per_update > self.config.samples
        progress = 1.0 if spent else float(samples.mean()) / self.config.samples
        return Event("train", 0, int(samples.min()), values, progress)

    def _train_to(
        self, target: int, keys: jax.Array, state: TrainingState
    ) -> tuple[TrainingState, dict[str, list[float]]]:
        """Train as near to `target` samples as whole updates allow; the mean metrics on the way.

        How many samples an update takes is known only afterwards, so this takes shorter and shorter segments.
        """
        weights, segments = [], []
        while (updates := (target - int(np.max(state.samples))) // self.most_per_update) > 0:
            state, metrics = self._train(keys, state, updates)
            weights.append(updates)
            segments.append({name: np.asarray(value)[:, 0] for name, value in metrics.items()})
        if not segments:
            return state, {}
        means = {name: np.average([one[name] for one in segments], 0, weights) for name in segments[0]}
        return state, {name: mean.tolist() for name, mean in means.items()}

    def _train(
        self, keys: jax.Array, state: TrainingState, updates: int
    ) -> tuple[TrainingState, dict[str, jax.Array]]:
        learner = self.config.learner
        if isinstance(self.env, Environment):
            envs = stack_seeds([self.env] * len(self.seeds))
            return train_all(keys[:, None], state, envs, learner, updates)
        only = row_of(row_of(state, 0), 0)
        only, metrics = train_in_host(keys[0], self.env, learner, only, updates)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None, None], (only, metrics))

    def _policies(self, state: TrainingState) -> list[Policy]:
        greedy = jax.tree.map(np.asarray, greedy_all(self.config.learner, state))
        return [
            jax.tree.map(lambda leaf, index=index: jnp.asarray(leaf[index, 0]), greedy)
            for index in range(len(self.seeds))
        ]
