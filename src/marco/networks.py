"""The few networks there are. Weights are (in, out); initial values are uniform, as in PyTorch."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.types import Spec, TimeStep, action_table, is_identity

SHORT = 12
"""Episodes of up to so many timesteps are compiled without a loop, which is up to twice as fast on a CPU."""


def unrolled(timesteps: int) -> int:
    """How many timesteps to unroll: all of a short episode, none of a long one."""
    return timesteps if timesteps <= SHORT else 1


class Dense(eqx.Module):
    """x W + b."""

    weight: Float[Array, "*stack in out"]
    bias: Float[Array, "*stack out"]

    @classmethod
    def several(cls, key: PRNGKeyArray, *sizes: tuple[int, int]) -> tuple["Dense", ...]:
        """Draw the weights of layers from and to these sizes."""
        drawn = draw_blocks(key, *((size_in + 1, size_out, size_in) for size_in, size_out in sizes))
        return tuple(cls.of(block) for block in drawn)

    @classmethod
    def of(cls, drawn: Float[Array, "_ out"]) -> "Dense":
        """The last row is the bias."""
        return cls(drawn[:-1], drawn[-1])

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """Apply to the last axis."""
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Dense layers with ReLU between them."""

    layers: tuple[Dense, ...]

    @classmethod
    def create(cls, key: PRNGKeyArray, *sizes: int) -> "MLP":
        """Draw the weights of layers from size to size."""
        return cls(Dense.several(key, *pairwise(sizes)))

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """Apply to the last axis."""
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class GRU(eqx.Module):
    """A gated recurrent unit, split so that the part that needs no memory is done for all time at once."""

    from_input: Dense
    from_memory: Dense

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, size: int) -> "GRU":
        """Draw the weights."""
        (drawn,) = draw_blocks(key, (size_in + size + 2, 3 * size, size))
        return cls.of(drawn, size_in)

    @classmethod
    def of(cls, drawn: Float[Array, "_ gates"], size_in: int) -> "GRU":
        """The rows for what is seen come first."""
        return cls(Dense.of(drawn[: size_in + 1]), Dense.of(drawn[size_in + 1 :]))

    def __call__(
        self, memory: Float[Array, "*batch H"], projected: Float[Array, "*batch 3*H"]
    ) -> Float[Array, "*batch H"]:
        """The next memory, from the last one and `from_input` of what is seen."""
        reset_in, update_in, new_in = jnp.split(projected, 3, axis=-1)
        reset_mem, update_mem, new_mem = jnp.split(self.from_memory(memory), 3, axis=-1)
        update = jax.nn.sigmoid(update_in + update_mem)
        new = jnp.tanh(new_in + jax.nn.sigmoid(reset_in + reset_mem) * new_mem)
        return (1.0 - update) * new + update * memory


