"""The contract of every world: a Dec-POMDP as a pytree, with no hidden state and no auto-reset."""

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.sampling import draw
from marco.types import NO_ACTION, Spec, TimeStep

World = Any
"""The full state of an environment, with what its agents now see."""


class EnvironmentState(NamedTuple):
    """Where an episode stands."""

    world: Any
    time: Int[Array, ""]
    previous_actions: Int[Array, " N"]
    terminated: Bool[Array, ""]

    def over(self, horizon: int) -> Bool[Array, ""]:
        """Whether the episode has ended, by itself or by the clock."""
        return self.terminated | (self.time >= horizon)


class Transition(NamedTuple):
    """What one joint action does to the world."""

    world: Any
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]


class Environment(eqx.Module):
    """A Dec-POMDP. A world writes the six abstract parts; `reset` and `step` are the same for all.

    A true world holds static fields only, a learned one its weights as leaves. It is passed to compiled
    functions as an argument, never closed over, so that another world of the same shape costs no new
    compilation.
    """

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """The shape of the world."""

    @abstractmethod
    def initial(self, key: PRNGKeyArray) -> World:
        """Draw the start of an episode."""

    @abstractmethod
    def transition(self, key: PRNGKeyArray, world: World, actions: Int[Array, " N"]) -> Transition:
        """Draw what the joint action does: the next state, the team's reward, whether that is the end."""

    @abstractmethod
    def observe(self, world: World) -> Float[Array, "N O"]:
        """What each agent sees now."""

    @abstractmethod
    def available(self, world: World) -> Bool[Array, "N A"]:
        """Which actions each agent may take now."""

    @abstractmethod
    def central(self, world: World) -> Float[Array, " S"]:
        """The central state, Markov, as the columns that `spec.state` describes."""

    def reset(self, key: PRNGKeyArray) -> tuple[EnvironmentState, TimeStep]:
        """Begin an episode."""
        return self.begin(self.initial(key))

    def step(
        self, key: PRNGKeyArray, state: EnvironmentState, actions: Int[Array, " N"]
    ) -> tuple[EnvironmentState, TimeStep]:
        """Take one step. The true terminal state is shown; after the end nothing changes any more."""
        if actions.shape != (self.spec.num_agents,):
            raise ValueError(
                f"{self.spec.name} takes one action for each of its {self.spec.num_agents} agents, "
                f"got actions of the shape {actions.shape}."
            )
        return self.advance(state, actions, self.transition(key, state.world, actions))

    def begin(self, world: World) -> tuple[EnvironmentState, TimeStep]:
        """Put a drawn start into effect."""
        nobody_acted = jnp.full((self.spec.num_agents,), NO_ACTION, jnp.int32)
        state = EnvironmentState(world, jnp.int32(0), nobody_acted, jnp.bool_(False))
        return state, self._show(state, jnp.float32(0.0))

    def advance(
        self, state: EnvironmentState, actions: Int[Array, " N"], transition: Transition
    ) -> tuple[EnvironmentState, TimeStep]:
        """Put a drawn transition into effect: the clock, the ends, and the stillness after them."""
        moved = EnvironmentState(transition.world, state.time + 1, actions, transition.terminated)
        over = state.over(self.spec.horizon)
        after = jax.tree.map(lambda old, new: jnp.where(over, old, new), state, moved)
        return after, self._show(after, jnp.where(over, 0.0, transition.reward).astype(jnp.float32))

    def _show(self, state: EnvironmentState, reward: Float[Array, ""]) -> TimeStep:
        return TimeStep(
            observation=self.observe(state.world),
            state=self.central(state.world),
            available=self.available(state.world),
            previous_actions=state.previous_actions,
            reward=reward,
            terminated=state.terminated,
            truncated=~state.terminated & (state.time >= self.spec.horizon),
        )


class FiniteEnvironment(Environment):
    """A world whose chance can be enumerated: it draws one of finitely many outcomes at every step.

    That makes exact values, exact model errors and tables possible. What the agents see is a function of
    the outcome, so an observation drawn at random is part of it.
    """

    @abstractmethod
    def start_probabilities(self) -> Float[Array, " K"]:
        """The probabilities of the outcomes at the start."""

    @abstractmethod
    def start(self, outcome: Int[Array, ""]) -> World:
        """The start that an outcome leads to."""

    @abstractmethod
    def outcome_probabilities(self, world: World, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """The probabilities of the outcomes of a joint action."""

    @abstractmethod
    def successor(self, world: World, actions: Int[Array, " N"], outcome: Int[Array, ""]) -> Transition:
        """What an outcome of a joint action leads to."""

    def initial(self, key: PRNGKeyArray) -> World:
        """Draw the start of an episode."""
        return self.start(draw(key, self.start_probabilities()))

    def transition(self, key: PRNGKeyArray, world: World, actions: Int[Array, " N"]) -> Transition:
        """Draw one outcome of the joint action."""
        return self.successor(world, actions, draw(key, self.outcome_probabilities(world, actions)))


class WorldError(RuntimeError):
    """A world outside MARCO did what its own description rules out."""


@runtime_checkable
class HostWorld(Protocol):
    """A world outside JAX: a PettingZoo environment, a simulator, a robot. It keeps its own state."""

    @property
    def spec(self) -> Spec:
        """The shape of the world."""

    def reset(self, seed: int) -> TimeStep:
        """Begin an episode. Arrays are numpy's."""

    def step(self, actions: Int[np.ndarray, " N"]) -> TimeStep:
        """Take one real step."""
