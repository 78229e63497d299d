"""Model-free training in the true world: the baseline, sample by sample."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from marco.environments.environment import Environment, FiniteEnvironment
from marco.evaluation import exact_value, sampled_value
from marco.experiments.seeds import (
    begin_seeds,
    check_memory,
    policy_of_seed,
    seed_keys,
    train_seeds,
)
from marco.learners.learner import Learner
from marco.rollout import Policy
from marco.training import TrainingState

EXACT_LIMIT = 50_000
"""The most histories that an evaluation on the way enumerates; beyond it samples."""


class Evaluation(NamedTuple):
    """Where training stands, one number per seed."""

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


def model_free(
    env: Environment[Any],
    learner: Learner,
    seeds: tuple[int, ...],
    samples: int,
    evaluate_every: int,
    test_episodes: int = 1_000,
) -> Iterator[tuple[Evaluation, TrainingState]]:
    """Train every seed on at most `samples` real steps, and say where it stands every so often.

    Updates are whole: training stops before one that could go over the budget.
    """
    worst = learner.episodes_per_update * env.spec.horizon
    if samples < worst:
        raise ValueError(
            f"samples={samples} is less than one update may take ({learner.episodes_per_update} episodes of "
            f"{env.spec.horizon} steps): give at least {worst}."
        )
    check_memory(learner, env.spec, len(seeds))
    start = time.perf_counter()
    keys = jax.vmap(lambda key: jax.random.split(key, 3))(seed_keys(seeds))
    state = begin_seeds(keys[:, 0], learner, env.spec)
    for target in [*range(evaluate_every, samples, evaluate_every), samples]:
        state, metrics = _train_to(target, keys[:, 1], env, learner, state)
        if not metrics:
            continue
        returns, exact, spent = _evaluate(keys[:, 2], env, learner, state, test_episodes)
        evaluation = Evaluation(
            samples=[int(count) for count in np.asarray(state.samples)],
            updates=int(np.max(state.updates)),
            returns=returns,
            exact=exact,
            test_samples=spent,
            training_return=metrics["return"],
            loss=metrics["loss"],
            seconds=time.perf_counter() - start,
        )
        yield evaluation, state


def _train_to(
    target: int, keys: jax.Array, env: Environment[Any], learner: Learner, state: TrainingState
) -> tuple[TrainingState, dict[str, list[float]]]:
    """Train as near to `target` samples as whole updates allow; the means of what was seen on the way.

    How many samples an update takes is known only afterwards, so it is done in shorter and shorter pieces.
    """
    worst = learner.episodes_per_update * env.spec.horizon
    weights, pieces = [], []
    while (updates := (target - int(np.max(state.samples))) // worst) > 0:
        state, metrics = train_seeds(keys, env, learner, state, updates)
        weights.append(updates)
        pieces.append({name: np.asarray(value) for name, value in metrics.items()})
    if not pieces:
        return state, {}
    means = {name: np.average([piece[name] for piece in pieces], 0, weights) for name in pieces[0]}
    return state, {name: mean.tolist() for name, mean in means.items()}


def _evaluate(
    keys: jax.Array, env: Environment[Any], learner: Learner, state: TrainingState, episodes: int
) -> tuple[list[float], bool, int]:
    policies = [policy_of_seed(learner, state, index) for index in range(len(keys))]
    exact = exact_values(env, policies)
    if exact is not None:
        return exact, True, 0
    estimates = [
        sampled_value(key, env, policy, episodes) for key, policy in zip(keys, policies, strict=True)
    ]
    return [estimate.mean for estimate in estimates], False, sum(estimate.steps for estimate in estimates)


def exact_values(env: Environment[Any], policies: list[Policy]) -> list[float] | None:
    """Exact values, where the world's chance can be enumerated within reason."""
    if not isinstance(env, FiniteEnvironment):
        return None
    try:
        return [exact_value(env, policy, EXACT_LIMIT) for policy in policies]
    except ValueError:
        return None
