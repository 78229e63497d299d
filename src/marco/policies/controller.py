"""A planned team: one finite-state controller per agent, which acts on the numbers of its observations."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marco.policies.base import Memory, Policy
from marco.types import Spec, TimeStep

FAR = 1e6
"""In every column of a padded observation: nothing is near it."""


class ControllerPolicy(Policy):
    """Each agent starts in node 0; at every step its observation leads it to a node, which has an action.

    An observation that was never made before counts as the nearest one that was. Shapes may be padded: no
    observation leads to a node that is not there, and no observation is near a padded one.
    """

    actions: Int[Array, "N T nodes"]
    """By step and node."""
    successors: Int[Array, "N T nodes M"]
    """The node of each step, by the node before it and the observation."""
    observations: Float[Array, "N M O"]
    """The columns of every observation."""
    spec: Spec = eqx.field(static=True)

    def start(self) -> Memory:
        """The clock, and node 0 for every agent."""
        return jnp.int32(0), jnp.zeros(self.spec.num_agents, jnp.int32)

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Follow the controllers; an action that is not available is replaced by the first that is."""
        time, nodes = memory
        now = jnp.minimum(time, self.actions.shape[1] - 1)

        def one(
            actions: Array, successors: Array, known: Array, seen: Array, node: Array
        ) -> tuple[Array, Array]:
            nearest = jnp.argmin(jnp.sum(jnp.square(known - seen), axis=-1))
            node = successors[now, node, nearest].astype(jnp.int32)
            return node, actions[now, node]

        nodes, chosen = jax.vmap(one)(
            self.actions, self.successors, self.observations, timestep.observation, nodes
        )
        wanted = jax.nn.one_hot(chosen, self.spec.num_actions, dtype=bool) & timestep.available
        first = jax.nn.one_hot(jnp.argmax(timestep.available, axis=-1), self.spec.num_actions, dtype=bool)
        taken = jnp.where(wanted.any(-1, keepdims=True), wanted, first)
        return (time + 1, nodes), taken.astype(jnp.float32)

    def save(self, path: str | Path) -> None:
        """Write the team as a file that `marco.load` reads, with numpy alone."""
        from marco.policies.export import save_controllers

        save_controllers(Path(path), self)
