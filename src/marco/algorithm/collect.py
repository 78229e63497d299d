"""Collecting: who acts in the true world, and for how many steps."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from marco.algorithm.config import Collector, MarcoConfig
from marco.algorithm.exploration import StateAsObservation
from marco.algorithm.vectorised import play_batch
from marco.environments.base import Environment, HostWorld
from marco.learners.training import TrainingState
from marco.model.views import ViewedPolicy
from marco.policies.base import EpsilonGreedy, Policy, RandomPolicy
from marco.rollout import play
from marco.types import Episode, Spec


def collectors(
    who: Collector, settings: MarcoConfig, spec: Spec, teams: TrainingState, explorers: TrainingState
) -> Policy:
    """Who collects for each seed, with a share of random actions: pi_phi, the team, or chance."""
    epsilon = jnp.full(teams.samples.shape, settings.epsilon)

    def one(team: TrainingState, explorer: TrainingState, epsilon: Array) -> Policy:
        match who:
            case "random":
                return EpsilonGreedy(RandomPolicy(), epsilon)
            case "team":
                return EpsilonGreedy(settings.team.greedy(team.learner), epsilon)
            case "explorer":
                seeing = StateAsObservation(
                    EpsilonGreedy(settings.explorer.greedy(explorer.learner), epsilon)
                )
                return ViewedPolicy(seeing, settings.kind, spec)

    return jax.vmap(one)(teams, explorers, epsilon)


def play_missing(
    keys: Key[Array, " seeds"],
    world: Environment | HostWorld,
    policies: Policy,
    missing: Int[np.ndarray, " seeds"],
    chunk: int,
) -> Episode:
    """A batch of real episodes (axes seeds T B), of no more steps than are missing."""
    if isinstance(world, Environment):
        limits = [limits_of_batch(int(count), chunk, world.spec) for count in missing]
        return play_batch(keys, world, policies, jnp.asarray(np.stack(limits)))
    alone = jax.tree.map(lambda leaf: leaf[0], policies)
    episode = play(keys[0], world, alone, limit=int(missing[0]))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None, :, None], episode)


def limits_of_batch(missing: int, chunk: int, spec: Spec) -> Int[np.ndarray, " B"]:
    """How many steps each episode of a batch may take, so that all together take no more than are missing."""
    width = max(1, chunk // spec.horizon)
    whole = min(width, missing // spec.horizon)
    limits = np.where(np.arange(width) < whole, spec.horizon, 0)
    if whole == 0:
        limits[0] = max(missing, 0)
    return limits.astype(np.int32)
