"""Play: a policy in an environment gives an Episode; compiled in JAX, by a host loop elsewhere."""

from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from marco.environments.base import ByMember, Environment, HostWorld, check_shown
from marco.environments.user_code import calling, noted, retraced
from marco.policies.base import Memory, Policy
from marco.sampling import draw
from marco.types import Episode, Spec, TimeStep


def rollout(
    key: PRNGKeyArray, env: Environment, policy: Policy, limit: Int[Array, ""] | None = None
) -> Episode:
    """Play one episode to the horizon; steps after the end are masked.

    With a `limit` the episode is cut off after so many steps: nothing is done in the environment any
    more. Works under `jit` and `vmap`, over keys, environments and policies alike.
    """
    key_reset, key_play = jax.random.split(key)
    with calling(env, "reset"):
        state, first = env.reset(key_reset)
    check_fit(env.spec, policy, first)

    def one_step(carry: Any, keys: Key[Array, " 2"]) -> tuple[Any, Any]:
        state, timestep, memory = carry
        key_act, key_step = keys
        memory, actions = act(key_act, policy, memory, timestep)
        taken = ~timestep.last if limit is None else ~timestep.last & (state.time < limit)
        with calling(env, "step"):
            after = env.step(key_step, state, actions)
        if limit is not None:
            still = (state, timestep._replace(reward=jnp.float32(0.0)))
            after = jax.tree.map(lambda new, old: jnp.where(taken, new, old), after, still)
        state, following = after
        return (state, following, memory), (following, actions, taken)

    keys = jax.random.split(key_play, (env.spec.horizon, 2))
    _, (steps, actions, mask) = jax.lax.scan(one_step, (state, first, policy.start()), keys)
    return assemble(first, steps, actions, mask)


def act(
    key: PRNGKeyArray, policy: Policy, memory: Memory, timestep: TimeStep
) -> tuple[Memory, Int[Array, " N"]]:
    """Draw the actions of all agents."""
    memory, probabilities = policy(memory, timestep)
    return memory, draw(key, probabilities)


def check_fit(spec: Spec, policy: Policy, timestep: TimeStep) -> None:
    """Refuse a policy that was made for an environment of another shape, before anything is compiled."""
    needed = (spec.num_agents, spec.num_actions)
    try:
        given = _first_probabilities.eval_shape(policy, timestep).shape
    except (TypeError, ValueError) as error:  # what JAX raises where shapes do not go together
        raise ValueError(f"this policy does not fit {spec.name}, whose shape it was not made for.") from error
    if given != needed:
        raise ValueError(
            f"{spec.name} needs action probabilities of the shape {needed}, agents by actions, "
            f"but this policy gives {given}: it was made for another environment."
        )


@jax.jit  # for its shape alone, which is then found once and not in every episode
def _first_probabilities(policy: Policy, timestep: TimeStep) -> Float[Array, "N A"]:
    return policy(policy.start(), timestep)[1]


@partial(jax.jit, static_argnames="episodes")
def rollouts(key: PRNGKeyArray, env: Environment, policy: Policy, episodes: int) -> Episode:
    """Play a batch of independent episodes: axes T B. An ensemble plays them at the cost of one member."""
    parts = env.by_member()
    if parts is not None and episodes >= parts.members:
        return _shared_out(key, env, parts, policy, episodes)
    keys = jax.random.split(key, episodes)
    return jax.vmap(rollout, in_axes=(0, None, None), out_axes=1)(keys, env, policy)


def rollouts_by_member(
    key: PRNGKeyArray, env: Environment, policy: Policy, episodes: int
) -> tuple[Episode, int]:
    """Episodes of which each is played by one member of an ensemble from its start to its end.

    Also the number of members: episode b is played by member b modulo that number. An environment without
    an ensemble is one member.
    """
    parts, members = env.by_member(), num_members(env, episodes)
    if parts is None or members == 1:
        return rollouts(key, env, policy, episodes), 1
    return _shared_out(key, env, parts._replace(resample=False), policy, episodes), parts.members


def num_members(env: Environment, episodes: int) -> int:
    """The members of an ensemble that so many episodes are shared out among: all of them, or one."""
    parts = env.by_member()
    return 1 if parts is None or episodes < parts.members else parts.members


