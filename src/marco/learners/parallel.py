"""Many trainings in one program: seeds (axis S), and restarts of each seed (axis R).

Each seed has its own environment, which its restarts share. Seeds are spread over the devices there are; on a
CPU, whose cores one program does not fill, programs run side by side in threads.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike, Float, Int, Key

from marco.checks import check_seeds, cores, gib, machine_memory
from marco.compilation import program, program_of_one_core
from marco.data.replay import Buffer
from marco.environments.base import Environment, HostWorld
from marco.learners.base import Learner, Metrics, TakesUnits
from marco.learners.training import TrainingState, init, train, train_on, train_until
from marco.policies.base import Policy
from marco.rollout import rollouts_by_member
from marco.trees import stacked
from marco.types import Spec
from marco.units import Units

Tree = TypeVar("Tree")
Item = TypeVar("Item")

EVALUATION_EPISODES = 4_096
"""Imagined episodes by which teams are compared: the standard error of a return in [-1, 1] is below 0.016."""


def check_seeds_of(env: Environment | HostWorld, seeds: tuple[int, ...]) -> None:
    """Refuse equal seeds, and several seeds in an environment that Python steps."""
    check_seeds(seeds)
    if len(seeds) > 1 and not isinstance(env, Environment):
        raise ValueError(
            f"{env.spec.name} is no JAX environment and runs one seed at a time, got seeds {list(seeds)}: "
            "start one process per seed."
        )


def spread(tree: Tree) -> Tree:
    """Spread the first axis, the seeds, evenly over as many devices as divide it."""
    leaves, devices = jax.tree.leaves(tree), jax.devices()
    if not leaves or len(devices) == 1:
        return tree
    used = max(count for count in range(1, len(devices) + 1) if leaves[0].shape[0] % count == 0)
    mesh = Mesh(np.array(devices[:used]), ("seeds",))
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("seeds")))


def stack_seeds(trees: Sequence[Any]) -> Any:
    """Stack one tree per seed along a new first axis, spread over the devices."""
    return spread(stacked(trees))


def each(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap` over the first axis; an axis of one is taken off instead.

    On a CPU products of a batch of one are not compiled as well as plain ones.
    """

    def apply(*arguments: Any) -> Any:
        if jax.tree.leaves(arguments)[0].shape[0] > 1:
            return jax.vmap(function)(*arguments)
        alone = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], alone)

    return apply


@partial(jax.jit, static_argnames=("learner", "spec"))
def init_all(keys: Key[Array, "S R"], learner: Learner, spec: Spec) -> TrainingState:
    """Initialise every training."""
    return jax.vmap(jax.vmap(lambda key: init(key, learner, spec)))(keys)


