"""Collecting real episodes: who acts, for how many steps, and the metrics of a chunk."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from marco.algorithm.config import Collector, MarcoConfig
from marco.algorithm.exploration import StateAsObservation
from marco.algorithm.fit import of_seeds
from marco.compilation import program
from marco.data.dataset import Dataset
from marco.environments.base import Environment, HostWorld
from marco.environments.user_code import during
from marco.learners.parallel import stack_seeds
from marco.learners.training import TrainingState
from marco.model.environment import ModelEnvironment
from marco.model.rows import pad_rows
from marco.model.uncertainty import BonusName, ObservedSteps, mean_uncertainty
from marco.model.views import View, ViewedPolicy
from marco.policies.base import EpsilonGreedy, Policy, RandomPolicy
from marco.rollout import play, rollout
from marco.simulators.pool import Simulators, Task
from marco.trees import row_of
from marco.types import Episode, Spec

EXACT = 1e-6
"""Values closer than this are the same."""

BROKEN = 0.25
"""A promise is broken by this share of the range of real returns."""


def collectors(
    who: Collector,
    config: MarcoConfig,
    spec: Spec,
    view: View,
    teams: TrainingState,
    explorers: TrainingState,
) -> Policy:
    """The policy that collects for each seed: pi_phi, the team or random play, with some random actions."""
    epsilon = jnp.full(teams.samples.shape, config.epsilon)

    def one(team: TrainingState, explorer: TrainingState, epsilon: Array) -> Policy:
        match who:
            case "random":
                return EpsilonGreedy(RandomPolicy(), epsilon)
            case "team":
                return EpsilonGreedy(config.team.greedy(team.learner), epsilon)
            case "explorer":
                acting = EpsilonGreedy(config.explorer.greedy(explorer.learner), epsilon)
                return ViewedPolicy(StateAsObservation(acting), view, spec)

    return jax.vmap(one)(teams, explorers, epsilon)


def collect_until(
    keys_of: Callable[[int], Key[Array, " S"]],
    env: Environment | HostWorld,
    policies: Policy,
    dataset: Dataset,
    samples: Int[np.ndarray, " S"],
    chunk: int,
) -> Iterator[int]:
    """Collect up to so many samples of each seed; how many there are at least, before every batch.

    `keys_of` gives the keys of a batch or, with simulators, of an episode by its place. A seed that has more
    samples already is not waited for.
    """

    def missing() -> Int[np.ndarray, " S"]:
        return np.maximum(samples - dataset.samples, 0)

    if isinstance(env, Simulators) and missing().any():
        total = int(samples[0])
        yield total - int(missing()[0])
        with closing(
            collect_side_by_side(lambda at: keys_of(at)[0], env, policies, dataset, total)
        ) as played:
            yield from (total - int(left[0]) for _ in played if (left := missing()).any())
        return
    while (left := missing()).any():
        yield int((samples - left)[left > 0].min())
        collect_missing(keys_of(dataset.chunks), env, policies, dataset, left, chunk)


def collect_missing(
    keys: Key[Array, " S"],
    env: Environment | HostWorld,
    policies: Policy,
    dataset: Dataset,
    missing: Int[np.ndarray, " S"],
    chunk: int,
) -> None:
    """Add a batch of real episodes to the dataset, of no more steps than are missing.

    In a host environment it is one episode, kept step by step: those of an episode that breaks off are real.
    """
    if isinstance(env, Environment):
        limits = np.stack([episode_limits(int(count), chunk, env.spec) for count in missing])
        played = _play_batch(keys, env, policies, jnp.asarray(limits))
        # Batches are of one shape, so that they are compiled once; what was not to be played is not kept.
        dataset.append(jax.tree.map(lambda leaf: np.asarray(leaf)[:, :, limits.any(0)], played))
        return
    only, limit = row_of(policies, 0), int(missing[0])
    with during(f"episode {dataset.begun + 1} of the run"), dataset.recording(limit) as record:
        play(keys[0], env, only, limit, record)


def collect_side_by_side(
    key_of: Callable[[int], PRNGKeyArray], env: Simulators, policies: Policy, dataset: Dataset, total: int
) -> Generator[None, None, None]:
    """Fill the dataset up to `total` samples, an episode in each simulator; yields when one is over.

    `key_of` gives the key of an episode by its place. An episode whose simulator fails is played again from
    its start, in its place; what had been played of it is kept apart.
    """
    only = row_of(policies, 0)

    def next_task() -> Task | None:
        if (found := dataset.next_episode(total)) is None:
            return None
        place, limit = found
        what = f"episode {dataset.begun + place - dataset.chunks + 1} of the run"
        key, records = key_of(place), [dataset.begin(place, limit)]

        def play_in(simulator: HostWorld) -> None:
            with during(what):
                play(key, simulator, only, limit, records[-1])

        def again() -> None:
            records.append(dataset.begin_again(place))

        return Task(what, play_in, again, over=partial(dataset.end, place))

    yield from env.side_by_side(next_task)


def episode_limits(missing: int, chunk: int, spec: Spec) -> Int[np.ndarray, " B"]:
    """How many steps each episode of a batch may take, so that all together take no more than are missing."""
    width = max(1, chunk // spec.horizon)
    whole = min(width, missing // spec.horizon)
    limits = np.where(np.arange(width) < whole, spec.horizon, 0)
    if whole == 0:
        limits[0] = max(missing, 0)
    return limits.astype(np.int32)


def compile_collection(env: Environment, config: MarcoConfig, policies: Policy, seeds: int) -> None:
    """Compile what `collect_missing` plays a batch by. Nothing is played."""
    keys = stack_seeds([jax.random.key(0)] * seeds)
    limits = [episode_limits(0, config.chunk, env.spec)] * seeds
    _play_batch.lower(keys, env, policies, jnp.asarray(np.stack(limits))).compile()


@program
def _play_batch(
    keys: Key[Array, " S"], env: Environment, policies: Policy, limits: Int[Array, "S B"]
) -> Episode:
    def one(key: PRNGKeyArray, policy: Policy, limits: Int[Array, " B"]) -> Episode:
        keys = jax.random.split(key, limits.shape[0])
        return jax.vmap(rollout, in_axes=(0, None, None, 0), out_axes=1)(keys, env, policy, limits)

    return jax.vmap(one)(keys, policies, limits)


def chunk_metrics(
    config: MarcoConfig, spec: Spec, view: View, models: ModelEnvironment | None, chunk: list[Episode]
) -> dict[str, list[Any]]:
    """The mean return of each seed's chunk and, if there was a model before it, its mean r-tilde."""
    metrics: dict[str, list[Any]] = {"return": [whole_return(episodes) for episodes in chunk]}
    if models is not None:
        steps = stack_seeds([observed_steps(view, spec, episodes, config.chunk) for episodes in chunk])
        found = uncertainty_of_seeds(models, config.bonus, steps).tolist()
        seen = [bool(np.asarray(episodes.mask).any()) for episodes in chunk]
        metrics["uncertainty"] = [one if any_ else None for one, any_ in zip(found, seen, strict=True)]
    return metrics


