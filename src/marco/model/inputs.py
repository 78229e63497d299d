"""What the components of a model are shown: states, actions by factor and distances within the state."""

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.model.likelihoods import Layout
from marco.types import Continuous, Spec, action_table, blocks

ComponentName = Literal["dynamics", "reward", "observation", "termination", "available", "start"]
COMPONENTS: tuple[ComponentName, ...] = get_args(ComponentName)


@dataclass(frozen=True)
class Inputs:
    """The columns that go into each component.

    Distances are those between any two features of the same width, of two numbers or more: of places,
    mostly. Worlds in space pay by distance, which a network is slow to find out by itself: with them the
    reward of `reference` is learned three times as well from 10,000 samples.
    """

    spec: Spec
    distances: bool = True

    def moment(self, s: Float[Array, "*batch S"]) -> Float[Array, "*batch in"]:
        """s."""
        if not self._pairs:
            return s
        gaps = [_length(s[..., left] - s[..., right]) for left, right in self._pairs]
        return jnp.concatenate([s, jnp.stack(gaps, axis=-1)], axis=-1)

    def before_step(
        self, s: Float[Array, "*batch S"], a: Int[Array, "*batch N"]
    ) -> Float[Array, "*batch in"]:
        """(s, a), of the dynamics, and (s, a_prev), of the observations."""
        return jnp.concatenate([self.moment(s), self._actions(a)], axis=-1)

    def after_step(
        self, s: Float[Array, "*batch S"], a: Int[Array, "*batch N"], following: Float[Array, "*batch S"]
    ) -> Float[Array, "*batch in"]:
        """(s, a, s'), of the reward and the termination."""
        return jnp.concatenate([self.moment(s), self._actions(a), self.moment(following)], axis=-1)

    def numeric(self, name: ComponentName) -> tuple[bool, ...]:
        """Which columns of a component's inputs are numbers, which have to be scaled."""
        state = np.isin(np.arange(self.spec.state_width), Layout(self.spec.state).value_columns)
        moment = np.concatenate([state, np.ones(len(self._pairs), bool)])
        table = action_table(self.spec, factored=True)
        actions = np.zeros(table.shape[0] * table.shape[-1], bool)
        match name:
            case "available":
                parts = [moment]
            case "dynamics" | "observation":
                parts = [moment, actions]
            case _:
                parts = [moment, actions, moment]
        return tuple(np.concatenate(parts).tolist())

    @cached_property
    def _pairs(self) -> list[tuple[slice, slice]]:
        numbers = [
            (feature.width, block)
            for feature, block in zip(self.spec.state, blocks(self.spec.state), strict=True)
            if isinstance(feature, Continuous) and feature.width > 1
        ]
        two = combinations(numbers, 2) if self.distances else ()
        return [(left, right) for (width, left), (other, right) in two if width == other]

    def _actions(self, actions: Int[Array, "*batch N"]) -> Float[Array, "*batch columns"]:
        """A one-hot code per factor of every agent's action; no column at all for no action."""
        table = jnp.asarray(action_table(self.spec, factored=True))
        hot = jax.nn.one_hot(actions, self.spec.num_actions)
        return jnp.einsum("...na,nah->...nh", hot, table).reshape(*actions.shape[:-1], -1)


def _length(gap: Float[Array, "*batch width"]) -> Float[Array, "*batch"]:
    return jnp.sqrt(jnp.sum(jnp.square(gap), axis=-1))