def _train_all(
    keys: Key[Array, "S R"],
    states: TrainingState,
    envs: Environment,
    learner: Learner,
    updates: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """`train` for every seed and restart."""

    def one(keys: Key[Array, " R"], states: TrainingState, env: Environment) -> Any:
        return each(lambda key, state: train(key, env, learner, state, updates))(keys, states)

    return each(one)(keys, states, envs)


train_all = program(_train_all, static_argnames="learner")
train_all_on_one_core = program_of_one_core(_train_all, static_argnames="learner")


@partial(program, static_argnames="learner")
def train_seeds_until(
    keys: Key[Array, " S"],
    envs: Environment,
    learner: Learner,
    states: TrainingState,
    targets: Int[Array, " S"],
) -> tuple[TrainingState, Metrics]:
    """`train_until` for every seed."""

    def one(key: Array, env: Environment, state: TrainingState, target: Array) -> Any:
        return train_until(key, env, learner, state, target)

    return each(one)(keys, envs, states, targets)


@partial(program_of_one_core, static_argnames="learner")
def train_seeds_on(
    keys: Key[Array, " S"],
    recorded: Buffer,
    learner: Learner,
    states: TrainingState,
    updates: Int[ArrayLike, ""],
) -> TrainingState:
    """`train_on` for every seed."""

    def one(key: Array, recorded: Buffer, state: TrainingState) -> TrainingState:
        return train_on(key, recorded, learner, state, updates)

    return each(one)(keys, recorded, states)


@partial(jax.jit, static_argnames="learner")
def greedy_all(learner: Learner, states: TrainingState) -> Policy:
    """The greedy policy of every seed and restart."""
    return jax.vmap(jax.vmap(lambda state: learner.greedy(state.learner)))(states)


class Estimate(NamedTuple):
    """A mean return by sampled episodes, and its standard error."""

    mean: Float[Array, "*S R"]
    error: Float[Array, "*S R"]
    by_member: Float[Array, "*S R M"]
    """The mean of the episodes that each member of a learned model plays."""


@program
def evaluate_all(keys: Key[Array, "S R"], policies: Policy, envs: Environment) -> Estimate:
    """The mean return of every policy in its seed's environment."""

    def one(keys: Key[Array, " R"], policies: Policy, env: Environment) -> Estimate:
        def estimate(key: Array, policy: Policy) -> Estimate:
            played, members = rollouts_by_member(key, env, policy, EVALUATION_EPISODES)
            returns = jnp.asarray(played.undiscounted_return)
            even = EVALUATION_EPISODES // members * members
            by_member = returns[:even].reshape(-1, members).mean(0)
            return Estimate(jnp.mean(returns), jnp.std(returns) / EVALUATION_EPISODES**0.5, by_member)

        return each(estimate)(keys, policies)

    return each(one)(keys, policies, envs)


@partial(jax.jit, static_argnames=("learner", "spec"))
def clear_replay(learner: Learner, states: TrainingState, spec: Spec) -> TrainingState:
    """Before training goes on in a refitted model: keep what was learned, drop stored episodes."""
    return jax.vmap(lambda state: state._replace(learner=learner.clear_replay(state.learner, spec)))(states)


@partial(jax.jit, static_argnames="learner")
def with_units(learner: Learner, states: TrainingState, units: Units) -> TrainingState:
    """Every seed's states (axes S, or S R) in the units of its real data, if the learner takes any."""
    if not isinstance(learner, TakesUnits):
        return states

    def one(state: TrainingState, units: Units) -> TrainingState:
        if state.samples.ndim:  # restarts share their seed's units
            return jax.vmap(one, (0, None))(state, units)
        return state._replace(learner=learner.with_units(state.learner, units))

    return jax.vmap(one)(states, units)


def side_by_side(function: Callable[[Item], Any], items: Sequence[Item]) -> list[Any]:
    """Apply a function of compiled programs to every item, with as many threads as there are cores."""
    with ThreadPoolExecutor(max(1, min(len(items), cores()))) as threads:
        return list(threads.map(lambda item: jax.block_until_ready(function(item)), items))


@contextmanager
def beside(function: Callable[..., Item], *arguments: Any) -> Iterator[Future[Item]]:
    """Call a function in a thread while something else goes on; it has ended when this is left."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(function, *arguments)


def bytes_per_training(learner: Learner, spec: Spec) -> int:
    """The memory of one training: the learner's state with its replay, and the activations of a batch."""
    state = jax.eval_shape(lambda key: init(key, learner, spec), jax.random.key(0))
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state) if hasattr(leaf, "size"))
    timestep = spec.num_agents * (spec.observation_width + 3 * spec.num_actions) + spec.state_width
    hidden = getattr(learner, "hidden", 64)
    # Forwards and backwards through the network about twelve arrays of the size of the memory are alive.
    activations = spec.num_agents * (12 * hidden + 4 * spec.num_actions)
    episodes = max(getattr(learner, "batch_size", 0), learner.episodes_per_update)
    return held + 4 * (spec.horizon + 1) * episodes * (timestep + activations)


def check_memory(learners: Sequence[Learner], spec: Spec, seeds: int, available: int | None = None) -> None:
    """Refuse more seeds than fit, before anything is compiled: all `learners` of a seed are alive at once."""
    needed = sum(count * bytes_per_training(learner, spec) for learner, count in Counter(learners).items())
    available = memory_available() if available is None else available
    if seeds * needed <= available:
        return
    if needed > available:
        who, cure = (
            f"one seed needs about {gib(needed)}",
            "use fewer restarts, a smaller environment or network",
        )
    else:
        who = f"{seeds:,} seeds need about {gib(seeds * needed)}"
        cure = f"use at most {available // needed} seeds"
    raise ValueError(
        f"{who}, but {gib(available)} are there: {cure}, or a smaller buffer_size or batch_size."
    )


def memory_available() -> int:
    """The memory of all devices together, or of the machine where the devices are its processors."""
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.devices()]
    return int(sum(limit for limit in limits if limit)) if all(limits) else machine_memory()