def uncertainty_warnings(metrics: dict[str, list[Any]], seeds: Sequence[int]) -> tuple[str, ...]:
    """A line if the members of some seed's model agreed on every step of a chunk."""
    agreed = [
        seed for seed, value in zip(seeds, metrics.get("uncertainty", ()), strict=False) if value == 0.0
    ]
    if not agreed:
        return ()
    return (
        f"the members of the model ({of_seeds(agreed)}) agree on every step that was collected: their "
        "uncertainty is 0, and exploration has nothing to look for.",
    )


def promise_warnings(
    promised: Float[np.ndarray, " S"],
    played: Sequence[Episode | None],
    everything: Sequence[Episode],
    seeds: Sequence[int],
) -> tuple[str, ...]:
    """A line for each seed whose team so far `played` for real far worse than it was `promised` in the model.

    Far is a quarter of the range of all real returns so far, and not by chance.
    """
    found = []
    for seed, promise, own, real in zip(seeds, promised.tolist(), played, everything, strict=True):
        earned, every = np.zeros(0) if own is None else whole_returns(own), whole_returns(real)
        if len(earned) < 2:
            continue
        gap, error = promise - earned.mean(), earned.std() / np.sqrt(len(earned) - 1)
        if gap > BROKEN * (every.max() - every.min()) and gap > 3.0 * error:
            found.append(
                f"the team so far (seed {seed}) was to earn {promise:.4g} in the model and earned "
                f"{earned.mean():.4g} for real: the model is not to be trusted there."
            )
    return tuple(found)


def earns_more(team: Float[np.ndarray, " a"], others: Float[np.ndarray, " b"]) -> bool:
    """Whether the mean of some returns is above that of others by two standard errors of the difference."""
    if min(len(team), len(others)) < 2:
        return False
    squared_error = sum(own.var(ddof=1) / len(own) for own in (team, others))
    return bool(team.mean() - others.mean() > 2.0 * np.sqrt(squared_error))


def promises_more(value: float, earned: Float[np.ndarray, " whole"]) -> bool:
    """Whether a value is above the mean of what was earned, and not by the chance of these few returns.

    As long as no reward was met, the best team is worth nothing, and to follow it is to look for nothing.
    """
    if len(earned) < 2:
        return False
    by_chance = 2.0 * earned.std(ddof=1) / np.sqrt(len(earned))
    return bool(value - earned.mean() > max(by_chance, EXACT))


def whole_return(episodes: Episode) -> float | None:
    """The mean return of the episodes (axes T B) that were not cut off; None if all of them were."""
    returns = whole_returns(episodes)
    return float(returns.mean()) if len(returns) else None


def whole_returns(episodes: Episode) -> Float[np.ndarray, " whole"]:
    """The return of each of the episodes (axes T B) that were not cut off."""
    whole = np.asarray(episodes.terminated | episodes.truncated).any(0)
    return np.asarray(episodes.undiscounted_return)[whole]


def observed_steps(view: View, spec: Spec, episodes: Episode, capacity: int) -> tuple[ObservedSteps, ...]:
    """The steps of episodes (axes T B) as each model observes them. Runs on the host."""
    mask = np.asarray(episodes.mask)
    found = []
    for own in view.episodes(spec, episodes):
        state, observation = np.asarray(own.state), np.asarray(own.observation)
        rows: Any = (state[:-1], own.actions, state[1:], observation[1:], mask)
        found.append(ObservedSteps(*(pad_rows(np.asarray(leaf)[mask], capacity) for leaf in rows)))
    return tuple(found)


@partial(program, static_argnames="bonus")
def uncertainty_of_seeds(
    models: ModelEnvironment, bonus: BonusName, steps: tuple[ObservedSteps, ...]
) -> Float[Array, " S"]:
    """The mean r-tilde of real steps under each seed's models."""
    return jax.vmap(lambda env, rows: mean_uncertainty(env.models, bonus, rows))(models, steps)