class RecurrentNetwork(eqx.Module):
    """Dense, GRU, dense: the agents' network in the paper."""

    encoder: Dense
    gru: GRU
    head: Dense

    @classmethod
    def create(cls, key: PRNGKeyArray, size_in: int, hidden: int, size_out: int) -> "RecurrentNetwork":
        """Draw the weights."""
        gates = (2 * hidden + 2, 3 * hidden, hidden)
        encoder, gru, head = draw_blocks(
            key, (size_in + 1, hidden, size_in), gates, (hidden + 1, size_out, hidden)
        )
        return cls(Dense.of(encoder), GRU.of(gru, hidden), Dense.of(head))

    @property
    def hidden(self) -> int:
        """The size of the memory."""
        return self.head.weight.shape[-2]

    def project(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch gates"]:
        """Everything before the memory comes in."""
        return self.gru.from_input(jax.nn.relu(self.encoder(x)))

    def step(
        self, memory: Float[Array, "*batch H"], x: Float[Array, "*batch in"]
    ) -> tuple[Float[Array, "*batch H"], Float[Array, "*batch out"]]:
        """One timestep."""
        memory = self.gru(memory, self.project(x))
        return memory, self.head(memory)

    def unroll(self, x: Float[Array, "T *batch in"]) -> Float[Array, "T *batch out"]:
        """A whole episode from an empty memory."""

        def one_moment(memory: Array, projected: Array) -> tuple[Array, Array]:
            memory = self.gru(memory, projected)
            return memory, memory

        empty = jnp.zeros((*x.shape[1:-1], self.hidden))
        memories = jax.lax.scan(one_moment, empty, self.project(x), unroll=unrolled(x.shape[0]))[1]
        return self.head(memories)


class TeamNetwork(eqx.Module):
    """A score for every action of every agent, from what that agent has seen and done.

    The agents share one network that is told who is asking, or have one each. With `factored`, an action
    of several factors scores the sum of its factors' scores: `reference` needs 15 of them, not 50.
    """

    network: RecurrentNetwork
    spec: Spec = eqx.field(static=True)
    share_parameters: bool = eqx.field(static=True)
    factored: bool = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        spec: Spec,
        hidden: int = 64,
        share_parameters: bool = True,
        factored: bool = True,
    ) -> "TeamNetwork":
        """Draw the weights."""
        size_in = spec.observation_width + spec.num_actions + spec.num_agents
        size_out = action_table(spec, factored).shape[-1]
        if share_parameters:
            network = RecurrentNetwork.create(key, size_in, hidden, size_out)
        else:
            keys = jax.random.split(key, spec.num_agents)
            network = jax.vmap(lambda k: RecurrentNetwork.create(k, size_in, hidden, size_out))(keys)
        return cls(network, spec, share_parameters, factored)

    def start(self) -> Float[Array, "N H"]:
        """The empty memory of every agent."""
        return jnp.zeros((self.spec.num_agents, self.network.hidden))

    def step(
        self, memory: Float[Array, "N H"], timestep: TimeStep
    ) -> tuple[Float[Array, "N H"], Float[Array, "N A"]]:
        """One timestep: the new memory and the scores."""
        x = self._inputs(timestep.observation, timestep.previous_actions)
        if self.share_parameters:
            memory, heads = self.network.step(memory, x)
        else:
            memory, heads = jax.vmap(RecurrentNetwork.step)(self.network, memory, x)
        return memory, self._scores(heads)

    def unroll(
        self, observation: Float[Array, "T B N O"], previous_actions: Int[Array, "T B N"]
    ) -> Float[Array, "T B N A"]:
        """The scores at every timestep of whole episodes."""
        x = self._inputs(observation, previous_actions)
        if self.share_parameters:
            return self._scores(self.network.unroll(x))
        return self._scores(jax.vmap(RecurrentNetwork.unroll, (0, 2), 2)(self.network, x))

    def _inputs(
        self, observation: Float[Array, "*batch N O"], previous_actions: Int[Array, "*batch N"]
    ) -> Float[Array, "*batch N in"]:
        last = jax.nn.one_hot(previous_actions, self.spec.num_actions)
        who = jnp.broadcast_to(jnp.eye(self.spec.num_agents), (*last.shape[:-1], self.spec.num_agents))
        return jnp.concatenate([observation, last, who], axis=-1)

    def _scores(self, heads: Float[Array, "*batch N out"]) -> Float[Array, "*batch N A"]:
        table = action_table(self.spec, self.factored)
        if is_identity(self.spec, self.factored):
            return heads
        return jnp.einsum("...nh,nah->...na", heads, jnp.asarray(table))


def mask_scores(
    scores: Float[Array, "*batch A"], available: Bool[Array, "*batch A"]
) -> Float[Array, "*batch A"]:
    """Scores in which an action that is not available is never the best."""
    return jnp.where(available, scores, -jnp.inf)


def draw_blocks(key: PRNGKeyArray, *shapes: tuple[int, int, int]) -> list[Float[Array, "_ _"]]:
    """Weights for each (rows, columns, fan-in): uniform within one over the root of the fan-in."""
    sizes = [rows * columns for rows, columns, _ in shapes]
    drawn = jax.random.uniform(key, (sum(sizes),), minval=-1.0)
    parts = jnp.split(drawn, np.cumsum(sizes)[:-1])
    return [
        part.reshape(rows, columns) * fan_in**-0.5
        for part, (rows, columns, fan_in) in zip(parts, shapes, strict=True)
    ]
