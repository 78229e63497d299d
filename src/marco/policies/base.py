"""Policies: each agent's action probabilities, from what that agent has observed so far."""

from abc import abstractmethod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from marco.networks import TeamNetwork, mask_scores
from marco.types import TimeStep
from marco.units import Columns

Memory = Any
"""What a policy remembers within an episode: a pytree, such as one recurrent state per agent."""


class Policy(eqx.Module):
    """A team's policy: each agent's action probabilities, from what that agent has seen so far."""

    @abstractmethod
    def start(self) -> Memory:
        """The memory at the start of an episode."""

    @abstractmethod
    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Act on a timestep; return the new memory and each agent's action probabilities."""


@runtime_checkable
class Savable(Protocol):
    """A policy that can be kept as a file."""

    def save(self, path: str | Path) -> None:
        """Write the policy as a file that `marco.load` reads."""


class RandomPolicy(Policy):
    """Every available action with the same probability."""

    def start(self) -> Memory:
        return ()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Uniform over the available actions."""
        return memory, uniform(timestep.available)


class EpsilonGreedy(Policy):
    """The inner policy, but each agent on its own acts at random with probability epsilon."""

    inner: Policy
    epsilon: Float[Array, ""]

    def start(self) -> Memory:
        """The inner policy's memory."""
        return self.inner.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Mix the inner policy with random play."""
        memory, probabilities = self.inner(memory, timestep)
        random = uniform(timestep.available)
        return memory, (1.0 - self.epsilon) * probabilities + self.epsilon * random


def uniform(available: Bool[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    """The same probability for every available action."""
    return available / available.sum(axis=-1, keepdims=True)


class RecurrentPolicy(Policy):
    """A team network at play: each agent takes its best available action, or draws by softmax."""

    network: TeamNetwork
    stochastic: bool = eqx.field(static=True, default=False)
    columns: Columns | None = None
    """How the network is shown observations (axes N O); None: as they are."""

    def start(self) -> Memory:
        """Empty memories."""
        return self.network.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Look, remember, and choose."""
        if self.columns is not None:
            timestep = timestep._replace(observation=self.columns(timestep.observation))
        memory, scores = self.network.step(memory, timestep)
        scores = mask_scores(scores, timestep.available)
        if self.stochastic:
            return memory, jax.nn.softmax(scores)
        return memory, jax.nn.one_hot(jnp.argmax(scores, axis=-1), scores.shape[-1])

    def save(self, path: str | Path) -> None:
        """Write the team as a file that `marco.load` reads, with numpy alone."""
        from marco.policies.export import save_policy

        save_policy(Path(path), self)
