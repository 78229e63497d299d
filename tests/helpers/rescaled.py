"""The same environment in other units: rewards multiplied, columns stretched and shifted."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marco.environments.base import Environment
from marco.types import Categorical, Spec, blocks


class Affine(NamedTuple):
    """x scale + offset, column by column."""

    scale: Array
    offset: Array

    def __call__(self, x):
        return x * self.scale + self.offset


class Rescaled(Environment):
    """Plays `inner`, and shows its rewards and columns in other units; these are leaves."""

    inner: Environment
    reward: Array
    observation: Affine
    state: Affine
    own: Spec = eqx.field(static=True)

    @property
    def spec(self):
        return self.own

    def initial(self, key):
        return self.inner.initial(key)

    def transition(self, key, world, actions):
        after = self.inner.transition(key, world, actions)
        return after._replace(reward=after.reward * self.reward)

    def observe(self, world):
        return self.observation(self.inner.observe(world))

    def available(self, world):
        return self.inner.available(world)

    def central(self, world):
        return self.state(self.inner.central(world))


def rescaled(env, reward=1.0, stretch=1.0, shift=0.0, classes=False):
    """The environment in other units; columns of classes are stretched and shifted if asked for."""
    spec = env.spec

    def described(features):
        return tuple(
            replace(one, low=one.low * stretch + shift, high=one.high * stretch + shift)
            if classes and isinstance(one, Categorical)
            else one
            for one in features
        )

    def affine(features, width):
        scale, offset = np.ones(width, np.float32), np.zeros(width, np.float32)
        for feature, block in zip(features, blocks(features), strict=True):
            if classes or not isinstance(feature, Categorical):
                scale[block], offset[block] = stretch, shift
        return scale, offset

    agents = tuple(replace(agent, observation=described(agent.observation)) for agent in spec.agents)
    seen = [affine(agent.observation, spec.observation_width) for agent in spec.agents]
    return Rescaled(
        env,
        jnp.float32(reward),
        Affine(*(jnp.stack(parts) for parts in zip(*seen, strict=True))),
        Affine(*map(jnp.asarray, affine(spec.state, spec.state_width))),
        replace(spec, agents=agents, state=described(spec.state)),
    )