def _shared_out(
    key: PRNGKeyArray, env: Environment, parts: ByMember, policy: Policy, episodes: int
) -> Episode:
    """The episodes shared out among the members of an ensemble: each plays its part in one matrix product.

    To play another member at every step, the episodes are shuffled before it: for any one of them that is a
    member drawn anew. No weights are copied, and none are used in vain.
    """
    key_reset, key_play, key_order = jax.random.split(key, 3)
    shape = (parts.members, -(-episodes // parts.members))
    count = shape[0] * shape[1]
    state, first = _flat(parts.each(type(env).reset)(jax.random.split(key_reset, shape)))
    check_fit(env.spec, policy, jax.tree.map(lambda leaf: leaf[0], first))
    act_all = jax.vmap(act, (0, None, 0, 0))
    step_all = parts.each(type(env).step)

    horizon = env.spec.horizon
    orders = _orders(key_order, horizon, count) if parts.resample else None

    def one_step(carry: Any, drawn: Any) -> tuple[Any, Any]:
        state, timestep, memory = carry
        key_act, key_step, orders = drawn
        memory, actions = act_all(key_act, policy, memory, timestep)
        there, back = orders or (slice(None), slice(None))
        taken = jax.tree.map(lambda leaf: leaf[there].reshape(*shape, *leaf.shape[1:]), (state, actions))
        after = _flat(step_all(key_step.reshape(shape), *taken))
        state, following = jax.tree.map(lambda leaf: leaf[back], after)
        return (state, following, memory), (following, actions, ~timestep.last)

    keys = (*jax.random.split(key_play, (2, horizon, count)), orders)
    memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), policy.start())
    _, (steps, actions, mask) = jax.lax.scan(one_step, (state, first, memory), keys)
    # Of the episodes that are too many no member plays more than one.
    kept = np.arange(count).reshape(shape).T.ravel()[:episodes]
    return jax.tree.map(lambda leaf: leaf[:, kept], assemble(first, steps, actions, mask))


def _orders(key: PRNGKeyArray, horizon: int, count: int) -> tuple[Int[Array, "T B"], Int[Array, "T B"]]:
    """The order in which the episodes are shared out at every step, and the way back."""
    there = jnp.argsort(jax.random.bits(key, (horizon, count)), axis=-1)
    return there, jnp.argsort(there, axis=-1)


def _flat(tree: Any) -> Any:
    """Members and episodes as one axis."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def assemble(first: TimeStep, steps: TimeStep, actions: Array, mask: Array) -> Episode:
    """An Episode from the first timestep, the timesteps after each step, and the actions between them."""

    def with_first(name: str) -> Array:
        return jnp.concatenate([getattr(first, name)[None], getattr(steps, name)])

    return Episode(
        observation=with_first("observation"),
        state=with_first("state"),
        available=with_first("available"),
        actions=actions,
        reward=steps.reward,
        terminated=steps.terminated & mask,
        truncated=steps.truncated & mask,
        mask=mask,
    )


@runtime_checkable
class Recorder(Protocol):
    """Writes down an episode in a host environment as it is played."""

    def show(self, timestep: TimeStep) -> None:
        """What the environment showed."""

    def act(self, actions: Int[np.ndarray, " N"]) -> None:
        """The actions of a step that is now taken."""


def play(
    key: PRNGKeyArray,
    env: Environment | HostWorld,
    policy: Policy,
    limit: int | None = None,
    record: Recorder | None = None,
) -> Episode:
    """Play one episode: compiled in a JAX environment, elsewhere a Python loop around a compiled policy.

    The Episode has numpy arrays and is padded to the horizon; with a `limit` it is cut off after so many
    steps. A `record` of a host environment has every step before the next one is taken.
    """
    if isinstance(env, Environment):
        most = None if limit is None else jnp.int32(limit)
        return jax.tree.map(np.asarray, _rollout(key, env, policy, most))
    horizon, name = env.spec.horizon, env.spec.name
    key_seed, key_play = jax.random.split(key)
    seed = int(jax.random.randint(key_seed, (), 0, np.iinfo(np.int32).max))
    with noted(f"reset(seed={seed}) of {name}"):
        timestep = check_shown(env.spec, env.reset(seed))
    check_fit(env.spec, policy, timestep)
    if record is not None:
        record.show(timestep)
    steps, actions, memory = [timestep], [], policy.start()
    for key_act in jax.random.split(key_play, horizon)[:limit]:
        memory, drawn = _decide(key_act, policy, memory, timestep)
        chosen = np.asarray(drawn)
        actions.append(chosen)
        if record is not None:
            record.act(chosen)
        call = f"step {len(steps)} after reset(seed={seed}) of {name}, with the actions {chosen.tolist()}"
        with retraced(actions), noted(call):
            timestep = check_shown(env.spec, env.step(chosen))
        if record is not None:
            record.show(timestep)
        steps.append(timestep)
        if timestep.last:
            break
    return _pad(steps, actions, horizon)


_rollout = jax.jit(rollout)


_decide = jax.jit(act)


def _pad(steps: list[TimeStep], actions: list[Int[np.ndarray, " N"]], horizon: int) -> Episode:
    idle = horizon - len(actions)
    still = steps[-1]._replace(reward=jnp.float32(0.0))
    following = jax.tree.map(lambda *leaves: np.stack(leaves), *steps[1:], *[still] * idle)
    taken = jnp.stack([*actions, *[actions[-1]] * idle])
    episode = assemble(steps[0], following, taken, jnp.arange(horizon) < len(actions))
    return jax.tree.map(np.asarray, episode)
