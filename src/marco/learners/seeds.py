"""Many seeds at once: one more vmap, spread over the devices there are, if memory allows."""

import os
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike, Int, Key

from marco.environments.base import Environment, HostWorld
from marco.learners.base import Learner, Metrics
from marco.learners.training import TrainingState, begin, train
from marco.policies.base import RecurrentPolicy
from marco.types import Spec

Tree = TypeVar("Tree")


def seed_keys(seeds: tuple[int, ...]) -> Key[Array, " seeds"]:
    """One key per seed, on the devices that will use them."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds must be different numbers from 0 on, got {list(seeds)}.")
    return spread(jnp.stack([jax.random.key(seed) for seed in seeds]))


def check_one_at_a_time(world: Environment | HostWorld, seeds: tuple[int, ...]) -> None:
    """Refuse several seeds where Python steps the world."""
    if not isinstance(world, Environment) and len(seeds) > 1:
        raise ValueError(
            f"{world.spec.name} is no JAX world and runs one seed at a time, got seeds {list(seeds)}: "
            "start one process per seed."
        )


def spread(tree: Tree) -> Tree:
    """Spread the first axis, the seeds, evenly over as many devices as divide it."""
    seeds = jax.tree.leaves(tree)[0].shape[0]
    devices = jax.devices()
    used = max(count for count in range(1, len(devices) + 1) if seeds % count == 0)
    mesh = Mesh(np.array(devices[:used]), ("seeds",))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("seeds")))


def begin_seeds(keys: Key[Array, " seeds"], learner: Learner, spec: Spec) -> TrainingState:
    """Begin once per seed."""
    return jax.jit(jax.vmap(lambda key: begin(key, learner, spec)))(keys)


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def train_seeds(
    keys: Key[Array, " seeds"],
    env: Environment,
    learner: Learner,
    state: TrainingState,
    updates: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """`train`, for all seeds at once; each goes its own way."""
    over_seeds = jax.vmap(lambda key, one: train(key, env, learner, one, updates))
    return over_seeds(keys, state)


def policy_of_seed(learner: Learner, state: TrainingState, index: int) -> RecurrentPolicy:
    """The greedy team of one of the seeds."""
    # Gathered to one device: evaluation is small, and runs where the host can look at it.
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf[index])), _greedy_teams(learner, state))


@partial(jax.jit, static_argnames="learner")
def _greedy_teams(learner: Learner, state: TrainingState) -> RecurrentPolicy:
    return jax.vmap(lambda one: learner.greedy(one.learner))(state)


def bytes_per_seed(learner: Learner, spec: Spec) -> int:
    """What training one seed takes: the learner's state with its replay, and the work on a batch."""
    state = jax.eval_shape(lambda key: begin(key, learner, spec), jax.random.key(0))
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state) if hasattr(leaf, "size"))
    moment = spec.num_agents * (spec.observation_width + 3 * spec.num_actions) + spec.state_width
    hidden = getattr(learner, "hidden", 64)
    # Forwards and backwards through the network, some twelve arrays of the size of the memory are alive.
    activations = spec.num_agents * (12 * hidden + 4 * spec.num_actions)
    episodes = max(getattr(learner, "batch_size", 0), learner.episodes_per_update)
    return held + 4 * (spec.horizon + 1) * episodes * (moment + activations)


def check_memory(learner: Learner, spec: Spec, seeds: int, available: int | None = None) -> None:
    """Refuse more seeds than fit, before anything is compiled."""
    needed = bytes_per_seed(learner, spec)
    available = memory_available() if available is None else available
    if seeds * needed > available:
        raise ValueError(
            f"{seeds} seeds need about {seeds * needed / 2**30:.1f} GiB, but {available / 2**30:.1f} GiB are "
            f"there: use at most {available // needed} seeds, or a smaller replay or batch."
        )


def memory_available() -> int:
    """The memory of all devices together, or of the machine where the devices are its processors."""
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.devices()]
    if all(limits):
        return int(sum(limit for limit in limits if limit))
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
