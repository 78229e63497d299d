"""What every Environment must keep, the built-in ones, the wrapped ones and the learned ones alike."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np

from marco.policies.base import RandomPolicy
from marco.rollout import rollout
from marco.types import NO_ACTION, Categorical, blocks

KEY = jax.random.key(7)


def check_contract(env, episodes=64, op_by_op=True):
    """Run all the checks.

    Op by op the networks of a learned environment are hundreds of programs of one operation each: that one of
    them plays so is enough, for they are one class.
    """
    reset, step = env.reset, env.step
    if not op_by_op:
        reset, step = (partial(jax.jit(whole), env) for whole in (type(env).reset, type(env).step))
    keys = jax.random.split(KEY, episodes)
    batch = jax.jit(jax.vmap(rollout, (0, None, None), 1))(keys, env, RandomPolicy())
    batch = jax.tree.map(np.asarray, batch)
    shapes_and_dtypes_are_the_specs(env.spec, reset, step)
    categorical_features_show_exactly_one_class(env, batch)
    masks_are_never_empty_and_are_respected(env, batch)
    episodes_end_by_the_horizon_and_then_nothing_changes(env, batch)
    step_by_step_is_the_compiled_episode(env.spec, reset, step, keys, batch)
    vmap_is_a_loop_and_the_same_key_the_same_episode(env, keys, batch)


def shapes_and_dtypes_are_the_specs(spec, reset, step):
    key_reset, key_step = jax.random.split(KEY)
    state, timestep = reset(key_reset)
    following = step(key_step, state, jnp.argmax(timestep.available, -1).astype(jnp.int32))[1]
    for shown in (timestep, following):
        chex.assert_shape(shown.observation, (spec.num_agents, spec.observation_width))
        chex.assert_shape(shown.state, (spec.state_width,))
        chex.assert_shape(shown.available, (spec.num_agents, spec.num_actions))
        chex.assert_shape(shown.previous_actions, (spec.num_agents,))
        chex.assert_shape([shown.reward, shown.terminated, shown.truncated], ())
        assert shown.observation.dtype == shown.state.dtype == shown.reward.dtype == jnp.float32
        assert shown.available.dtype == shown.terminated.dtype == shown.truncated.dtype == jnp.bool_
        assert shown.previous_actions.dtype == jnp.int32
    assert timestep.reward == 0.0
    assert not timestep.last
    assert (timestep.previous_actions == NO_ACTION).all()


def categorical_features_show_exactly_one_class(env, batch):
    assert np.isfinite(batch.state).all()
    assert np.isfinite(batch.observation).all()
    _check_blocks(env.spec.state, batch.state)
    for index, agent in enumerate(env.spec.agents):
        own = batch.observation[:, :, index]
        _check_blocks(agent.observation, own[..., : agent.observation_width])
        assert (own[..., agent.observation_width :] == 0.0).all(), "padding must be zero"


def _check_blocks(features, vectors):
    for feature, block in zip(features, blocks(features), strict=True):
        if isinstance(feature, Categorical):
            shown = jnp.asarray(vectors[..., block])
            np.testing.assert_array_equal(feature.encode(feature.decode(shown)), shown, err_msg=feature.name)


def masks_are_never_empty_and_are_respected(env, batch):
    assert batch.available.any(-1).all()
    assert not (batch.available & ~env.spec.actions_exist).any()
    chosen = np.take_along_axis(batch.available[:-1], batch.actions[..., None], -1)[..., 0]
    assert chosen[batch.mask].all()


def episodes_end_by_the_horizon_and_then_nothing_changes(env, batch):
    last = batch.terminated | batch.truncated
    np.testing.assert_array_equal(last.sum(0), 1, "each episode ends exactly once")
    assert not (batch.terminated & batch.truncated).any()
    assert batch.mask[0].all()
    np.testing.assert_array_equal(batch.mask[1:], batch.mask[:-1] & ~last[:-1])
    np.testing.assert_array_equal(batch.truncated.any(0), batch.mask[-1] & ~batch.terminated[-1])
    after = ~batch.mask
    assert (batch.reward[after] == 0.0).all()
    for shown in (batch.observation, batch.state, batch.available):
        np.testing.assert_array_equal(shown[1:][after], shown[:-1][after])


def step_by_step_is_the_compiled_episode(spec, reset, step, keys, batch):
    """Three steps, each by itself, are the first three of the compiled episode.

    Compiled code may fuse a multiplication with an addition, so the last bit of a float may differ.
    """
    key_reset, key_play = jax.random.split(keys[0])
    state, timestep = reset(key_reset)
    for t, key_step in enumerate(jax.random.split(key_play, (spec.horizon, 2))[:3, 1]):
        np.testing.assert_allclose(timestep.state, batch.state[t, 0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(timestep.observation, batch.observation[t, 0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(timestep.available, batch.available[t, 0])
        state, timestep = step(key_step, state, jnp.asarray(batch.actions[t, 0]))
        np.testing.assert_allclose(timestep.reward, batch.reward[t, 0], rtol=1e-5, atol=1e-6)


def vmap_is_a_loop_and_the_same_key_the_same_episode(env, keys, batch):
    play = jax.jit(rollout)
    for index in range(3):
        alone = play(keys[index], env, RandomPolicy())
        together = jax.tree.map(lambda leaf, index=index: leaf[:, index], batch)
        chex.assert_trees_all_close(alone, together, rtol=1e-5, atol=1e-6)
        chex.assert_trees_all_equal(alone, play(keys[index], env, RandomPolicy()))
