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
        return _next_memory(memory, projected, self.from_memory(memory))[0]

    def unroll(self, projected: Float[Array, "T *batch gates"]) -> Float[Array, "T *batch H"]:
        """The memories of a whole episode that begins with an empty one."""
        return _memories(self.from_memory.weight, self.from_memory.bias, projected)


def _next_memory(memory: Array, projected: Array, recalled: Array) -> tuple[Array, tuple[Array, ...]]:
    """The next memory; and the gates, for the gradient."""
    reset_in, update_in, new_in = jnp.split(projected, 3, axis=-1)
    reset_mem, update_mem, new_mem = jnp.split(recalled, 3, axis=-1)
    reset, update = jax.nn.sigmoid(reset_in + reset_mem), jax.nn.sigmoid(update_in + update_mem)
    new = jnp.tanh(new_in + reset * new_mem)
    return (1.0 - update) * new + update * memory, (reset, update, new, new_mem)


@jax.custom_vjp
def _memories(weight: Array, bias: Array, projected: Array) -> Array:
    """Every memory of an episode. Its gradient by hand is faster than what JAX makes of a scan.

    JAX multiplies matrices for the gradient of the weights at every timestep; here the way back through
    time holds one small product, and one large product gives the gradient of the weights.
    """
    return _forwards(weight, bias, projected)[0]


def _forwards(weight: Array, bias: Array, projected: Array) -> tuple[Array, tuple[Array, ...]]:
    def one_moment(memory: Array, projected: Array) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
        memory, gates = _next_memory(memory, projected, memory @ weight + bias)
        return memory, (memory, gates)

    empty = jnp.zeros((*projected.shape[1:-1], weight.shape[0]), projected.dtype)
    memories, gates = jax.lax.scan(one_moment, empty, projected, unroll=unrolled(projected.shape[0]))[1]
    return memories, (weight, memories, *gates)


def _backwards(kept: tuple[Array, ...], slope: Array) -> tuple[Array, Array, Array]:
    weight, memories, reset, update, new, new_mem = kept
    before = jnp.concatenate([jnp.zeros_like(memories[:1]), memories[:-1]])
    # how much each gate, before its bend, moves the memory: for all timesteps at once
    by_new = (1.0 - update) * (1.0 - new**2)
    by_update = (before - new) * update * (1.0 - update)
    by_reset = by_new * new_mem * reset * (1.0 - reset)

    def one_moment(following: Array, moment: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        slope, reset, update, by_reset, by_update, by_new = moment
        slope = slope + following
        new = slope * by_new
        recalled = jnp.concatenate([slope * by_reset, slope * by_update, new * reset], axis=-1)
        return slope * update + recalled @ weight.T, (recalled, new)

    moments = (slope, reset, update, by_reset, by_update, by_new)
    timesteps, hidden = unrolled(slope.shape[0]), weight.shape[0]
    none = jnp.zeros_like(slope[0])
    recalled, news = jax.lax.scan(one_moment, none, moments, reverse=True, unroll=timesteps)[1]
    projected = jnp.concatenate([recalled[..., : 2 * hidden], news], axis=-1)
    rows = recalled.reshape(-1, 3 * hidden)
    return before.reshape(-1, hidden).T @ rows, rows.sum(0), projected


_memories.defvjp(_forwards, _backwards)


@jax.custom_vjp
def pick_rows(weight: Float[Array, "rows out"], index: Int[Array, "*batch"]) -> Float[Array, "*batch out"]:
    """One-hot codes times a matrix, without the product: the row that each index names, nothing for -1.

    The gradient is a product all the same, which is faster than adding up rows one by one.
    """
    return jnp.pad(weight, ((0, 1), (0, 0)))[index]


def _pick_forwards(weight: Array, index: Array) -> tuple[Array, tuple[Array, int]]:
    return pick_rows(weight, index), (index, weight.shape[0])


def _pick_backwards(kept: tuple[Array, int], slope: Array) -> tuple[Array, None]:
    index, rows = kept
    return jax.nn.one_hot(index.reshape(-1), rows).T @ slope.reshape(-1, slope.shape[-1]), None


pick_rows.defvjp(_pick_forwards, _pick_backwards)


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

    def step(
        self, memory: Float[Array, "*batch H"], encoded: Float[Array, "*batch H"]
    ) -> tuple[Float[Array, "*batch H"], Float[Array, "*batch out"]]:
        """One timestep, from what the encoder makes of it."""
        memory = self.gru(memory, self.gru.from_input(jax.nn.relu(encoded)))
        return memory, self.head(memory)

    def unroll(self, encoded: Float[Array, "T *batch H"]) -> Float[Array, "T *batch out"]:
        """A whole episode from an empty memory."""
        return self.head(self.gru.unroll(self.gru.from_input(jax.nn.relu(encoded))))


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
        encoded = self._encode(timestep.observation, timestep.previous_actions)
        if self.share_parameters:
            memory, heads = self.network.step(memory, encoded)
        else:
            memory, heads = jax.vmap(RecurrentNetwork.step)(self.network, memory, encoded)
        return memory, self._scores(heads)

    def unroll(
        self, observation: Float[Array, "T B N O"], previous_actions: Int[Array, "T B N"]
    ) -> Float[Array, "T B N A"]:
        """The scores at every timestep of whole episodes."""
        encoded = self._encode(observation, previous_actions)
        if self.share_parameters:
            return self._scores(self.network.unroll(encoded))
        return self._scores(jax.vmap(RecurrentNetwork.unroll, (0, 2), 2)(self.network, encoded))

    def _encode(
        self, observation: Float[Array, "*batch N O"], previous_actions: Int[Array, "*batch N"]
    ) -> Float[Array, "*batch N H"]:
        """The encoder on an observation, the last action and who asks: the last two are one-hot codes."""
        sizes = self.spec.observation_width, self.spec.observation_width + self.spec.num_actions
        agents = jnp.arange(self.spec.num_agents)

        def one(encoder: Dense, observation: Array, action: Array, agent: Array) -> Array:
            by_observation, by_action, by_agent = jnp.split(encoder.weight, sizes)
            codes = pick_rows(by_action, action) + pick_rows(by_agent, agent)
            return observation @ by_observation + codes + encoder.bias

        if self.share_parameters:
            return one(self.network.encoder, observation, previous_actions, agents)
        each = jax.vmap(one, (0, -2, -1, 0), -2)
        return each(self.network.encoder, observation, previous_actions, agents)

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
