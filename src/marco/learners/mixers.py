"""Mixers: how the agents' values make the team's value. IQL, VDN and QMIX differ in nothing else."""

from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from marco.networks import MLP, Dense
from marco.types import Spec

MixerName = Literal["iql", "vdn", "qmix"]


class Mixer(eqx.Module):
    """From the N agents' values to the V values that are regressed on returns."""

    @abstractmethod
    def __call__(
        self, q: Float[Array, "*batch N"], state: Float[Array, "*batch S"]
    ) -> Float[Array, "*batch V"]:
        """Mix the agents' values in a state."""


class Independent(Mixer):
    """IQL: each agent's value is regressed on the team's return by itself."""

    def __call__(
        self, q: Float[Array, "*batch N"], state: Float[Array, "*batch S"]
    ) -> Float[Array, "*batch V"]:
        """V = N: the values as they are."""
        return q


class Sum(Mixer):
    """VDN: the team's value is the sum of the agents'."""

    def __call__(
        self, q: Float[Array, "*batch N"], state: Float[Array, "*batch S"]
    ) -> Float[Array, "*batch V"]:
        """V = 1: the sum."""
        return q.sum(axis=-1, keepdims=True)


class Monotonic(Mixer):
    """QMIX: a network of the agents' values with weights >= 0 that the state decides."""

    first_weight: Dense
    first_bias: Dense
    second_weight: Dense
    second_bias: MLP

    @classmethod
    def create(cls, key: PRNGKeyArray, spec: Spec, embed_dim: int) -> "Monotonic":
        """Draw the hypernetworks."""
        outputs = (spec.num_agents * embed_dim, embed_dim, embed_dim, embed_dim)
        from_state = [(spec.state_width, size_out) for size_out in outputs]
        weight, bias, second, inner, outer = Dense.several(key, *from_state, (embed_dim, 1))
        return cls(weight, bias, second, MLP((inner, outer)))

    def __call__(
        self, q: Float[Array, "*batch N"], state: Float[Array, "*batch S"]
    ) -> Float[Array, "*batch V"]:
        """V = 1: elu(q |W1| + b1) |w2| + b2, all four from the state."""
        weight = jnp.abs(self.first_weight(state)).reshape(*q.shape, -1)
        hidden = jax.nn.elu(jnp.sum(q[..., None] * weight, axis=-2) + self.first_bias(state))
        mixed = jnp.sum(hidden * jnp.abs(self.second_weight(state)), axis=-1, keepdims=True)
        return mixed + self.second_bias(state)


def make_mixer(key: PRNGKeyArray, name: MixerName, spec: Spec, embed_dim: int) -> Mixer:
    """The mixer of a name."""
    match name:
        case "iql":
            return Independent()
        case "vdn":
            return Sum()
        case "qmix":
            return Monotonic.create(key, spec, embed_dim)
